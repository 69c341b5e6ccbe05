"""Random datasets, and their accounts in memory: the rules of the ledger without its
database.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.errors import BalanceMismatch
from app.ledger import admission
from app.ledger.admission import AskedAmount, Budgets, Population, Refused
from app.ledger.state import State
from app.ledger.tables import Entry, EntryKind
from grovekeeper_forests import amounts
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Cell, Scope
from grovekeeper_verifier import dataset_export
from tests.support.ledger_oracle import Names, Step

PLACES = 9


@dataclass(frozen=True)
class Declared:
    """The partitions of a dataset.

    Attributes:
        partitions: as the service knows them.
        cells: by partition, those that scopes are drawn from.
    """

    partitions: Partitions
    cells: Mapping[str, Sequence[Cell]]

    @property
    def names(self) -> Names:
        """The numbers of the cells for the checked functions."""
        return Names.of(self.partitions)

    @property
    def of_verifier(self) -> list[dataset_export.Partition]:
        """The partitions as the verifier knows them."""
        return [
            dataset_export.Partition(each.name, each.kind, each.known_cells)
            for each in self.partitions.declared
        ]

    def scope(self, chance: random.Random, density: float = 0.5) -> Scope:
        """A random scope, which restricts a partition with a probability."""
        restricted = [name for name in self.cells if chance.random() < density]
        return Scope(
            {
                name: chance.sample(
                    self.cells[name], chance.randint(1, len(self.cells[name]))
                )
                for name in restricted
            }
        )


def declared(
    chance: random.Random, *, n_partitions: int = 4, n_cells: int = 4
) -> Declared:
    """Random partitions of every kind, at most so many."""
    partitions: list[Partition] = []
    cells: dict[str, Sequence[Cell]] = {}
    kinds = ["hash", "column", "epoch"]
    for number in range(chance.randint(0, n_partitions)):
        name, kind = f"p{number}", chance.choice(kinds)
        if kind == "hash":
            partitions.append(HashPartition(name, chance.randint(1, n_cells)))
        elif kind == "column":
            listed = tuple("abcdef"[: chance.randint(1, n_cells - 1)])
            has_missing = chance.random() < 0.3
            partitions.append(ColumnPartition(name, name, True, listed, has_missing))
        else:
            kinds.remove("epoch")  # a dataset has one such partition
            partitions.append(EpochPartition(name, "by week"))
        known = partitions[-1].known_cells
        cells[name] = known or [f"ep_{upload}" for upload in range(n_cells)]
    return Declared(Partitions(tuple(partitions)), cells)


def entry_after(state: State, kind: EntryKind, amount: int, **fields: Any) -> Entry:
    """The next entry of an account."""
    others: dict[str, Any] = {
        "scope": {},
        "event": None,
        "job_id": None,
        "actor": "key",
    }
    return Entry(
        sequence=state.sequence + 1,
        kind=kind,
        amount=amount,
        at="2026-01-01T00:00:00.000000Z",
        previous_hash=state.hash,
        places=PLACES,
        **others | fields,
    ).sealed()


class MemoryAccount:
    """An account as the service keeps it: the fold of its entries.

    Attributes:
        state: after the entries so far.
    """

    def __init__(self, account_id: str, cap: int, facts: Mapping[str, Any]) -> None:
        self.state = State(account_id)
        self.write(EntryKind.OPEN, cap, details=dict(facts))

    def write(self, kind: EntryKind, amount: int, **fields: Any) -> None:
        """Writes an entry.

        Raises:
            BalanceMismatch: it cannot follow the entries before it.
        """
        entry = entry_after(self.state, kind, amount, **fields)
        self.state = self.state.advanced([entry])

    def take(self, step: Step) -> bool:
        """Writes a step that is no reservation, if the service does."""
        if step.kind == "cap" and not (self.state.cap or step.amount):
            return False  # the service closes an account once
        fields: dict[str, Any] = {}
        if step.job is not None:
            fields = {"scope": Scope(step.scope).to_json(), "job_id": step.job}
        if step.kind == "load":
            highest = amounts.from_steps(step.highest, PLACES)
            fields = {"details": {"continues": {"highest_cap": highest}}}
        try:
            self.write(EntryKind(step.kind), step.amount, **fields)
        except BalanceMismatch:
            return False
        return True


def dataset_account(account_id: str, dataset: Declared, cap: int) -> MemoryAccount:
    """An account of a dataset, as it is opened."""
    partitions = dataset.partitions.to_json()
    facts = {"dataset": account_id, "accountant": "pure", "partitions": partitions}
    return MemoryAccount(account_id, cap, facts)


def admitted(
    accounts: Sequence[MemoryAccount],
    populations: Sequence[Population],
    parts: Sequence[tuple[int, Step]],
) -> list[tuple[int, Step, int | None]] | None:
    """Reserves the parts of a job, each on one of the accounts, as the service does.

    Returns:
        The parts in the order in which they are written, each with the load that the
        population of its account then states; ``None`` if the job is refused.
    """
    budgets = {each.state.account_id: each.state.budget for each in accounts}
    asked = [
        AskedAmount(accounts[at].state.account_id, step.amount, Scope(step.scope))
        for at, step in parts
    ]
    decision = admission.admit(Budgets(budgets, populations), asked)
    if isinstance(decision, Refused):
        return None
    written = []
    for placed in decision:
        at, step = parts[placed.position]
        accounts[at].write(
            EntryKind.RESERVE,
            step.amount,
            scope=Scope(step.scope).to_json(),
            job_id=step.job,
        )
        load = None if placed.member is None else placed.member.load
        written.append((at, step, load))
    return written

"""Judges exports by the functions that the proofs are about.

The chain, the prices and the form of entries are the verifier's; here an entry is only
what it does to loads and caps.

The verifier is stricter about jobs, and the checked functions accept:

- a reservation of a job that has ended;
- two parts of a job that share a joint cell;
- parts of a job of which one is charged and another is given back.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.partitions import Partitions
from tests.support.ledger_oracle import Account, Names, Step, World

OPENING_LINE = 2
"""Of an export, after the header."""


class Verdict(NamedTuple):
    """The first line that cannot follow those before it, or ``None``; and the largest
    load before it, in steps.
    """

    line: int | None
    load: int


@dataclass(frozen=True)
class Dataset:
    """The export of a dataset, read.

    Attributes:
        id: of the dataset.
        names: of its cells and jobs.
        cap: at the opening, in steps.
        steps: the entries that change the account, by their sequence.
    """

    id: str
    names: Names
    cap: int
    steps: Mapping[int, Step]


def read(lines: Iterable[bytes]) -> Dataset:
    """Reads the export of a dataset. Amounts become steps of its unit."""
    header, opening, *entries = map(json.loads, lines)
    places = accountants.by_name(header["accountant"]).PLACES
    partitions = Partitions.from_json(header["partitions"])
    read_steps = dict(_steps(entries, places))
    cap = _amount(opening["amount"], places)
    return Dataset(header["dataset"], Names.of(partitions), cap, read_steps)


def verdict(lines: Iterable[bytes]) -> Verdict:
    """What the checked function says of the export of a dataset."""
    line, account = replayed(lines)
    return Verdict(line, account.load())


def replayed(lines: Iterable[bytes]) -> tuple[int | None, Account]:
    """The first line that cannot follow those before it, or ``None``, and the account
    before it.
    """
    dataset = read(lines)
    account = Account(dataset.names, dataset.cap)
    for sequence, step in dataset.steps.items():
        if not account.take(step):
            return sequence + 1, account
    return None, account


def judge_population(
    lines: Iterable[bytes], datasets: Iterable[Iterable[bytes]]
) -> World:
    """Takes the entries of a population and of its members as they were written.

    Asserts that each may follow those before it, and that a member carries what the
    population states.

    Args:
        lines: of the population's export.
        datasets: the exports of all members, also of those that were erased.
    """
    listed = [read(each) for each in datasets]
    header, opening, *entries = map(json.loads, lines)
    accountant = accountants.by_name(header["accountant"])
    places = accountant.PLACES
    cap = _amount(opening["amount"], places)
    members = [(each.names, each.cap) for each in listed]
    people = _People(listed, World(members, cap, accountant.NAME))
    for entry in entries:
        amount = _amount(entry["amount"], places)
        if entry["kind"] == "cap":
            people.take(("PopulationCap", amount), entry)
        elif entry["kind"] in ("join", "load"):
            at = people.follow(entry)
            assert people.world.carried(at) == amount, ("another load", entry)
    for at in range(len(listed)):
        people.advance(at, None)
    return people.world


class _People:
    """The members of a population, each after the entries that have been taken."""

    def __init__(self, datasets: list[Dataset], world: World) -> None:
        self.world = world
        self._number = {each.id: at for at, each in enumerate(datasets)}
        self._left = [dict(each.steps) for each in datasets]

    def take(self, act: tuple[Any, ...], entry: object) -> None:
        assert self.world.take(act), ("not admissible", entry)

    def follow(self, entry: Any) -> int:
        """Takes the entries of a member up to the one that the population names."""
        member = entry["details"]["member"]
        at = self._number[member["dataset"]]
        if "continues" in member:
            erased = self._number[member["continues"]]
            self.advance(erased, None)
            opening = self._left[at].pop(OPENING_LINE)
            self.take(("Continue", at, erased, opening.highest), entry)
        self.advance(at, member["sequence"])
        if entry["kind"] == "join" and "continues" not in member:
            self.take(("Join", at), entry)
        return at

    def advance(self, at: int, last: int | None) -> None:
        for sequence in list(self._left[at]):
            if last is None or sequence <= last:
                step = self._left[at].pop(sequence)
                self.take(("Own", at, step), (at, sequence, step))


def _steps(entries: Iterable[Any], places: int) -> Iterator[tuple[int, Step]]:
    uploads: list[str] = []
    for entry in entries:
        details = entry.get("details") or {}
        kind, amount = entry["kind"], _amount(entry["amount"], places)
        if kind == "state":
            continue
        if kind == "load":
            highest = _amount(details["continues"]["highest_cap"], places)
            yield entry["sequence"], Step(kind, amount, highest=highest)
            continue
        uploads += details.get("uploads", [])
        # A number stands for as many of the uploads that entries have named.
        scope = {
            name: uploads[:cells] if isinstance(cells, int) else cells
            for name, cells in entry["scope"].items()
        }
        yield entry["sequence"], Step(kind, amount, scope, entry["job_id"])


def _amount(text: str, places: int) -> int:
    return int(Fraction(text) * 10**places)

"""Shows how an account was spent: its charges with what the tightest cell had spent
after each, and pairs of cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.access import grants
from app.core import limits
from app.core.errors import InvalidRequest
from app.ledger import statements, tables
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.jobs.show_jobs import charged_jobs
from app.services.ledger.balances import cell_out
from app.wire.ledger import CellOut, ChargedJob
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_forests.privacy.scope import Cell, Scope


@dataclass(frozen=True)
class Charge:
    """One charge of an account.

    Attributes:
        amount: in the account's unit.
        job_id: of the job; ``None`` for a mechanism outside the service, which has a
            ``description``.
        by: the key that submitted the job, or that attested the external mechanism.
        by_name: the name of the key, for a reader who may know it.
        covers: whether the tightest cell lies in the scope, so that the charge is a
            step of the plot.
        total: what the tightest cell has charged after it.
    """

    sequence: int
    amount: str
    scope: JsonMapping
    job_id: str | None
    job: ChargedJob | None
    purpose: str | None
    label: str | None
    description: str | None
    by: str
    by_name: str | None
    at: str
    covers: bool
    total: str


@dataclass(frozen=True)
class Spend:
    """The newest charges of an account, oldest first.

    Attributes:
        charges: at most ``limits.MAX_SHOWN_CHARGES``.
        before: what the tightest cell had charged before the first of them.
        are_all: whether the account has no earlier charge.
    """

    charges: Sequence[Charge]
    before: str
    are_all: bool


def list_charges(
    installation: Installation, principal: grants.Principal, reference: str
) -> Spend:
    """Lists the newest charges of a dataset's account."""
    with installation.database.read() as session:
        dataset_id = authorized_dataset(
            session, principal, reference, grants.SEE_LEDGER
        ).id
        balance = statements.balance(session, dataset_id)
        size = statements.size(session, dataset_id)
        limit = limits.MAX_SHOWN_CHARGES
        chosen = statements.EntryFilter(kinds=[tables.EntryKind.CHARGE])
        entries = statements.newest_entries(
            session, dataset_id, before=size + 1, limit=limit + 1, chosen=chosen
        )
        level = statements.spent_after(
            session, dataset_id, balance.tightest_cell, size
        ).charged
        jobs = charged_jobs(session, [entry.job_id for entry in entries])
        # A job's charge is an act of the worker; the key that submitted the job asked
        # for it.
        asked_by = {key: job.submitted_by for key, job in jobs.items()}
        keys = {asked_by.get(entry.job_id or "", entry.actor) for entry in entries}
        names = grants.names_of_keys(session, principal, dataset_id, keys)
        charges = []
        uploads = statements.named_uploads(session, dataset_id)
        for entry in entries[:limit]:
            by = asked_by.get(entry.job_id or "", entry.actor)
            details = entry.details or {}
            covers = tables.listed(entry.scope, uploads).covers(balance.tightest_cell)
            charges.append(
                Charge(
                    sequence=entry.sequence,
                    amount=balance.text(entry.amount),
                    scope=entry.scope,
                    job_id=None if "attested_by" in details else entry.job_id,
                    job=jobs.get(entry.job_id or ""),
                    purpose=details.get("purpose"),
                    label=details.get("label"),
                    description=details.get("description"),
                    by=by,
                    by_name=names.get(by),
                    at=entry.at,
                    covers=covers,
                    total=balance.text(level),
                )
            )
            # backwards: the entries come newest first
            if covers:
                level -= entry.amount
        return Spend(
            charges[::-1], before=balance.text(level), are_all=len(entries) <= limit
        )


def show_pairs(
    installation: Installation,
    principal: grants.Principal,
    reference: str,
    *,
    first: str,
    second: str,
) -> list[tuple[Cell, list[CellOut]]]:
    """Shows the tightest joint cell in every pair of a cell of one partition and a cell
    of another.

    Returns:
        For every cell of the first partition, the pairs with every cell of the second
        partition.

    Raises:
        InvalidRequest: not two partitions of the dataset, or they have too many pairs.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, grants.SEE_BALANCE)
        detail = statements.detail(session, dataset.id)
        if first == second or not {first, second} <= set(detail.cells):
            raise InvalidRequest.at("/pair", "unknown-partition")
        n_pairs = len(detail.cells[first]) * len(detail.cells[second])
        if n_pairs > limits.MAX_SHOWN_PAIRS:
            raise InvalidRequest.at("/pair", "too-many")
        cells = {
            name: [cell.cell[name] for cell in detail.cells[name]]
            for name in (first, second)
        }
        shorter, longer = sorted(cells, key=lambda name: len(cells[name]))
        # few, because each box is a new computation
        boxes = [Scope({shorter: [cell]}) for cell in cells[shorter]]
        lines = [
            statements.detail(session, dataset.id, box, only=longer).cells[longer]
            for box in boxes
        ]
        rows = lines
        if shorter != first:
            # there may be no line: a partition by upload has no cell at first
            places = range(len(cells[first]))
            rows = [[line[place] for line in lines] for place in places]
        pairs: list[tuple[Cell, list[CellOut]]] = []
        for name, row in zip(cells[first], rows, strict=True):
            with_second = zip(cells[second], row, strict=True)
            shown = [cell_out(cell, pair, detail.balance) for cell, pair in with_second]
            pairs.append((name, shown))
        return pairs

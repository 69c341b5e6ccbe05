"""Public facts that the output of every kind of job carries: whose it is, its price, its guarantee, its receipt."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.core import ids
from app.datasets.catalog import Dataset
from app.jobs.tables import JobRow
from app.privacy import accountants, receipts
from app.privacy.events import Event
from app.privacy.guarantees import Output
from app.services.guarantees import of_charged


def of(
    session: Session, row: JobRow, dataset: Dataset, *, event: Event, output: Output, charged: int | None = None
) -> dict[str, Any]:
    """The facts of a job that is being charged.

    Args:
        session: of that transaction; the caps that it sees are those that the guarantee is made of.
        row: the job.
        dataset: whose rows it reads.
        event: what was priced.
        output: what the job releases.
        charged: what the job charges for one unit of this dataset, where that is more than its price.
    """
    own = on_account(session, dataset, price=row.price, event=event, output=output, charged=charged)
    ledger_entry = {"dataset": dataset.id, "reservation_id": row.reservation_id, "job_id": row.id}
    return {"job_id": row.id, "name": row.name, "ledger": ledger_entry, **own}


def identity(row: JobRow, *, prefix: str) -> dict[str, Any]:
    """What the row of every output says of its job, and an id of its own."""
    return {
        "id": ids.new(prefix),
        "name": row.name,
        "dataset_id": row.dataset_id,
        "dataset_name": row.dataset_name,
        "job_id": row.id,
        "created_at": row.submitted_at,  # public: the time of completion would tell how long the job took
    }


def on_account(
    session: Session, dataset: Dataset, *, price: dict[str, Any], event: Event, output: Output, charged: int | None
) -> dict[str, Any]:
    """The facts of a job on one of the accounts that pay for it; arguments as those of :func:`of`."""
    amount = steps_of(price) if charged is None else charged
    return {
        "dataset": dataset.id,
        "dataset_name": dataset.name,
        "price": price,
        "guarantee": of_charged(session, dataset, amount=amount, output=output),
        "receipt": receipts.in_words(
            event, accountant=price["accountant"], adjacency=dataset.adjacency, max_rows=dataset.max_rows
        ),
    }


def steps_of(price: Mapping[str, Any]) -> int:
    """The amount of a price in whole steps of its accountant's unit."""
    return int(Fraction(price["amount"]) * 10 ** accountants.by_name(price["accountant"]).PLACES)

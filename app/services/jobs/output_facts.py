"""Public facts that the output of every kind of job carries: whose it is, its price, its guarantee, its receipt."""

from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.core import ids
from app.datasets.catalog import Dataset
from app.jobs.tables import JobRow
from app.ledger import service as ledger
from app.ledger.limit import Limit
from app.privacy import receipts
from app.privacy.accountants import pure
from app.privacy.events import Event
from app.privacy.guarantees import Subject
from app.services.guarantees import guarantee_of


def of(
    session: Session, row: JobRow, dataset: Dataset, *, event: Event, subject: Subject, besides: int = 0
) -> dict[str, Any]:
    """The facts of a job that is being charged.

    Args:
        session: of that transaction; the caps that it sees are those that the guarantee is made of.
        row: the job.
        dataset: whose rows it reads.
        event: what was priced.
        subject: what the guarantee speaks of.
        besides: what the guarantee has to cover besides the price, in nano-ε: releases of the same dataset that the
            output is a function of; what another part of the job costs more, in other cells. Counts where losses just
            add up.
    """
    own = on_account(session, dataset, price=row.price, event=event, subject=subject, besides=besides)
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
    session: Session, dataset: Dataset, *, price: dict[str, Any], event: Event, subject: Subject, besides: int = 0
) -> dict[str, Any]:
    """The facts of a job on one of the accounts that pay for it; arguments as those of :func:`of`."""
    covered = _covered(session, dataset, price, besides=besides)
    return {
        "dataset": dataset.id,
        "dataset_name": dataset.name,
        "price": price,
        "guarantee": guarantee_of(dataset, covered, subject=subject),
        "receipt": receipts.in_words(
            event, accountant=covered.accountant, adjacency=dataset.adjacency, max_rows=dataset.max_rows
        ),
    }


def _covered(session: Session, dataset: Dataset, price: dict[str, Any], *, besides: int) -> Limit:
    """What the guarantee is made of: the job's own price where losses just add up, else the whole account's cap."""
    if price["accountant"] == pure.NAME:
        return Limit(pure.NAME, pure.price(Fraction(price["amount"])) + besides, None)
    return ledger.highest_cap(session, dataset.id)

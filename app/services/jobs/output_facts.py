"""Computes the public facts of every output: its job, and the price, guarantee and receipt of each part."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.core import stamps
from app.datasets import catalog
from app.jobs.tables import JobRow
from app.privacy import accountants, events, receipts
from app.privacy.guarantees import Output
from app.services.guarantees import of_charged


def of_job(session: Session, row: JobRow, *, output: Output) -> dict[str, Any]:
    """The facts of a job that is being charged, with the facts of its first part.

    Args:
        session: the session of the charging transaction; the guarantee follows from the caps in it.
        row: the job.
        output: what the job releases.
    """
    return {"job_id": row.id, "name": row.name, **of_part(session, row, 0, output=output)}


def of_part(session: Session, row: JobRow, position: int, *, output: Output) -> dict[str, Any]:
    """The facts of one part of a job, on the account that pays for it."""
    part, event = row.parts[position], events_of(row)[position]
    dataset = catalog.find(session, part.dataset)
    facts = {"dataset": dataset.id, "dataset_name": dataset.name, "price": part.price}
    accountant = part.price["accountant"]
    return {
        **facts,
        "guarantee": of_charged(session, dataset, amount=_charged(row, dataset.id), output=output),
        "receipt": receipts.in_words(
            events.from_json(event),
            accountant=accountant,
            adjacency=dataset.adjacency,
            max_rows=dataset.max_rows,
        ),
        "ledger": {"dataset": dataset.id, "reservation_id": part.reservation_id, "job_id": row.id},
    }


def events_of(row: JobRow) -> list[Any]:
    """The events of a job's plan, one per part, in JSON form."""
    plan = row.task["work"]["plan"]
    return [plan["event"], *([plan["unlabelled"]["event"]] if "unlabelled" in plan else [])]


def identity(row: JobRow, *, prefix: str) -> dict[str, Any]:
    """The columns of every output that name its job, and a new id."""
    return {
        "id": stamps.new(prefix),
        "name": row.name,
        "dataset_id": row.dataset_id,
        "dataset_name": row.dataset_name,
        "job_id": row.id,
        "created_at": row.submitted_at,  # public: the time of completion would reveal how long the job took
    }


def _charged(row: JobRow, dataset_id: str) -> int:
    """The steps that a job charges for one unit of a dataset: the largest price of its parts there.

    The scopes of two parts of one dataset are disjoint, so a row is in one part at most (docs/proofs/sspe-1.md).
    """
    return max(steps_of(part.price) for part in row.parts if part.dataset == dataset_id)


def steps_of(price: Mapping[str, Any]) -> int:
    """The amount of a price in whole steps of its accountant's unit."""
    return int(Fraction(price["amount"]) * 10 ** accountants.by_name(price["accountant"]).PLACES)

"""Stores, finds and lists released profiles. A profile is never removed, because plans and models refer to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.core.ids import is_reference
from app.registry.tables import ProfileRow

_SEARCHED = 50


def add(session: Session, row: ProfileRow) -> None:
    """Stores a released profile."""
    session.add(row)
    session.flush()


def find(session: Session, profile_id: str) -> ProfileRow:
    """Finds a profile by its id.

    Raises:
        NotFound: no such profile.
    """
    row = session.get(ProfileRow, profile_id) if is_reference(profile_id) else None
    if row is None:
        raise NotFound("profile")
    return row


def page(session: Session, *, dataset_id: str, before: str | None, limit: int) -> list[ProfileRow]:
    """A page of the profiles of one dataset, newest first.

    Raises:
        NotFound: ``before`` is not in the list.
    """
    query = (
        select(ProfileRow)
        .where(ProfileRow.dataset_id == dataset_id)
        .order_by(ProfileRow.created_at.desc(), ProfileRow.id.desc())
        .limit(limit)
    )
    if before is not None:
        last = session.execute(query.where(ProfileRow.id == before)).scalar_one_or_none()
        if last is None:
            raise NotFound("profile")
        query = query.where(tuple_(ProfileRow.created_at, ProfileRow.id) < (last.created_at, last.id))
    return list(session.execute(query).scalars())


def of_rows(session: Session, dataset_id: str, scope: Mapping[str, Any], epochs: Sequence[str]) -> ProfileRow | None:
    """The newest of the last profiles of a dataset that was released from exactly these cells and uploads, if any."""
    last = page(session, dataset_id=dataset_id, before=None, limit=_SEARCHED)
    return next((row for row in last if (row.body["scope"], row.body["epochs"]) == (scope, list(epochs))), None)


def of_job(session: Session, job_id: str) -> ProfileRow | None:
    """The profile that a job released, if any."""
    return session.execute(select(ProfileRow).where(ProfileRow.job_id == job_id)).scalar_one_or_none()

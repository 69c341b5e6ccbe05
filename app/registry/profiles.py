"""Stores, finds and lists released profiles. A profile is never removed, because plans and models refer to it."""

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.core.stamps import is_reference
from app.registry.tables import ProfileRow

_LAST = 50


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


def last_of_each(session: Session, dataset_ids: Collection[str]) -> dict[str, list[ProfileRow]]:
    """The last profiles of each of several datasets, newest first."""
    newest_first = (ProfileRow.created_at.desc(), ProfileRow.id.desc())
    place = func.row_number().over(partition_by=ProfileRow.dataset_id, order_by=newest_first)
    placed = select(ProfileRow.id, place.label("place")).where(ProfileRow.dataset_id.in_(dataset_ids)).subquery()
    query = select(ProfileRow).join(placed, placed.c.id == ProfileRow.id).where(placed.c.place <= _LAST)
    rows: dict[str, list[ProfileRow]] = defaultdict(list)
    for row in session.execute(query.order_by(*newest_first)).scalars():
        rows[row.dataset_id].append(row)
    return rows


def of_job(session: Session, job_id: str) -> ProfileRow | None:
    """The profile that a job released, if any."""
    return session.execute(select(ProfileRow).where(ProfileRow.job_id == job_id)).scalar_one_or_none()

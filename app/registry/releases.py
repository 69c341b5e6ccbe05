"""Stores, finds and lists released profiles and evaluations. None is ever removed.

Plans and models refer to profiles, and budget was spent on evaluations.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.db.base import find_row
from app.registry.tables import EvaluatedModelRow, EvaluationRow, ProfileRow

_LOADED_AT_ONCE = 4
_LAST = 50

Release = TypeVar("Release", ProfileRow, EvaluationRow)


def add_profile(session: Session, row: ProfileRow) -> None:
    """Stores a released profile."""
    session.add(row)
    session.flush()


def find_profile(session: Session, profile_id: str) -> ProfileRow:
    """Finds a profile by its id."""
    return find_row(session, ProfileRow, profile_id, kind="profile")


def page_of_profiles(session: Session, *, dataset_id: str, before: str | None, limit: int) -> Iterator[ProfileRow]:
    """Yields a page of the profiles of one dataset, newest first."""
    query = select(ProfileRow).where(ProfileRow.dataset_id == dataset_id)
    return _page(session, ProfileRow, query, before=before, limit=limit)


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


def add_evaluation(session: Session, row: EvaluationRow, model_ids: Sequence[str]) -> None:
    """Stores a released evaluation and links it to its models."""
    session.add(row)
    session.add_all(EvaluatedModelRow(evaluation_id=row.id, model_id=model_id) for model_id in model_ids)
    session.flush()


def find_evaluation(session: Session, evaluation_id: str) -> EvaluationRow:
    """Finds an evaluation by its id."""
    return find_row(session, EvaluationRow, evaluation_id, kind="evaluation")


def page_of_evaluations(
    session: Session, *, model_id: str, dataset_ids: Sequence[str] | None, before: str | None, limit: int
) -> Iterator[EvaluationRow]:
    """Yields a page of the evaluations of one model on the given datasets (``None``: all datasets), newest first."""
    query = select(EvaluationRow).join(EvaluatedModelRow, EvaluatedModelRow.evaluation_id == EvaluationRow.id)
    query = query.where(EvaluatedModelRow.model_id == model_id)
    if dataset_ids is not None:
        query = query.where(EvaluationRow.dataset_id.in_(dataset_ids))
    return _page(session, EvaluationRow, query, before=before, limit=limit)


def _page(
    session: Session, form: type[Release], query: Select[Release], *, before: str | None, limit: int
) -> Iterator[Release]:
    """Bodies can be large, so the database sends a few at a time: a caller that stops does not load the others."""
    if before is not None:
        last = session.execute(query.where(form.id == before)).scalar_one_or_none()
        if last is None:
            raise NotFound("place")
        query = query.where(tuple_(form.created_at, form.id) < (last.created_at, last.id))
    query = query.order_by(form.created_at.desc(), form.id.desc()).limit(limit)
    with session.execute(query.execution_options(yield_per=_LOADED_AT_ONCE)).scalars() as rows:
        yield from rows

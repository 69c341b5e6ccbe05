"""Stores, finds and lists what jobs released: models, profiles, evaluations,
statistics. Only models are ever removed.

The others stay: plans and models refer to profiles, and budget was spent on evaluations
and statistics.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from sqlalchemy import ColumnElement, Select, func, select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.core.stamps import is_reference
from app.registry.tables import EvaluatedModelRow, ReleaseRow
from grovekeeper_forests.releases import names

_LOADED_AT_ONCE = 4
_LAST = 50


def add(session: Session, row: ReleaseRow, *, evaluated: Sequence[str] = ()) -> None:
    """Stores a release, whose file is stored already if it has one, and links it to the
    models that it evaluates.
    """
    session.add(row)
    session.add_all(
        EvaluatedModelRow(evaluation_id=row.id, model_id=model_id)
        for model_id in evaluated
    )
    session.flush()


def find(
    session: Session, kind: str, release_id: str, *, lock: bool = False
) -> ReleaseRow:
    """Finds a release of a kind by its id; with ``lock``, it is not removed until the
    write transaction ends.
    """
    row = None
    if is_reference(release_id):
        query = select(ReleaseRow).where(
            ReleaseRow.id == release_id, ReleaseRow.kind == kind
        )
        if lock:
            query = query.with_for_update().execution_options(populate_existing=True)
        row = session.execute(query).scalar_one_or_none()
    if row is None:
        raise NotFound(names.IN_WORDS[kind])
    return row


def page_of_dataset(
    session: Session,
    kinds: Sequence[str],
    *,
    dataset_id: str,
    before: str | None,
    limit: int,
) -> Iterator[ReleaseRow]:
    """Yields a page of the releases of some kinds about one dataset, newest first."""
    query = select(ReleaseRow).where(
        ReleaseRow.kind.in_(kinds), ReleaseRow.dataset_id == dataset_id
    )
    return _page(session, query, before=before, limit=limit)


def last_profiles(
    session: Session, dataset_ids: Collection[str]
) -> Iterator[ReleaseRow]:
    """Yields the last profiles of each of several datasets, newest first; the database
    sends a few at a time.
    """
    newest_first = (ReleaseRow.created_at.desc(), ReleaseRow.id.desc())
    place = func.row_number().over(
        partition_by=ReleaseRow.dataset_id, order_by=newest_first
    )
    are_profiles = (
        ReleaseRow.kind == names.PROFILE,
        ReleaseRow.dataset_id.in_(dataset_ids),
    )
    placed = select(ReleaseRow.id, place.label("place")).where(*are_profiles).subquery()
    query = (
        select(ReleaseRow)
        .join(placed, placed.c.id == ReleaseRow.id)
        .where(placed.c.place <= _LAST)
    )
    return _in_parts(session, query.order_by(*newest_first))


def page_of_evaluations(
    session: Session,
    *,
    model_id: str,
    dataset_ids: Sequence[str] | None,
    before: str | None,
    limit: int,
) -> Iterator[ReleaseRow]:
    """Yields a page of the evaluations of one model on the given datasets (``None``:
    all datasets), newest first.
    """
    query = select(ReleaseRow).join(
        EvaluatedModelRow, EvaluatedModelRow.evaluation_id == ReleaseRow.id
    )
    query = query.where(*_evaluate([model_id], dataset_ids))
    return _page(session, query, before=before, limit=limit)


def last_evaluations(
    session: Session, model_ids: Sequence[str], dataset_ids: Sequence[str] | None
) -> dict[str, list[str]]:
    """The ids of the last evaluations of each of several models on the given datasets
    (``None``: all datasets), newest first.
    """
    model_id = EvaluatedModelRow.model_id
    newest_first = (ReleaseRow.created_at.desc(), ReleaseRow.id.desc())
    place = func.row_number().over(partition_by=model_id, order_by=newest_first)
    placed = (
        select(model_id, ReleaseRow.id, place.label("place"))
        .join(ReleaseRow, EvaluatedModelRow.evaluation_id == ReleaseRow.id)
        .where(*_evaluate(model_ids, dataset_ids))
        .subquery()
    )
    query = select(placed).where(placed.c.place <= _LAST)
    query = query.order_by(placed.c.place)
    ids = defaultdict(list)
    for row in session.execute(query):
        ids[row.model_id].append(row.id)
    return ids


def several_evaluations(
    session: Session, evaluation_ids: Collection[str]
) -> Iterator[ReleaseRow]:
    """Yields the evaluations with these ids; the database sends a few at a time."""
    query = select(ReleaseRow).where(
        ReleaseRow.kind == names.EVALUATION, ReleaseRow.id.in_(evaluation_ids)
    )
    return _in_parts(session, query)


def _evaluate(
    model_ids: Sequence[str], dataset_ids: Sequence[str] | None
) -> list[ColumnElement[bool]]:
    """The conditions on evaluations of some models on some datasets."""
    conditions = [
        EvaluatedModelRow.model_id.in_(model_ids),
        ReleaseRow.kind == names.EVALUATION,
    ]
    if dataset_ids is not None:
        conditions.append(ReleaseRow.dataset_id.in_(dataset_ids))
    return conditions


def _page(
    session: Session, query: Select[ReleaseRow], *, before: str | None, limit: int
) -> Iterator[ReleaseRow]:
    if before is not None:
        last = session.execute(
            query.where(ReleaseRow.id == before)
        ).scalar_one_or_none()
        if last is None:
            raise NotFound("place")
        query = query.where(
            tuple_(ReleaseRow.created_at, ReleaseRow.id) < (last.created_at, last.id)
        )
    query = query.order_by(ReleaseRow.created_at.desc(), ReleaseRow.id.desc()).limit(
        limit
    )
    yield from _in_parts(session, query)


def _in_parts(session: Session, query: Select[ReleaseRow]) -> Iterator[ReleaseRow]:
    """Bodies can be large, so the database sends a few at a time: a caller that stops
    does not load the others.
    """
    with session.scalars(query.execution_options(yield_per=_LOADED_AT_ONCE)) as rows:
        yield from rows

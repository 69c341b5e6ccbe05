"""Finds, lists and removes models, stores their aliases, and the facts of datasets that
model cards show.

An alias, such as ``bank@production``, belongs to a dataset and names one of its models.
Every move is a row, and the last one is in force.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, exists, func, or_, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from app.core.errors import ModelHasAlias, NotFound
from app.core.stamps import is_reference
from app.db.database import insert
from app.registry import releases
from app.registry.tables import (
    AliasMoveRow,
    DatasetPopulationRow,
    GuaranteeRow,
    ReleaseRow,
)
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.releases.names import MODEL

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)

_CURSOR = re.compile(r"([0-9]{1,16})\.(md_[A-Za-z0-9_-]+)", re.ASCII)
"""Microseconds since the epoch, which have sixteen digits until the year 2286, and the
model's id.
"""


@dataclass(frozen=True)
class ModelFilter:
    """The models to list: those of a dataset (id or name), of an algorithm, and those
    that an alias names.
    """

    dataset: str | None = None
    algorithm: str | None = None
    alias: str | None = None


ALL_MODELS = ModelFilter()


_IS_MODEL = ReleaseRow.kind == MODEL


def names(session: Session, model_ids: Sequence[str]) -> dict[str, str]:
    """The names of several models, by id; models that were deleted or have no name are
    left out.
    """
    query = select(ReleaseRow.id, ReleaseRow.name).where(_IS_MODEL)
    query = query.where(ReleaseRow.id.in_(model_ids), ReleaseRow.name.is_not(None))
    return {row.id: row.name for row in session.execute(query)}


def locked(session: Session, model_id: str) -> ReleaseRow:
    """Finds a model by its id and locks its row, so that it is not deleted while an
    alias begins to name it.
    """
    return releases.find(session, MODEL, model_id, lock=True)


def cursor(row: ReleaseRow) -> str:
    """The cursor of a model in the list of models, which stays valid when the model is
    removed.
    """
    return f"{(row.created_at - _EPOCH) // _TICK}.{row.id}"


def page(
    session: Session,
    *,
    dataset_ids: Sequence[str] | None,
    before: str | None,
    limit: int,
    matching: ModelFilter = ALL_MODELS,
) -> list[ReleaseRow]:
    """A page of the models of the given datasets (``None``: all datasets), newest
    first.

    Args:
        before: the :func:`cursor` of the last model of the page before.

    Raises:
        NotFound: ``before`` is not a cursor.
    """
    newest_first = (ReleaseRow.created_at.desc(), ReleaseRow.id.desc())
    query = select(ReleaseRow).where(_IS_MODEL).order_by(*newest_first).limit(limit)
    if dataset_ids is not None:
        query = query.where(ReleaseRow.dataset_id.in_(dataset_ids))
    if matching.algorithm is not None:
        query = query.where(ReleaseRow.algorithm == matching.algorithm)
    if matching.alias is not None:
        query = query.where(is_named_by(ReleaseRow.id, matching.alias))
    if before is not None:
        cursor_of_last = _CURSOR.fullmatch(before)
        if cursor_of_last is None:
            raise NotFound("place")
        ticks, model_id = cursor_of_last.groups()
        query = query.where(
            tuple_(ReleaseRow.created_at, ReleaseRow.id)
            < (_EPOCH + int(ticks) * _TICK, model_id)
        )
    return list(session.scalars(query))


def remove(session: Session, model_id: str) -> str:
    """Removes a model's row and returns the digest of its artifact.

    Raises:
        ModelHasAlias: an alias names the model.
    """
    row = locked(session, model_id)
    if addresses := addresses_of(session, [row.id]).get(row.id):
        raise ModelHasAlias(addresses)
    session.delete(row)
    session.flush()
    return row.file


def digests(session: Session) -> set[str]:
    """Digests of the files of all releases."""
    query = select(ReleaseRow.digest).where(ReleaseRow.digest.is_not(None))
    return set(map(str, session.scalars(query)))


def is_referenced(session: Session, digest: str) -> bool:
    """Whether a release has this file."""
    return (
        session.execute(
            select(ReleaseRow.id).where(ReleaseRow.digest == digest).limit(1)
        ).first()
        is not None
    )


def put_guarantee(session: Session, dataset_id: str, guarantee: JsonMapping) -> None:
    """Stores the guarantee of a dataset's account, in place of an earlier guarantee."""
    statement = insert(session, GuaranteeRow).values(
        dataset_id=dataset_id, guarantee=dict(guarantee)
    )
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["dataset_id"],
            set_={"guarantee": statement.excluded.guarantee},
        )
    )


def guarantee(session: Session, dataset_id: str) -> JsonObject | None:
    """The stored guarantee of a dataset's account, if any; otherwise a model's artifact
    states the guarantee.
    """
    row = session.get(GuaranteeRow, dataset_id)
    return None if row is None else row.guarantee


def put_population(session: Session, dataset_id: str, name: str) -> None:
    """Stores the population of a dataset; a dataset never leaves its population."""
    statement = insert(session, DatasetPopulationRow).values(
        dataset_id=dataset_id, population=name
    )
    session.execute(statement.on_conflict_do_nothing(index_elements=["dataset_id"]))


def population(session: Session, dataset_id: str) -> str | None:
    """The name of a dataset's population, if it has one."""
    row = session.get(DatasetPopulationRow, dataset_id)
    return None if row is None else row.population


_Later = aliased(AliasMoveRow)

_IS_LAST: ColumnElement[bool] = ~exists().where(
    _Later.dataset_id == AliasMoveRow.dataset_id,
    _Later.alias == AliasMoveRow.alias,
    _Later.number > AliasMoveRow.number,
)


def split_address(address: str) -> tuple[str, str] | None:
    """The dataset and the alias of an address ``dataset@alias``; ``None`` if the text
    is no such address.

    Neither an id nor a name contains ``@``, so no address is an id.
    """
    dataset, separator, alias = address.partition("@")
    if separator and is_reference(dataset) and is_reference(alias):
        return (dataset, alias)
    return None


def datasets_at(session: Session, dataset: str, alias: str) -> list[str]:
    """Ids of the datasets with this id or name that have or had an alias, the first one
    to have it first.

    Names of erased datasets are free for other datasets, so a name may stand for
    several.
    """
    query = (
        select(AliasMoveRow.dataset_id)
        .where(
            AliasMoveRow.alias == alias,
            AliasMoveRow.number == 1,
            or_(
                AliasMoveRow.dataset_id == dataset, AliasMoveRow.dataset_name == dataset
            ),
        )
        .order_by(
            AliasMoveRow.dataset_id != dataset,
            AliasMoveRow.moved_at,
            AliasMoveRow.dataset_id,
        )
    )
    return list(session.scalars(query))


def last_move(session: Session, dataset_id: str, alias: str) -> AliasMoveRow | None:
    """The last move of an alias, if it has ever existed."""
    moves = moves_of(session, dataset_id, alias, before=None, limit=1)
    return next(iter(moves), None)


def page_of_aliases(
    session: Session, dataset_id: str, *, after: str | None, limit: int
) -> list[AliasMoveRow]:
    """A page of the last moves of a dataset's aliases that name a model, in order of
    the aliases.

    Raises:
        NotFound: ``after`` is no alias, nor was one.
    """
    query = select(AliasMoveRow).where(
        AliasMoveRow.dataset_id == dataset_id,
        AliasMoveRow.model_id.is_not(None),
        _IS_LAST,
    )
    if after is not None:
        if last_move(session, dataset_id, after) is None:
            raise NotFound("alias")
        query = query.where(AliasMoveRow.alias > after)
    return list(session.scalars(query.order_by(AliasMoveRow.alias).limit(limit)))


def moves_of(
    session: Session, dataset_id: str, alias: str, *, before: int | None, limit: int
) -> list[AliasMoveRow]:
    """A page of the moves of an alias, newest first."""
    query = select(AliasMoveRow).where(
        AliasMoveRow.dataset_id == dataset_id, AliasMoveRow.alias == alias
    )
    if before is not None:
        query = query.where(AliasMoveRow.number < before)
    return list(
        session.scalars(query.order_by(AliasMoveRow.number.desc()).limit(limit))
    )


def addresses_of(session: Session, model_ids: Sequence[str]) -> dict[str, list[str]]:
    """The aliases that name each of several models, as addresses with the name of the
    dataset.
    """
    query = (
        select(AliasMoveRow)
        .where(AliasMoveRow.model_id.in_(model_ids), _IS_LAST)
        .order_by(AliasMoveRow.alias)
    )
    addresses = defaultdict(list)
    for row in session.scalars(query):
        addresses[str(row.model_id)].append(f"{row.dataset_name}@{row.alias}")
    return addresses


def is_named_by(
    model_id: InstrumentedAttribute[str], alias: str
) -> ColumnElement[bool]:
    """The condition that an alias of this text names a model."""
    return exists().where(
        AliasMoveRow.model_id == model_id, AliasMoveRow.alias == alias, _IS_LAST
    )


def n_aliases(session: Session, dataset_id: str) -> int:
    """The number of a dataset's aliases that name a model."""
    query = select(func.count()).where(
        AliasMoveRow.dataset_id == dataset_id,
        AliasMoveRow.model_id.is_not(None),
        _IS_LAST,
    )
    return session.execute(query).scalar_one()


def add_move(session: Session, move: AliasMoveRow) -> None:
    """Makes an alias name a model, or none. The caller has locked the dataset."""
    last = last_move(session, move.dataset_id, move.alias)
    move.number = 1 if last is None else last.number + 1
    session.add(move)
    session.flush()

"""Stores, finds, lists and removes models, and the facts of datasets that their model cards show."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import or_, select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import ModelHasAlias, NotFound
from app.core.stamps import is_reference
from app.db.database import insert
from app.registry import aliases
from app.registry.tables import DatasetPopulationRow, GuaranteeRow, ModelRow

_EPOCH, _TICK = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

_CURSOR = re.compile(r"([0-9]{1,16})\.([A-Za-z0-9_-]+)", re.ASCII)
"""Microseconds since the epoch, which have sixteen digits until the year 2286, and the model's id."""


@dataclass(frozen=True)
class ModelFilter:
    """The models to list: those of a dataset (id or name), of an algorithm, and those that an alias names."""

    dataset: str | None = None
    algorithm: str | None = None
    alias: str | None = None


ALL_MODELS = ModelFilter()


def add(session: Session, row: ModelRow) -> None:
    """Stores a model whose artifact is stored already."""
    session.add(row)
    session.flush()


def find(session: Session, model_id: str) -> ModelRow:
    """Finds a model by its id.

    Raises:
        NotFound: no such model.
    """
    row = session.get(ModelRow, model_id) if is_reference(model_id) else None
    if row is None:
        raise NotFound("model")
    return row


def names(session: Session, model_ids: Sequence[str]) -> dict[str, str]:
    """The names of several models, by id; models that were deleted or have no name are left out."""
    query = select(ModelRow.id, ModelRow.name).where(ModelRow.id.in_(model_ids), ModelRow.name.is_not(None))
    return {row.id: row.name for row in session.execute(query)}


def locked(session: Session, model_id: str) -> ModelRow:
    """Finds a model by its id and locks its row, so that it is not deleted while an alias begins to name it.

    Raises:
        NotFound: no such model.
    """
    row = session.execute(
        select(ModelRow).where(ModelRow.id == model_id).with_for_update().execution_options(populate_existing=True)
    ).scalar_one_or_none()
    if row is None:
        raise NotFound("model")
    return row


def cursor(row: ModelRow) -> str:
    """The cursor of a model in the list of models, which stays valid when the model is removed."""
    return f"{(row.created_at - _EPOCH) // _TICK}.{row.id}"


def page(
    session: Session,
    *,
    dataset_ids: Sequence[str] | None,
    before: str | None,
    limit: int,
    matching: ModelFilter = ALL_MODELS,
) -> list[ModelRow]:
    """A page of the models of the given datasets (``None``: all datasets), newest first.

    Args:
        matching: the models to list.
        before: the :func:`cursor` of the last model of the page before.

    Raises:
        NotFound: ``before`` is not a cursor.
    """
    query = select(ModelRow).order_by(ModelRow.created_at.desc(), ModelRow.id.desc()).limit(limit)
    if dataset_ids is not None:
        query = query.where(ModelRow.dataset_id.in_(dataset_ids))
    if matching.dataset is not None:
        query = query.where(or_(ModelRow.dataset_id == matching.dataset, ModelRow.dataset_name == matching.dataset))
    if matching.algorithm is not None:
        query = query.where(ModelRow.algorithm == matching.algorithm)
    if matching.alias is not None:
        query = query.where(aliases.names(ModelRow.id, matching.alias))
    if before is not None:
        query = query.where(tuple_(ModelRow.created_at, ModelRow.id) < _read_cursor(before))
    return list(session.execute(query).scalars())


def _read_cursor(text: str) -> tuple[datetime, str]:
    matched = _CURSOR.fullmatch(text)
    if matched is None:
        raise NotFound("place")
    ticks, model_id = matched.groups()
    return _EPOCH + int(ticks) * _TICK, model_id


def algorithms(session: Session, dataset_id: str) -> list[str]:
    """The algorithms of a dataset's models, in order of their names."""
    query = select(ModelRow.algorithm).where(ModelRow.dataset_id == dataset_id).distinct()
    return sorted(session.execute(query).scalars())


def remove(session: Session, model_id: str) -> str:
    """Removes a model's row and returns the digest of its artifact.

    Raises:
        NotFound: no such model.
        ModelHasAlias: an alias names the model.
    """
    row = locked(session, model_id)
    if addresses := aliases.of_models(session, [row.id]).get(row.id):
        raise ModelHasAlias(addresses)
    session.delete(row)
    session.flush()
    return row.digest


def digests(session: Session) -> set[str]:
    """Digests of the artifacts of all models."""
    return set(session.execute(select(ModelRow.digest)).scalars())


def is_referenced(session: Session, digest: str) -> bool:
    """Whether a model has this artifact."""
    return session.execute(select(ModelRow.id).where(ModelRow.digest == digest).limit(1)).first() is not None


def put_guarantee(session: Session, dataset_id: str, guarantee: Mapping[str, Any]) -> None:
    """Stores the guarantee of a dataset's account, in place of an earlier guarantee."""
    statement = insert(session, GuaranteeRow).values(dataset_id=dataset_id, guarantee=dict(guarantee))
    session.execute(
        statement.on_conflict_do_update(index_elements=["dataset_id"], set_={"guarantee": statement.excluded.guarantee})
    )


def guarantee(session: Session, dataset_id: str) -> dict[str, Any] | None:
    """The stored guarantee of a dataset's account, if any; otherwise a model's artifact states the guarantee."""
    row = session.get(GuaranteeRow, dataset_id)
    return None if row is None else row.guarantee


def put_population(session: Session, dataset_id: str, name: str) -> None:
    """Stores the population of a dataset; a dataset never leaves its population."""
    statement = insert(session, DatasetPopulationRow).values(dataset_id=dataset_id, population=name)
    session.execute(statement.on_conflict_do_nothing(index_elements=["dataset_id"]))


def population(session: Session, dataset_id: str) -> str | None:
    """The name of a dataset's population, if it has one."""
    row = session.get(DatasetPopulationRow, dataset_id)
    return None if row is None else row.population

"""Rows of models: add, find, list, remove; and what a whole dataset guarantees since its cap was changed."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.core.ids import is_reference
from app.db.upsert import insert
from app.registry.tables import DatasetPopulationRow, GuaranteeRow, ModelRow

_EPOCH, _TICK = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

_PLACE = re.compile(r"([0-9]{1,16})\.([A-Za-z0-9_-]+)", re.ASCII)
"""Microseconds since the epoch: sixteen digits last until the year 2286."""


def add(session: Session, row: ModelRow) -> None:
    """Registers a trained forest whose artifact is stored already."""
    session.add(row)
    session.flush()


def find(session: Session, model_id: str) -> ModelRow:
    """One model.

    Raises:
        NotFound: no such model.
    """
    row = session.get(ModelRow, model_id) if is_reference(model_id) else None
    if row is None:
        raise NotFound("model")
    return row


def place(row: ModelRow) -> str:
    """Where a model stands in a list. It stays a place when the model is gone: models are removed, unlike all else."""
    return f"{(row.created_at - _EPOCH) // _TICK}.{row.id}"


def page(session: Session, *, dataset_ids: Sequence[str] | None, before: str | None, limit: int) -> list[ModelRow]:
    """A page of models, newest first, of the given datasets (``None`` = all), from below a :func:`place`.

    Raises:
        NotFound: ``before`` is no place.
    """
    query = select(ModelRow).order_by(ModelRow.created_at.desc(), ModelRow.id.desc()).limit(limit)
    if dataset_ids is not None:
        query = query.where(ModelRow.dataset_id.in_(dataset_ids))
    if before is not None:
        query = query.where(tuple_(ModelRow.created_at, ModelRow.id) < _read_place(before))
    return list(session.execute(query).scalars())


def _read_place(text: str) -> tuple[datetime, str]:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise NotFound("place")
    ticks, model_id = found.groups()
    return _EPOCH + int(ticks) * _TICK, model_id


def remove(session: Session, model_id: str) -> str:
    """Removes a model's row and returns the digest of its artifact."""
    row = find(session, model_id)
    session.delete(row)
    session.flush()
    return row.digest


def digests(session: Session) -> set[str]:
    """Digests of all artifacts that some model needs."""
    return set(session.execute(select(ModelRow.digest)).scalars())


def is_referenced(session: Session, digest: str) -> bool:
    """Whether some model still needs the artifact."""
    return session.execute(select(ModelRow.id).where(ModelRow.digest == digest).limit(1)).first() is not None


def put_guarantee(session: Session, dataset_id: str, guarantee: Mapping[str, Any]) -> None:
    """Notes the guarantee of a dataset's account from here on, in place of what was noted before."""
    new = insert(session, GuaranteeRow).values(dataset_id=dataset_id, guarantee=dict(guarantee))
    session.execute(
        new.on_conflict_do_update(index_elements=["dataset_id"], set_={"guarantee": new.excluded.guarantee})
    )


def guarantee(session: Session, dataset_id: str) -> dict[str, Any] | None:
    """What was noted last, if anything: otherwise a model's artifact says it."""
    row = session.get(GuaranteeRow, dataset_id)
    return None if row is None else row.guarantee


def put_population(session: Session, dataset_id: str, name: str) -> None:
    """Notes the population that a dataset belongs to from here on, for good."""
    new = insert(session, DatasetPopulationRow).values(dataset_id=dataset_id, population=name)
    session.execute(new.on_conflict_do_nothing(index_elements=["dataset_id"]))


def population(session: Session, dataset_id: str) -> str | None:
    """The name of that population, if the dataset belongs to one."""
    row = session.get(DatasetPopulationRow, dataset_id)
    return None if row is None else row.population

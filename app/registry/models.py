"""Rows of models: add, find, list, remove."""

from collections.abc import Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.registry.tables import ModelRow


def add(session: Session, row: ModelRow) -> None:
    """Registers a trained forest whose artifact is stored already."""
    session.add(row)
    session.flush()


def find(session: Session, model_id: str) -> ModelRow:
    """One model.

    Raises:
        NotFound: no such model.
    """
    row = session.get(ModelRow, model_id)
    if row is None:
        raise NotFound("model")
    return row


def page(session: Session, *, dataset_ids: Sequence[str] | None, before: str | None, limit: int) -> list[ModelRow]:
    """A page of models, newest first, of the given datasets (``None`` = all)."""
    query = select(ModelRow).order_by(ModelRow.created_at.desc(), ModelRow.id.desc()).limit(limit)
    if dataset_ids is not None:
        query = query.where(ModelRow.dataset_id.in_(dataset_ids))
    if before is not None:
        last = find(session, before)
        query = query.where(tuple_(ModelRow.created_at, ModelRow.id) < (last.created_at, last.id))
    return list(session.execute(query).scalars())


def remove(session: Session, model_id: str) -> str:
    """Removes a model's row and returns the digest of its artifact."""
    row = find(session, model_id)
    session.delete(row)
    session.flush()
    return row.digest


def is_referenced(session: Session, digest: str) -> bool:
    """Whether some model still needs the artifact."""
    return session.execute(select(ModelRow.id).where(ModelRow.digest == digest).limit(1)).first() is not None

"""Stores, finds and lists released evaluations. An evaluation is never removed, because budget was spent on it."""

from collections.abc import Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from app.core.errors import NotFound
from app.core.stamps import is_reference
from app.registry.tables import EvaluatedModelRow, EvaluationRow


def add(session: Session, row: EvaluationRow, model_ids: Sequence[str]) -> None:
    """Stores a released evaluation and links it to its models."""
    session.add(row)
    session.add_all(EvaluatedModelRow(evaluation_id=row.id, model_id=model_id) for model_id in model_ids)
    session.flush()


def find(session: Session, evaluation_id: str) -> EvaluationRow:
    """Finds an evaluation by its id.

    Raises:
        NotFound: no such evaluation.
    """
    row = session.get(EvaluationRow, evaluation_id) if is_reference(evaluation_id) else None
    if row is None:
        raise NotFound("evaluation")
    return row


def page(
    session: Session, *, model_id: str, dataset_ids: Sequence[str] | None, before: str | None, limit: int
) -> list[EvaluationRow]:
    """A page of the evaluations of one model on the given datasets (``None``: all datasets), newest first.

    Raises:
        NotFound: ``before`` is not in the list.
    """
    query = (
        select(EvaluationRow)
        .join(EvaluatedModelRow, EvaluatedModelRow.evaluation_id == EvaluationRow.id)
        .where(EvaluatedModelRow.model_id == model_id)
        .order_by(EvaluationRow.created_at.desc(), EvaluationRow.id.desc())
        .limit(limit)
    )
    if dataset_ids is not None:
        query = query.where(EvaluationRow.dataset_id.in_(dataset_ids))
    if before is not None:
        last = session.execute(query.where(EvaluationRow.id == before)).scalar_one_or_none()
        if last is None:
            raise NotFound("evaluation")
        query = query.where(tuple_(EvaluationRow.created_at, EvaluationRow.id) < (last.created_at, last.id))
    return list(session.execute(query).scalars())


def of_job(session: Session, job_id: str) -> EvaluationRow | None:
    """The evaluation that a job released, if any."""
    return session.execute(select(EvaluationRow).where(EvaluationRow.job_id == job_id)).scalar_one_or_none()

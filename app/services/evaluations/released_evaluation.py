"""Defines the evaluation kind of job: public facts, check and registration of an evaluation."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.core import stamps
from app.forests.evaluation.price import EvaluationInvalid
from app.forests.evaluation.read import Evaluation
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import EvaluationRow
from app.services.installation import Installation
from app.services.jobs import output_facts
from app.services.jobs.kind import OutputInvalid
from app.services.jobs.task import JobTask


@dataclass(frozen=True)
class ReleasedEvaluation:
    """An evaluation before its registration. An evaluation has no file, so a lost job leaves nothing to remove."""

    job_id: str
    body: dict[str, Any]

    def register(self, session: Session, row: JobRow) -> None:
        """See :class:`app.services.jobs.kind.Output`."""
        released = EvaluationRow(**output_facts.identity(row, prefix=stamps.EVALUATION), body=self.body)
        releases.add_evaluation(session, released, self.body["models"])
        row.evaluation_id = released.id

    def is_registered(self, session: Session) -> bool:
        """See :class:`app.services.jobs.kind.Output`."""
        return releases.evaluation_of_job(session, self.job_id) is not None

    def discard(self, installation: Installation) -> None:
        """See :class:`app.services.jobs.kind.Output`: an evaluation has no file to remove."""


class EvaluationKind:
    """Jobs that count a model's answers or choose the best of several models."""

    def inputs(self, row: JobRow) -> Sequence[str]:
        """See :class:`app.services.jobs.kind.JobKind`: the models' artifacts."""
        return [model["digest"] for model in row.task["work"]["models"]]

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The facts that are shown with the released numbers."""
        work, [part] = row.task["work"], row.parts
        return {
            **output_facts.of_job(session, row, output="evaluation"),
            "models": [model["id"] for model in work["models"]],
            "classes": work["classes"],
            "warnings": work["warnings"],
            "scope": part.scope,
            "epochs": part.epochs,
        }

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> ReleasedEvaluation:
        """See :class:`app.services.jobs.kind.JobKind`."""
        try:
            released = Evaluation.from_json(json.loads(data))
        except (EvaluationInvalid, ValueError):
            raise OutputInvalid from None
        return ReleasedEvaluation(task.job_id, {**task.metadata, "evaluation": released.to_json()})

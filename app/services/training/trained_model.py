"""Defines the training kind of job: model card, check of the artifact and registration of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.core import stamps
from app.datasets import catalog
from app.forests import artifacts
from app.jobs.tables import JobRow
from app.privacy import guarantees
from app.registry import models, releases
from app.registry.tables import ModelRow, ProfileRow
from app.services.installation import Installation
from app.services.jobs import output_facts
from app.services.jobs.kind import OutputInvalid
from app.services.jobs.task import JobTask


@dataclass(frozen=True)
class StoredArtifact:
    """A stored artifact before its model is registered. Its bytes hold the job's id, so no two jobs share it."""

    digest: str
    size_bytes: int

    def register(self, session: Session, row: JobRow) -> None:
        """See :class:`app.services.jobs.kind.Output`."""
        model = ModelRow(
            **output_facts.identity(row, prefix=stamps.MODEL),
            algorithm=row.algorithm,
            digest=self.digest,
            size_bytes=self.size_bytes,
        )
        models.add(session, model)
        row.model_id = model.id

    def is_registered(self, session: Session) -> bool:
        """See :class:`app.services.jobs.kind.Output`."""
        return models.is_referenced(session, self.digest)

    def discard(self, installation: Installation) -> None:
        """See :class:`app.services.jobs.kind.Output`."""
        installation.store.remove(self.digest)


class TrainKind:
    """Jobs that grow a forest and register a model."""

    def inputs(self, row: JobRow) -> Sequence[str]:
        """See :class:`app.services.jobs.kind.JobKind`: none."""
        return ()

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The facts of the model card, bound into the artifact's own bytes."""
        profile, part = _profile(session, row), row.parts[0]
        dataset, scope = catalog.find(session, part.dataset), {name: tuple(cells) for name, cells in part.scope.items()}
        facts = {
            **output_facts.of_job(session, row, output="model"),
            "profile_id": None if profile is None else profile.id,
            "scope": part.scope,
            "expected_rows": dataset.expected_rows(scope, n_epochs=len(catalog.upload_ids(session, dataset.id))),
        }
        if len(row.parts) > 1:
            labelled, unlabelled = row.parts
            is_one_dataset = labelled.dataset == unlabelled.dataset
            facts["unlabelled"] = {
                **output_facts.of_part(session, row, 1, output="model"),
                "persons_in_both": guarantees.of_two_parts(is_one_dataset=is_one_dataset),
            }
        return facts

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> StoredArtifact:
        """See :class:`app.services.jobs.kind.JobKind`."""
        try:
            artifacts.loads(data)
        except artifacts.ArtifactInvalid:
            raise OutputInvalid from None
        return StoredArtifact(installation.store.put(data), len(data))


def _profile(session: Session, row: JobRow) -> ProfileRow | None:
    """The profile that the model is a function of, if its request named one.

    A profile of the job's dataset counts even if the plan carries none of its numbers, because the number of trees may
    follow from the profile's size. The size of another dataset is not used.
    """
    work = row.task["work"]
    if "profile" not in work:
        return None
    profile = releases.find_profile(session, work["profile"])
    return profile if "profile" in work["plan"] or profile.dataset_id == row.dataset_id else None

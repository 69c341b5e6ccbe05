"""Jobs that train: what a model carries, and how its artifact becomes a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.core import ids
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.forests import artifacts
from app.jobs.tables import JobRow
from app.privacy import events
from app.privacy.events import Event
from app.registry import models, profiles
from app.registry.tables import ModelRow, ProfileRow
from app.services.installation import Installation
from app.services.jobs import output_facts
from app.services.jobs.kind import OutputInvalid
from app.services.jobs.task import JobTask
from app.services.training.second_dataset import persons_in_both


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact in the store that no model refers to yet. Its bytes hold the job's id, so no other job shares it."""

    digest: str
    size_bytes: int

    def register(self, session: Session, row: JobRow) -> None:
        """See ``job_kind.Output``."""
        model = ModelRow(
            **output_facts.identity(row, prefix=ids.MODEL),
            algorithm=row.algorithm,
            digest=self.digest,
            size_bytes=self.size_bytes,
        )
        models.add(session, model)
        row.model_id = model.id

    def is_registered(self, session: Session) -> bool:
        """See ``job_kind.Output``."""
        return models.is_referenced(session, self.digest)

    def discard(self, installation: Installation) -> None:
        """See ``job_kind.Output``."""
        installation.store.remove(self.digest)


def _on_unlabelled(session: Session, row: JobRow, part: Mapping[str, Any], *, event: Event) -> dict[str, Any]:
    """The same of the second dataset, and what holds for a person who is in both."""
    other = catalog.find(session, part["dataset"])
    return {
        **output_facts.on_account(
            session, other, price=part["price"], event=event, output="model", charged=_charged(row, other)
        ),
        "ledger": {"dataset": other.id, "reservation_id": part["reservation_id"], "job_id": row.id},
        "persons_in_both": persons_in_both(row.dataset_id, other.id),
    }


class TrainKind:
    """Grows a forest; makes a model."""

    def inputs(self, row: JobRow) -> Sequence[str]:
        """See ``job_kind.JobKind``: none."""
        return ()

    def public_facts(self, session: Session, row: JobRow, dataset: Dataset) -> dict[str, Any]:
        """What the model card will show, bound into the artifact's own bytes."""
        plan = row.task["work"]["plan"]
        event = events.from_json(plan["event"])
        profile = _profile(session, row.task["work"], dataset)
        also = row.task.get("unlabelled")
        facts = {
            **output_facts.of(session, row, dataset, event=event, output="model", charged=_charged(row, dataset)),
            "profile_id": None if profile is None else profile.id,
        }
        if also is not None:
            event = events.from_json(plan["unlabelled"]["event"])
            facts["unlabelled"] = _on_unlabelled(session, row, also, event=event)
        return facts

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> StoredArtifact:
        """See ``job_kind.JobKind``."""
        try:
            artifacts.loads(data)
        except artifacts.ArtifactInvalid:
            raise OutputInvalid from None
        return StoredArtifact(installation.store.put(data), len(data))


def _profile(session: Session, work: dict[str, Any], dataset: Dataset) -> ProfileRow | None:
    """The profile that the model is a function of, if its request named one.

    Of the same dataset also where the plan carries none of it: sizes that were not asked for may follow from the
    profile's. The size of another dataset says nothing.
    """
    if "profile" not in work:
        return None
    row = profiles.find(session, work["profile"])
    return row if "profile" in work["plan"] or row.dataset_id == dataset.id else None


def _charged(row: JobRow, dataset: Dataset) -> int:
    """What a job charges for one unit of a dataset: the larger price where both parts are of the same one.

    Their cells are disjoint, so a row is in one part at most (docs/proofs/sspe-1.md).
    """
    also = row.task.get("unlabelled")
    parts = [(row.dataset_id, row.price), *([] if also is None else [(also["dataset"], also["price"])])]
    return max(output_facts.steps_of(price) for dataset_id, price in parts if dataset_id == dataset.id)

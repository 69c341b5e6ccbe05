"""Extends a scene by a second dataset, for jobs that two accounts pay for."""

import json
from dataclasses import dataclass, replace

from app.access.idempotency import IdempotentRequest
from app.datasets import catalog
from app.services.datasets.declare import register_dataset
from app.wire.datasets import DatasetIn
from app.wire.training import TrainIn
from tests.support.asking import submit_training
from tests.support.crash_scene import OWNER, Scene


@dataclass(frozen=True)
class Pair:
    """Two scenes on one installation, with equal declarations and rows."""

    first: Scene
    second: Scene

    @classmethod
    def beside(cls, first: Scene, *, name: str = "register") -> "Pair":
        """A pair of a scene and a scene of a new dataset with the same declaration."""
        with first.installation.database.read() as session:
            row = catalog.find(session, first.dataset_id).row
        declaration = DatasetIn.model_validate(
            {
                "name": name,
                "schema": row.schema,
                "budget": {"accountant": "pure", "epsilon": "3"},
                "partitions": row.partitions,
            }
        )
        answer = register_dataset(first.installation, OWNER, declaration, request=None)
        second = replace(first, dataset_id=str(json.loads(answer.body)["id"]))
        second.upload()
        return cls(first, second)

    @property
    def swapped(self) -> "Pair":
        """The pair with the roles of its scenes swapped."""
        return Pair(self.second, self.first)

    def submit(
        self, *, key: str, epsilon: str = "0.01", of_second: str = "0.02"
    ) -> str:
        """Submits a job that counts rows of the first and splits by rows of the second
        dataset; returns its id.
        """
        body = TrainIn.model_validate(
            {
                "dataset": self.first.dataset_id,
                "algorithm": "sspe-1",
                "epsilon": epsilon,
                "parameters": {"n_estimators": 2, "max_depth": 2},
                "unlabelled": {"dataset": self.second.dataset_id, "epsilon": of_second},
            }
        )
        request = IdempotentRequest(
            OWNER.key_id, "POST /train", key, key.encode().ljust(32, b".")
        )
        answer = submit_training(self.first.installation, OWNER, body, request=request)
        return str(json.loads(answer.body)["job_id"])

    def kinds_of(self, job_id: str) -> tuple[list[str], list[str]]:
        """The kinds of a job's entries in both accounts."""
        return self.first.kinds_of(job_id), self.second.kinds_of(job_id)

    def verify(self) -> None:
        """Checks the history of both accounts."""
        self.first.verified()
        self.second.verified()

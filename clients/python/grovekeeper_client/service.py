"""Connects to a service and gives its datasets, jobs and models as objects."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

from grovekeeper_client.client import Client
from grovekeeper_client.datasets import Dataset
from grovekeeper_client.jobs import Job
from grovekeeper_client.models import Evaluation, Model, evaluation_of, model_of
from grovekeeper_client.settings import key_of, url_of
from grovekeeper_client.statistics import Statistics, statistics_of
from grovekeeper_client.views import Records
from grovekeeper_common.json_types import JsonObject

Output: TypeAlias = Model | Evaluation | Statistics | JsonObject
"""What a job makes; of a profile, the answer of ``GET /profiles/{id}``."""

_OUTPUTS: Mapping[str, Callable[[Client, Any], Output]] = {
    "profile": lambda client, job: client.profile(job["profile_id"]),
    "evaluation": evaluation_of,
    "statistics": statistics_of,
}
"""What makes the output of a job that trains no model, by the job's kind."""


class Grovekeeper:
    """A connection to one service with one key.

    The address and the key come from the arguments or, as for the command line, from
    ``GROVEKEEPER_URL``, ``GROVEKEEPER_API_KEY``, ``GROVEKEEPER_API_KEY_FILE`` and the
    admin key of this machine's home. A connection can be copied and pickled; a pickle
    holds no key, so that the key is read from the environment again.

    Args:
        url: address of the service.
        key: ``<id>.<secret>``.

    Raises:
        NoKey: no key is given or configured.
        ValueError: the address or the key does not have the form of one.
    """

    def __init__(self, url: str | None = None, key: str | None = None) -> None:
        self.client = Client(url or url_of(os.environ), key or key_of(os.environ))

    def __repr__(self) -> str:
        return f"Grovekeeper({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Address of the service."""
        return self.client.url

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()

    def dataset(self, name: str) -> Dataset:
        """A dataset, by name or id."""
        return Dataset(self.client, self.client.dataset(name))

    def datasets(self, **filters: str | None) -> Iterator[Dataset]:
        """The datasets that the key may see; of a ``name``, a ``population`` or a
        ``role``.
        """
        found = self.client.datasets(**filters)
        return (Dataset(self.client, facts) for facts in found)

    def declare(self, declaration: Mapping[str, object]) -> Dataset:
        """Declares a dataset, as its owner, from the body of ``POST /datasets``."""
        return Dataset(self.client, self.client.declare_dataset(dict(declaration)))

    def model(self, model_id: str) -> Model:
        """A model, by id or by alias, such as ``bank@production``."""
        return Model(self.client, self.client.model(model_id))

    def models(self, **filters: str | None) -> Records:
        """The models that the key may see, newest first. The frame has columns for the
        ε that was requested, and for the newest released accuracy, a share, with its
        95 % interval; of models that predict a number, for the mean absolute error.

        Args:
            filters: ``dataset``, ``algorithm`` and ``alias``.
        """
        return _models(self.client.models(**filters))

    def compare(self, *models: str | Model) -> Records:
        """Two models or more side by side, as objects, by id or by alias: the columns of
        :meth:`models`, ``parameters`` that differ, ``features`` with their importances,
        and ``receipt``. No number is computed from rows.
        """
        ids = [it.id if isinstance(it, Model) else it for it in models]
        return _models(self.client.compare_models(*ids)["models"])

    def jobs(self, **filters: str | None) -> Records:
        """The jobs that the key may see, newest first.

        Args:
            filters: ``dataset``, ``kind``, ``algorithm``, ``state`` and
                ``submitted_by``, a key by id or name.
        """
        columns = ("id", "what", "name", "dataset_name", "state", "submitted_at")
        return Records(self.client.jobs(**filters), columns=columns)

    def algorithms(self) -> Records:
        """The algorithms, with their parameters, sources and measured accuracies."""
        columns = ("slug", "title", "source")
        return Records(self.client.algorithms(), columns=columns)

    def statistics(self, statistics_id: str) -> Statistics:
        """Released statistics, by id."""
        return Statistics(self.client.statistics(statistics_id))

    def job(self, job_id: str) -> Job[Output]:
        """A job, by id, also of another session."""
        kind = self.client.job(job_id)["kind"]
        output = _OUTPUTS.get(kind, model_of)
        return Job(self.client, job_id, partial(output, self.client))


def _models(items: Iterable[JsonObject]) -> Records:
    """Models with their ε and newest released accuracy or error as columns."""
    inner = {
        "epsilon": ("price", "epsilon"),
        "accuracy": ("accuracy", "estimate"),
        "accuracy_low": ("accuracy", "interval", "low"),
        "accuracy_high": ("accuracy", "interval", "high"),
        "mae": ("error", "estimate"),
        "mae_low": ("error", "interval", "low"),
        "mae_high": ("error", "interval", "high"),
    }
    named = ("id", "name", "aliases", "dataset_name", "label", "algorithm", "scope")
    return Records(items, columns=(*named, "n_leaves", *inner), inner=inner)

"""Collects the metrics of an API process.

Counts are those of this process since its start; facts about the installation are read from its database, so every
process states the same. No metric depends on a row: there are no durations of jobs, sizes of uploads, running jobs, and
none of the process metrics that the library offers (processor time, memory), because uploads use both. Workers say at
fixed times that they live, whether they run a job or not.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from prometheus_client import core, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from app.api.problems import INTERNAL, PROBLEMS
from app.core import limits
from app.core.errors import GrovekeeperError
from app.core.logging import Tally
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from app.services.observed import Observed, observe

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_FAMILIES = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}


class Metric(NamedTuple):
    """A metric with its time series.

    Attributes:
        kind: whether it only grows.
        name: without the prefix of the service.
        meaning: for people.
        labels: names of the labels.
        numbers: by the values of the labels, in their order.
    """

    kind: Literal["counter", "gauge"]
    name: str
    meaning: str
    labels: tuple[str, ...]
    numbers: Mapping[Any, int]


class Answered(NamedTuple):
    """What is counted of a request: public facts that bound the number of time series.

    Attributes:
        method: a method that the service has, else ``OTHER``.
        route: the template of the path, with names in place of ids; empty if no route was reached.
        status: of the answer; 0 if the client went away before it.
    """

    method: str
    route: str
    status: int


class Metrics:
    """The metrics of one process."""

    def __init__(self, installation: Installation, heads: Heads) -> None:
        self.requests: Tally[Answered] = Tally()
        self._installation = installation
        self._heads = heads
        self._lock = threading.Lock()
        self._observed: Observed | None = None
        self._observed_at = 0.0

    def collect(self) -> Iterator[Metric]:
        """Yields every metric."""
        yield Metric("counter", "requests", "Answered requests", ("method", "route", "status"), self._requests())
        yield Metric(
            "counter", "admissions", "Requests that spend budget, by outcome", ("outcome",), self._admissions()
        )
        errors = {(kind,): number for kind, number in self._installation.database.errors.counts().items()}
        yield Metric(
            "counter", "database_errors", "Transactions that the database ended with an error", ("kind",), errors
        )
        observed = self._observe()
        states = {(state.value,): number for state, number in observed.jobs.items()}
        yield Metric("gauge", "jobs", "Jobs in the queue, and jobs that wait for an approval", ("state",), states)
        wait_s = {(): observed.longest_wait_s}
        yield Metric("gauge", "longest_wait_seconds", "Seconds that the first job of the queue has waited", (), wait_s)
        yield Metric("gauge", "workers", "Worker processes that live", (), {(): observed.workers})
        failed = {(reason.value,): number for reason, number in observed.failed.items()}
        yield Metric("gauge", "failed_jobs", "Jobs that failed, by reason", ("reason",), failed)
        yield Metric("gauge", "deliveries", "Events that webhooks wait for", (), {(): observed.deliveries})
        yield Metric("gauge", "accounts", "Accounts in the ledger", (), {(): observed.accounts})
        near_cap = {(f"{float(share):g}",): number for share, number in observed.near_cap.items()}
        yield Metric(
            "gauge", "accounts_near_cap", "Accounts with at least this share of the cap spent", ("share",), near_cap
        )
        behind = {(): observed.heads_behind}
        yield Metric(
            "gauge", "heads_behind", "Accounts whose newest entries are in no head outside the database", (), behind
        )

    def _requests(self) -> dict[tuple[str, ...], int]:
        return {(it.method, it.route, str(it.status)): number for it, number in self.requests.counts().items()}

    def _admissions(self) -> dict[tuple[str, ...], int]:
        numbers: dict[tuple[str, ...], int] = {}
        for outcome, number in self._installation.admissions.counts().items():
            labels = (_outcome(outcome),)
            numbers[labels] = numbers.get(labels, 0) + number
        return numbers

    def _observe(self) -> Observed:
        """The facts of the installation, at most ``limits.METRICS_AGE_S`` seconds old: to read them costs time."""
        with self._lock:
            if self._observed is None or time.monotonic() - self._observed_at >= limits.METRICS_AGE_S:
                self._observed = observe(self._installation, self._heads)
                self._observed_at = time.monotonic()
            return self._observed


def _outcome(outcome: bool | type[GrovekeeperError]) -> str:
    """``admitted``, ``repeated``, or the slug of a problem."""
    if isinstance(outcome, bool):
        return "admitted" if outcome else "repeated"
    return next((PROBLEMS[kind] for kind in outcome.__mro__ if kind in PROBLEMS), INTERNAL).slug


def text_of(metrics: Iterable[Metric]) -> bytes:
    """Metrics in the text format of Prometheus, in their order."""
    return generate_latest(_Listed(metrics))


class _Listed(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[core.Metric]:
        for metric in self._metrics:
            family = _FAMILIES[metric.kind](f"grovekeeper_{metric.name}", metric.meaning, labels=metric.labels)
            for values, number in sorted(metric.numbers.items()):
                family.add_metric(values, number)
            yield family

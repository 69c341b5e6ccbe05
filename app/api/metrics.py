"""Collects the metrics of an API process.

Counts are those of this process since its start; facts about the installation are read
from its database, so every process states the same. No metric depends on a stored row:
there are no durations of jobs, sizes of uploads, running jobs, and none of the process
metrics that the library offers (processor time, memory), because uploads use both.
Workers say at fixed times that they live, whether they run a job or not.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Any

from prometheus_client import core, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from app.api.problems import INTERNAL, PROBLEMS
from app.core import limits, stamps
from app.core.logging import Durations, Tally
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from app.services.observed import Observed, observe
from grovekeeper_forests.errors import GrovekeeperError

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics(Collector):
    """The metrics of one process.

    Attributes:
        requests: answered requests by public facts that bound the number of time
            series: the method (``OTHER`` for one that the service does not have), the
            route's template (empty if no route was reached), and the status (``0`` if
            the client went away before the answer).
        durations: of predictions and of requests that spend budget, from their head to
            the end of the answer, without those that were refused or failed.
    """

    def __init__(self, installation: Installation, heads: Heads) -> None:
        self.requests: Tally[tuple[str, str, str]] = Tally()
        self.durations = Durations()
        self._installation = installation
        self._heads = heads
        self._lock = threading.Lock()
        self._observed: Observed | None = None
        self._observed_at = 0.0

    def text(self) -> bytes:
        """Every metric in the text format of Prometheus."""
        return generate_latest(self)

    def collect(self) -> Iterator[core.Metric]:
        """Yields every metric, in the order of the text."""
        yield from self._of_process()
        yield from _of_installation(self._observe())

    def _of_process(self) -> Iterator[core.Metric]:
        yield _counter(
            "requests",
            "Answered requests",
            ("method", "route", "status"),
            self.requests.counts(),
        )
        yield _histogram(self.durations)
        admissions: Counter[str] = Counter()
        for outcome, number in self._installation.admissions.counts().items():
            admissions[_outcome(outcome)] += number
        yield _counter(
            "admissions",
            "Requests that spend budget, by outcome",
            ("outcome",),
            admissions,
        )
        changed = self._installation.changed_cells.counts()
        meaning = "Cells of rows to predict that were clamped to the declared bounds, or whose category is undeclared"
        yield _counter("changed_cells", meaning, ("change",), changed)
        yield _counter(
            "database_errors",
            "Transactions that the database ended with an error",
            ("kind",),
            self._installation.database.errors.counts(),
        )

    def _observe(self) -> Observed:
        """The facts of the installation, at most ``limits.METRICS_AGE_S`` seconds old:
        to read them costs time.
        """
        with self._lock:
            if (
                self._observed is None
                or time.monotonic() - self._observed_at >= limits.METRICS_AGE_S
            ):
                self._observed = observe(self._installation, self._heads)
                self._observed_at = time.monotonic()
            return self._observed


def _of_installation(observed: Observed) -> Iterator[core.Metric]:
    yield _gauge(
        "jobs",
        "Jobs in the queue, and jobs that wait for an approval",
        ("state",),
        observed.jobs,
    )
    wait_s = {(): observed.longest_wait_s}
    yield _gauge(
        "longest_wait_seconds",
        "Seconds that the first job of the queue has waited",
        (),
        wait_s,
    )
    yield _gauge(
        "workers",
        "Worker processes that live and can load the code of jobs",
        (),
        {(): observed.workers},
    )
    yield _gauge(
        "failed_jobs",
        "Jobs that failed, by reason",
        ("reason",),
        observed.failed,
    )
    yield _gauge(
        "deliveries",
        "Events that webhooks wait for",
        (),
        {(): observed.deliveries},
    )
    yield _gauge(
        "accounts",
        "Accounts in the ledger",
        (),
        {(): observed.accounts},
    )
    near_cap = {
        f"{float(share):g}": number for share, number in observed.near_cap.items()
    }
    yield _gauge(
        "accounts_near_cap",
        "Accounts with at least this share of the cap spent",
        ("share",),
        near_cap,
    )
    if observed.backup_at is not None:
        yield _gauge(
            "backup_timestamp_seconds",
            "When the newest backup of this home was made, as Unix time",
            (),
            {(): int(stamps.from_text(observed.backup_at).timestamp())},
        )
    behind = {(): observed.heads_behind}
    yield _gauge(
        "heads_behind",
        "Accounts whose newest entries are in no head outside the database",
        (),
        behind,
    )


def _outcome(outcome: bool | type[GrovekeeperError]) -> str:
    """``admitted``, ``repeated``, or the slug of a problem."""
    if isinstance(outcome, bool):
        return "admitted" if outcome else "repeated"
    return next(
        (PROBLEMS[kind] for kind in outcome.__mro__ if kind in PROBLEMS), INTERNAL
    ).slug


def _histogram(durations: Durations) -> core.Metric:
    family = core.HistogramMetricFamily(
        "grovekeeper_duration_seconds",
        "Seconds of an answered request",
        labels=("kind",),
    )
    ends = [*(f"{end:g}" for end in durations.ENDS), "+Inf"]
    for kind, (numbers, seconds) in durations.counts().items():
        family.add_metric(
            (kind,), list(zip(ends, accumulate(numbers), strict=True)), seconds
        )
    return family


def _family(
    kind: type[core.CounterMetricFamily] | type[core.GaugeMetricFamily],
    name: str,
    meaning: str,
    labels: tuple[str, ...],
    numbers: Mapping[Any, int],
) -> core.Metric:
    """A metric with its time series: numbers by the values of the labels, in their
    order; by the value itself of a single label.
    """
    family = kind(f"grovekeeper_{name}", meaning, labels=labels)
    for values, number in sorted(numbers.items()):
        if isinstance(values, str):
            values = (str(values),)
        family.add_metric(values, number)
    return family


_counter = partial(_family, core.CounterMetricFamily)
_gauge = partial(_family, core.GaugeMetricFamily)

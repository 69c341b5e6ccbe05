"""Measures one run of the accuracy benchmark, and reads and writes the CSV of runs."""

import csv
import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from grovekeeper_forests import catalogue
from grovekeeper_forests.catalogue import Auto
from grovekeeper_forests.contract.algorithm import Algorithm, TwoDatasetAlgorithm
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from research.datasets import Dataset, split_of
from research.papers import literal_forests
from research.papers.forests import catalogue as references

LABELLED = 5
"""If an algorithm learns from two datasets, the labelled dataset gets one row in so
many; the other gets the rest.
"""

UNKNOWN = -1
"""Code of an unknown label."""

N_BINS = 10
"""Bins of the reliability table: equal widths of the largest probability."""

SMALLEST_PROBABILITY = 1e-6
"""Lower bound of a probability before its logarithm: a share of votes can be zero."""


@dataclass(frozen=True, order=True)
class Task:
    """The specification of a run; two runs of one task differ by chance alone.

    Attributes:
        dataset: name of the dataset's files.
        algorithm: ``slug``, ``slug@accountant`` or either with
            ``:name=value,name=value`` after it. The default accountant is the
            algorithm's first; parameters that are not named follow the public rules.
        epsilon: decimal text; empty for an algorithm without privacy.
        delta: decimal text; used only by accounts with a δ.
        repeat: number of the seeded split.
    """

    dataset: str
    algorithm: str
    epsilon: str
    delta: str
    repeat: int

    @property
    def slug(self) -> str:
        """The algorithm's slug, without accountant and parameters."""
        return self.algorithm.partition(":")[0].partition("@")[0]

    @property
    def accountant(self) -> str:
        """Name of the accountant of the account that pays."""
        named = self.algorithm.partition(":")[0].partition("@")[2]
        return named or self._described.accountants[0]

    @property
    def _described(self) -> Algorithm | Auto:
        return (
            catalogue.AUTO
            if self.slug == catalogue.AUTO.slug
            else catalogue.algorithm(self.slug)
        )

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for tasks whose numbers are equal; it has δ only if the
        account has a δ.
        """
        if self.slug in references.REFERENCES:
            return self.dataset, self.algorithm, self.repeat
        if self.slug in literal_forests.LITERAL:
            return self.dataset, self.algorithm, Fraction(self.epsilon), self.repeat
        return (
            self.dataset,
            self.algorithm,
            Fraction(self.epsilon),
            self._delta,
            self.repeat,
        )

    @property
    def _delta(self) -> Fraction | None:
        return (
            Fraction(self.delta)
            if accountants.by_name(self.accountant).TAKES_DELTA
            else None
        )

    @property
    def parameters(self) -> dict[str, int | str]:
        """The named parameters."""
        pairs = (
            pair.partition("=")
            for pair in self.algorithm.partition(":")[2].split(",")
            if pair
        )
        return {
            name: int(value) if value.isdigit() else value for name, _, value in pairs
        }

    def request(self, public_size: int) -> PlanRequest:
        """The task as an analyst's request, on an account with the algorithm's
        adjacency.
        """
        needs_two = isinstance(self._described, TwoDatasetAlgorithm)
        labelled = public_size // LABELLED if needs_two else public_size
        terms = Terms(
            Fraction(self.epsilon),
            self.accountant,
            self._delta,
            self._described.adjacency,
        )
        request = PlanRequest(self.slug, self.parameters, terms, labelled)
        if not needs_two:
            return request
        return replace(
            request, unlabelled=terms, unlabelled_size=public_size - labelled
        )


@dataclass(frozen=True)
class Measured:
    """The specification of a task as the first columns of its result."""

    dataset: str
    algorithm: str
    epsilon: str
    delta: str
    repeat: int

    @property
    def task(self) -> Task:
        """The task of this run."""
        return Task(self.dataset, self.algorithm, self.epsilon, self.delta, self.repeat)


RunType = TypeVar("RunType", bound=Measured)


@dataclass(frozen=True)
class Run(Measured):
    """The result of a task: one line of the CSV.

    Attributes:
        n_trees: number of trees, from the public rules or the task's parameters.
        depth: depth of the trees, from the public rules or the task's parameters.
        accuracy: share of test rows whose label is right.
        auroc: area under the curve for two classes, else NaN.
        log_loss: mean of −log of the true class's probability, nats.
        reliability: JSON; for each of :data:`N_BINS` bins of the largest probability:
            number of rows, sum of the largest probabilities, number of rows with the
            right label.
        seconds: wall-clock time from plan to prediction.
    """

    n_trees: int
    depth: int
    accuracy: float
    auroc: float
    log_loss: float
    reliability: str
    seconds: float


_TYPES = {"repeat": int, "n_trees": int, "depth": int} | dict.fromkeys(
    ("accuracy", "auroc", "log_loss", "seconds"), float
)


@dataclass(frozen=True, eq=False)
class Predictions:
    """The answers of a forest to test rows.

    Attributes:
        forest: as read from the artifact; ``None`` without privacy, where nothing is
            stored.
        probabilities: float64 ``(n_rows, n_classes)``, by the default read-out.
        labels: int32 ``(n_rows,)``, by the default read-out.
        seconds: wall-clock time from plan to prediction.
    """

    forest: Forest | None
    probabilities: NDArray[np.float64]
    labels: NDArray[np.int32]
    seconds: float


def measure(dataset: Dataset, task: Task) -> Run:
    """Trains on nine tenths of a split, and predicts the rest with the artifact that a
    client would download.
    """
    train, test = split_of(len(dataset.y), task.repeat)
    answers = predictions(dataset, task, train, test)
    assert answers.forest is not None, (
        "the accuracy benchmark measures private algorithms"
    )
    probabilities, truth = answers.probabilities, dataset.y[test]
    return Run(
        **vars(task),
        n_trees=answers.forest.plan.n_trees,
        depth=answers.forest.depth,
        accuracy=float(np.mean(answers.labels == truth)),
        auroc=auroc(probabilities, truth),
        log_loss=log_loss(probabilities, truth),
        reliability=json.dumps(reliability(probabilities, truth)),
        seconds=answers.seconds,
    )


def predictions(
    dataset: Dataset, task: Task, train: NDArray[np.int64], test: NDArray[np.int64]
) -> Predictions:
    """Trains the algorithm of a task on the training rows, and predicts the test rows
    with its artifact.
    """
    began = time.perf_counter()
    columns = dataset.features(test)
    if task.slug in literal_forests.LITERAL:
        labels = literal_forests.labels(
            dataset,
            (train, test),
            task.slug,
            task.parameters,
            float(task.epsilon),
            np.random.default_rng(),
        ).astype(np.int32)
        return Predictions(
            None,
            np.eye(dataset.schema.n_classes)[labels],
            labels,
            time.perf_counter() - began,
        )
    if task.slug in references.REFERENCES:
        plain_plan = references.plan(task.slug, task.parameters)
        plain = references.grow(
            plain_plan, dataset.schema, _rows(dataset, train), on_tree_done=lambda: None
        )
        shares = references.probabilities(plain, dataset.schema, columns)
        if not np.isfinite(shares).all():
            raise ValueError(f"a leaf of {task.slug} on {task.dataset} has no rows")
        return Predictions(
            None,
            shares,
            references.labels(plain_plan, shares, np.random.default_rng()),
            time.perf_counter() - began,
        )
    training_plan = plan(task.request(dataset.public_size), dataset.schema)
    artifact = released_forest.loads(artifact_of(dataset, training_plan, train))
    probabilities = artifact.predictor.probabilities(columns)
    labels = artifact.predictor.labels(probabilities)
    return Predictions(
        artifact.forest, probabilities, labels, time.perf_counter() - began
    )


def artifact_of(
    dataset: Dataset, training_plan: Plan, train: NDArray[np.int64]
) -> bytes:
    """Grows a plan on the training rows and returns the bytes that a client would
    download.
    """
    return released_forest.dumps(
        _grown(dataset, training_plan, train), {"schema": dataset.schema.to_json()}
    )


def _grown(dataset: Dataset, training_plan: Plan, train: NDArray[np.int64]) -> Forest:
    """The forest of a plan; an algorithm whose parameter ``labelled_share`` is below 1
    sees so many labels only.
    """
    labelled, unlabelled = train, None
    if training_plan.unlabelled is not None:
        labelled, unlabelled = np.split(train, [len(train) // LABELLED])
    rows = _rows(dataset, labelled)
    n_labels = round(
        len(train) * Fraction(str(training_plan.parameters.get("labelled_share", 1)))
    )
    rows.y[n_labels:] = UNKNOWN
    return grow(
        training_plan,
        dataset.schema,
        rows,
        SystemRandomness(),
        on_tree_done=lambda: None,
        unlabelled=None if unlabelled is None else _rows(dataset, unlabelled),
    )


def _rows(dataset: Dataset, which: NDArray[np.int64]) -> SanitisedRows:
    row_ids = np.random.default_rng().integers(0, 256, (len(which), 16), dtype=np.uint8)
    return SanitisedRows(dataset.features(which), dataset.y[which], row_ids)


def auroc(probabilities: NDArray[np.float64], truth: NDArray[np.int32]) -> float:
    """Area under the ROC curve; NaN unless the task has two classes and both occur."""
    if probabilities.shape[1] != 2 or len(np.unique(truth)) != 2:
        return math.nan
    return float(roc_auc_score(truth, probabilities[:, 1]))


def log_loss(probabilities: NDArray[np.float64], truth: NDArray[np.int32]) -> float:
    """Mean of −log of the true class's probability, which is at least
    :data:`SMALLEST_PROBABILITY`.
    """
    of_truth = probabilities[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(of_truth, SMALLEST_PROBABILITY)).mean())


def reliability(
    probabilities: NDArray[np.float64], truth: NDArray[np.int32]
) -> list[tuple[int, float, int]]:
    """Number of rows, sum of confidences and number of right labels per bin of
    confidence (largest probability).
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == truth
    bins = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
    n_rows = np.bincount(bins, minlength=N_BINS)
    sums = np.bincount(bins, weights=confidence, minlength=N_BINS)
    n_right = np.bincount(bins[is_right], minlength=N_BINS)
    return list(
        zip(n_rows.tolist(), sums.round(6).tolist(), n_right.tolist(), strict=True)
    )


class RunsUnreadable(Exception):
    """This program did not write the CSV, which therefore stays unchanged."""


def load(path: Path, kind: type[RunType]) -> list[RunType]:
    """Reads the runs of a CSV, if it exists. An incomplete last line of a killed
    program is removed from the file.

    Raises:
        RunsUnreadable: the columns are not those of ``kind``.
    """
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    complete_lines = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(complete_lines.splitlines())
    if complete_lines and tuple(reader.fieldnames or ()) != _columns(kind):
        raise RunsUnreadable(
            f"{path} has other columns than {', '.join(_columns(kind))}"
        )
    if complete_lines != text:
        path.write_text(complete_lines, encoding="utf-8")
    return [
        kind(**{name: _TYPES.get(name, str)(value) for name, value in line.items()})
        for line in reader
    ]


def _columns(kind: type[Measured]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def append(path: Path, run: Measured) -> None:
    """Appends a run to a CSV in one write; a new file begins with the header."""
    is_new = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _columns(type(run)), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(vars(run))


def unfinished(tasks: Iterable[Task], runs: Iterable[Measured]) -> list[Task]:
    """The tasks without a run, in their order."""
    finished = {run.task.key for run in runs}
    return [task for task in tasks if task.key not in finished]


def runs_of(tasks: Iterable[Task], runs: Iterable[RunType]) -> list[RunType]:
    """The newest run of each task that has a run, in the order of the tasks."""
    by_key = {run.task.key: run for run in runs}
    return [by_key[task.key] for task in tasks if task.key in by_key]

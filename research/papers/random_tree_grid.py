"""Measures random decision trees as printed over numbers of trees, heights and ε:
figures 1 and 2 and table 1.

A task is ten runs: each fold of a 10-fold cross-validation is once the test, so that
the test points over all runs are the rows. Of the training rows a tenth is for
validation. Forests of k trees are the first k of the same trees, cut at the height of
the task, with noise that is drawn anew for each k. ``random_trees`` is the command.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from research import datasets
from research.papers import printed_random_trees as printed
from research.papers.__main__ import fold_of, read
from research.papers.printed_random_trees import Columns
from research.printed_pages import N_FOLDS
from research.runs import Measured, Task

PRINTED_NAMES: Mapping[str, str] = {
    "vote": "CVR",
    "transfusion": "BTSC",
    "mammographic": "Mam_Mass",
    "banknote": "Ban_Aut",
    "mushroom": "Mushroom",
    "adult": "Adult",
}
"""The paper's datasets that a data folder can hold, small ones first, and their printed
names.
"""

TOO_LARGE = ("adult",)
"""Datasets without runs at other budgets."""

IN_FIGURES = ("banknote", "vote", "mammographic", "mushroom")
"""The four datasets of figures 1 and 2."""

N_ESTIMATORS: tuple[printed.NumberOfTrees, ...] = (*range(1, 22, 2), "logarithmic")
"""Numbers of trees: those of table 1 are among 1, 3, …, 21; the last follows from
Theorem 5.3.
"""

OF_PRIVATE_CELLS: tuple[printed.NumberOfTrees, ...] = (1, 3, 5, 7, 9, 15, 21)
"""Numbers of trees at budgets other than the recalled one: those of the private columns
of table 1.
"""

HEIGHTS = range(1, 16)
BUDGETS = ("10", "100", "1000", "3000", "10000", "100000")
"""ε times the number of training rows."""

RECALLED_BUDGET = "1000"
"""The budget of table 1 and figure 1 as recalled: our text has lost it."""

PLAIN = ""
"""The budget of a forest without privacy."""

COLUMNS = ("mv", "ta", "pa", "service-mv", "service-ta", "service-pa")
"""The paper's read-outs with the paper's θ, then with the service's."""


class GridTask(Task):
    """Ten runs of a dataset at a height and a budget. ``algorithm`` is
    ``printed:max_depth=h``.
    """

    @property
    def height(self) -> int:
        """Height of the trees."""
        return int(self.parameters["max_depth"])

    @property
    def n_estimators(self) -> tuple[printed.NumberOfTrees, ...]:
        """The numbers of trees of the task."""
        return (
            N_ESTIMATORS
            if self.epsilon in (RECALLED_BUDGET, PLAIN)
            else OF_PRIVATE_CELLS
        )

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal tasks; ``epsilon`` is a budget here, see :data:`BUDGETS`."""
        return self.dataset, self.algorithm, self.epsilon, self.repeat


@dataclass(frozen=True)
class GridRun(Measured):
    """The result of a task.

    Attributes:
        test: wrong test points over all runs for every number of trees, by
            :data:`COLUMNS`; spaces stand between numbers and semicolons between
            columns.
        validation: wrong validation points, likewise.
        n_test: number of test points over all runs.
        n_validation: number of validation points over all runs.
        seconds: wall-clock time.
    """

    test: str
    validation: str
    n_test: str
    n_validation: str
    seconds: float

    @property
    def task(self) -> GridTask:
        """The task of this run."""
        return GridTask(
            self.dataset, self.algorithm, self.epsilon, self.delta, self.repeat
        )

    @property
    def test_errors(self) -> NDArray[np.float64]:
        """Test errors in percent: float64 ``(6, n_numbers)``."""
        return 100 * _numbers(self.test) / int(self.n_test)

    @property
    def validation_errors(self) -> NDArray[np.float64]:
        """Validation errors in percent: float64 ``(6, n_numbers)``."""
        return 100 * _numbers(self.validation) / int(self.n_validation)


def _numbers(text: str) -> NDArray[np.float64]:
    return np.array([part.split() for part in text.split(";")], dtype=np.float64)


def _text(numbers: NDArray[np.int64]) -> str:
    return ";".join(" ".join(map(str, row)) for row in numbers.tolist())


def tasks_of(names: Sequence[str], budgets: Sequence[str]) -> list[GridTask]:
    """The tasks of datasets: without privacy and with the printed budget, then other
    budgets for figure 2.
    """
    first = [
        GridTask(name, f"printed:max_depth={height}", budget, "0", 0)
        for name in names
        for budget in (RECALLED_BUDGET, PLAIN)
        for height in HEIGHTS
    ]
    further = [
        GridTask(name, f"printed:max_depth={height}", budget, "0", 0)
        for budget in budgets
        if budget != RECALLED_BUDGET
        for name in names
        if name not in TOO_LARGE
        for height in HEIGHTS
    ]
    return [*first, *further]


@dataclass(frozen=True, eq=False)
class Fold:
    """The trees and rows of one run.

    Attributes:
        leaves: of all rows in trees of the largest height, int32 ``(n_trees, n_rows)``.
        y: labels of all rows.
        parts: indices of the rows that fill leaves, of the validation rows and of the
            test rows.
        n_training: number of training rows, validation rows among them.
    """

    leaves: NDArray[np.int32]
    y: NDArray[np.int32]
    parts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    n_training: int


def folds(folder: Path | None, name: str, grid: int = 0) -> list[Fold]:
    """The ten runs of a dataset, with trees whose draws follow from the number of the
    run. Another ``grid`` has another cross-validation and other trees.
    """
    dataset = read(folder, name)
    columns, n_rows = Columns.of(dataset), len(dataset.y)
    n_trees = max(printed.n_trees_of(number, n_rows) for number in N_ESTIMATORS)
    runs = []
    for repeat in range(N_FOLDS * grid, N_FOLDS * (grid + 1)):
        random = np.random.default_rng([datasets.FIRST_SEED, repeat])
        leaves = printed.leaves_of(
            columns, n_trees=n_trees, height=HEIGHTS[-1], random=random
        )
        training, test = fold_of(n_rows, repeat)
        validation, rows = np.split(training, [len(training) // 10])
        runs.append(Fold(leaves, dataset.y, (rows, validation, test), len(training)))
    return runs


@dataclass(frozen=True, eq=False)
class ReachedLeaves:
    """The leaves that test and validation points reach; noise of other leaves is
    independent, and no point reads it.

    Attributes:
        counts: rows of each label, int64 ``(n_reached, 2)``, tree after tree.
        first: the leaves of tree t are ``first[t] : first[t + 1]``; int64 ``(n_trees +
            1,)``.
        place: row of ``counts`` for every point in every tree, int64 ``(n_trees,
            n_points)``.
    """

    counts: NDArray[np.int64]
    first: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def of(
        cls, fold: Fold, height: int, n_trees: int, points: NDArray[np.int64]
    ) -> "ReachedLeaves":
        """The leaves of trees cut at a height."""
        n_leaves, (rows, _, _) = 2**height, fold.parts
        leaves = fold.leaves[:n_trees] >> (HEIGHTS[-1] - height)
        is_reached: NDArray[np.bool_] = np.zeros((n_trees, n_leaves), dtype=np.bool_)
        np.put_along_axis(is_reached, leaves[:, points], True, axis=1)
        number = np.cumsum(is_reached) - 1
        counts = printed.class_counts(leaves[:, rows], fold.y[rows], n_leaves=n_leaves)[
            is_reached
        ]
        place = np.take_along_axis(
            number.reshape(n_trees, n_leaves), leaves[:, points], axis=1
        )
        return cls(
            counts, np.concatenate([[0], np.cumsum(is_reached.sum(axis=1))]), place
        )


def measure(runs: Sequence[Fold], task: GridTask) -> GridRun:
    """Runs a task on all folds of its dataset."""
    began = time.perf_counter()
    wrong: NDArray[np.int64] = np.zeros(
        (2, len(COLUMNS), len(task.n_estimators)), dtype=np.int64
    )
    for fold in runs:
        random = np.random.default_rng()
        _, validation, test = fold.parts
        points = np.concatenate([test, validation])
        numbers = [
            printed.n_trees_of(number, len(fold.y)) for number in task.n_estimators
        ]
        reached = ReachedLeaves.of(fold, task.height, max(numbers), points)
        for index, n_trees in enumerate(numbers):
            scale = (
                None
                if task.epsilon == PLAIN
                else n_trees * fold.n_training / float(task.epsilon)
            )
            is_wrong = labels_of(reached, n_trees, scale, random) != fold.y[points]
            wrong[0, :, index] += is_wrong[:, : len(test)].sum(axis=1)
            wrong[1, :, index] += is_wrong[:, len(test) :].sum(axis=1)
    n_validation, n_test = (
        sum(len(fold.parts[part]) for fold in runs) for part in (1, 2)
    )
    seconds = round(time.perf_counter() - began, 2)
    return GridRun(**vars(task), test=_text(wrong[0]), validation=_text(wrong[1]), n_test=str(n_test),
                   n_validation=str(n_validation), seconds=seconds)  # fmt: skip


def labels_of(
    reached: ReachedLeaves,
    n_trees: int,
    scale: float | None,
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    """The labels of points by a forest of the first trees: bool ``(6, n_points)``, by
    :data:`COLUMNS`.

    Args:
        reached: leaves of the points.
        n_trees: k.
        scale: of the noise of a count; ``None``: no noise, no privacy.
        random: source of noise, of θ and of drawn labels.
    """
    counts: NDArray[np.float64] | NDArray[np.int64] = reached.counts[
        : reached.first[n_trees]
    ]
    if scale is not None:
        counts = printed.noisy_counts(
            reached.counts[: len(counts)], scale=scale, random=random
        )
    place = reached.place[:n_trees]
    theta, clamped = (
        printed.printed_theta(counts, random)[place],
        printed.clamped_theta(counts)[place],
    )
    labels = [
        printed.predicted(theta, read_out, random) for read_out in printed.READ_OUTS
    ]
    labels += [printed.predicted(printed.larger_count(counts)[place], "mv", random)]
    labels += [
        printed.predicted(clamped, read_out, random)
        for read_out in printed.READ_OUTS[1:]
    ]
    return np.stack(labels)

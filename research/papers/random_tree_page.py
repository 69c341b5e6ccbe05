"""The sections on the runs of Bojarski et al. (2014), and the files behind them:
sensitivity to k and h, table 1 at its own heights, ε, and the logarithmic k.

Source: Bojarski, Choromanska, Choromanski and LeCun (2014), section 6. Its main finding
is that majority voting is less sensitive to the number k and the height h of trees than
threshold averaging and probabilistic averaging.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from research import printed_tables
from research.papers import findings, printed_intervals
from research.papers import printed_random_trees as printed
from research.papers.printed_intervals import PrintedError
from research.papers.random_tree_grid import (
    BUDGETS,
    COLUMNS,
    HEIGHTS,
    IN_FIGURES,
    N_ESTIMATORS,
    OF_PRIVATE_CELLS,
    PLAIN,
    PRINTED_NAMES,
    RECALLED_BUDGET,
    TOO_LARGE,
    GridRun,
    tasks_of,
)

OF_GRIDS = "bojarski-grids.csv"
"""The counts of the page in further grids, which ``random_tree_draws`` runs."""

TALL = 5
"""Smallest height of the second count: votes of lower trees are often all for the
larger class.
"""

Errors = NDArray[np.float64]
"""Errors in percent, float64 ``(6, n_heights, n_numbers_of_trees)``, by ``COLUMNS``;
NaN where a run is missing.
"""

Grid = Mapping[tuple[str, str], Errors]
"""Errors by dataset and budget."""

THETAS = {"the paper's θ": COLUMNS[:3], "the service's θ": COLUMNS[3:]}

METHODS = {"n-dpRFMV": (PLAIN, "mv"), "n-dpRFTA": (PLAIN, "ta"), "dpRFMV": (RECALLED_BUDGET, "mv"),
           "dpRFTA": (RECALLED_BUDGET, "ta")}  # fmt: skip
"""Budget and read-out of the printed methods of table 1."""


def errors_of(runs: Iterable[GridRun]) -> dict[tuple[str, str], Errors]:
    """The test errors of all runs by dataset and budget."""
    grid: dict[tuple[str, str], Errors] = {}
    for run in runs:
        shape = len(COLUMNS), len(HEIGHTS), len(run.task.n_estimators)
        errors = grid.setdefault((run.dataset, run.epsilon), np.full(shape, np.nan))
        errors[:, HEIGHTS.index(run.task.height)] = run.test_errors
    return grid


@dataclass(frozen=True)
class Sensitivity:
    """How far the test error depends on k and h, in percentage points; 0 if it does
    not.

    Attributes:
        to_trees: largest minus least error over the numbers of trees, in the mean over
            heights.
        to_height: largest minus least error over the heights, in the mean over numbers
            of trees.
        regret: mean error over all k and h, minus the least: what an arbitrary choice
            costs.
        least: the least error over all k and h, in percent.
    """

    to_trees: float
    to_height: float
    regret: float
    least: float

    @classmethod
    def of(cls, errors: NDArray[np.float64]) -> "Sensitivity":
        """The sensitivity of errors in percent, float64 ``(n_heights,
        n_numbers_of_trees)``.
        """
        to_trees = float(np.ptp(errors, axis=1).mean())
        to_height = float(np.ptp(errors, axis=0).mean())
        least = float(errors.min())
        return cls(to_trees, to_height, float(errors.mean()) - least, least)


def sensitivities(
    errors: Errors, *, least_height: int = HEIGHTS[0]
) -> dict[str, Sensitivity]:
    """The sensitivity of every read-out by its name, over heights and k = 1, 3, …, 21.

    Args:
        errors: at the recalled budget or without privacy.
        least_height: smallest height that counts.
    """
    # without the logarithmic number
    of_grid = errors[:, HEIGHTS.index(least_height) :, : len(N_ESTIMATORS) - 1]
    return {
        name: Sensitivity.of(of_column)
        for name, of_column in zip(COLUMNS, of_grid, strict=True)
    }


def least_sensitive(by_read_out: Mapping[str, Sensitivity], measure: str) -> str:
    """The name of the read-out whose sensitivity is least, the first of equal ones.

    Args:
        by_read_out: sensitivities of competing read-outs.
        measure: name of an attribute of :class:`Sensitivity`.
    """
    return min(by_read_out, key=lambda name: float(getattr(by_read_out[name], measure)))


def sections(runs: Iterable[GridRun], further: str = "") -> list[str]:
    """The sections of all runs.

    Args:
        runs: of one grid.
        further: text of the file of counts of further grids; empty: there is none.
    """
    known = list(runs)
    grid = errors_of(known)
    return [
        _HEAD.format(grids=_about_grids(further)),
        *_main_finding(grid),
        *_figure_2a(known, grid),
        *_table_1(grid),
        *_budgets(grid),
        _ABOUT_LOGARITHMIC,
        *_logarithmic(grid),
        *_not_run(grid),
        "",
    ]


def files(runs: Iterable[GridRun]) -> dict[str, str]:
    """The CSV files behind the sections, by name."""
    grid = errors_of(runs)
    return {
        "bojarski-sensitivity.csv": _sensitivity_rows(grid),
        "bojarski-table-1.csv": _table_1_rows(grid),
        "bojarski-logarithmic.csv": _logarithmic_rows(grid),
    }


def _complete(grid: Grid, budget: str) -> list[str]:
    """The datasets that have all heights at a budget, in the order of
    :data:`PRINTED_NAMES`.
    """
    names = (*PRINTED_NAMES, "wdbc")
    return [
        name
        for name in names
        if (name, budget) in grid and np.isfinite(grid[name, budget]).all()
    ]


def counts(runs: Sequence[GridRun]) -> Iterator[tuple[tuple[str, str], int]]:
    """The counts of the sections: what is counted, of what, and how many."""
    grid = errors_of(runs)
    names = _complete(grid, RECALLED_BUDGET)
    for least_height, (theta, columns), measure in product(
        (HEIGHTS[0], TALL), THETAS.items(), _MEASURES
    ):
        of_what = f"{_MEASURES[measure]}, heights from {least_height}, {theta}"
        wins = _wins(grid, names, columns, measure, least_height)
        for beside, number in zip(("averaging", "both"), wins, strict=True):
            yield ("datasets", f"{of_what}, beside {beside}"), number
    for theta, columns in THETAS.items():
        yield (
            ("cases", f"figure 2a, {theta}"),
            sum(_averaging_is_least(runs, grid, columns)),
        )
    for place, theta in enumerate(THETAS):
        inside = sum(
            beside.inside[place]
            for beside in _beside(grid)
            if beside.printed.method[:4] == "n-dp"
        )
        yield ("differences", f"without privacy, {theta}"), inside
        for budget, distance in budget_distances(grid, theta).items():
            yield ("differences", f"nε = {int(budget):,}, {theta}"), distance.n_inside


def _about_grids(further: str) -> str:
    """How far counts of further grids are from those of the page's."""
    if not further:
        return ""
    _, *rows = csv.reader(further.splitlines())
    n_further = len(rows[0]) - 3
    moved, cases = {"datasets": 0, "differences": 0}, list[int]()
    for counted, _, *numbers in rows:
        of_page, *others = map(int, numbers)
        if counted in moved:
            farthest = max(abs(other - of_page) for other in others)
            moved[counted] = max(moved[counted], farthest)
        else:
            cases += others
    near, differing = moved.values()
    return (
        f" In {n_further} [further grids]({OF_GRIDS}) of other folds, trees and noise,\n"
        f"without {', '.join(TOO_LARGE)}, counts of datasets are up to {near} from those of this grid and counts of "
        f"differences up to\n{differing}; in {min(cases)} to {max(cases)} of the cases of figure 2a threshold "
        "averaging errs least."
    )


def _sensitivity_rows(grid: Grid) -> str:
    rows = []
    for name in _complete(grid, RECALLED_BUDGET):
        everything = sensitivities(grid[name, RECALLED_BUDGET])
        for theta, columns in THETAS.items():
            for column in columns:
                sensitivity = everything[column]
                numbers = (
                    sensitivity.least,
                    sensitivity.to_trees,
                    sensitivity.to_height,
                    sensitivity.regret,
                )
                rows.append(
                    (name, theta, column, *(f"{number:.1f}" for number in numbers))
                )
    return findings.csv_text(
        ("dataset", "θ", "read-out", "least error", *_MEASURES.values()), rows
    )


def _main_finding(grid: Grid) -> Iterator[str]:
    yield "## The main finding: sensitivity to k and h\n"
    yield _ABOUT_SENSITIVITY
    names = _complete(grid, RECALLED_BUDGET)
    yield f"| heights | θ | {' | '.join(_MEASURES.values())} |\n|---|---|---|---|---|"
    for least_height in (HEIGHTS[0], TALL):
        for theta, columns in THETAS.items():
            counts = [
                _wins(grid, names, columns, measure, least_height)
                for measure in _MEASURES
            ]
            text = " | ".join(
                f"{pair}, {both} of {len(names)}" for pair, both in counts
            )
            yield f"| {least_height} to {HEIGHTS[-1]} | {theta} | {text} |"
    yield ""


def _figure_2a(runs: Sequence[GridRun], grid: Grid) -> Iterator[str]:
    """How often threshold averaging errs least in column a of figure 2."""
    yield _ABOUT_FIGURE_2A
    for theta, columns in THETAS.items():
        least = _averaging_is_least(runs, grid, columns)
        yield f"* With {theta}: in {sum(least)} of {len(least)} cases."
    yield ""


def _averaging_is_least(
    runs: Sequence[GridRun], grid: Grid, columns: Sequence[str]
) -> list[bool]:
    return [
        averaging < min(votes, drawn)
        for votes, averaging, drawn in _chosen_errors(runs, grid, columns)
    ]


def _chosen_errors(
    runs: Sequence[GridRun], grid: Grid, columns: Sequence[str]
) -> Iterator[tuple[float, ...]]:
    """Test errors of the columns at the heights of least validation error, for every
    dataset, budget and number of trees of figure 2.
    """
    for name, budget in product(IN_FIGURES, BUDGETS):
        if name in _complete(grid, budget):
            of_place = [
                run for run in runs if (run.dataset, run.epsilon) == (name, budget)
            ]
            for n_trees in K_IN_FIGURE_2:
                yield tuple(
                    chosen_by_validation(of_place, column, n_trees)
                    for column in columns
                )


def _wins(
    grid: Grid,
    names: Sequence[str],
    columns: Sequence[str],
    measure: str,
    least_height: int,
) -> tuple[int, int]:
    """On how many datasets the first column is the least sensitive of the first two,
    and of all.
    """
    by_name = [
        sensitivities(grid[name, RECALLED_BUDGET], least_height=least_height)
        for name in names
    ]

    def count(competing: Sequence[str]) -> int:
        of_datasets = [
            {column: of_name[column] for column in competing} for of_name in by_name
        ]
        return sum(
            least_sensitive(of_dataset, measure) == columns[0]
            for of_dataset in of_datasets
        )

    return count(columns[:2]), count(columns)


@dataclass(frozen=True)
class _Beside:
    """A printed error of table 1 beside ours.

    Attributes:
        printed: the error.
        n_trees: printed k.
        height: printed h.
        gaps: ours − printed, with the paper's θ and with the service's.
    """

    printed: PrintedError
    n_trees: int
    height: int
    gaps: tuple[float, float]

    @property
    def inside(self) -> tuple[bool, ...]:
        """Whether the differences are inside the interval."""
        limit = 2**0.5 * self.printed.half_width
        return tuple(abs(gap) <= limit for gap in self.gaps)


def _beside(grid: Grid) -> Iterator[_Beside]:
    """The printed errors of table 1 that have runs."""
    for name in PRINTED_NAMES:
        for printed_error in printed_of(name):
            budget, read_out = METHODS[printed_error.method]
            place = _chosen(printed_error)
            paper, service = (
                _at(grid, (name, budget), column, *place)
                for column in (read_out, f"service-{read_out}")
            )
            if paper is not None and service is not None:
                gaps = paper - printed_error.error, service - printed_error.error
                yield _Beside(printed_error, *place, gaps)


def _table_1_rows(grid: Grid) -> str:
    columns = ("dataset", "method", "k", "h", "printed")
    rows = []
    for beside in _beside(grid):
        printed_error, cells = beside.printed, list[str]()
        for gap, is_inside in zip(beside.gaps, beside.inside, strict=True):
            inside = "inside" if is_inside else "outside"
            cells += [f"{printed_error.error + gap:.2f}", f"{gap:+.1f}", inside]
        rows.append(
            (
                printed_error.dataset,
                printed_error.method,
                str(beside.n_trees),
                str(beside.height),
                f"{printed_error.error:.2f}",
                *cells,
            )
        )
    of_thetas = (
        text
        for theta in THETAS
        for text in (theta, f"difference, {theta}", f"interval, {theta}")
    )
    return findings.csv_text((*columns, *of_thetas), rows)


def _table_1(grid: Grid) -> Iterator[str]:
    yield "## Table 1 as printed\n"
    yield _ABOUT_TABLE_1
    for methods in ("n-dp", "dp"):
        inside = [
            beside.inside
            for beside in _beside(grid)
            if beside.printed.method[:-4] == methods
        ]
        by_paper, by_service = (sum(of[place] for of in inside) for place in (0, 1))
        of_all = f"of {len(inside)} differences of {methods}RFMV and {methods}RFTA are inside the printed interval"
        yield f"* {by_paper} {of_all} with the paper's θ, {by_service} with the service's."
    yield ""


def printed_of(name: str) -> list[PrintedError]:
    """The printed errors of random trees on a dataset."""
    return list(printed_intervals.forests_by_dataset()[PRINTED_NAMES[name]])


def _chosen(printed_error: PrintedError) -> tuple[int, int]:
    """The printed number and height of trees."""
    (cell,) = (
        cell
        for cell in printed_tables.cells()
        if (cell.table, cell.dataset, cell.method)
        == ("dprf-1", printed_error.dataset, printed_error.method)
    )
    pairs = dict(pair.split("=") for pair in cell.parameters.split(","))
    return int(pairs["n_estimators"]), int(pairs["max_depth"])


def _at(
    grid: Grid, place: tuple[str, str], column: str, n_trees: int, height: int
) -> float | None:
    """The error at a number and a height of trees; ``None`` where no run is."""
    if place not in grid:
        return None
    numbers = N_ESTIMATORS if place[1] in (RECALLED_BUDGET, PLAIN) else OF_PRIVATE_CELLS
    error = float(
        grid[place][
            COLUMNS.index(column), HEIGHTS.index(height), numbers.index(n_trees)
        ]
    )
    return error if np.isfinite(error) else None


@dataclass(frozen=True)
class Distance:
    """How far the printed private errors of table 1 are from ours at a budget.

    Attributes:
        n_cells: number of compared errors.
        n_inside: number of differences inside √2 times the printed half width.
        root_mean_square: of the differences, percentage points; infinite without a
            cell.
    """

    n_cells: int
    n_inside: int
    root_mean_square: float


def budget_distances(grid: Grid, theta: str) -> dict[str, Distance]:
    """The distance of the printed private errors of table 1 from ours, by budget.

    Cells that lack a run at some budget that ran are left out of all.

    Args:
        grid: test errors.
        theta: a key of :data:`THETAS`.
    """
    columns = dict(zip(printed.READ_OUTS, THETAS[theta], strict=True))
    ran = [budget for budget in BUDGETS if any(place[1] == budget for place in grid)]
    gaps: dict[PrintedError, list[float]] = {}
    for name in PRINTED_NAMES:
        for printed_error in printed_of(name):
            budget, read_out = METHODS[printed_error.method]
            if budget == PLAIN:
                continue
            n_trees, height = _chosen(printed_error)
            ours = [
                _at(grid, (name, of_run), columns[read_out], n_trees, height)
                for of_run in ran
            ]
            if None not in ours:
                gaps[printed_error] = [
                    error - printed_error.error for error in ours if error is not None
                ]
    distances = {}
    for index, budget in enumerate(ran):
        n_inside = sum(
            abs(of_cell[index]) <= 2**0.5 * cell.half_width
            for cell, of_cell in gaps.items()
        )
        squares = [of_cell[index] ** 2 for of_cell in gaps.values()]
        distances[budget] = Distance(
            len(gaps), n_inside, float(np.mean(squares)) ** 0.5 if squares else inf
        )
    return distances


def _budgets(grid: Grid) -> Iterator[str]:
    yield "## The lost ε\n"
    yield _ABOUT_EPSILON
    by_theta = [budget_distances(grid, theta) for theta in THETAS]
    yield f"| nε | {' | '.join(f'{theta} | inside' for theta in THETAS)} |\n|---|---|---|---|---|"
    for budget in by_theta[0]:
        distances = [of_theta[budget] for of_theta in by_theta]
        cells = [
            f"{one.root_mean_square:.1f} | {one.n_inside} of {one.n_cells}"
            for one in distances
        ]
        yield f"| {int(budget):,} | {' | '.join(cells)} |"
    yield ""


_PRIVACIES = {PLAIN: "none", RECALLED_BUDGET: "nε = 1,000"}


def _best_errors(grid: Grid, name: str, budget: str, read_out: str) -> list[float]:
    """Errors of 5, 21 and the logarithmic number of trees at the best heights."""
    best = grid[name, budget][COLUMNS.index(read_out)].min(axis=0)
    return [float(best[N_ESTIMATORS.index(k)]) for k in (5, 21, "logarithmic")]


def _logarithmic_rows(grid: Grid) -> str:
    rows = [
        (
            name,
            str(printed.n_trees_of("logarithmic", _n_rows(name))),
            about,
            read_out,
            *(f"{error:.1f}" for error in _best_errors(grid, name, budget, read_out)),
        )
        for budget, about in _PRIVACIES.items()
        for name in _complete(grid, budget)
        for read_out in ("mv", "ta")
    ]
    columns = ("dataset", "k", "privacy", "read-out")
    return findings.csv_text((*columns, "k = 5", "k = 21", "logarithmic k"), rows)


def _logarithmic(grid: Grid) -> Iterator[str]:
    """How far the logarithmic number is from 21 trees."""
    headings = ("Without privacy", "At nε = 1,000")
    for budget, heading in zip(_PRIVACIES, headings, strict=True):
        changes = [
            logarithmic - of_21
            for name in _complete(grid, budget)
            for read_out in ("mv", "ta")
            for _, of_21, logarithmic in (_best_errors(grid, name, budget, read_out),)
        ]
        if changes:
            yield (
                f"* {heading}: errors are {min(changes):+.1f} to {max(changes):+.1f} points from those of 21 "
                "trees."
            )
    yield ""


def _not_run(grid: Grid) -> Iterator[str]:
    """The datasets that lack a height, by budget."""
    yield "## What did not run\n"
    expected = {
        (task.dataset, task.epsilon) for task in tasks_of(list(PRINTED_NAMES), BUDGETS)
    }
    for budget, about in (
        (PLAIN, "without privacy"),
        *((budget, f"nε = {int(budget):,}") for budget in BUDGETS),
    ):
        complete = _complete(grid, budget)
        names = [
            name
            for name in PRINTED_NAMES
            if (name, budget) in expected and name not in complete
        ]
        if names:
            yield f"* {about}: {', '.join(names)}."
    yield f"* {', '.join(TOO_LARGE)} at other nε: in no figure, and large."


def _n_rows(name: str) -> int:
    return printed_of(name)[0].n_rows if name in PRINTED_NAMES else 569


def chosen_by_validation(runs: Sequence[GridRun], column: str, n_trees: int) -> float:
    """The test error in percent at the height whose validation error is least, the
    smallest of equal heights.

    Args:
        runs: of one dataset at one budget, of different heights.
        column: of :data:`COLUMNS`.
        n_trees: k.
    """
    place, index = COLUMNS.index(column), runs[0].task.n_estimators.index(n_trees)
    best = min(
        runs, key=lambda run: (run.validation_errors[place, index], run.task.height)
    )
    return float(best.test_errors[place, index])


K_IN_FIGURE_2 = (5, 21)
"""Numbers of trees of figure 2; the paper's have been lost from our text."""

_MEASURES = {"to_trees": "over k", "to_height": "over h", "regret": "mean − least"}

_HEAD = """\
## Section 6: runs of random trees as printed

Algorithms 1 and 2 as printed, over k = 1, 3, …, 21 trees, heights h = 1, …, 15, and ε. ε is given by nε, n being the
number of training rows. Our text has lost the numbers and heights that the paper explored; in its table 1 they are odd
and at most 21, and at most 15. A number is an error in percent over [ten runs](random_trees.csv), whose test points are
all rows of the dataset. Counts are those of one grid.{grids}

    python -m research.papers.random_trees DATA --plots

The noise of these runs is a floating-point number, and bounds of columns are the smallest and the largest value that is
present: neither is private. The service runs neither. Each attribute of more than one value is a column, and in adult
each value of a category. The paper takes the smallest and the largest possible value as public and does not say which
they are. With those that our schemas declare, and a column for each value of a category, the error of n-dpRFTA is over
two points farther from the printed one on Ban_Aut and Mushroom ([table 1](#table-1)).

![Figure 1](plots/bojarski-figure-1.svg)

Figure 1, private, nε = 1,000, with the paper's θ. Columns a and c: test error by height and by number of trees; the
vertical line in c is the logarithmic number of trees. Columns b and d: least, mean and largest error of majority voting
over the other parameter, k up to 21.

![Figure 2](plots/bojarski-figure-2.svg)

Figure 2, with the paper's θ. Column a: test error by ε with the height that has the least validation error, for two
numbers of trees. Column b: by ε for 21 trees of three heights. The paper's two numbers of trees, its fixed number and
its heights have been lost from our text, so they are ours.
"""

_ABOUT_SENSITIVITY = """The paper: majority voting "is much less sensitive to the setting of the forest parameters"
than threshold averaging, and probabilistic averaging is worse than both. [Sensitivities](bojarski-sensitivity.csv) of
private forests at nε = 1,000, in percentage points: largest minus least error over k in the mean over h, the same over
h in the mean over k, and the mean error over all k and h minus the least. On how many datasets voting is the least
sensitive, beside averaging alone and beside both others:
"""

_ABOUT_FIGURE_2A = """## The least error: figure 2a

The paper: "in most cases dpRFTA outperforms remaining differentially-private classifiers". A case is a dataset, an ε
and a number of trees of column a of figure 2, with the height of least validation error. Threshold averaging errs less
than both others:
"""

_ABOUT_TABLE_1 = """\
[Printed errors beside ours](bojarski-table-1.csv) at the printed k and h, private ones at nε = 1,000. Inside the
printed interval is a difference of at most √2 times the printed half width, the 95 % interval of a difference of two
such errors. The service's θ reads the same noisy counts.
"""

_ABOUT_EPSILON = """The formula of ε has been lost from our text; 1000/n is recalled. Root of the mean squared
difference, in percentage points, between the printed private errors of table 1 and ours at the same k and h, and the
number of differences inside the printed interval:
"""

_ABOUT_LOGARITHMIC = """\
## The number of trees that the theory asks for

`n_estimators="logarithmic"` of `research/papers/printed_random_trees.py` is k = (1 + K) log n / (2δ²) with the largest
margin, δ = 1/2, and K = 1: 4 log n, rounded up. At this margin Theorem 5.3 counts every row as wrong about which some
tree can be wrong, and Theorem 5.4 bounds nothing. A smaller margin asks for more: δ = 0.1 for 25 times as many. [Test
errors](bojarski-logarithmic.csv) of voting and threshold averaging with the paper's θ, at the height that is best in
hindsight, stand beside those of 5 and 21 trees, and figure 1 marks the number. The n of these runs is that of all rows
of a dataset, of which nine tenths are for training: k is at most one more than their number asks for.
"""

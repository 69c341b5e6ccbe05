"""Compares the error of statistics with that of OpenDP and diffprivlib at the same
privacy loss.

    python -m research.statistics_accuracy --plot docs/results/plots/statistics.svg

Needs the extra ``bench``, ``opendp`` and ``diffprivlib``. The rows are generated. All
losses are of a row that is added or removed, and no library is told the exact number of
rows for nothing, with one exception that the table names: means and variances of
diffprivlib divide by it, so that their loss is up to twice the ε that they name. They
run at half of it, and once more at the ε that they name. diffprivlib scales the noise
of a sum by the width of the bounds, which is the loss of a replaced row; here its ε is
lowered to what an added row loses.

The output is a Markdown table: mean absolute errors of so many draws, their ratio to
the smaller one of the two libraries, and the standard error of the ratio.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import hypot
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

mpl.use("svg")

from matplotlib import pyplot

from grovekeeper_forests.data.coded_rows import RowParts
from grovekeeper_forests.data.sanitiser import ColumnBlock
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import price
from grovekeeper_forests.releases.statistics.draw import release
from grovekeeper_forests.releases.statistics.sums import StoredRows

EPSILONS = tuple(map(Fraction, ("0.1", "0.25", "0.5", "1", "2")))
N_ROWS, LOW, HIGH, N_BINS, YOUNG = 10_000, 17, 90, 10, 30
SCHEMA = Schema(
    (Feature("age", "integer", lower=LOW, upper=HIGH),), Label("y", ("a", "b"))
)
FACTS: dict[str, dict[str, Any]] = {
    "count": {"statistic": "count", "where": [{"column": "age", "below": YOUNG}]},
    "histogram": {"statistic": "histogram", "column": "age", "bins": {"age": N_BINS}},
    "sum": {"statistic": "sum", "column": "age"},
    "mean": {"statistic": "mean", "column": "age"},
    "variance": {"statistic": "variance", "column": "age"},
}
OURS, OPENDP, DIFFPRIVLIB, AS_NAMED = (
    "Grovekeeper",
    "OpenDP",
    "diffprivlib",
    "diffprivlib, at the ε it names",
)

Draw = Callable[[], NDArray[np.float64]]
"""Draws the numbers of one release."""


@dataclass(frozen=True)
class Rows:
    """Generated ages, and the edges of their bins."""

    ages: NDArray[np.int64]
    edges: Sequence[float]

    @classmethod
    def generated(cls) -> "Rows":
        """Ages of a skewed population, all inside the bounds."""
        ages = LOW + np.random.default_rng(7).gamma(2.2, 11.0, N_ROWS)
        plan = price.plan([FACTS["histogram"]], _facts(Fraction(1)))
        whole = np.clip(np.rint(ages), LOW, HIGH).astype(np.int64)
        return cls(whole, [LOW, *plan.tables[0].axes[0].edges, HIGH + 1])

    @property
    def bins(self) -> NDArray[np.int64]:
        """The bin of every row."""
        return np.searchsorted(self.edges[1:-1], self.ages, side="right")

    def exact(self, query: str) -> NDArray[np.float64]:
        """The exact numbers of a query."""
        ages = self.ages
        numbers = {
            "count": np.count_nonzero(ages < YOUNG),
            "histogram": np.bincount(self.bins, minlength=N_BINS),
            "sum": ages.sum(),
            "mean": ages.mean(),
            "variance": ages.var(),
        }
        return np.atleast_1d(numbers[query]).astype(np.float64)


def _facts(epsilon: Fraction) -> Any:
    return public_facts(Terms(epsilon), None, SCHEMA, Adjacency.ADD_REMOVE_ONE)


class _Counted:
    """Rows whose exact sums are added up once."""

    def __init__(self, sums: NDArray[np.int64]) -> None:
        self._sums = sums

    def total(self, *_: object) -> NDArray[np.int64]:
        return self._sums


def ours(query: str, rows: Rows, epsilon: Fraction) -> Draw:
    """Draws through the code of a job."""
    plan = price.plan([FACTS[query]], _facts(epsilon))
    block = ColumnBlock({"age": rows.ages.astype(np.float64)}, N_ROWS)

    def blocks() -> Iterator[ColumnBlock]:
        yield block

    stored: Any = StoredRows(SCHEMA, blocks)  # type: ignore[arg-type]
    text = json.dumps(plan.to_json())
    counted: Any = _Counted(RowParts([stored]).total("measure_sums", text))
    randomness = SystemRandomness()

    def draw() -> NDArray[np.float64]:
        estimates = release(plan, counted, randomness).estimates(0)
        # without a value, the middle of the interval: the bounds
        shown = [
            (each.low + each.high) / 2 if each.value is None else each.value
            for each in estimates
        ]
        numbers = np.array(shown)
        # the last bin is that of rows without a declared value, where there is one
        return numbers[:N_BINS] if query == "histogram" else numbers

    return draw


def by_opendp(query: str, rows: Rows, epsilon: Fraction) -> Draw:
    """Draws as its guides do; a mean and a variance are quotients of noisy sums, which
    share ε, since the number of rows is not public.
    """
    dp.enable_features("contrib")
    ints = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()

    def measured(values: NDArray[np.int64], chain: Any, share: int = 1) -> Draw:
        budget = float(epsilon) / share
        noisy = dp.binary_search_chain(
            lambda scale: chain >> dp.m.then_laplace(scale), d_in=1, d_out=budget
        )
        listed = values.tolist()
        return lambda: np.atleast_1d(noisy(listed)).astype(np.float64)

    def summed(values: NDArray[np.int64], low: int, high: int, share: int) -> Draw:
        chain = ints >> dp.t.then_clamp((low, high)) >> dp.t.then_sum()
        return measured(values, chain, share)

    counted = ints >> dp.t.then_count()
    ages = rows.ages
    if query == "count":
        return measured(ages[ages < YOUNG], counted)
    if query == "histogram":
        cells = list(range(N_BINS))
        chain = ints >> dp.t.then_count_by_categories(cells, null_category=False)
        return measured(rows.bins, chain)
    if query == "sum":
        return summed(ages, LOW, HIGH, 1)
    share = 2 if query == "mean" else 3
    n_rows, total = measured(ages, counted, share), summed(ages, LOW, HIGH, share)
    if query == "mean":
        return lambda: np.clip(total() / n_rows(), LOW, HIGH)
    squares = summed(ages**2, LOW**2, HIGH**2, share)

    def variance() -> NDArray[np.float64]:
        n, mean = (number := n_rows()), total() / number
        return np.clip(squares() / n - mean**2, 0, (HIGH - LOW) ** 2 / 4)

    return variance


@cache
def _tools() -> Any:
    """The tools of diffprivlib without its models, which need an earlier scikit-learn."""
    sys.modules["diffprivlib.models"] = ModuleType("diffprivlib.models")
    from diffprivlib import tools

    return tools


def by_diffprivlib(
    query: str, rows: Rows, epsilon: Fraction, *, as_named: bool = False
) -> Draw:
    """Draws at the ε of an added row, or at the ε that the library names."""
    ages, bounds, named, tools = rows.ages, (LOW, HIGH), float(epsilon), _tools()
    if query == "count":
        young = ages < YOUNG
        return lambda: np.atleast_1d(tools.count_nonzero(young, epsilon=named))
    if query == "histogram":
        edges, span = list(rows.edges), (LOW, HIGH + 1)
        return lambda: tools.histogram(ages, epsilon=named, bins=edges, range=span)[0]
    of_added = {"sum": (HIGH - LOW) / HIGH, "mean": 0.5, "variance": 0.5}[query]
    spent = named if as_named else named * of_added
    tool = {"sum": tools.sum, "mean": tools.mean, "variance": tools.var}[query]
    return lambda: np.atleast_1d(tool(ages, epsilon=spent, bounds=bounds))


def errors(draw: Draw, exact: NDArray[np.float64], n_draws: int) -> tuple[float, float]:
    """Mean absolute error of each number, and its standard error."""
    means = [float(np.abs(draw() - exact).mean()) for _ in range(n_draws)]
    return float(np.mean(means)), float(np.std(means) / n_draws**0.5)


def main() -> None:
    """Prints a Markdown table, and draws a plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    measured = measure(options.draws)
    print_table(measured)
    if options.plot is not None:
        plot(measured, options.plot)


Measured = dict[tuple[str, Fraction], dict[str, tuple[float, float]]]


def measure(n_draws: int) -> Measured:
    """The errors of each query at each ε, by library."""
    rows, measured = Rows.generated(), Measured()
    for query in FACTS:
        exact = rows.exact(query)
        for epsilon in EPSILONS:
            draws = {
                OURS: ours(query, rows, epsilon),
                OPENDP: by_opendp(query, rows, epsilon),
                DIFFPRIVLIB: by_diffprivlib(query, rows, epsilon),
            }
            if query in ("sum", "mean", "variance"):
                draws[AS_NAMED] = by_diffprivlib(query, rows, epsilon, as_named=True)
            measured[query, epsilon] = {
                name: errors(draw, exact, n_draws) for name, draw in draws.items()
            }
    return measured


def print_table(measured: Measured) -> None:
    """Prints errors, and the ratio to the better library at the same loss."""
    names = (OURS, OPENDP, DIFFPRIVLIB, AS_NAMED)
    print("| query | ε | " + " | ".join(names) + " | ratio to the better |")
    print("|---" * 7 + "|")
    for (query, epsilon), of in measured.items():
        shown = [f"{of[name][0]:.4g}" if name in of else "" for name in names]
        mine, best = of[OURS], min(of[OPENDP], of[DIFFPRIVLIB])
        ratio = mine[0] / best[0]
        spread = ratio * hypot(mine[1] / mine[0], best[1] / best[0])
        cells = [query, f"{float(epsilon):g}", *shown, f"{ratio:.2f} ± {spread:.2f}"]
        print("| " + " | ".join(cells) + " |")


def plot(measured: Measured, file: Path) -> None:
    """Draws errors against ε, one panel for each query."""
    salted = {"svg.hashsalt": "grovekeeper", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(salted):
        figure, panels = pyplot.subplots(2, 3, figsize=(10, 6), layout="constrained")
        for query, axes in zip(FACTS, panels.flat, strict=False):
            for name in (OURS, OPENDP, DIFFPRIVLIB, AS_NAMED):
                points = [
                    (float(epsilon), measured[query, epsilon][name][0])
                    for epsilon in EPSILONS
                    if name in measured[query, epsilon]
                ]
                if points:
                    style = "--" if name == AS_NAMED else "-"
                    axes.loglog(
                        *zip(*points, strict=True),
                        style,
                        marker="o",
                        markersize=3,
                        label=name,
                    )
            axes.set(title=query, xlabel="ε", ylabel="mean absolute error")
        panels.flat[-1].set_axis_off()
        handles, labels = panels.flat[len(FACTS) - 1].get_legend_handles_labels()
        panels.flat[-1].legend(handles, labels, loc="center")
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    main()

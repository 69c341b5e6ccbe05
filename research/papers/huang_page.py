"""The sections on figures 1 to 3 of Huang, Lei and Kabán and on the synthetic sets of
their tables, and the files behind them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from research import printed_tables
from research.papers import ablations, findings, synthetic
from research.papers.ablations import (
    FIGURE_1_EPSILONS,
    FIGURE_2_DEPTHS,
    FIGURE_2_EPSILONS,
    FIGURE_3_TREES,
    Values,
)
from research.papers.findings import Difference, Finding
from research.papers.median_trees import GEOMETRIC, PRIVATE, RANDOM, TRUE, UNIFORM
from research.runs import Task

NAMES = (
    "huang-figure-1",
    "huang-figure-2",
    "huang-figure-3",
    "huang-repaired",
    "huang-synthetic",
)

_FIGURE_1 = """\
## Figure 1: true, private and random medians

The printed rule (`research/papers/median_trees.py`, Algorithms 1 and 2) has no finite loss
([proof](../../proofs/spe.md)), so it runs outside the service, on data that everybody has. Splits and leaves get half
of ε each; in figure 2, which has no leaves, splits get all of it. The paper does not print how many candidates a median
has; here they are 100. The repaired form is `spe`.

[Accuracy](huang-figure-1.csv) of 10 trees. Their depth is the number of attributes, but in the last column, where the
public rule of `spe` chooses it: 4, 5, 6, 8 and 9 for ε = 0.5, 1, 2, 5 and 10. The paper prints the rows,
attributes and classes of its synthetic sets, but neither the seed nor other settings: these are {seeds} sets of each
width, by `make_classification` with its defaults.

![Accuracy by ε](plots/huang-figure-1.svg)
"""
_FIGURE_2 = """
## Figure 2: geometric and uniform budgets of levels

[Mean distance](huang-figure-2.csv) between the private and the true median of a node, in standard deviations of the
data, in one tree on {rows:,} rows with {width} normal attributes. Our text of the paper has neither number, nor the
values of ε on the axis of the figure: what the caption says of all its experiments may be true of them and false of
ours.

![Distance by ε](plots/huang-figure-2.svg)
"""
_FIGURE_3 = """
## Figure 3: number of trees and depth

[Accuracy](huang-figure-3.csv) at ε = 2; d is the number of features. The text does not name the three datasets of the
figure; these are three of table 1.

![Accuracy by number of trees](plots/huang-figure-3.svg)
"""
_SYNTHETIC = """
## The synthetic sets of tables 1 and 2

[Accuracy](huang-synthetic.csv) at ε = 2 on our stand-ins: mean, and in brackets the smallest and the largest mean of a
seed. The printed number is over three points above the largest for {above}, and as far below the smallest for {below}.
"""
FAR = 3.0
"""Points beyond the means of our seeds that a sentence on the synthetic sets names."""


def percents(values: Values, tasks: Iterable[Task]) -> list[float]:
    """Accuracies of all runs of the tasks, in percent."""
    return [100 * run[0] for task in tasks for run in values.get(task, ())]


def sections(values: Mapping[str, Values]) -> list[str]:
    """The sections.

    Args:
        values: of the runs, by the names of :data:`NAMES`.
    """
    signs = [
        gap.sign
        for depth in FIGURE_2_DEPTHS
        for gap in _by_budget(values["huang-figure-2"], depth, 1).values()
    ]
    return [
        _FIGURE_1.format(seeds=synthetic.N_SEEDS),
        *findings.listed(
            findings_of_figure_1(_with_repaired(values, "huang-figure-1"))
        ),
        _FIGURE_2.format(rows=synthetic.N_ROWS, width=synthetic.WIDTHS[0]),
        *findings.listed(findings_of_figure_2(values["huang-figure-2"])),
        "\nMost splits are at deep levels, which the geometric budget favours. The file has another average, too, "
        "which the paper does not name: every level counts alike. There the distance with the uniform budget "
        f"is above in at least {signs.count(1)} of {len(signs)} cases, and below in at least {signs.count(-1)}.",
        _FIGURE_3,
        *findings.listed(
            findings_of_figure_3(_with_repaired(values, "huang-figure-3"))
        ),
        _about_synthetic(values["huang-synthetic"]),
    ]


def _with_repaired(values: Mapping[str, Values], name: str) -> Values:
    return {**values[name], **values["huang-repaired"]}


def files(values: Mapping[str, Values]) -> dict[str, str]:
    """The CSV files behind the sections, by name."""
    return {
        "huang-figure-1.csv": _figure_1(_with_repaired(values, "huang-figure-1")),
        "huang-figure-2.csv": _figure_2(values["huang-figure-2"]),
        "huang-figure-3.csv": _figure_3(_with_repaired(values, "huang-figure-3")),
        "huang-synthetic.csv": _synthetic(values["huang-synthetic"]),
    }


def of_medians(values: Values, width: int, medians: str, epsilon: str) -> list[float]:
    """Accuracies of figure 1 in percent, in one order of seeds and folds for all kinds
    of medians.
    """
    return percents(
        values,
        (
            ablations.median_task(name, medians, ablations.N_SUPERVISED, width, epsilon)
            for name in synthetic.names(width)
        ),
    )


def _figure_1(values: Values) -> str:
    columns = (
        "attributes",
        "ε",
        "true medians",
        "private medians",
        "random medians",
        "repaired: spe",
    )
    rows = []
    for width, epsilon in product(synthetic.WIDTHS[:2], FIGURE_1_EPSILONS):
        kinds = [
            findings.text_of(of_medians(values, width, medians, epsilon))
            for medians in (TRUE, PRIVATE, RANDOM)
        ]
        repaired = (
            ablations.repaired_task(name, ablations.N_SUPERVISED, epsilon)
            for name in synthetic.names(width)
        )
        rows.append(
            (str(width), epsilon, *kinds, findings.text_of(percents(values, repaired)))
        )
    return findings.csv_text(columns, rows)


def findings_of_figure_1(values: Values) -> list[Finding]:
    """What the runs say on the caption of figure 1."""
    low, high = FIGURE_1_EPSILONS[0], FIGURE_1_EPSILONS[-1]

    def difference(
        width: int, first: tuple[str, str], second: tuple[str, str]
    ) -> Difference:
        return Difference.of(
            of_medians(values, width, *first), of_medians(values, width, *second)
        )

    widths = synthetic.WIDTHS[:2]
    gains = [difference(width, (PRIVATE, high), (PRIVATE, low)) for width in widths]

    def lost(width: int, epsilon: str) -> list[float]:
        """By run, what private medians lose beside true ones with the same leaves."""
        both = (of_medians(values, width, kind, epsilon) for kind in (TRUE, PRIVATE))
        return [one - other for one, other in zip(*both, strict=False)]

    by_medians = [
        Difference.of(lost(width, low), lost(width, high)) for width in widths
    ]
    ahead = [
        difference(width, (PRIVATE, epsilon), (RANDOM, epsilon))
        for width in widths
        for epsilon in FIGURE_1_EPSILONS
    ]
    return [
        Finding(
            "“the accuracy increases … due to larger privacy budget.”",
            f"from ε = {low} to {high} private medians gain {_by_width(widths, gains)}.",
            findings.by_signs(gains),
            findings.basis(_median_tasks((PRIVATE,), (low, high))),
        ),
        Finding(
            "and it does so “as we make better estimates of the true median”.",
            "noise in leaves falls as well. What private medians lose beside true ones with the same leaves is less at "
            f"ε = {high} than at {low} by {_by_width(widths, by_medians)}.",
            findings.by_signs(by_medians),
            findings.basis(_median_tasks((TRUE, PRIVATE), (low, high))),
        ),
        Finding(
            "better estimates of the median are more accurate, so private medians are above “random splitting”.",
            f"private medians are beside random ones {findings.counted(ahead)}; the mean difference is "
            f"{statistics.fmean(gap.mean for gap in ahead):+.1f} points.",
            findings.by_majority(ahead),
            findings.basis(_median_tasks((PRIVATE, RANDOM), FIGURE_1_EPSILONS)),
        ),
    ]


def _by_width(widths: Sequence[int], gaps: Sequence[Difference]) -> str:
    return " and ".join(
        f"{gap} points with {width} attributes"
        for width, gap in zip(widths, gaps, strict=True)
    )


def _median_tasks(kinds: Sequence[str], epsilons: Sequence[str]) -> list[Task]:
    """The tasks of figure 1 with some kinds of medians."""
    return [
        ablations.median_task(name, kind, ablations.N_SUPERVISED, width, epsilon)
        for width in synthetic.WIDTHS[:2]
        for name in synthetic.names(width)
        for kind, epsilon in product(kinds, epsilons)
    ]


def of_distances(
    values: Values, depth: int, ratio: float, epsilon: str, place: int
) -> list[float]:
    """Mean distances of figure 2: over splits (place 0) or over levels (place 1), in
    standard deviations.
    """
    return [
        run[place]
        for run in values.get(ablations.distance_task(depth, ratio, epsilon), ())
    ]


def _figure_2(values: Values) -> str:
    columns = (
        "depth",
        "ε",
        "geometric, by split",
        "uniform, by split",
        "geometric, by level",
        "uniform, by level",
    )
    rows = []
    for depth, epsilon in product(FIGURE_2_DEPTHS, FIGURE_2_EPSILONS):
        numbers = [
            of_distances(values, depth, ratio, epsilon, place)
            for place in (0, 1)
            for ratio in (GEOMETRIC, UNIFORM)
        ]
        rows.append(
            (
                str(depth),
                epsilon,
                *(findings.text_of(means, digits=3) for means in numbers),
            )
        )
    return findings.csv_text(columns, rows)


def findings_of_figure_2(values: Values) -> list[Finding]:
    """What the runs say on the caption of figure 2, by depth: a panel of the figure."""
    found = []
    for depth in FIGURE_2_DEPTHS:
        nearer = _by_budget(values, depth, 0)
        opposed = [epsilon for epsilon, gap in nearer.items() if gap.sign < 0]
        where = f"; below at ε = {', '.join(opposed)}" if opposed else ""
        found.append(
            Finding(
                f"the geometric budget “achieves smaller average distance to the true median over all sets of "
                f"experiments”; depth {depth}.",
                f"averaged over the splits of a tree, the distance with the uniform budget is "
                f"{findings.counted([*nearer.values()])}{where}.",
                findings.by_signs(nearer.values()),
                findings.basis(
                    ablations.distance_task(depth, ratio, epsilon)
                    for ratio, epsilon in product(
                        (GEOMETRIC, UNIFORM), FIGURE_2_EPSILONS
                    )
                ),
            )
        )
    return found


def _by_budget(values: Values, depth: int, place: int) -> dict[str, Difference]:
    """By ε, how much farther medians are with the uniform budget; ``place`` as in
    :func:`of_distances`.
    """
    return {
        epsilon: Difference.of(
            *(
                of_distances(values, depth, ratio, epsilon, place)
                for ratio in (UNIFORM, GEOMETRIC)
            )
        )
        for epsilon in FIGURE_2_EPSILONS
    }


def of_figure_3(values: Values, dataset: str, depth: int, n_trees: int) -> list[float]:
    """Accuracies of printed trees of figure 3 in percent."""
    return percents(
        values, [ablations.median_task(dataset, PRIVATE, n_trees, depth, "2")]
    )


def _figure_3(values: Values) -> str:
    columns = ("dataset", "depth", *map(findings.trees, FIGURE_3_TREES))
    rows = []
    for dataset, n_features in ablations.FIGURE_3_FEATURES.items():
        for depth, name in zip(
            ablations.depths_of(n_features), ("d/2", "d", "2d"), strict=True
        ):
            cells = [
                findings.text_of(of_figure_3(values, dataset, depth, n_trees))
                for n_trees in FIGURE_3_TREES
            ]
            rows.append((dataset, f"{name} = {depth}", *cells))
        tasks = [
            ablations.repaired_task(dataset, n_trees, "2", n_features)
            for n_trees in FIGURE_3_TREES
        ]
        rows.append(
            (
                dataset,
                "spe, d",
                *(findings.text_of(percents(values, [task])) for task in tasks),
            )
        )
    return findings.csv_text(columns, rows)


def findings_of_figure_3(values: Values) -> list[Finding]:
    """What the runs say on the text of section 6.1."""
    least, most = FIGURE_3_TREES[0], FIGURE_3_TREES[-1]
    by_trees: dict[int, list[Difference]] = {least: [], 10: []}
    beside_best, of_twice = [], []
    for dataset, n_features in ablations.FIGURE_3_FEATURES.items():
        depths = ablations.depths_of(n_features)
        for depth, (n_trees, gaps) in product(depths, by_trees.items()):
            gaps.append(
                Difference.of(
                    *(
                        of_figure_3(values, dataset, depth, number)
                        for number in (n_trees, most)
                    )
                )
            )
        at_ten = {depth: of_figure_3(values, dataset, depth, 10) for depth in depths}
        best = max(
            (runs for runs in at_ten.values() if runs), key=statistics.fmean, default=[]
        )
        beside_best.append(Difference.of(best, at_ten[n_features]))
        of_twice.append(Difference.of(at_ten[depths[-1]], at_ten[n_features]))
    basis = findings.basis(
        ablations.median_task(dataset, PRIVATE, 10, n_features, "2")
        for dataset, n_features in ablations.FIGURE_3_FEATURES.items()
    )

    def declines(stated: str, n_trees: int) -> Finding:
        gaps = by_trees[n_trees]
        return Finding(
            stated,
            f"the accuracy of {findings.trees(n_trees)} is beside that of {most} trees {findings.counted(gaps)}.",
            findings.by_majority(gaps),
            basis,
        )

    return [
        declines(
            "“the accuracy is high with small N and decreases as we add more trees”.",
            least,
        ),
        declines("“most of the accuracy curves decline after 10 trees”.", 10),
        Finding(
            "“max-depth = d is a reasonable default as it reaches high accuracy across data sets”.",
            f"with 10 trees, the best of the three depths is above depth d by "
            f"{', '.join(map(str, beside_best))} points, by dataset; one point counts as little.",
            findings.within(beside_best, 1),
            basis,
        ),
        Finding(
            "trees of depth 2d “may win in some cases”.",
            f"with 10 trees, depth 2d is beside depth d {findings.counted(of_twice)}.",
            findings.somewhere(of_twice),
            basis,
        ),
    ]


def _printed(table: str) -> Mapping[tuple[str, str], float]:
    return {
        (cell.dataset, cell.method): cell.printed
        for cell in printed_tables.cells()
        if cell.table == table
    }


def _of_sets(values: Values) -> Iterator[tuple[str, str, float, list[float]]]:
    """Synthetic set, method, printed accuracy and the means of our seeds."""
    printed = {**_printed("spe-1"), **_printed("spe-2")}
    for width, method in product(
        synthetic.WIDTHS, (*ablations.SYNTHETIC, "SPE as printed")
    ):
        of_seeds = _seed_means(values, ablations.synthetic_tasks(width, method))
        if of_seeds:
            number = printed[f"Syn{width}d", method.removesuffix(" as printed")]
            yield f"Syn{width}d", method, number, of_seeds


def _synthetic(values: Values) -> str:
    rows = [
        (
            name,
            method,
            f"{number:.2f}",
            f"{statistics.fmean(seeds):.1f} ({min(seeds):.1f} to {max(seeds):.1f})",
        )
        for name, method, number, seeds in _of_sets(values)
    ]
    return findings.csv_text(("set", "method", "printed", "ours"), rows)


def _about_synthetic(values: Values) -> str:
    """The section on the synthetic sets."""
    above: dict[str, list[str]] = defaultdict(list)
    below: dict[str, list[str]] = defaultdict(list)
    for name, method, number, seeds in _of_sets(values):
        if number > max(seeds) + FAR:
            above[method].append(name)
        elif number < min(seeds) - FAR:
            below[method].append(name)

    def named(sets: Mapping[str, Sequence[str]]) -> str:
        texts = (f"{method} ({', '.join(of)})" for method, of in sets.items())
        return ", ".join(texts) or "none"

    return _SYNTHETIC.format(above=named(above), below=named(below))


def _seed_means(values: Values, tasks: Sequence[Task]) -> list[float]:
    return [
        statistics.fmean(runs) for task in tasks if (runs := percents(values, [task]))
    ]

"""Writes the page on tables 4 and 5 and figures 5 and 6 of Bai et al., and on figure 7
of their preprint.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from research import printed_tables
from research.papers import ablation_measures, ablations, findings, printed_further
from research.papers.ablations import (
    BUDGETS,
    FIGURE_5_DATASETS,
    FIGURE_5_TREES,
    FIGURE_6_STRENGTHS,
    Values,
)
from research.papers.findings import Difference, Finding
from research.papers.huang_page import percents
from research.runs import Task

NAME = "mrf-figures.md"
NAMES = ("mrf-optimal", "mrf-figure-5", "mrf-figure-6", "preprint-figure-7")

_HEAD = """# Bai et al.: tables 4 and 5, figures 5 and 6; figure 7 of the preprint

The figures have no numbers in our text, so the papers' sentences stand beside what our runs show. Each sentence after
"Here" is computed from the runs. A difference decides if a t-test on pairs of runs rejects zero at 0.05; ± is one
standard error there, and the standard deviation in tables, which state the number of folds in brackets.

    python -m research.papers.ablation_runs DATA --names {names}
"""
_OPTIMAL = """
## Tables 4 and 5: the best parameters of every method

The paper prints no grid. Ours has leaves of 1 and 5 rows and, where a method has them, two or three values of B2, p2,
m or the columns of a split; B1 is 10. "Best" is the setting of the highest mean accuracy on the folds, as no others are
kept back, so chance raises it. "Default" is the paper's setting on the same folds. The paper says "grid-search" and not
on which rows; printed gains are those over tables 2 and 3. Numbers are percent. The label
of Hepatitis is the documented class; [table 2](mrf-2.md#missing) compares another one.
"""
_FIGURE_5 = """
## Figure 5: number of trees and ε, beside SmoothRF

Mean accuracy in percent of the rule as printed / `mrf` / `srt`, the last two repaired. As printed, t trees of depth 10
have B1 = B2 = ε / (20 t) and B3 = ε / t, and split points lie between values present, so that the loss is infinite
([proof](../../proofs/mrf.md)). SmoothRF is the forest of Fletcher and Islam, which `srt` repairs. Our text does not
name the eight datasets of the figure, so every dataset of table 2 that we have stands here.
[Table 2](mrf-2.md#what-the-printed-private-rules-cost) shows what labels drawn by the printed rule can reach at most.

![Accuracy by number of trees](plots/figure-5.svg)
"""
_FIGURE_6 = """
## Figure 6: B1 and B2

Mean accuracy in percent of `mrf-plain` at a value of B2, over all values of B1 ({strengths}), and the reverse.
The plot shows single settings, with 100 trees. Ads and Connect-4 of the figure are not here.

![Accuracy by B1 and B2](plots/figure-6.svg)
"""
_FIGURE_7 = """
## Figure 7 of the preprint: single trees

Accuracy in percent of the 100 trees of a forest on the test rows of a fold: means over folds of the mean and of the
quantiles. Ads and Connect-4 of the figure are not here.
"""
CONSISTENT = ("Denil14", "BRF", "CompRF-C")


def page(values: Mapping[str, Values]) -> str:
    """The page.

    Args:
        values: of the runs, by the names of :data:`NAMES`.
    """
    optimal, figure_5, figure_6, figure_7 = (values[name] for name in NAMES)
    lines = [
        _HEAD.format(names=" ".join(NAMES)),
        _OPTIMAL,
        *_optimal(optimal),
        _FIGURE_5,
        *_figure_5(figure_5),
    ]
    strengths = ", ".join(map(str, FIGURE_6_STRENGTHS))
    lines += [
        _FIGURE_6.format(strengths=strengths),
        *_figure_6(figure_6),
        _FIGURE_7,
        *_figure_7(figure_7),
    ]
    return "\n".join(lines) + "\n"


def best_setting(
    values: Values, tasks: Sequence[Task]
) -> tuple[Task, list[float]] | None:
    """The task of the highest mean accuracy and its accuracies in percent, once every
    task has as many folds.

    Returns:
        ``None`` where a setting of the grid has no run.
    """
    runs = {task: percents(values, [task]) for task in tasks}
    n_folds = min(map(len, runs.values()))
    if n_folds == 0:
        return None
    same_folds = {task: of_task[:n_folds] for task, of_task in runs.items()}
    best = max(tasks, key=lambda task: statistics.fmean(same_folds[task]))
    return best, same_folds[best]


def _defaults() -> Mapping[tuple[str, str], float]:
    """Accuracies of tables 2 and 3 in percent, by dataset and method."""
    return {
        (cell.dataset, cell.method): cell.printed
        for cell in printed_tables.cells()
        if cell.table in ("mrf-2", "mrf-3")
    }


def _optimal(values: Values) -> Iterator[str]:
    columns = (
        "table",
        "dataset",
        "method",
        "printed",
        "printed gain",
        "ours, best",
        "gain",
        "difference",
        "best setting",
    )
    rows, before = [], _defaults()
    for table, grids in ablations.OPTIMAL.items():
        for dataset, method in product(ablations.OPTIMAL_DATASETS, grids):
            tasks, printed = (
                ablations.optimal_tasks(table, dataset, method),
                printed_further.numbers(table)[dataset, method],
            )
            chosen = best_setting(values, tasks)
            if chosen is None:
                continue
            task, ours = chosen
            usual = percents(values, [tasks[0]])[: len(ours)]
            rows.append(
                (
                    table.removeprefix("mrf-"),
                    dataset,
                    method,
                    f"{printed:.2f}",
                    f"{printed - before[dataset, method]:+.2f}",
                    findings.text_of(ours),
                    f"{statistics.fmean(ours) - statistics.fmean(usual):+.1f}",
                    f"{statistics.fmean(ours) - printed:+.1f}",
                    f"`{task.algorithm}`",
                )
            )
    yield from findings.table(columns, rows)
    yield ""
    yield from map(str, findings_of_optimal(values))


def findings_of_optimal(values: Values) -> list[Finding]:
    """What printed numbers and runs say on the text of section 5.5.1."""
    printed, before = printed_further.numbers("mrf-4"), _defaults()
    both = {**printed, **printed_further.numbers("mrf-5")}
    not_better = [place for place, number in both.items() if number <= before[place]]
    datasets = list(dict.fromkeys(dataset for dataset, _ in printed))
    ahead = [
        dataset
        for dataset in datasets
        if printed[dataset, "MRF"] > max(printed[dataset, name] for name in CONSISTENT)
    ]
    gaps = [
        gap
        for dataset in ablations.OPTIMAL_DATASETS
        if (gap := _over_consistent(values, dataset)) is not None
    ]
    return [
        Finding(
            "“all methods achieve better performance than training without tuning the hyper-parameters”.",
            f"{len(not_better)} of the {len(both)} printed numbers are not above those of tables 2 and 3"
            + (
                f" ({'; '.join(' '.join(place) for place in not_better)})."
                if not_better
                else "."
            ),
            findings.FAILS if not_better else findings.HOLDS,
        ),
        Finding(
            "“MRF is still better than all other consistent RF variants”.",
            f"by the printed numbers on {len(ahead)} of {len(datasets)} datasets; by ours on "
            f"{sum(gap.mean > 0 for gap in gaps)} of {len(gaps)}, by so many points above the best of them: "
            f"{', '.join(map(str, gaps))}.",
            findings.by_signs(gaps)
            if len(gaps) == len(ablations.OPTIMAL_DATASETS)
            else findings.OPEN,
        ),
    ]


def _over_consistent(values: Values, dataset: str) -> Difference | None:
    """MRF beside the best other consistent forest, both at their best; ``None`` without
    all runs.
    """
    names = ("MRF", *CONSISTENT)
    chosen = {
        name: best_setting(values, ablations.optimal_tasks("mrf-4", dataset, name))
        for name in names
    }
    runs = {name: best[1] for name, best in chosen.items() if best is not None}
    if len(runs) < len(names):
        return None
    return Difference.of(
        runs["MRF"], max((runs[name] for name in CONSISTENT), key=statistics.fmean)
    )


def _figure_5(values: Values) -> Iterator[str]:
    columns = ("dataset", "ε", *map(findings.trees, FIGURE_5_TREES))
    rows = []
    for dataset, epsilon in product(FIGURE_5_DATASETS, BUDGETS):
        cells = []
        for n_trees in FIGURE_5_TREES:
            both = [
                percents(
                    values, [ablations.privacy_task(slug, dataset, n_trees, epsilon)]
                )
                for slug in ablations.FIGURE_5_FORESTS
            ]
            cells.append(
                " / ".join(
                    f"{statistics.fmean(runs):.1f}" if runs else "–" for runs in both
                )
            )
        rows.append((dataset, epsilon, *cells))
    yield from findings.table(columns, rows)
    yield ""
    yield from map(str, findings_of_figure_5(values))


def findings_of_figure_5(values: Values) -> list[Finding]:
    """What the runs say on the text of section 5.3; folds and datasets of one setting
    are pooled.
    """

    def pooled(slug: str, n_trees: int, epsilon: str) -> list[float]:
        return percents(
            values,
            [
                ablations.privacy_task(slug, dataset, n_trees, epsilon)
                for dataset in FIGURE_5_DATASETS
            ],
        )

    first, last = FIGURE_5_TREES[0], FIGURE_5_TREES[-1]
    beside = [
        Difference.of(pooled("mrf", n_trees, epsilon), pooled("srt", n_trees, epsilon))
        for n_trees, epsilon in product(FIGURE_5_TREES, BUDGETS)
    ]
    growth = [
        Difference.of(pooled("mrf", last, epsilon), pooled("mrf", first, epsilon))
        for epsilon in BUDGETS
    ]
    printed = [
        Difference.of(
            pooled(ablations.LITERAL, last, epsilon),
            pooled(ablations.LITERAL, first, epsilon),
        )
        for epsilon in BUDGETS
    ]
    fall = [
        Difference.of(pooled("srt", first, epsilon), pooled("srt", last, epsilon))
        for epsilon in BUDGETS
    ]
    budget = [
        Difference.of(pooled("mrf", n, BUDGETS[-1]), pooled("mrf", n, BUDGETS[0]))
        for n in FIGURE_5_TREES
    ]
    return [
        Finding(
            "“the MRF can achieve better performance compared with the SmoothRF in terms of different ε and t”.",
            f"`mrf` is beside `srt` {findings.counted(beside)}.",
            findings.by_majority(beside),
        ),
        Finding(
            "“when ε is relatively big, the added noise is relatively low, and thus the performance will increase”.",
            f"`mrf` at ε = {BUDGETS[-1]} is beside ε = {BUDGETS[0]} {findings.counted(budget)}.",
            findings.by_majority(budget),
        ),
        Finding(
            "“when the number of trees t increases, the performance of MRF increases significantly”.",
            f"from {first} tree to {last}, `mrf` changes by {', '.join(map(str, growth))} points at ε = "
            f"{', '.join(BUDGETS)}, the rule as printed by {', '.join(map(str, printed))}.",
            findings.by_signs(growth),
        ),
        Finding(
            "“while the performance of SmoothRF decreases significantly”.",
            f"from {first} tree to {last}, `srt` loses {', '.join(map(str, fall))} points at ε = {', '.join(BUDGETS)}.",
            findings.by_signs(fall),
        ),
    ]


def of_strength(
    values: Values, dataset: str, *, b1: int | None = None, b2: int | None = None
) -> list[float]:
    """Accuracies of figure 6 in percent at one value of B1 or of B2, over all values of
    the other.
    """
    return percents(
        values,
        (
            ablations.strength_task(dataset, first, second)
            for first, second in product(FIGURE_6_STRENGTHS, FIGURE_6_STRENGTHS)
            if first == (first if b1 is None else b1)
            and second == (second if b2 is None else b2)
        ),
    )


def _figure_6(values: Values) -> Iterator[str]:
    rows = []
    for dataset in ablations.FIGURE_6_DATASETS:
        for name in ("b2", "b1"):
            means = [
                of_strength(values, dataset, **{name: strength})
                for strength in FIGURE_6_STRENGTHS
            ]
            rows.append(
                (
                    dataset,
                    name.upper(),
                    *(
                        f"{statistics.fmean(runs):.1f}" if runs else "–"
                        for runs in means
                    ),
                )
            )
    yield from findings.table(("dataset", "by", *map(str, FIGURE_6_STRENGTHS)), rows)
    yield ""
    yield from map(str, findings_of_figure_6(values))


def findings_of_figure_6(values: Values) -> list[Finding]:
    """What the runs say on the text of section 5.5.2."""

    def steps(name: str, high: int, low: int) -> list[Difference]:
        return [
            Difference.of(
                of_strength(values, dataset, **{name: high}),
                of_strength(values, dataset, **{name: low}),
            )
            for dataset in ablations.FIGURE_6_DATASETS
        ]

    rises, later, of_b1 = steps("b2", 10, 0), steps("b2", 20, 10), steps("b1", 10, 0)
    known = [step for step in later if step.n_pairs]
    most = max((abs(step.mean) for step in known), default=0.0)
    smaller = Difference.of(
        [rise.mean for rise in rises], [step.mean for step in of_b1]
    )
    return [
        Finding(
            "accuracy “is significantly improved as B2 increases from zero”.",
            f"from B2 = 0 to 10 it changes by {', '.join(map(str, rises))} points, by dataset.",
            findings.by_signs(rises),
        ),
        Finding(
            "“it further becomes relatively stable when B2 ≥ 10”.",
            f"from B2 = 10 to 20 it changes by {most:.1f} points at most, which we call stable up to one.",
            findings.within(later, 1),
        ),
        Finding(
            "“the performance also improves as B1 increases from zero, but the effect is not obvious”.",
            f"from B1 = 0 to 10 it changes by {', '.join(map(str, of_b1))} points, by dataset; what B2 adds is larger "
            f"by {smaller} points on average.",
            findings.by_sign(smaller)
            if findings.by_majority(of_b1) == findings.HOLDS
            else findings.by_majority(of_b1),
        ),
    ]


def _figure_7(values: Values) -> Iterator[str]:
    columns = (
        "dataset",
        "forest",
        "mean",
        *(f"{100 * share:g} %" for share in ablation_measures.QUANTILES),
        "folds",
    )
    rows = []
    for dataset, slug in product(
        ablations.FIGURE_7_DATASETS, ablations.FIGURE_7_FORESTS
    ):
        runs = values.get(Task(dataset, slug, "", "0", 0), ())
        if runs:
            means = [
                f"{100 * statistics.fmean(numbers):.1f}"
                for numbers in zip(*runs, strict=True)
            ]
            rows.append((dataset, f"`{slug}`", *means, str(len(runs))))
    yield from findings.table(columns, rows)
    yield ""
    yield from map(str, findings_of_figure_7(values))


def findings_of_figure_7(values: Values) -> list[Finding]:
    """What the runs say on appendix F.1 of the preprint."""
    gaps = [
        Difference.of(
            *(
                percents(values, [Task(dataset, slug, "", "0", 0)])
                for slug in ablations.FIGURE_7_FORESTS
            )
        )
        for dataset in ablations.FIGURE_7_DATASETS
    ]
    shown = ", ".join(
        f"{dataset} {gap}"
        for dataset, gap in zip(ablations.FIGURE_7_DATASETS, gaps, strict=True)
    )
    car = gaps[ablations.FIGURE_7_DATASETS.index("car")]
    return [
        Finding(
            "“The tree-level performance of the MRF is generally better than that of the standard RF”.",
            f"a tree of `mrf-plain` is above a tree of `breiman` by so many points: {shown}.",
            findings.by_majority(gaps),
        ),
        Finding(
            "“the MRF has a significantly better tree-level performance on the CAR dataset”.",
            f"{car} points.",
            findings.by_sign(car),
        ),
    ]

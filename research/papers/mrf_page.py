"""The sections on tables 4 and 5 and figures 5 and 6 of Bai et al., and on figure 7 of
their preprint, and the files behind them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, cycle, product

from research import printed_tables
from research.papers import ablation_measures, ablations, findings, printed_further
from research.papers.ablations import (
    BUDGETS,
    FIGURE_5_DATASETS,
    FIGURE_5_TREES,
    FIGURE_6_STRENGTHS,
    LITERAL,
    Values,
)
from research.papers.findings import Difference, Finding
from research.papers.huang_page import percents
from research.papers.literal_forests import SMOOTH
from research.printed_pages import N_CLASSES
from research.reference.literal_rules import upper_bound, vote_ceiling
from research.runs import Task

NAMES = ("mrf-optimal", "mrf-figure-5", "mrf-figure-6", "preprint-figure-7")

_OPTIMAL = """\
## Tables 4 and 5: the best parameters of every method

The paper prints no grid. Ours has leaves of 1 and 5 rows and, where a method has them, two or three values of B2, p2,
m or the columns of a split; B1 is 10. "Best" is the setting of the highest mean accuracy on the folds, as no others are
kept back, so chance raises it. The paper says "grid-search" and not on which rows. Gains are over the paper's setting
on the same folds, printed gains over tables 2 and 3. The label of Hepatitis is the documented class;
[table 2](#table-2) compares another one.

[Every row](mrf-optimal.csv) has accuracies in percent. Below, in points: mean gains over the datasets, and the median
distance of our best from the printed one.
"""
_FIGURE_5 = """
## Figure 5: number of trees and budget, beside SmoothRF

Mean accuracy in percent over {n_datasets} datasets: both forests of the figure as printed, and both repaired. As
printed, t trees have B1 = B2 = ε / (20 t) and B3 = ε / t, split points follow the values present, so that the loss is
infinite ([proof](../../proofs/mrf.md)), and trees end at [depth 10](#table-3-of-the-preprint); SmoothRF follows the
code of Fletcher and Islam ([proof](../../proofs/srt.md)). Our text does not name the eight datasets of the figure, so
every dataset of table 2 that we have is in [the means](mrf-figure-5.csv); [ablations.csv](ablations.csv) has each. "At
most" there is what printed labels reach in the mean over the draws and these datasets if every leaf is pure; ten folds
can be above it by chance. Ties of votes of `mrf-plain` are drawn, as in the paper.

![Accuracy by number of trees](plots/figure-5.svg)
"""
_FIGURE_6 = """
## Figure 6: B1 and B2

[Mean accuracy](mrf-figure-6.csv) of `mrf-plain` at a value of B2, over all values of B1 ({strengths}), and the reverse.
The plot shows single settings, with 100 trees. Ads and Connect-4 of the figure are not here.

![Accuracy by B1 and B2](plots/figure-6.svg)
"""
_FIGURE_7 = """
## Figure 7 of the preprint: single trees

[Accuracy](preprint-figure-7.csv) of the 100 trees of a forest on the test rows of a fold: means over folds of the mean
and of the quantiles. Ads and Connect-4 of the figure are not here.
"""
CONSISTENT = ("Denil14", "BRF", "CompRF-C")


def sections(values: Mapping[str, Values]) -> list[str]:
    """The sections.

    Args:
        values: of the runs, by the names of :data:`NAMES`.
    """
    optimal, figure_5, figure_6, figure_7 = (values[name] for name in NAMES)
    strengths = ", ".join(map(str, FIGURE_6_STRENGTHS))
    of_5 = [
        task
        for setting in product(ablations.FIGURE_5_FORESTS, FIGURE_5_TREES, BUDGETS)
        for task in pooled_tasks(*setting)
    ]
    of_6 = [
        task
        for dataset in ablations.FIGURE_6_DATASETS
        for task in strength_tasks(dataset)
    ]
    return [
        _OPTIMAL,
        *_optimal(optimal),
        _FIGURE_5.format(n_datasets=len(FIGURE_5_DATASETS)),
        f"{findings.folds(figure_5, of_5)}\n",
        *findings.listed(findings_of_figure_5(figure_5)),
        _FIGURE_6.format(strengths=strengths),
        f"{findings.folds(figure_6, of_6)}\n",
        *findings.listed(findings_of_figure_6(figure_6)),
        _FIGURE_7,
        *findings.listed(findings_of_figure_7(figure_7)),
    ]


def files(values: Mapping[str, Values]) -> dict[str, str]:
    """The CSV files behind the sections, by name."""
    optimal, figure_5, figure_6, figure_7 = (values[name] for name in NAMES)
    return {
        "mrf-optimal.csv": optimal_rows(optimal),
        "mrf-figure-5.csv": _figure_5(figure_5),
        "mrf-figure-6.csv": _figure_6(figure_6),
        "preprint-figure-7.csv": _figure_7(figure_7),
    }


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


@dataclass(frozen=True)
class _Best:
    """A method on a dataset of table 4 or 5, beside our best setting of it.

    Attributes:
        table: 4 or 5.
        dataset: as printed.
        method: as printed.
        printed: accuracy in percent.
        printed_gain: over table 2 or 3.
        task: our best setting.
        ours: its accuracies in percent.
        gain: of its mean over that of the paper's setting on the same folds.
    """

    table: str
    dataset: str
    method: str
    printed: float
    printed_gain: float
    task: Task
    ours: Sequence[float]
    gain: float

    @property
    def difference(self) -> float:
        """Ours − printed."""
        return statistics.fmean(self.ours) - self.printed


def _bests(values: Values) -> Iterator[_Best]:
    """The rows of tables 4 and 5 that have runs, in the paper's order."""
    before = _defaults()
    for table, grids in ablations.OPTIMAL.items():
        numbers = printed_further.numbers(table)
        for dataset, method in product(ablations.OPTIMAL_DATASETS, grids):
            tasks = ablations.optimal_tasks(table, dataset, method)
            chosen = best_setting(values, tasks)
            if chosen is None:
                continue
            task, ours = chosen
            printed = numbers[dataset, method]
            usual = percents(values, [tasks[0]])[: len(ours)]
            yield _Best(
                table.removeprefix("mrf-"),
                dataset,
                method,
                printed,
                printed - before[dataset, method],
                task,
                ours,
                statistics.fmean(ours) - statistics.fmean(usual),
            )


def optimal_rows(values: Values) -> str:
    """Every row of tables 4 and 5 that has runs, as CSV."""
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
    return findings.csv_text(
        columns,
        (
            (
                best.table,
                best.dataset,
                best.method,
                f"{best.printed:.2f}",
                f"{best.printed_gain:+.2f}",
                findings.text_of(best.ours),
                f"{best.gain:+.1f}",
                f"{best.difference:+.1f}",
                best.task.algorithm,
            )
            for best in _bests(values)
        ),
    )


def _optimal(values: Values) -> Iterator[str]:
    by_method: dict[tuple[str, str], list[_Best]] = defaultdict(list)
    for best in _bests(values):
        by_method[best.table, best.method].append(best)
    columns = (
        "table",
        "method",
        "datasets",
        "folds",
        "printed gain",
        "gain",
        "distance",
    )
    rows = []
    for (table, method), bests in by_method.items():
        n_folds = {len(best.ours) for best in bests}
        rows.append(
            (
                table,
                method,
                str(len(bests)),
                "–".join(map(str, sorted({min(n_folds), max(n_folds)}))),
                f"{statistics.fmean(best.printed_gain for best in bests):+.1f}",
                f"{statistics.fmean(best.gain for best in bests):+.1f}",
                f"{statistics.median(abs(best.difference) for best in bests):.1f}",
            )
        )
    yield from findings.table(columns, rows)
    yield ""
    yield from findings.listed(findings_of_optimal(values))


def findings_of_optimal(values: Values) -> list[Finding]:
    """What printed numbers and runs say on the text of section 5.5.1."""
    printed, before = printed_further.numbers("mrf-4"), _defaults()
    both = {**printed, **printed_further.numbers("mrf-5")}
    not_better = [place for place, number in both.items() if number <= before[place]]
    gains: dict[str, list[float]] = defaultdict(list)
    for place, number in both.items():
        gains[place[1]].append(number - before[place])
    rises = [statistics.fmean(of_method) > 0 for of_method in gains.values()]
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
    grid = [
        task
        for dataset in ablations.OPTIMAL_DATASETS
        for method in ("MRF", *CONSISTENT)
        for task in ablations.optimal_tasks("mrf-4", dataset, method)
    ]
    return [
        Finding(
            "“all methods achieve better performance than training without tuning the hyper-parameters”.",
            f"in the mean over datasets, {sum(rises)} of {len(rises)} methods are above tables 2 and 3; of the "
            f"{len(both)} single numbers, {len(not_better)} are not "
            f"({'; '.join(map(' '.join, not_better)) or 'none'}).",
            findings.FAILS
            if not all(rises)
            else findings.OPEN
            if not_better
            else findings.HOLDS,
            "printed numbers of tables 2 to 5",
        ),
        Finding(
            "“MRF is still better than all other consistent RF variants”.",
            f"by the printed numbers on {len(ahead)} of {len(datasets)} datasets; by ours on "
            f"{sum(gap.mean > 0 for gap in gaps)} of {len(gaps)}, by so many points above the best of them: "
            f"{', '.join(map(str, gaps))}.",
            findings.by_signs(gaps)
            if len(gaps) == len(ablations.OPTIMAL_DATASETS)
            else findings.OPEN,
            f"printed numbers of table 4; {findings.basis(grid)}",
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


def _figure_5(values: Values) -> str:
    rows = []
    for epsilon in BUDGETS:
        for slug in ablations.FIGURE_5_FORESTS:
            means = [
                _mean(percents(values, pooled_tasks(slug, n_trees, epsilon)))
                for n_trees in FIGURE_5_TREES
            ]
            rows.append((epsilon, slug, *means))
        most = [
            upper_bound(printed_ceiling(n_trees, epsilon)) for n_trees in FIGURE_5_TREES
        ]
        rows.append((epsilon, "at most", *most))
    return findings.csv_text(
        ("ε", "forest", *map(findings.trees, FIGURE_5_TREES)), rows
    )


def printed_ceiling(n_trees: int, epsilon: str) -> float:
    """Largest accuracy in percent of the printed rule, in the mean over the datasets of
    figure 5.
    """
    return statistics.fmean(
        100 * vote_ceiling(n_trees, float(epsilon), N_CLASSES[dataset])
        for dataset in FIGURE_5_DATASETS
    )


def _mean(numbers: Sequence[float]) -> str:
    return f"{statistics.fmean(numbers):.1f}" if numbers else "–"


def pooled_tasks(slug: str, n_trees: int, epsilon: str) -> list[Task]:
    """The tasks of a setting of figure 5 on all datasets."""
    return [
        ablations.privacy_task(slug, dataset, n_trees, epsilon)
        for dataset in FIGURE_5_DATASETS
    ]


Setting = tuple[str, int, str]
"""Forest, number of trees and ε of figure 5."""


def _compared(
    values: Values, pairs: Sequence[tuple[Setting, Setting]]
) -> tuple[list[Difference], str]:
    """Differences of settings over folds and datasets, and their basis."""
    differences = [
        Difference.of(
            percents(values, pooled_tasks(*one)), percents(values, pooled_tasks(*other))
        )
        for one, other in pairs
    ]
    settings = dict.fromkeys(setting for pair in pairs for setting in pair)
    slugs = dict.fromkeys(slug for slug, *_ in settings)
    tasks = [
        replace(task, epsilon=epsilon)
        for slug in slugs
        for of_slug, n_trees, epsilon in settings
        if of_slug == slug
        for task in pooled_tasks(slug, n_trees, epsilon)
    ]
    return differences, findings.basis(tasks)


def findings_of_figure_5(values: Values) -> list[Finding]:
    """What the runs say on the text of section 5.3; folds and datasets of one setting
    are pooled. The paper's forests as printed decide about its sentences.
    """
    return [
        _beside_smooth(values, LITERAL, SMOOTH, "the two forests of the figure"),
        _beside_smooth(values, "mrf", "srt", "their repaired forms"),
        *(_by_budget(values, slug) for slug in (LITERAL, "mrf")),
        *(_more_trees(values, slug) for slug in (LITERAL, "mrf")),
        *(_fewer_trees(values, slug) for slug in (SMOOTH, "srt")),
    ]


def _beside_smooth(values: Values, ours: str, theirs: str, which: str) -> Finding:
    settings = list(product(FIGURE_5_TREES, BUDGETS))
    gaps, basis = _compared(
        values, [((ours, *setting), (theirs, *setting)) for setting in settings]
    )
    known = [gap.mean for gap in gaps if gap.n_pairs]
    between = f", by {min(known):+.1f} to {max(known):+.1f} points" if known else ""
    return Finding(
        "“the MRF can achieve better performance compared with the SmoothRF in terms of different ε and t”; "
        f"{which}.",
        f"`{ours}` is beside `{theirs}` {findings.counted(gaps)}{between}.",
        findings.by_majority(gaps),
        basis,
    )


def _by_budget(values: Values, slug: str) -> Finding:
    rises, basis = _compared(
        values,
        [((slug, n, BUDGETS[-1]), (slug, n, BUDGETS[0])) for n in FIGURE_5_TREES],
    )
    return Finding(
        "“when ε is relatively big, the added noise is relatively low, and thus the performance will increase”.",
        f"ε = {BUDGETS[-1]} is beside ε = {BUDGETS[0]} {findings.counted(rises)}.",
        findings.by_majority(rises),
        basis,
    )


def _of_trees(values: Values, slug: str) -> tuple[list[Difference], Difference, str]:
    """Differences of the most trees from the fewest at every ε, their mean over ε, and
    the basis.
    """
    first, last = FIGURE_5_TREES[0], FIGURE_5_TREES[-1]
    by_epsilon, basis = _compared(
        values, [((slug, last, epsilon), (slug, first, epsilon)) for epsilon in BUDGETS]
    )
    most, fewest = (
        [
            statistics.fmean(of_fold)
            for of_fold in zip(
                *(
                    percents(values, pooled_tasks(slug, n_trees, epsilon))
                    for epsilon in BUDGETS
                ),
                strict=False,
            )
        ]
        for n_trees in (last, first)
    )
    return by_epsilon, Difference.of(most, fewest), basis


def _more_trees(values: Values, slug: str) -> Finding:
    growth, mean, basis = _of_trees(values, slug)
    return Finding(
        "“when the number of trees t increases, the performance of MRF increases significantly”.",
        f"from {FIGURE_5_TREES[0]} tree to {FIGURE_5_TREES[-1]}, it changes by {', '.join(map(str, growth))} points, "
        f"by {mean} in the mean over ε.",
        findings.by_sign(mean),
        basis,
    )


def _fewer_trees(values: Values, slug: str) -> Finding:
    growth, mean, basis = _of_trees(values, slug)
    fall, of_mean = (
        [replace(change, mean=-change.mean) for change in changes]
        for changes in (growth, [mean])
    )
    return Finding(
        "“while the performance of SmoothRF decreases significantly”.",
        f"from {FIGURE_5_TREES[0]} tree to {FIGURE_5_TREES[-1]}, it loses {', '.join(map(str, fall))} points, "
        f"{of_mean[0]} in the mean over ε.",
        findings.by_sign(of_mean[0]),
        basis,
    )


def strength_tasks(
    dataset: str, *, b1: int | None = None, b2: int | None = None
) -> list[Task]:
    """Tasks of figure 6 at one value of B1 or of B2, over all values of the other."""
    return [
        ablations.strength_task(dataset, first, second)
        for first, second in product(FIGURE_6_STRENGTHS, FIGURE_6_STRENGTHS)
        if first == (first if b1 is None else b1)
        and second == (second if b2 is None else b2)
    ]


def of_strength(
    values: Values, dataset: str, *, b1: int | None = None, b2: int | None = None
) -> list[float]:
    """Mean accuracies in percent of the tasks of :func:`strength_tasks`, by fold."""
    of_tasks = [
        percents(values, [task]) for task in strength_tasks(dataset, b1=b1, b2=b2)
    ]
    return [statistics.fmean(of_fold) for of_fold in zip(*of_tasks, strict=False)]


def _figure_6(values: Values) -> str:
    rows = [
        (
            dataset,
            name.upper(),
            *(
                _mean(of_strength(values, dataset, **{name: strength}))
                for strength in FIGURE_6_STRENGTHS
            ),
        )
        for dataset, name in product(ablations.FIGURE_6_DATASETS, ("b2", "b1"))
    ]
    return findings.csv_text(("dataset", "by", *map(str, FIGURE_6_STRENGTHS)), rows)


def findings_of_figure_6(values: Values) -> list[Finding]:
    """What the runs say on the text of section 5.5.2; differences are paired over
    folds.
    """

    def means(name: str, strength: int) -> list[list[float]]:
        return [
            of_strength(values, dataset, **{name: strength})
            for dataset in ablations.FIGURE_6_DATASETS
        ]

    def steps(name: str, high: int, low: int) -> list[Difference]:
        return [
            Difference.of(one, other)
            for one, other in zip(means(name, high), means(name, low), strict=True)
        ]

    def rise(name: str) -> list[float]:
        return [
            after - before
            for one, other in zip(means(name, 10), means(name, 0), strict=True)
            for after, before in zip(one, other, strict=False)
        ]

    rises, of_b1 = steps("b2", 10, 0), steps("b1", 10, 0)
    pairs = combinations((20, 15, 10), 2)
    later = [step for high, low in pairs for step in steps("b2", high, low)]
    names = cycle(ablations.FIGURE_6_DATASETS)
    known = [
        (abs(step.mean), name)
        for step, name in zip(later, names, strict=False)
        if step.n_pairs
    ]
    most, where = max(known, default=(0.0, "no runs"))
    larger = Difference.of(rise("b2"), rise("b1"))
    basis = findings.basis(
        task
        for dataset in ablations.FIGURE_6_DATASETS
        for task in strength_tasks(dataset)
    )
    seen = findings.by_sign(larger)
    reverse = ", the reverse of the statement; perhaps the paper exchanges B1 and B2"
    return [
        Finding(
            "accuracy “is significantly improved as B2 increases from zero”.",
            f"from B2 = 0 to 10 it changes by {', '.join(map(str, rises))} points, by dataset: "
            f"{findings.counted(rises)}.",
            findings.by_majority(rises),
            basis,
        ),
        Finding(
            "“it further becomes relatively stable when B2 ≥ 10”.",
            f"among B2 = 10, 15 and 20 it changes by up to {most:.1f} points ({where}), which we call stable up to "
            "one.",
            findings.within(later, 1),
            basis,
        ),
        Finding(
            "“the performance also improves as B1 increases from zero”.",
            f"from B1 = 0 to 10 it changes by {', '.join(map(str, of_b1))} points, by dataset: "
            f"{findings.counted(of_b1)}.",
            findings.by_majority(of_b1),
            basis,
        ),
        Finding(
            "of B1, “but the effect is not obvious”, beside that of B2.",
            f"from 0 to 10, B2 adds more than B1 by {larger} points{reverse * (seen == findings.FAILS)}.",
            seen,
            basis,
        ),
    ]


def _figure_7(values: Values) -> str:
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
            rows.append((dataset, slug, *means, str(len(runs))))
    return findings.csv_text(columns, rows)


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
    of_all, of_car = (
        findings.basis(
            Task(dataset, slug, "", "0", 0)
            for slug in ablations.FIGURE_7_FORESTS
            for dataset in datasets
        )
        for datasets in (ablations.FIGURE_7_DATASETS, ("car",))
    )
    return [
        Finding(
            "“The tree-level performance of the MRF is generally better than that of the standard RF”.",
            f"a tree of `mrf-plain` is above a tree of `breiman` by so many points: {shown}; {findings.counted(gaps)}.",
            findings.by_majority(gaps),
            of_all,
        ),
        Finding(
            "“the MRF has a significantly better tree-level performance on the CAR dataset”.",
            f"{car} points.",
            findings.by_sign(car),
            of_car,
        ),
    ]

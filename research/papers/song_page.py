"""The sections on figures 2 to 5, table 4 and the times of Song and Wang, and the files
behind them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product

from research import printed_tables
from research.papers import ablations, findings, printed_further
from research.papers.ablations import (
    BUDGET_DATASETS,
    BUDGET_SIZES,
    BUDGETS,
    DROPOUT_DATASETS,
    RATES,
    Values,
)
from research.papers.findings import Difference, Finding
from research.papers.huang_page import percents
from research.printed_pages import N_CLASSES, SMALL
from research.reference.literal_rules import upper_bound, vote_ceiling
from research.runs import Task

NAMES = ("song-figure-2", "song-figure-4", "song-figure-5", "song-table-4")

_FIGURE_2 = """\
## Figures 2 and 3: accuracy and time by p1 and p2

[Mean accuracy and CPU seconds](song-figure-2.csv) of `bms-rf-plain` with one layer of {n_trees} trees; the paper does
not print theirs. Its sentences are translated.

![Accuracy and time by p2](plots/song-figure-2.svg)
"""
_FIGURE_4 = """
## Figure 4: number of trees, without privacy

[Accuracy](song-figure-4.csv) of `bms-rf-plain` with three layers, and p1 and p2 of table 5, beside `mrf-plain` with as
many trees. Our text does not name the eight datasets of the figure; these are eight of table 3.

![Accuracy by number of trees](plots/song-figure-4.svg)
"""
_FIGURE_5 = """
## Figure 5: number of trees and budget

[Mean accuracy](song-figure-5.csv) of BMS-RF with three layers / MRF, with as many trees: as printed, and repaired
(`bms-rf`, `mrf`) at the same ε. As printed every layer has all of ε, split points follow the values present and the
next layer sees exact class shares, so that the loss is infinite ([proof](../../proofs/bms-rf.md)). "At most" is what
the printed labels of BMS-RF can reach in the mean on any rows. Ties of votes are drawn, as in Bai et al. One draw
labels all rows of a leaf, so that a mean of ten folds can be above "at most" by chance. Datasets are those that the
text names.

![Accuracy by number of trees](plots/song-figure-5.svg)
"""
_TIMES = """
## Times of table 3

[Printed seconds](song-times.csv) beside the median seconds of our first ten folds of [table 3](#table-3), for growth
and prediction. MRF and BMS-RF stop as in section 3.2 of Bai et al. here, because those runs had the machine to
themselves, which is not known of RF and BRF: some of their times on small tables are longer than on large ones. The
paper does not say what its seconds contain, so the share of MRF's time that BMS-RF takes is what compares.
"""
_TABLE_4 = """
## Table 4: rotation and oblique forests

[Accuracy](song-table-4.csv) without columns for other and missing values, as in table 3 of
[Bai et al.](paper-bai.md#table-3). The column of BMS-RF repeats [table 3](#table-3), which has its runs.
"""
NARROW = "wine_quality_red"
"""The dataset of figure 2 with few features: 11, where the others have 60 and 90."""

WIDE = ("sonar", "movement_libras")
"""The other two; the text gives one the number of features of the other."""

FORESTS = {"RF": "breiman", "BRF": "brf", "MRF": "mrf-plain", "BMS-RF": "bms-rf-plain"}
"""Slugs of the forests of table 3, by printed method."""

TIMED = ("breiman", "brf", "mrf-plain:stop=leaves", "bms-rf-plain:stop=leaves")
"""The algorithms whose runs the times of table 3 come from, in the order of
:data:`FORESTS`; the last has the parameters of table 5 behind it.
"""

REVERSED = ("Sonar", "Vehicle")
"""Datasets of figure 5 on which the paper sees a higher accuracy at less ε."""

EXCEPTIONS = ("Australian", "Zoo")
"""Datasets of figure 5 that the paper excepts from what it says beside MRF."""

Seconds = Mapping[tuple[str, str], Sequence[float]]
"""Seconds of runs of table 3, by file of the dataset and slug."""


def is_timed(algorithm: str) -> bool:
    """Whether runs of an algorithm are in the times of table 3. Others of the same slug,
    such as single trees, are not.
    """
    return algorithm in TIMED or algorithm.startswith(f"{TIMED[-1]},")


def sections(
    values: Mapping[str, Values],
    seconds_of_dropout: Mapping[Task, Sequence[float]],
    seconds_of_table: Seconds,
) -> list[str]:
    """The sections.

    Args:
        values: of the runs, by the names of :data:`NAMES`.
        seconds_of_dropout: CPU seconds of the runs of figure 2, by task on the first
            fold.
        seconds_of_table: of table 3.
    """
    figure_2, figure_4, figure_5, table_4 = (values[name] for name in NAMES)
    dropped = [
        ablations.dropout_task(*setting)
        for setting in product(DROPOUT_DATASETS, RATES, RATES)
    ]
    budgeted = [
        task
        for setting in product(BUDGET_DATASETS, BUDGET_SIZES, BUDGETS)
        for pair in BUDGETED.values()
        for task in pair(*setting)
    ]
    return [
        _FIGURE_2.format(n_trees=ablations.DROPOUT_TREES),
        f"{findings.folds(figure_2, dropped)}\n",
        *findings.listed(findings_of_figure_2(figure_2)),
        *findings.listed(findings_of_figure_3(seconds_of_dropout)),
        _FIGURE_4,
        *findings.listed(findings_of_figure_4(figure_4)),
        _FIGURE_5,
        f"{findings.folds(figure_5, budgeted)}\n",
        *findings.listed(findings_of_figure_5(figure_5)),
        _TIMES,
        *findings.listed([finding_of_times(seconds_of_table)]),
        _TABLE_4,
        _beside_table_4(table_4),
    ]


def files(
    values: Mapping[str, Values],
    seconds_of_dropout: Mapping[Task, Sequence[float]],
    seconds_of_table: Seconds,
) -> dict[str, str]:
    """The CSV files behind the sections, by name; arguments as in :func:`sections`."""
    figure_2, figure_4, figure_5, table_4 = (values[name] for name in NAMES)
    return {
        "song-figure-2.csv": _figure_2(figure_2, seconds_of_dropout),
        "song-figure-4.csv": _figure_4(figure_4),
        "song-figure-5.csv": _figure_5(figure_5),
        "song-times.csv": _times(seconds_of_table),
        "song-table-4.csv": _table_4(table_4),
    }


def _figure_2(values: Values, seconds: Mapping[Task, Sequence[float]]) -> str:
    rows = []
    for dataset, p1, p2 in product(DROPOUT_DATASETS, RATES, RATES):
        task = ablations.dropout_task(dataset, p1, p2)
        if runs := percents(values, [task]):
            time = f"{statistics.fmean(seconds[task]):.2f}"
            rows.append((dataset, p1, p2, f"{statistics.fmean(runs):.1f}", time))
    return findings.csv_text(("dataset", "p1", "p2", "accuracy", "seconds"), rows)


def findings_of_figure_2(values: Values) -> list[Finding]:
    """What the runs say on accuracy in section 3.2.3."""

    def beside(dataset: str, first: str, second: str) -> Difference:
        return Difference.of(
            *(
                percents(values, [ablations.dropout_task(dataset, p, p)])
                for p in (first, second)
            )
        )

    def basis(datasets: Sequence[str], *rates: str) -> str:
        return findings.basis(
            ablations.dropout_task(dataset, p, p)
            for dataset, p in product(datasets, rates)
        )

    kept = [beside(dataset, "0.4", "1") for dataset in DROPOUT_DATASETS]
    few = beside(NARROW, "0.4", "0.05")
    falling = [beside(dataset, "0.05", "1") for dataset in WIDE]
    return [
        Finding(
            "p1 and p2 of 0.2 to 0.6 have little effect on accuracy, which is “on par with MRF on most datasets”.",
            f"with p1 = p2 = 0.4 accuracy differs from that without dropout by {', '.join(map(str, kept))} points, by "
            "dataset; two points count as little.",
            findings.within(kept, 2),
            basis(DROPOUT_DATASETS, "0.4", "1"),
        ),
        Finding(
            "with few features, p1 and p2 of 0.05 are a large disturbance, and accuracy rises as they rise.",
            f"p1 = p2 = 0.4 is above 0.05 by {few} points on the one of the three datasets that has few features.",
            findings.by_sign(few),
            basis((NARROW,), "0.4", "0.05"),
        ),
        Finding(
            "on “the 90-dimensional Sonar” the accuracy “rises steadily as p1 and p2 fall”; Sonar has 60 features, "
            "Movement_libras has 90.",
            f"p1 = p2 = 0.05 is above 1 by {', '.join(map(str, falling))} points, by dataset.",
            findings.by_signs(falling),
            basis(WIDE, "0.05", "1"),
        ),
    ]


def findings_of_figure_3(seconds: Mapping[Task, Sequence[float]]) -> list[Finding]:
    """What the runs say on times in section 3.2.3."""
    steps, shares, savings = [], [], []
    for dataset, p1 in product(DROPOUT_DATASETS, RATES):
        times = [
            seconds.get(ablations.dropout_task(dataset, p1, p2), ()) for p2 in RATES
        ]
        steps += [Difference.of(more, less) for less, more in pairwise(times)]
    for dataset in DROPOUT_DATASETS:
        some, all_of_it = (
            seconds.get(ablations.dropout_task(dataset, rate, rate), ())
            for rate in ("0.4", "1")
        )
        savings.append(Difference.of(all_of_it, some))
        if some and all_of_it:
            shares.append(statistics.fmean(some) / statistics.fmean(all_of_it))
    dropped, every = (
        [
            ablations.dropout_task(dataset, p1, p2)
            for dataset in DROPOUT_DATASETS
            for p1, p2 in rates
        ]
        for rates in ((("0.4", "0.4"), ("1", "1")), tuple(product(RATES, RATES)))
    )
    return [
        Finding(
            "“with p1 fixed and p2 falling, the running time of BMS-RF always falls”.",
            f"the time at a value of p2 is beside that at the next smaller one {findings.counted(steps)}.",
            findings.by_signs(steps),
            f"CPU seconds of {findings.basis(every)}",
        ),
        Finding(
            "with dropout “the running speed of all datasets is significantly higher”.",
            f"p1 = p2 = 0.4 takes {', '.join(f'{share:.2f}' for share in shares)} of the time without dropout, by "
            "dataset.",
            findings.by_signs(savings),
            f"CPU seconds of {findings.basis(dropped)}",
        ),
    ]


def _figure_4(values: Values) -> str:
    columns = ("dataset", "forest", *map(findings.trees, ablations.STACKED_SIZES))
    rows = []
    for dataset in ablations.STACKED_DATASETS:
        for place, name in enumerate(("bms-rf-plain", "mrf-plain")):
            tasks = [
                ablations.stacked_tasks(dataset, n_trees)[place]
                for n_trees in ablations.STACKED_SIZES
            ]
            rows.append(
                (
                    dataset,
                    name,
                    *(findings.text_of(percents(values, [task])) for task in tasks),
                )
            )
    return findings.csv_text(columns, rows)


def findings_of_figure_4(values: Values) -> list[Finding]:
    """What the runs say on figure 4, at 60 trees and on growth from 3 trees."""
    most, fewest = ablations.STACKED_SIZES[-1], ablations.STACKED_SIZES[0]
    above = [
        Difference.of(
            *(
                percents(values, [task])
                for task in ablations.stacked_tasks(dataset, most)
            )
        )
        for dataset in ablations.STACKED_DATASETS
    ]
    growth = [
        Difference.of(
            *(
                percents(values, [ablations.stacked_tasks(dataset, n_trees)[0]])
                for n_trees in (most, fewest)
            )
        )
        for dataset in ablations.STACKED_DATASETS
    ]
    (sonar,) = (
        gap
        for gap, dataset in zip(above, ablations.STACKED_DATASETS, strict=True)
        if dataset == "Sonar"
    )
    both = [
        ablations.stacked_tasks(dataset, most) for dataset in ablations.STACKED_DATASETS
    ]
    return [
        Finding(
            "with more than 30 trees BMS-RF is “significantly above MRF”, so that stacking improves generalisation.",
            f"with {most} trees `bms-rf-plain` is beside `mrf-plain` {findings.counted(above)}; by dataset "
            f"{', '.join(map(str, above))} points.",
            findings.by_majority(above),
            findings.basis(task for pair in both for task in pair),
        ),
        Finding(
            "with fewer than 20 trees random disturbance may lower accuracy.",
            f"{most} trees are beside {fewest} {findings.counted(growth)}; by dataset {', '.join(map(str, growth))} "
            "points.",
            findings.by_majority(growth),
            findings.basis(stacked for stacked, _ in both),
        ),
        Finding(
            "by stacking (20, 20, 20) the accuracy on Sonar rises from 75.29 to 79.22, 3.9 points; the text does not "
            "say which forest has 75.29.",
            f"three layers of 20 trees are {sonar} points above 60 trees of `mrf-plain`.",
            findings.by_sign(sonar),
            findings.basis(ablations.stacked_tasks("Sonar", most)),
        ),
    ]


def printed_ceiling(dataset: str, n_trees: int, epsilon: str) -> float:
    """Largest accuracy in percent of the printed rule with three layers, by printed
    name of the dataset.

    Every layer has all of ε, so a tree's labels have ε over the trees of a layer.
    """
    n_classes = N_CLASSES[printed_tables.sources()[dataset].file]
    return 100 * vote_ceiling(n_trees, ablations.N_LAYERS * float(epsilon), n_classes)


Pair = Callable[[str, int, str], tuple[Task, Task]]
"""The tasks of BMS-RF and MRF at a place of figure 5: dataset, number of trees, ε."""

BUDGETED: Mapping[str, Pair] = {
    "as printed": ablations.printed_budget_tasks,
    "repaired": ablations.budget_tasks,
}
"""Both forms of the forests of figure 5; the paper's sentences are on the first."""


def _figure_5(values: Values) -> str:
    columns = ("dataset", "ε", "forests", *map(findings.trees, BUDGET_SIZES))
    rows = []
    for dataset, epsilon in product(BUDGET_DATASETS, BUDGETS):
        for form, pair in BUDGETED.items():
            means = (
                _both(values, pair(dataset, n_trees, epsilon))
                for n_trees in BUDGET_SIZES
            )
            rows.append((dataset, epsilon, form, *means))
        most = (
            upper_bound(printed_ceiling(dataset, n_trees, epsilon))
            for n_trees in BUDGET_SIZES
        )
        rows.append((dataset, epsilon, "at most", *most))
    return findings.csv_text(columns, rows)


def _both(values: Values, tasks: Sequence[Task]) -> str:
    runs = (percents(values, [task]) for task in tasks)
    return " / ".join(f"{statistics.fmean(of):.1f}" if of else "–" for of in runs)


def findings_of_figure_5(values: Values) -> list[Finding]:
    """What the runs say on figure 5, by the forests as printed and by the repaired
    ones.
    """
    return [
        finding
        for of_statement in (
            _with_few_trees,
            _by_budget,
            _against_budget,
            _at_high_protection,
            _with_more_trees,
            _on_the_exceptions,
            _between_gaps,
            _more_trees,
        )
        for finding in (of_statement(values, pair) for pair in BUDGETED.values())
    ]


def _runs(values: Values, tasks: Sequence[Task]) -> list[list[float]]:
    return [percents(values, [task]) for task in tasks]


def _stacked_basis(
    pair: Pair,
    sizes: Sequence[int],
    budgets: Sequence[str],
    datasets: Sequence[str] = BUDGET_DATASETS,
) -> str:
    """The basis of a sentence on BMS-RF alone."""
    places = product(datasets, sizes, budgets)
    return _with_budgets([pair(*place)[0] for place in places], budgets)


def _with_budgets(tasks: Sequence[Task], budgets: Sequence[str]) -> str:
    """The basis of tasks at budgets, which forests as printed have in B1, B2 and B3."""
    named = findings.basis(tasks)
    at = f", ε = {', '.join(budgets)}"
    return named if named.endswith(at) else named + at


def _between_budgets(
    values: Values, pair: Pair, datasets: Sequence[str], budgets: tuple[str, str]
) -> list[Difference]:
    """BMS-RF at the first budget beside the second one, by size and dataset."""
    return [
        Difference.of(
            *_runs(values, [pair(dataset, n_trees, epsilon)[0] for epsilon in budgets])
        )
        for n_trees, dataset in product(BUDGET_SIZES, datasets)
    ]


def _with_few_trees(values: Values, pair: Pair) -> Finding:
    low, high = BUDGETS[0], BUDGETS[-1]
    few = _between_budgets(values, pair, BUDGET_DATASETS, (high, low))
    few = few[: len(BUDGET_DATASETS)]
    return Finding(
        "where trees are few, accuracy falls with ε.",
        f"with {BUDGET_SIZES[0]} trees, ε = {high} is beside ε = {low} {findings.counted(few)}.",
        findings.by_majority(few),
        _stacked_basis(pair, BUDGET_SIZES[:1], (low, high)),
    )


def _by_budget(values: Values, pair: Pair) -> Finding:
    low, high = BUDGETS[0], BUDGETS[-1]
    rises = _between_budgets(values, pair, BUDGET_DATASETS, (high, low))
    return Finding(
        "“the larger ε, the higher the accuracy”.",
        f"of all numbers of trees, ε = {high} is beside ε = {low} {findings.counted(rises)}.",
        findings.by_majority(rises),
        _stacked_basis(pair, BUDGET_SIZES, (low, high)),
    )


def _against_budget(values: Values, pair: Pair) -> Finding:
    low, high = BUDGETS[0], BUDGETS[-1]
    rises = _between_budgets(values, pair, REVERSED, (low, high))
    readings = {
        "all": findings.by_signs(rises),
        "most": findings.by_majority(rises),
        "some": findings.somewhere(rises),
    }
    judged = ", ".join(
        f"of {which} cases “{verdict}”" for which, verdict in readings.items()
    )
    return Finding(
        f"on {' and '.join(REVERSED)} the accuracy at ε = {low} is “even higher than at ε = {high}”.",
        f"by number of trees, ε = {low} is beside ε = {high} {findings.counted(rises)}. The text does not say with how "
        f"many trees; as a sentence {judged}.",
        findings.agreed(readings.values()),
        _stacked_basis(pair, BUDGET_SIZES, (low, high), REVERSED),
    )


def _beside_mrf(
    values: Values, pair: Pair, datasets: Sequence[str], budgets: Sequence[str]
) -> tuple[list[Difference], str, str]:
    """BMS-RF beside MRF by dataset, size and ε, in words, and the basis."""
    places = list(product(datasets, BUDGET_SIZES, budgets))
    above = [Difference.of(*_runs(values, pair(*place))) for place in places]
    tasks = [
        task
        for both in zip(*(pair(*place) for place in places), strict=True)
        for task in both
    ]
    said = f"BMS-RF is beside MRF {findings.counted(above)}."
    return above, said, _with_budgets(tasks, budgets)


def _at_high_protection(values: Values, pair: Pair) -> Finding:
    above, said, basis = _beside_mrf(values, pair, BUDGET_DATASETS, BUDGETS[:1])
    return Finding(
        "at high protection BMS-RF is better than MRF “for most datasets”.",
        said,
        findings.by_majority(above),
        basis,
    )


def _with_more_trees(values: Values, pair: Pair) -> Finding:
    others = [name for name in BUDGET_DATASETS if name not in EXCEPTIONS]
    above, said, basis = _beside_mrf(values, pair, others, BUDGETS)
    beside = findings.counted(findings.beside_little(above))
    return Finding(
        "at small budgets, too, BMS-RF is “level with MRF or above it as the number of trees increases”, but for "
        f"{' and '.join(EXCEPTIONS)}.",
        f"{said} Beside MRF minus two points it is {beside}.",
        findings.never_below(above),
        basis,
    )


def _on_the_exceptions(values: Values, pair: Pair) -> Finding:
    above, said, basis = _beside_mrf(values, pair, EXCEPTIONS, BUDGETS)
    return Finding(
        f"on {' and '.join(EXCEPTIONS)} BMS-RF is below MRF in some cases.",
        said,
        findings.somewhere([-gap for gap in above]),
        basis,
    )


def _between_gaps(values: Values, pair: Pair) -> Finding:
    low, high = BUDGETS[0], BUDGETS[-1]
    fewest, most = BUDGET_SIZES[0], BUDGET_SIZES[-1]

    def rise(dataset: str, n_trees: int) -> list[float]:
        runs = _runs(values, [pair(dataset, n_trees, at)[0] for at in (high, low)])
        return [one - other for one, other in zip(*runs, strict=False)]

    shrinks = [
        Difference.of(rise(dataset, fewest), rise(dataset, most))
        for dataset in BUDGET_DATASETS
    ]
    return Finding(
        "the gaps between budgets “gradually shrink” as the number of trees increases.",
        f"what ε = {high} gains over ε = {low} is with {fewest} trees beside what it gains with {most} "
        f"{findings.counted(shrinks)}.",
        findings.by_majority(shrinks),
        _stacked_basis(pair, (fewest, most), (low, high)),
    )


def _more_trees(values: Values, pair: Pair) -> Finding:
    fewest, most = BUDGET_SIZES[0], BUDGET_SIZES[-1]
    is_printed = pair is ablations.printed_budget_tasks
    sharing = "of which those of a layer share" if is_printed else "which share"
    growth = [
        Difference.of(
            *_runs(
                values,
                [pair(dataset, n_trees, epsilon)[0] for n_trees in (most, fewest)],
            )
        )
        for dataset, epsilon in product(BUDGET_DATASETS, BUDGETS)
    ]
    return Finding(
        "accuracy rises with the number of trees and is steady above 30.",
        f"{most} trees, {sharing} one ε, are beside {fewest} {findings.counted(growth)}.",
        findings.by_majority(growth),
        _stacked_basis(pair, (fewest, most), BUDGETS),
    )


def time_shares(seconds: Seconds) -> dict[str, tuple[float, float]]:
    """BMS-RF's time over MRF's, printed and ours, by printed dataset that both have."""
    printed, shares = printed_further.numbers("bms-3-time"), {}
    for dataset in dict.fromkeys(dataset for dataset, _ in printed):
        file = printed_tables.sources()[dataset].file
        ours = [
            seconds.get((file, FORESTS[method]), ()) for method in ("BMS-RF", "MRF")
        ]
        if all(ours):
            stacked, plain = map(statistics.median, ours)
            shares[dataset] = (
                printed[dataset, "BMS-RF"] / printed[dataset, "MRF"],
                stacked / plain,
            )
    return shares


def _times(seconds: Seconds) -> str:
    printed, shares, rows = (
        printed_further.numbers("bms-3-time"),
        time_shares(seconds),
        [],
    )
    for dataset, (theirs, ours) in shares.items():
        file = printed_tables.sources()[dataset].file
        times = [
            f"{printed[dataset, method]:.1f} / {_median(seconds, file, slug)}"
            for method, slug in FORESTS.items()
        ]
        rows.append((dataset, *times, f"{theirs:.2f}", f"{ours:.2f}"))
    columns = (
        "dataset",
        *(f"{method}, printed / ours" for method in FORESTS),
        "BMS-RF / MRF, printed",
        "ours",
    )
    return findings.csv_text(columns, rows)


def finding_of_times(seconds: Seconds) -> Finding:
    """What the runs say on the times of table 3: means over datasets that have runs of
    all three forests.
    """
    shares, means = time_shares(seconds), {}
    for method in ("BMS-RF", "BRF", "MRF"):
        files = [printed_tables.sources()[dataset].file for dataset in shares]
        means[method] = [
            statistics.median(runs)
            for file in files
            if (runs := seconds.get((file, FORESTS[method]), ()))
        ]
    stated = "“the mean running time is less than that of the other consistent forests”, BRF and MRF."
    timed = dict(zip(FORESTS, TIMED, strict=True))
    tasks = [
        Task(printed_tables.sources()[dataset].file, timed[method], "", "0", 0)
        for method in means
        for dataset in shares
    ]
    basis = f"seconds of {findings.basis(tasks)}"
    if not shares or len(set(map(len, means.values()))) > 1:
        return Finding(stated, "no runs.", findings.OPEN, basis)
    mean = {method: statistics.fmean(numbers) for method, numbers in means.items()}
    longer = [Difference.of(means[rival], means["BMS-RF"]) for rival in ("BRF", "MRF")]
    theirs, ours = (
        statistics.median(share) for share in zip(*shares.values(), strict=True)
    )

    def seconds_of(gap: Difference) -> str:
        return f"{gap.mean:+.2f} ± {gap.error:.2f}"

    return Finding(
        stated,
        f"on average over {len(shares)} datasets, seconds of a fold are {mean['BMS-RF']:.2f} for BMS-RF, "
        f"{mean['BRF']:.2f} for BRF and {mean['MRF']:.2f} for MRF; BRF takes longer by {seconds_of(longer[0])}, MRF by "
        f"{seconds_of(longer[1])}. The median share of MRF's time is {ours:.2f}, printed {theirs:.2f}.",
        findings.by_signs(longer),
        basis,
    )


def _median(seconds: Seconds, file: str, slug: str) -> str:
    runs = seconds.get((file, slug), ())
    return f"{statistics.median(runs):.2f}" if runs else "–"


def _gaps_of_table_4(values: Values) -> Iterator[tuple[str, str, float, list[float]]]:
    """Dataset, method, printed accuracy and ours in percent, of the cells with runs."""
    printed = printed_further.numbers("bms-4")
    for place in product(ablations.ADVANCED_DATASETS, ablations.OBLIQUE):
        if ours := percents(values, [ablations.advanced_task(*place)]):
            yield *place, printed[place], ours


def _table_4(values: Values) -> str:
    return findings.csv_text(
        ("dataset", "method", "printed", "ours", "difference"),
        (
            (
                dataset,
                method,
                f"{printed:.2f}",
                findings.text_of(ours),
                f"{statistics.fmean(ours) - printed:+.1f}",
            )
            for dataset, method, printed, ours in _gaps_of_table_4(values)
        ),
    )


def _beside_table_4(values: Values) -> str:
    far, cells = defaultdict[str, list[str]](list), list(_gaps_of_table_4(values))
    for dataset, method, printed, ours in cells:
        gap = statistics.fmean(ours) - printed
        if abs(gap) > SMALL:
            far[dataset].append(f"{method} {gap:+.1f}")
    named = (f"{dataset} {', '.join(gaps)}" for dataset, gaps in far.items())
    n_near = len(cells) - sum(map(len, far.values()))
    return (
        f"Ours is within two points of the printed number in {n_near} of {len(cells)} cases. The other differences are "
        f"not explained: {'; '.join(named)}. The printed number of WineQuality-White with MPSVM-N, 44.88, is the share "
        "of its largest class, and table 3 of Bai et al. prints it, too."
    )

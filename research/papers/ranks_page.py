"""The sections on average ranks and significance tests of the papers' tables, from the
runs of ``runs.csv``, and the files behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research import printed_tables
from research.papers import findings, printed_further, significance
from research.papers.findings import FAILS, HOLDS, OPEN, Finding
from research.printed_pages import Accuracies
from research.printed_tables import Cell

FEWEST_FOLDS = 6
"""Below, Wilcoxon's two-sided test cannot reach the level of 0.05."""

TESTS = """\
A paper's marks and ours mean significant at 0.05. The papers do not say on what they test; our tests have the folds of
both methods, and fewer folds find fewer differences. The folds of several cross-validations share rows, which our tests
ignore, so chance gives more marks than the level says. Where a sentence states p, Wilcoxon's signed-rank test over
datasets decides, two-sided at 0.05."""
"""How the pages read tests of significance."""
_RANKS = """\
[Average ranks](ranks.csv), printed and computed from the printed accuracies of all datasets, of those that are here,
and from ours. Equal numbers share their mean rank. Here and in the tests below, the label of Hepatitis is its
documented class.
"""
_STACKED = """\
[BMS-RF beside MRF](bms-3-marks.csv) by Wilcoxon's signed-rank test: the paper marks results of BMS-RF and says that the
test compares MRF with the standard forest; by the marks, it compares BMS-RF with MRF (Wpbc is marked, where BMS-RF is
below the standard forest):"""
CONSISTENT = ("Denil14", "BRF", "CompRF-C")


@dataclass(frozen=True)
class Ranked:
    """A table whose last line prints average ranks.

    Attributes:
        item: in ``printed_further.csv``.
        table: in ``printed.csv``.
        title: for readers.
        absent: datasets of the table that the ranks leave out.
    """

    item: str
    table: str
    title: str
    absent: frozenset[str] = frozenset()


RANKED = (
    Ranked("mrf-2-rank", "mrf-2", "Bai et al., table 2"),
    Ranked(
        "preprint-1-rank",
        "mrf-2",
        "Preprint, table 1",
        frozenset({"Wine", "Tic-tac-toe"}),
    ),
    Ranked("mrf-3-rank", "mrf-3", "Bai et al., table 3"),
)


def of_bai(accuracies: Accuracies) -> list[str]:
    """The section on ranks and tests of Bai et al. and their preprint.

    Args:
        accuracies: over folds, by the key of the task on the first fold, as in
            ``research.papers``.
    """
    return [
        "## Ranks and tests\n",
        _RANKS,
        "MRF [beside Breiman's forest](mrf-2-marks.csv) by Wilcoxon's signed-rank test over folds: "
        f"{_marks('mrf-2', 'MRF', 'Breiman', accuracies).sentence} [Beside the other consistent forests]"
        "(mrf-2-rivals.csv) the paper prints no test. Numbers of datasets on which other forests are significantly "
        "better or worse than MRF, and of marks that are equal to the printed ones or opposite:\n",
        *advanced(accuracies),
        "",
        *findings.listed(statements_of_bai(accuracies)),
    ]


def of_huang(accuracies: Accuracies) -> list[str]:
    """The section on tests of Huang, Lei and Kabán."""
    _, sentence = _rank_sum(accuracies)
    return [
        "## Tests\n",
        "A star marks [the private ensemble](spe-1-stars.csv) that is significantly better than each of the other "
        f"three, by the Mann–Whitney U test. {sentence}\n",
        *findings.listed(statements_of_huang()),
    ]


def of_song(accuracies: Accuracies) -> list[str]:
    """The section on tests of Song and Wang."""
    return [
        "## Tests\n",
        f"{_STACKED} {_marks('bms-3', 'BMS-RF', 'MRF', accuracies).sentence}\n",
        *findings.listed(statements_of_song(accuracies)),
    ]


def files(accuracies: Accuracies) -> dict[str, str]:
    """The CSV files behind the sections, by name."""
    stars, _ = _rank_sum(accuracies)
    return {
        "ranks.csv": _rank_rows(accuracies),
        "mrf-2-marks.csv": _marks("mrf-2", "MRF", "Breiman", accuracies).text,
        "mrf-2-rivals.csv": _consistent(accuracies),
        "spe-1-stars.csv": stars,
        "bms-3-marks.csv": _marks("bms-3", "BMS-RF", "MRF", accuracies).text,
    }


def cells_of(table: str) -> dict[tuple[str, str], Cell]:
    """Cells of a table by printed dataset and method."""
    return {
        (cell.dataset, cell.method): cell
        for cell in printed_tables.cells()
        if cell.table == table
    }


def matrix(
    table: str, methods: Sequence[str], value: Callable[[Cell], float | None]
) -> dict[str, list[float]]:
    """Numbers of the datasets of a table on which every method has one, by printed
    dataset.
    """
    cells, rows = cells_of(table), {}
    for dataset in dict.fromkeys(dataset for dataset, _ in cells):
        numbers = [value(cells[dataset, method]) for method in methods]
        known = [number for number in numbers if number is not None]
        if len(known) == len(methods):
            rows[dataset] = known
    return rows


def _plain(cell: Cell, accuracies: Accuracies) -> Sequence[float]:
    return accuracies.get(cell.plain.key, ()) if cell.plain is not None else ()


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Accuracies of a table with ranks, a row for each dataset.

    Attributes:
        methods: columns.
        common: datasets that have runs.
        printed: printed accuracies of all datasets.
        same: of those that have runs.
        ours: our means, of those that have runs.
    """

    methods: Sequence[str]
    common: Sequence[str]
    printed: NDArray[np.float64]
    same: NDArray[np.float64]
    ours: NDArray[np.float64]

    @classmethod
    def of(cls, ranked: Ranked, accuracies: Accuracies) -> _Numbers:
        """The accuracies of a table."""
        methods = [method for _, method in printed_further.numbers(ranked.item)]
        theirs = matrix(ranked.table, methods, lambda cell: cell.printed)
        ours = matrix(
            ranked.table,
            methods,
            lambda cell: (
                float(np.mean(runs)) if (runs := _plain(cell, accuracies)) else None
            ),
        )
        common = [dataset for dataset in ours if dataset not in ranked.absent]
        of_all = (row for name, row in theirs.items() if name not in ranked.absent)
        same, here = (_array(rows[name] for name in common) for rows in (theirs, ours))
        return cls(methods, common, _array(of_all), same, here)


def _rank_rows(accuracies: Accuracies) -> str:
    rows = []
    for ranked in RANKED:
        numbers = _Numbers.of(ranked, accuracies)
        if not numbers.common:
            continue
        columns = [
            significance.average_ranks(of)
            for of in (numbers.printed, numbers.same, numbers.ours)
        ]
        printed = {
            method: rank
            for (_, method), rank in printed_further.numbers(ranked.item).items()
        }
        rows += [
            (
                ranked.title,
                method,
                f"{printed[method]:g}",
                *(f"{ranks[place]:.2f}" for ranks in columns),
                str(len(numbers.common)),
            )
            for place, method in enumerate(numbers.methods)
        ]
    head = ("table", "method", "printed", "from printed")
    return findings.csv_text(
        (*head, "from printed, datasets here", "ours", "datasets here"), rows
    )


def _basis(
    table: str,
    methods: Sequence[str],
    datasets: Iterable[str],
    *,
    private: bool = False,
) -> str:
    """The basis of a sentence on our runs of methods, by printed names."""
    cells = cells_of(table)
    of_method = [cells[dataset, method] for method in methods for dataset in datasets]
    tasks = [cell.private if private else cell.plain for cell in of_method]
    return findings.basis(task for task in tasks if task is not None)


def _array(rows: Iterable[Sequence[float]]) -> NDArray[np.float64]:
    return np.array(list(rows), dtype=np.float64)


def paired(
    first: Cell, second: Cell, accuracies: Accuracies
) -> tuple[Sequence[float], Sequence[float]]:
    """Accuracies without privacy of two methods on the folds that both have."""
    ours, theirs = _plain(first, accuracies), _plain(second, accuracies)
    n_folds = min(len(ours), len(theirs))
    return ours[:n_folds], theirs[:n_folds]


def marks_beside(
    table: str, method: str, rival: str, accuracies: Accuracies
) -> dict[str, tuple[str, int]]:
    """Our mark of a method beside a rival and the number of folds, by printed dataset
    with enough folds.
    """
    cells, marks = cells_of(table), {}
    for dataset in dict.fromkeys(dataset for dataset, _ in cells):
        ours, theirs = paired(cells[dataset, method], cells[dataset, rival], accuracies)
        if len(ours) >= FEWEST_FOLDS:
            marks[dataset] = (significance.signed_rank_mark(ours, theirs), len(ours))
    return marks


def _agreement(
    printed: Mapping[str, str], ours: Mapping[str, tuple[str, int]]
) -> tuple[int, int]:
    """On how many datasets two sets of marks are equal, and opposite."""
    pairs = [(printed.get(dataset, ""), mark) for dataset, (mark, _) in ours.items()]
    opposite = {significance.BETTER, significance.WORSE}
    return (
        sum(first == second for first, second in pairs),
        sum({first, second} == opposite for first, second in pairs),
    )


@dataclass(frozen=True)
class _Marks:
    """Printed marks of a method beside a rival, and ours.

    Attributes:
        text: a CSV file.
        sentence: on how often they agree.
    """

    text: str
    sentence: str


def _marks(table: str, method: str, rival: str, accuracies: Accuracies) -> _Marks:
    printed = {
        dataset: mark
        for (dataset, name), mark in printed_further.marks(table).items()
        if name == method
    }
    ours, cells = marks_beside(table, method, rival, accuracies), cells_of(table)
    rows = []
    for dataset, (mark, n_folds) in ours.items():
        gap = cells[dataset, method].printed - cells[dataset, rival].printed
        first, second = paired(
            cells[dataset, method], cells[dataset, rival], accuracies
        )
        of_ours = 100 * float(np.mean(np.subtract(first, second)))
        rows.append(
            (
                dataset,
                f"{gap:+.2f}",
                printed.get(dataset, ""),
                f"{of_ours:+.2f}",
                mark,
                str(n_folds),
            )
        )
    head = (
        "dataset",
        "printed difference",
        "printed mark",
        "our difference",
        "our mark",
        "folds",
    )
    same, opposite = _agreement(printed, ours)
    return _Marks(
        findings.csv_text(head, rows),
        f"of {len(ours)} datasets, the printed marks and ours are equal on {same} and opposite on {opposite} "
        f"({_basis(table, (method, rival), list(ours))}).",
    )


@dataclass(frozen=True)
class Contest:
    """A method beside a rival on several datasets.

    Attributes:
        n_above: datasets on which the method is more accurate.
        n_datasets: all datasets.
        probability: of Wilcoxon's signed-rank test over datasets.
        gap: mean difference in points.
    """

    n_above: int
    n_datasets: int
    probability: float
    gap: float

    @classmethod
    def of(cls, gaps: Sequence[float]) -> Contest:
        """The contest of differences in points, one for each dataset."""
        rounded = np.round(np.array(gaps, dtype=np.float64), 9)
        return cls(
            int((rounded > 0).sum()),
            len(gaps),
            significance.signed_rank_probability(rounded[rounded != 0]),
            float(rounded.sum()) / max(len(gaps), 1),
        )

    @property
    def sign(self) -> int:
        """1 or −1 where the test decides, else 0."""
        decides = self.probability < significance.LEVEL
        return int(np.sign(self.gap)) if decides else 0


def contests(
    table: str, method: str, rival: str, accuracies: Accuracies
) -> tuple[Contest, Contest]:
    """A method beside a rival by the printed accuracies of all datasets, and by our
    means of the datasets that have runs of both.
    """
    cells = cells_of(table)
    datasets = dict.fromkeys(dataset for dataset, _ in cells)
    ours = [
        100 * float(np.mean(first) - np.mean(second))
        for dataset in datasets
        if (first := _plain(cells[dataset, method], accuracies))
        and (second := _plain(cells[dataset, rival], accuracies))
    ]
    printed = [_gap(cells, dataset, method, rival) for dataset in datasets]
    return Contest.of(printed), Contest.of(ours)


def _consistent(accuracies: Accuracies) -> str:
    rows = []
    for rival in CONSISTENT:
        marks = marks_beside("mrf-2", "MRF", rival, accuracies)
        own = [mark for mark, _ in marks.values()]
        of_contests = (
            text
            for contest in contests("mrf-2", "MRF", rival, accuracies)
            for text in (
                f"{contest.n_above} of {contest.n_datasets}",
                f"{contest.probability:.1g}",
            )
        )
        rows.append(
            (
                rival,
                *of_contests,
                str(own.count(significance.BETTER)),
                str(own.count(significance.WORSE)),
                findings.range_of({n_folds for _, n_folds in marks.values()}),
            )
        )
    head = (
        "rival",
        "printed",
        "printed p",
        "ours",
        "our p",
        "better",
        "worse",
        "folds",
    )
    return findings.csv_text(head, rows)


def advanced(accuracies: Accuracies) -> Iterator[str]:
    """The lines on rotation and oblique forests beside MRF: how many datasets are
    marked, printed and ours.
    """
    printed, rows = printed_further.marks("mrf-3"), []
    for method in printed_tables.TABLES["mrf-3"].methods:
        if method == "MRF":
            continue
        of_method = {
            dataset: mark for (dataset, name), mark in printed.items() if name == method
        }
        ours = marks_beside("mrf-3", method, "MRF", accuracies)
        here = {dataset: of_method.get(dataset, "") for dataset in ours}
        own = [mark for mark, _ in ours.values()]
        counts = [
            str(marks.count(mark))
            for marks in (list(of_method.values()), list(here.values()), own)
            for mark in (significance.BETTER, significance.WORSE)
        ]
        n_folds = findings.range_of({n_folds for _, n_folds in ours.values()})
        agreement = map(str, _agreement(of_method, ours))
        rows.append((method, *counts, *agreement, str(len(ours)), n_folds))
    head = (
        "method",
        "printed better",
        "worse",
        "printed here, better",
        "worse",
        "ours better",
        "worse",
        "equal",
        "opposite",
        "datasets here",
        "folds",
    )
    yield from findings.table(head, rows)


PRIVATE_ENSEMBLES = ("SPE", "SRT", "RDT", "MaxTree")


def star(runs: Mapping[str, Sequence[float]]) -> str:
    """The most accurate method if it is significantly better than each other method,
    else an empty text.
    """
    best = max(runs, key=lambda method: float(np.mean(runs[method])))
    rivals = [others for method, others in runs.items() if method != best]
    stands = all(
        significance.rank_sum_mark(runs[best], others) == significance.BETTER
        for others in rivals
    )
    return best if stands else ""


def _rank_sum(accuracies: Accuracies) -> tuple[str, str]:
    """The CSV file of stars, and a sentence on how often they agree."""
    cells, printed = cells_of("spe-1"), dict(printed_further.marks("spe-1").keys())
    rows, equal = [], 0
    for dataset in dict.fromkeys(dataset for dataset, _ in cells):
        tasks = {method: cells[dataset, method].private for method in PRIVATE_ENSEMBLES}
        runs = {
            method: accuracies.get(task.key, ())
            for method, task in tasks.items()
            if task is not None
        }
        if len(runs) < len(tasks) or min(map(len, runs.values())) < FEWEST_FOLDS:
            continue
        best, n_folds = (
            max(PRIVATE_ENSEMBLES, key=lambda method: cells[dataset, method].printed),
            min(map(len, runs.values())),
        )
        means = {
            method: float(np.mean(of_method)) for method, of_method in runs.items()
        }
        ours = ", ".join(
            method for method, mean in means.items() if mean == max(means.values())
        )
        equal += printed.get(dataset, "") == star(runs)
        rows.append(
            (
                dataset,
                best,
                printed.get(dataset, ""),
                ours,
                star(runs),
                str(n_folds),
            )
        )
    datasets = [dataset for dataset, *_ in rows]
    basis = _basis("spe-1", PRIVATE_ENSEMBLES, datasets, private=True)
    head = ("dataset", "printed best", "printed star", "our best", "our star", "folds")
    return findings.csv_text(head, rows), (
        f"Printed stars and ours are equal, or absent in both, on {equal} of {len(rows)} datasets ({basis})."
    )


def statements_of_bai(accuracies: Accuracies) -> list[Finding]:
    """Statements of Bai et al. and of the preprint."""
    table_2 = cells_of("mrf-2")
    datasets = list(dict.fromkeys(dataset for dataset, _ in table_2))
    over = {rival: _n_above(table_2, "MRF", rival) for rival in ("Breiman", "CompRF-I")}
    best = list(printed_further.marks("mrf-2").values()).count(significance.BETTER)
    splits = _n_above(table_2, "Breiman+M", "Breiman+SE")
    basis = "printed numbers of table 2 of Bai et al."
    return [
        *_of_significance(accuracies, basis),
        *_on_par(
            "mrf-2",
            "Breiman",
            "its performance “is on par with the standard RF” (abstract)",
            accuracies,
        ),
        *_on_par(
            "mrf-3",
            "HobRaF",
            "MRF “is still on par with that of the HobRaF”",
            accuracies,
        ),
        _of_two_percent(table_2, datasets, basis),
        Finding(
            "MRF has a higher accuracy than CompRF-I “on twenty-two datasets”.",
            f"on {over['CompRF-I']}.",
            HOLDS if over["CompRF-I"] == 22 else FAILS,
            basis,
        ),
        Finding(
            "MRF “surpasses Breiman's original RF on fourteen datasets, where the advantage … is statistically "
            "significant on eleven”.",
            f"on {over['Breiman']}, of which {best} are marked.",
            HOLDS if (over["Breiman"], best) == (14, 11) else FAILS,
            basis,
        ),
        *_of_the_preprint(table_2),
        Finding(
            "“Breiman+M is better than that of the Breiman+SE in most cases”.",
            f"on {splits} of {len(datasets)} datasets.",
            HOLDS if 2 * splits > len(datasets) else FAILS,
            basis,
        ),
    ]


def statements_of_huang() -> list[Finding]:
    """Statements of Huang, Lei and Kabán."""
    private, basis = (
        cells_of("spe-1"),
        "printed numbers of table 1 of Huang, Lei and Kabán",
    )
    worse = [
        dataset for dataset, method in printed_further.marks("spe-1") if method != "SPE"
    ]
    n_private = len({dataset for dataset, _ in private})
    unmarked = [
        dataset
        for dataset in dict.fromkeys(dataset for dataset, _ in private)
        if dataset not in worse
        and any(_gap(private, dataset, "SPE", name) < 0 for name in PRIVATE_ENSEMBLES)
    ]
    lead = {
        dataset: cell.printed
        - max(
            private[dataset, name].printed
            for name in PRIVATE_ENSEMBLES
            if name != "SPE"
        )
        for (dataset, method), cell in private.items()
        if method == "SPE"
    }
    widest = max(lead, key=lambda dataset: lead[dataset])
    return [
        Finding(
            "“the only data set where our method is significantly worse is the Nursery data set”.",
            f"of the datasets where another method leads, {', '.join(worse)} has a star; {', '.join(unmarked)} have "
            "none. Without a star the leader is not better than each of the other three; it may be better than SPE.",
            OPEN if worse == ["Nursery"] else FAILS,
            basis,
        ),
        Finding(
            "“Out of 22 total data sets tested”.",
            f"table 1 has {n_private}.",
            HOLDS if n_private == 22 else FAILS,
            basis,
        ),
        Finding(
            "“The largest improvement is more than 25%, obtained on the Robot data set”.",
            f"the largest lead of SPE over the best of the other three is {lead[widest]:.1f} points, on {widest}.",
            HOLDS if widest == "Robot" and lead[widest] > 25 else FAILS,
            basis,
        ),
        *_of_semi_supervised(),
    ]


NOT_WORSE = ("Blood Transfusion", "Car", "Student")
"""Datasets of table 2 of Huang, Lei and Kabán whose number of SSPE-1 is underlined."""


def _of_semi_supervised() -> Iterator[Finding]:
    """The statements on table 2 of Huang, Lei and Kabán."""
    table_2, marks = cells_of("spe-2"), printed_further.marks("spe-2")
    datasets = list(dict.fromkeys(dataset for dataset, _ in table_2))
    basis = "printed numbers of table 2 of Huang, Lei and Kabán"
    better, starred = {}, {}
    for method in ("SSPE-1", "SSPE-2", "PTE"):
        ahead = [
            dataset
            for dataset in datasets
            if min(_gap(table_2, dataset, method, rival) for rival in ("SSRDT", "TOP"))
            > 0
        ]
        better[method] = len(ahead)
        starred[method] = sum((dataset, method) in marks for dataset in ahead)
    of_labels = [
        f"{method} on {better[method]} of {len(datasets)}, of which {starred[method]} have a star"
        for method in ("SSPE-2", "PTE")
    ]
    yield Finding(
        "SSPE-2 and PTE “achieve a better accuracy over SSRDT and TOP for the majority of data sets tested, and most "
        "improvements are statistically significant”.",
        f"{'; '.join(of_labels)}.",
        HOLDS
        if all(
            2 * better[method] > len(datasets) and 2 * starred[method] > better[method]
            for method in ("SSPE-2", "PTE")
        )
        else FAILS,
        basis,
    )
    n_below = len(datasets) - better["SSPE-1"]
    yield Finding(
        "SSPE-1 “remains on a same level (no significant difference detected) in comparison with the competitors”.",
        f"it has a star on {starred['SSPE-1']} of {len(datasets)} datasets and is below a competitor on {n_below}, of "
        f"which the table underlines {len(NOT_WORSE)} as not significantly worse.",
        HOLDS if not starred["SSPE-1"] and n_below == len(NOT_WORSE) else FAILS,
        basis,
    )


def _of_significance(accuracies: Accuracies, printed: str) -> list[Finding]:
    """The statement on MRF and the other consistent forests."""
    pairs = [contests("mrf-2", "MRF", rival, accuracies) for rival in CONSISTENT]
    found = []
    for sides, basis in zip(
        zip(*pairs, strict=True),
        (printed, _basis_here("mrf-2", ("MRF", *CONSISTENT), accuracies)),
        strict=True,
    ):
        shown = ", ".join(
            f"{rival} on {side.n_above} (p = {side.probability:.1g})"
            for rival, side in zip(CONSISTENT, sides, strict=True)
        )
        signs = {side.sign for side in sides}
        found.append(
            Finding(
                "MRF “significantly exceeds all existing consistent RF variants”.",
                f"of {sides[0].n_datasets} datasets, it is more accurate than {shown}; the paper prints no such test.",
                HOLDS if signs == {1} else FAILS if -1 in signs else OPEN,
                basis,
            )
        )
    return found


def _on_par(
    table: str, rival: str, stated: str, accuracies: Accuracies
) -> list[Finding]:
    """A statement that MRF is on par with a rival."""
    number = table.removeprefix("mrf-")
    bases = (
        f"printed numbers of table {number} of Bai et al.",
        _basis_here(table, ("MRF", rival), accuracies),
    )
    return [
        Finding(
            f"{stated}.",
            f"MRF is more accurate than {rival} on {side.n_above} of {side.n_datasets} datasets, by "
            f"{side.gap:+.1f} points in the mean (p = {side.probability:.2f}).",
            FAILS if side.sign == -1 else HOLDS,
            basis,
        )
        for side, basis in zip(
            contests(table, "MRF", rival, accuracies), bases, strict=True
        )
    ]


def _basis_here(table: str, methods: Sequence[str], accuracies: Accuracies) -> str:
    """The basis of a sentence on the datasets of a table that have our runs."""
    cells = cells_of(table)
    here = [
        dataset
        for dataset in dict.fromkeys(dataset for dataset, _ in cells)
        if all(_plain(cells[dataset, method], accuracies) for method in methods)
    ]
    return _basis(table, methods, here)


def statements_of_song(accuracies: Accuracies) -> list[Finding]:
    """Statements of Song and Wang."""
    cells, printed = cells_of("bms-3"), "printed numbers of table 3 of Song and Wang"
    datasets = list(dict.fromkeys(dataset for dataset, _ in cells))
    n_marked = list(printed_further.marks("bms-3").values()).count(significance.BETTER)
    marks = marks_beside("bms-3", "BMS-RF", "MRF", accuracies)
    ours = [mark for mark, _ in marks.values()]
    better, worse = map(ours.count, (significance.BETTER, significance.WORSE))
    reversed_ = _reversed_marks("bms-3", "BMS-RF", "MRF", accuracies)
    gaps = [round(_gap(cells, dataset, "BMS-RF", "RF"), 9) for dataset in datasets]
    below = sum(gap < 0 for gap in gaps)
    on_ten = "BMS-RF generalises clearly better “on ten datasets” (beside MRF)."
    return [
        Finding(
            on_ten,
            f"{n_marked} of {len(datasets)} datasets are marked.",
            HOLDS if n_marked == 10 else FAILS,
            printed,
        ),
        Finding(
            on_ten,
            f"it is significantly better on {better} of {len(ours)} datasets and worse on {worse}; of the datasets "
            f"that the paper marks, it is worse at 0.05 over their number on {', '.join(reversed_) or 'none'}.",
            FAILS if reversed_ else HOLDS if better >= 10 else OPEN,
            _basis_here("bms-3", ("BMS-RF", "MRF"), accuracies),
        ),
        Finding(
            "BMS-RF can “maintain or even surpass” the accuracy of RF.",
            f"it is above RF on {sum(gap > 0 for gap in gaps)} of {len(datasets)} datasets and below on {below}, by "
            f"up to {-min(gaps):.1f} points.",
            HOLDS if not below else OPEN,
            printed,
        ),
    ]


def _reversed_marks(
    table: str, method: str, rival: str, accuracies: Accuracies
) -> list[str]:
    """The datasets on which the paper marks a method as better and ours is worse, at
    the level over their number.
    """
    cells = cells_of(table)
    pairs = {
        dataset: paired(cells[dataset, method], cells[dataset, rival], accuracies)
        for (dataset, name), mark in printed_further.marks(table).items()
        if (name, mark) == (method, significance.BETTER)
    }
    here = {dataset: pair for dataset, pair in pairs.items() if pair[0]}
    level = significance.LEVEL / max(len(here), 1)
    return [
        dataset
        for dataset, pair in here.items()
        if significance.signed_rank_mark(*pair, level=level) == significance.WORSE
    ]


def _of_two_percent(
    table_2: Mapping[tuple[str, str], Cell], datasets: Sequence[str], basis: str
) -> Finding:
    """The statement on MRF and BRF, whose percent are points, or shares of BRF's
    accuracy.
    """
    gaps = {dataset: _gap(table_2, dataset, "MRF", "BRF") for dataset in datasets}
    in_points = sum(gap > 2 for gap in gaps.values())
    in_shares = sum(
        gap > 0.02 * table_2[dataset, "BRF"].printed for dataset, gap in gaps.items()
    )
    are_most = {2 * number > len(datasets) for number in (in_points, in_shares)}
    return Finding(
        "“MRF achieves more than 2% improvement in most cases, compared with … BRF”.",
        f"by two points on {in_points} of {len(datasets)} datasets, by two percent of BRF's accuracy on {in_shares}.",
        OPEN if len(are_most) == 2 else HOLDS if are_most == {True} else FAILS,
        basis,
    )


def _of_the_preprint(table_2: Mapping[tuple[str, str], Cell]) -> list[Finding]:
    """Statements of the preprint on its table 1, which lacks two datasets of the
    journal's table 2.
    """
    (ranked,) = (ranked for ranked in RANKED if ranked.item == "preprint-1-rank")
    marks = printed_further.marks("mrf-2")
    datasets = {dataset for dataset, _ in table_2} - ranked.absent
    above = sum(_gap(table_2, dataset, "MRF", "Breiman") > 0 for dataset in datasets)
    best = sum(
        marks.get((dataset, "MRF")) == significance.BETTER for dataset in datasets
    )
    mark, gap = marks.get(("Car", "MRF")), _gap(table_2, "Car", "MRF", "Breiman")
    basis = "printed numbers of table 1 of the preprint"
    return [
        Finding(
            "MRF “even surpasses Breiman's original random forest in twelve of the datasets, and the advantage … is "
            "statistically significant in ten of them”.",
            f"on {above}, of which {best} are marked.",
            HOLDS if (above, best) == (12, 10) else FAILS,
            basis,
        ),
        Finding(
            "on the CAR dataset the “forest-level performance is not significantly different from the standard RF”.",
            "no mark stands there."
            if mark is None
            else f"the table marks MRF as significantly {mark}, by {gap:+.2f} points.",
            FAILS if mark else HOLDS,
            basis,
        ),
    ]


def _gap(
    cells: Mapping[tuple[str, str], Cell], dataset: str, method: str, rival: str
) -> float:
    return cells[dataset, method].printed - cells[dataset, rival].printed


def _n_above(cells: Mapping[tuple[str, str], Cell], method: str, rival: str) -> int:
    return sum(
        _gap(cells, dataset, method, rival) > 0
        for dataset in {dataset for dataset, _ in cells}
    )

"""Writes the rows of the papers' tables as CSV, printed numbers beside ours, and the
sections of a paper's page on each table: distances, bounds, differences.
"""

import csv
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from scipy import stats

from research.printed_tables import (
    OTHER_LABELS,
    TABLES,
    Cell,
    notes,
    rows,
    sources,
)
from research.reference.literal_rules import upper_bound, vote_ceiling
from research.runs import Task

REASONS = Path(__file__).with_name("reference") / "differences.csv"
PREPRINT = "mrf-preprint-3"
"""The table whose labels are drawn at a claim of privacy."""

Accuracies = Mapping[tuple[object, ...], Sequence[float]]
"""Accuracies over folds, in the order of the folds, by the key of the task on the first
fold.
"""

_HEAD = """## {heading}

{subject}. {about} [Every row]({name}.csv).

    python -m research.papers DATA --tables {name}

![Our accuracy against the printed one](plots/{name}.svg)
"""
READING = """\
Accuracies are in percent. A CSV file has mean ± standard deviation over folds of 10-fold cross-validation, their number
in brackets. A difference is ours − printed: ours without privacy, or private where only that exists. Chance is the 95 %
interval of the difference between the printed mean and ours, by the spread of ours. Huang et al. print means of 50
random splits and Bojarski et al. of ten, for which our folds stand. Bai et al. and Song and Wang print means of ten
cross-validations. Beside them ten folds are one and have no interval: “too few runs” stands where their difference is
below t · s · √1.1, with the standard deviation s of a fold and the 97.5 % quantile t of Student's law; and the interval
of thirty folds, which are three, is 2.8 times as wide as that of a hundred with the same spread. “Inside chance” counts
the datasets inside the interval, of those that have folds enough for one; few folds widen it."""
"""How the pages read numbers."""
_COLUMNS = (
    "dataset",
    "method",
    "printed",
    "without privacy",
    "private, repaired",
    "ε",
    "difference",
    "tried otherwise",
)
_CHANCE = "Inside the interval of chance."
_EXPLAINED = "Explained by a run: “{title}” is within two points of the printed number."
_NEARER = "Not explained; “{title}” is nearer to the printed number."
_UNEXPLAINED = "Not explained."
_TOO_FEW = "Not explained; too few runs to tell the difference from chance."
RULE = """\
A run explains a difference of which it leaves half at most, below two points and inside the interval of chance of its
folds; “nearer” stands where it leaves half at most. Of the runs tried otherwise on a dataset, one at most is named:
that which brings its method nearest to the printed numbers on average, over the datasets that the runs share, as a
paper has one rule for all datasets. A rule that is nearer by less than 0.2 points is level and explains nothing."""
"""How the pages read reasons."""

LEAST_GAIN = 0.2
"""Points by which a rule is nearer on average that explains a difference."""

SMALL = 2.0
"""Points up to which a difference needs no reason."""

N_FOLDS = 10
N_REPEATS = 10
"""Whole cross-validations whose mean the papers print."""

FEWEST_WHOLE = 3
"""Whole cross-validations below which no interval is computed; the folds of one share
rows and are not independent.
"""

FEWEST_SPLITS = 10
"""Folds below which no interval is computed where a paper prints a mean of random
splits. Given the dataset, such splits are independent; the folds of a cross-validation
spread no less.
"""


def write(folder: Path, accuracies: Accuracies, *, with_plots: bool) -> None:
    """Writes the rows ``<table>.csv``, and the plots if Matplotlib may be used."""
    for name in TABLES:
        (folder / f"{name}.csv").write_text(rows_of(name, accuracies), encoding="utf-8")
    if with_plots:
        # imported here, because Matplotlib is in the optional extra ``bench``
        from research import printed_plots

        plots = folder / "plots"
        plots.mkdir(exist_ok=True)
        means = {key: _mean(values) for key, values in accuracies.items()}
        for name in TABLES:
            points = [
                (cell, _of(cell.plain, means), _of(cell.private, means))
                for cell in rows(name)
            ]
            printed_plots.draw_table(plots / f"{name}.svg", points)


def label(name: str) -> str:
    """What a table is called on the page of its paper."""
    number = TABLES[name].title.partition("table ")[2].partition(":")[0]
    return f"table {number}{' of the preprint' * (name == PREPRINT)}"


def rows_of(name: str, accuracies: Accuracies) -> str:
    """The rows of a table that have runs, as CSV."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(
        _row(cell, accuracies) for cell in rows(name) if has_runs(cell, accuracies)
    )
    return lines.getvalue()


def section(name: str, accuracies: Accuracies) -> str:
    """The section on a table."""
    table, measured = TABLES[name], _measured(name, accuracies)
    subject = table.title.partition(": ")[2]
    head = _HEAD.format(
        heading=_sentence(label(name)),
        subject=_sentence(subject),
        about=table.about,
        name=name,
    )
    lines = [
        head,
        *_distances(measured, accuracies),
        *_ceilings(measured),
        *differences(name, accuracies, is_open=False),
        *_other_labels(measured, accuracies),
    ]
    return "\n".join(lines) + "\n"


def _measured(name: str, accuracies: Accuracies) -> list[Cell]:
    return [cell for cell in rows(name) if has_runs(cell, accuracies)]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def distances(
    cells: Iterable[Cell], accuracies: Accuracies
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Distances of printed numbers from our runs and from those of each check, by
    method and check, over the datasets that have both.
    """
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for cell in cells:
        for title, task in cell.checks.items():
            runs = _runs(task, accuracies)
            if runs and cell.dataset not in OTHER_LABELS and has_runs(cell, accuracies):
                beside = abs(_mean(runs) - cell.printed)
                pairs[cell.method, title].append(
                    (abs(gap_of(cell, accuracies)), beside)
                )
    return pairs


def label_of(cells: Iterable[Cell], named: str) -> str:
    """A sentence on the label of a dataset that runs with two; empty if none is among
    the cells.
    """
    twice = dict.fromkeys(
        cell.dataset for cell in cells if cell.dataset in OTHER_LABELS
    )
    return "".join(f" In this table, the label of {name} is {named}." for name in twice)


def _distances(measured: Sequence[Cell], accuracies: Accuracies) -> Iterator[str]:
    pairs = distances(measured, accuracies)
    if not pairs:
        return
    of_label = label_of(measured, "histology").strip()
    yield "Mean distance from the printed numbers, in points, as run and as tried otherwise:\n"
    if of_label:
        yield f"{of_label}\n"
    yield "| method | tried | datasets | as run | tried |\n|---|---|---|---|---|"
    for (method, title), of_cells in pairs.items():
        ours, theirs = (statistics.fmean(gaps) for gaps in zip(*of_cells, strict=True))
        yield f"| {method} | {title} | {len(of_cells)} | {ours:.1f} | {theirs:.1f} |"
    yield ""


def _nearest_check(cell: Cell, accuracies: Accuracies) -> dict[str, Task]:
    """Of the checks that ran for a cell and bring their method nearer to the printed
    numbers on average, the one that brings it nearest over the datasets for which all of
    these ran; none if no check does. Checks that did not run for the cell, as those of
    categories, explain nothing of it and hide nothing.
    """
    of_method = [other for other in rows(cell.table) if other.method == cell.method]
    ran = _ran(cell, accuracies)
    nearer = [
        title
        for title, gain in _gains(of_method, accuracies).items()
        if gain <= -LEAST_GAIN and title in ran
    ]
    shared = [other for other in of_method if _ran(other, accuracies) >= set(nearer)]
    gains = _gains(shared, accuracies)
    best = min(nearer, key=lambda title: gains.get(title, 0.0), default="")
    return {best: cell.checks[best]} if best else {}


def _ran(cell: Cell, accuracies: Accuracies) -> set[str]:
    """Titles of the checks of a cell that have runs."""
    return {title for title, task in cell.checks.items() if _runs(task, accuracies)}


def _gains(cells: Iterable[Cell], accuracies: Accuracies) -> dict[str, float]:
    """Mean change of the distance from the printed numbers of a method by a check, in
    points.
    """
    return {
        title: statistics.fmean(tried - ours for ours, tried in of_cells)
        for (_, title), of_cells in distances(cells, accuracies).items()
    }


def _row(cell: Cell, accuracies: Accuracies) -> tuple[str, ...]:
    plain, private = _runs(cell.plain, accuracies), _runs(cell.private, accuracies)
    tried = (
        f"{title}: {_text(runs)}"
        for title, task in cell.checks.items()
        if (runs := _runs(task, accuracies))
    )
    return (
        cell.dataset,
        cell.method,
        f"{cell.printed:.2f}",
        _text(plain),
        _text(private),
        cell.epsilon if private else "",
        f"{gap_of(cell, accuracies):+.1f}",
        "; ".join(tried),
    )


def _text(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{_mean(values):.1f}{spread} ({len(values)})"


def _compared(cell: Cell, accuracies: Accuracies) -> Sequence[float]:
    return _runs(cell.plain, accuracies) or _runs(cell.private, accuracies)


def _ceilings(measured: Sequence[Cell]) -> Iterator[str]:
    """How accurate labels that are drawn at a claim can be at most."""
    if not measured or measured[0].table != PREPRINT:
        return
    yield (
        "Labels of one tree drawn by the printed rule are right at most so often in the mean, on any rows; at B3 = 20 "
        "the bound is above 99.9 and excludes nothing:\n"
    )
    yield "| dataset | B3 | at most | printed |\n|---|---|---|---|"
    for cell in measured:
        most = 100 * vote_ceiling(1, float(cell.epsilon), _n_classes(cell))
        if most < 99.9:
            yield f"| {cell.dataset} | {cell.epsilon} | {upper_bound(most)} | {cell.printed:.2f} |"
    yield ""


def _n_classes(cell: Cell) -> int:
    return N_CLASSES[sources()[cell.dataset].file]


_OPEN = ("Not explained", "The printed number")
"""How reasons begin that are none: that a printed number is odd does not say why."""


def is_open(cell: Cell, accuracies: Accuracies) -> bool:
    """Whether a cell has a difference above two points without a reason."""
    return abs(gap_of(cell, accuracies)) > SMALL and reason_of(
        cell, accuracies
    ).startswith(_OPEN)


def differences(name: str, accuracies: Accuracies, *, is_open: bool) -> Iterator[str]:
    """The differences of a table above two points by their reasons: those without one,
    or the others.
    """
    by_reason: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell in _measured(name, accuracies):
        gap = gap_of(cell, accuracies)
        if abs(gap) <= SMALL:
            continue
        reason = reason_of(cell, accuracies)
        if reason.startswith(_OPEN) == is_open:
            by_reason[reason][cell.dataset].append(f"{cell.method} {gap:+.1f}")
    if by_reason and not is_open:
        yield (
            f"Differences above two points in {label(name)} that have a reason; the others are "
            "[not explained](#not-explained):\n"
        )
    for reason, of_dataset in by_reason.items():
        named = "; ".join(
            f"{dataset} {', '.join(gaps)}" for dataset, gaps in of_dataset.items()
        )
        yield f"* {reason} {named}."


def has_runs(cell: Cell, accuracies: Accuracies) -> bool:
    """Whether the cell has a run to compare."""
    return bool(_compared(cell, accuracies))


def gap_of(cell: Cell, accuracies: Accuracies) -> float:
    """Ours − printed, in points; the cell has runs."""
    return _mean(_compared(cell, accuracies)) - cell.printed


def n_folds_of(cell: Cell, accuracies: Accuracies) -> int:
    """Number of folds of the run that stands beside a printed number."""
    return len(_compared(cell, accuracies))


def has_interval(cell: Cell, accuracies: Accuracies) -> bool:
    """Whether a cell has folds enough for an interval of chance."""
    return _half_width(cell, _compared(cell, accuracies)) is not None


def is_chance(cell: Cell, accuracies: Accuracies) -> bool:
    """Whether the difference of a cell is inside the interval of chance."""
    half = _half_width(cell, _compared(cell, accuracies))
    return half is not None and abs(gap_of(cell, accuracies)) < half


def reason_of(cell: Cell, accuracies: Accuracies) -> str:
    """The reason of the difference of a cell: chance, a run that reaches the printed
    number, or a known fact; where there is none, the answer says so. A run of another
    rule is a reason only if no other rule brings the whole method nearer.
    """
    if is_chance(cell, accuracies):
        return _CHANCE
    nearest, distance = "", abs(gap_of(cell, accuracies)) / 2
    for title, task in _nearest_check(cell, accuracies).items():
        runs = _runs(task, accuracies)
        if not runs:
            continue
        beside, of_check = abs(_mean(runs) - cell.printed), _half_width(cell, runs)
        if beside > distance:
            continue
        if of_check is not None and beside < min(of_check, SMALL):
            return _EXPLAINED.format(title=title)
        nearest, distance = title, beside
    if fact := _fact(cell):
        return fact
    if nearest:
        return _NEARER.format(title=nearest)
    ours = _compared(cell, accuracies)
    is_open = _half_width(cell, ours) is None and abs(
        gap_of(cell, accuracies)
    ) < _spread(ours)
    return _TOO_FEW if is_open else _UNEXPLAINED


def _spread(values: Sequence[float]) -> float:
    """A wide interval for few folds, in points: it takes a mean of folds, which share
    rows, to spread like one of them.
    """
    if len(values) < 2:
        return math.inf
    deviation = 100 * statistics.stdev(values)
    widest = deviation * math.sqrt(1 + 1 / N_REPEATS)
    return float(stats.t.ppf(0.975, len(values) - 1)) * widest


def _half_width(cell: Cell, values: Sequence[float]) -> float | None:
    """Half of the 95 % interval, in points, in which the difference between a printed
    mean and the mean of ours lies if both have one law: t · s · √(1/m + 1/n) for a mean
    of m and n of ours with standard deviation s; ``None`` for too few.
    """
    n_splits = TABLES[cell.table].n_splits
    if n_splits:
        n_printed, fewest = n_splits, FEWEST_SPLITS
        units = [100 * value for value in values]
    else:
        n_printed, fewest = N_REPEATS, FEWEST_WHOLE
        units = [
            _mean(values[first : first + N_FOLDS])
            for first in range(0, len(values) - N_FOLDS + 1, N_FOLDS)
        ]
    if len(units) < fewest:
        return None
    spread = statistics.stdev(units) * math.sqrt(1 / n_printed + 1 / len(units))
    return float(stats.t.ppf(0.975, len(units) - 1)) * spread


def _fact(cell: Cell) -> str:
    """The reason in ``differences.csv`` of a cell; the first line that fits, an empty
    field fits everything. Empty if no line fits.
    """
    with REASONS.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            named = (row["table"], row["dataset"], row["method"])
            actual = (cell.table, cell.dataset, cell.method)
            if all(
                name in ("", value) for name, value in zip(named, actual, strict=True)
            ):
                return row["reason"]
    return ""


def missing(names: Sequence[str], accuracies: Accuracies) -> Iterator[str]:
    """Datasets and methods of tables that are not here."""
    by_reason: dict[str, dict[str, None]] = defaultdict(dict)
    for name in names:
        methods = TABLES[name].methods
        for method, described in methods.items():
            if described.absent:
                by_reason[described.absent][method] = None
        for cell in rows(name):
            source = sources()[cell.dataset]
            if source.missing:
                by_reason[source.missing][cell.dataset] = None
            elif not methods[cell.method].absent and not has_runs(cell, accuracies):
                by_reason["no fold ran"][f"{cell.dataset} {cell.method}"] = None
    yield from (f"* {', '.join(named)}: {why}." for why, named in by_reason.items())


def differing(names: Sequence[str]) -> Iterator[str]:
    """What is known to differ from the paper's description in datasets that are here."""
    of_paper = dict.fromkeys(
        (cell.table.partition("-")[0], cell.dataset)
        for name in names
        for cell in rows(name)
    )
    for paper, dataset in of_paper:
        if note := notes().get((paper, dataset)):
            yield f"* {dataset}: {note}."


def _other_labels(measured: Sequence[Cell], accuracies: Accuracies) -> Iterator[str]:
    """How far the printed numbers of a dataset are from the runs with each label."""
    for names in OTHER_LABELS.items():
        gaps = {
            name: [
                abs(gap_of(cell, accuracies))
                for cell in measured
                if cell.dataset == name
            ]
            for name in names
        }
        if all(gaps.values()):
            means = [
                f"{name} {statistics.fmean(gap):.1f}" for name, gap in gaps.items()
            ]
            yield f"\nMean distance from the printed numbers, in points, by label: {', '.join(means)}."


def _runs(task: Task | None, accuracies: Accuracies) -> Sequence[float]:
    return accuracies.get(task.key, ()) if task is not None else ()


def _of(task: Task | None, means: Mapping[tuple[object, ...], float]) -> float | None:
    return means.get(task.key) if task is not None else None


def _mean(values: Sequence[float]) -> float:
    return 100 * statistics.fmean(values)


N_CLASSES = {
    "zoo": 7, "wine": 3, "wdbc": 2, "transfusion": 2, "vehicle": 4, "tic_tac_toe": 2, "mammographic": 2, "banknote": 2,
    "cmc": 3, "car": 4, "wine_quality_white": 7, "nursery": 5, "sonar": 2, "hayes_roth": 3, "echocardiogram": 2,
    "hepatitis": 2, "hepatitis:histology": 2, "segment": 7, "kr_vs_kp": 2, "yeast": 10, "australian": 2,
    "movement_libras": 15, "wine_quality_red": 6, "wpbc": 2,
}  # fmt: skip
"""Classes of the datasets of the multinomial forest; published facts."""

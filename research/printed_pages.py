"""Writes one page per table of the papers: printed numbers beside ours, costs of the
literal rules, differences.
"""

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scipy import stats

from grovekeeper_forests import catalogue
from research.printed_tables import (
    OTHER_LABELS,
    TABLES,
    Cell,
    Table,
    notes,
    rows,
    sources,
)
from research.reference.literal_rules import TRUE_LOSS, vote_ceiling
from research.runs import Task

REASONS = Path(__file__).with_name("reference") / "differences.csv"

Accuracies = Mapping[tuple[object, ...], Sequence[float]]
"""Accuracies over folds, in the order of the folds, by the key of the task on the first
fold.
"""

_HEAD = """# {title}

{about}

    python -m research.papers DATA --tables {name}

Accuracy in percent: mean ± standard deviation over folds of 10-fold cross-validation, their number in brackets. The
difference is ours − printed, in bold above two points: ours without privacy, or private where only that exists.

![Our accuracy against the printed one](plots/{name}.svg)
"""
_COLUMNS = (
    "dataset",
    "method",
    "printed",
    "without privacy",
    "private, repaired",
    "ε",
    "difference",
)
_CHANCE = "Inside the 95 % interval of one more whole cross-validation, by the spread of ours: chance is enough."
_UNEXPLAINED = "Not explained."
_TOO_FEW = "Not explained; fewer than three whole cross-validations ran, too few to tell the difference from chance."

N_FOLDS = 10
FEWEST_WHOLE = 3
"""Whole cross-validations below which no interval is computed; the folds of one share
rows and are not independent.
"""


def write(folder: Path, accuracies: Accuracies, *, with_plots: bool) -> None:
    """Writes the pages ``<table>.md``, and the plots if Matplotlib may be used."""
    for name in TABLES:
        (folder / f"{name}.md").write_text(page(name, accuracies), encoding="utf-8")
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


def page(name: str, accuracies: Accuracies) -> str:
    """The page of a table."""
    table, printed = TABLES[name], list(rows(name))
    measured = [
        cell
        for cell in printed
        if _runs(cell.plain, accuracies) or _runs(cell.private, accuracies)
    ]
    columns = (*_COLUMNS, table.check) if table.check else _COLUMNS
    lines = [_HEAD.format(title=table.title, about=table.about, name=name)]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [_row(cell, accuracies) for cell in measured]
    lines += [
        "",
        _near(measured, accuracies),
        "",
        *_literal(table, measured),
        "",
        *_differences(measured, accuracies),
        "",
        *_missing(table, printed, measured),
    ]
    lines += _other_labels(measured, accuracies)
    return "\n".join(lines) + "\n"


def _near(measured: Sequence[Cell], accuracies: Accuracies) -> str:
    """On how many datasets each method is near its printed number."""
    gaps: dict[str, list[float]] = defaultdict(list)
    for cell in measured:
        if cell.dataset not in OTHER_LABELS.values():
            gaps[cell.method].append(abs(_gap(cell, accuracies)))
    counts = [
        f"{method} on {sum(gap <= 1 for gap in near)} of {len(near)}"
        for method, near in gaps.items()
    ]
    return f"Within one point of the printed number, by datasets: {', '.join(counts) or 'no runs'}."


def _row(cell: Cell, accuracies: Accuracies) -> str:
    plain, private = _runs(cell.plain, accuracies), _runs(cell.private, accuracies)
    gap = _gap(cell, accuracies)
    shown = f"{gap:+.1f}" if abs(gap) <= 2 else f"**{gap:+.1f}**"
    epsilon = cell.epsilon if private else ""
    columns = (
        cell.dataset,
        cell.method,
        f"{cell.printed:.2f}",
        _text(plain),
        _text(private),
        epsilon or "–",
        shown,
    )
    if TABLES[cell.table].check:
        columns = (*columns, _text(_runs(cell.check, accuracies)))
    return f"| {' | '.join(columns)} |"


def _text(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{_mean(values):.1f}{spread} ({len(values)})"


def _gap(cell: Cell, accuracies: Accuracies) -> float:
    return _mean(_compared(cell, accuracies)) - cell.printed


def _compared(cell: Cell, accuracies: Accuracies) -> Sequence[float]:
    return _runs(cell.plain, accuracies) or _runs(cell.private, accuracies)


def _literal(table: Table, measured: Sequence[Cell]) -> Iterator[str]:
    """What the printed private rules cost, and how accurate they can be at most."""
    slugs = dict.fromkeys(
        method.private.partition(":")[0]
        for method in table.methods.values()
        if method.private
    )
    if not slugs:
        return
    yield "## What the printed private rules cost\n"
    yield "| repaired here as | true loss of the printed rule | why |\n|---|---|---|"
    for slug in slugs:
        about = catalogue.algorithm(slug).about
        proof = about.proof.removeprefix("docs/")
        yield f"| `{slug}` | {TRUE_LOSS[slug]} | {about.wrong} [Proof](../../{proof}) |"
    if "mrf" in slugs:
        yield "\nLabels drawn by the printed rule of the multinomial forest are right at most so often, on any rows:\n"
        yield "| dataset | method | ε | one tree | 64 trees | printed |\n|---|---|---|---|---|---|"
        for cell in measured:
            if cell.private is not None and cell.private.slug == "mrf":
                n_classes = N_CLASSES[sources()[cell.dataset].file]
                most = [
                    f"{100 * vote_ceiling(trees, float(cell.epsilon), n_classes):.1f}"
                    for trees in (1, 64)
                ]
                columns = (
                    cell.dataset,
                    cell.method,
                    cell.epsilon,
                    *most,
                    f"{cell.printed:.2f}",
                )
                yield f"| {' | '.join(columns)} |"


def _differences(measured: Sequence[Cell], accuracies: Accuracies) -> Iterator[str]:
    """Every difference above two points, by its reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for cell in measured:
        gap = _gap(cell, accuracies)
        if abs(gap) > 2:
            values = _compared(cell, accuracies)
            reason = _reason(cell)
            whole = [
                _mean(values[first : first + N_FOLDS])
                for first in range(0, len(values) - N_FOLDS + 1, N_FOLDS)
            ]
            if len(whole) < FEWEST_WHOLE:
                reason = _TOO_FEW if reason == _UNEXPLAINED else reason
            elif abs(gap) < _half_width(whole):
                reason = _CHANCE
            by_reason[reason].append(f"{cell.dataset} {cell.method} {gap:+.1f}")
    yield "## Differences above two points\n"
    if not by_reason:
        yield "None."
    for reason, names in by_reason.items():
        yield f"* {reason} {'; '.join(names)}."


def _half_width(whole: Sequence[float]) -> float:
    """Half of the 95 % interval, in points, in which the mean of one more whole
    cross-validation lies around ours.
    """
    spread = statistics.stdev(whole) * math.sqrt(1 + 1 / len(whole))
    return float(stats.t.ppf(0.975, len(whole) - 1)) * spread


def _reason(cell: Cell) -> str:
    """The reason in ``differences.csv`` of a cell; the first line that fits, an empty
    field fits everything.
    """
    with REASONS.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            named = (row["table"], row["dataset"], row["method"])
            actual = (cell.table, cell.dataset, cell.method)
            if all(
                name in ("", value) for name, value in zip(named, actual, strict=True)
            ):
                return row["reason"]
    return _UNEXPLAINED


def _missing(
    table: Table, printed: Sequence[Cell], measured: Sequence[Cell]
) -> Iterator[str]:
    """Datasets and methods that are not here, and what is known to differ in those that
    are.
    """
    names = dict.fromkeys(cell.dataset for cell in printed)
    yield "## Missing\n"
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if sources()[name].missing:
            by_reason[sources()[name].missing].append(name)
    for name, method in table.methods.items():
        if method.absent:
            by_reason[method.absent].append(name)
    for cell in printed:
        if (
            cell not in measured
            and sources()[cell.dataset].file
            and not table.methods[cell.method].absent
        ):
            by_reason["no fold ran"].append(f"{cell.dataset} {cell.method}")
    yield from (
        f"* {', '.join(missing)}: {reason}." for reason, missing in by_reason.items()
    )
    paper = printed[0].table.split("-")[0]
    differing = [
        f"* {name}: {notes()[paper, name]}."
        for name in names
        if (paper, name) in notes()
    ]
    if differing:
        yield "\nDatasets that differ from the paper's description:\n"
        yield from differing


def _other_labels(measured: Sequence[Cell], accuracies: Accuracies) -> Iterator[str]:
    """How far the printed numbers of a dataset are from the runs with each label."""
    for names in OTHER_LABELS.items():
        gaps = {
            name: [
                abs(_gap(cell, accuracies)) for cell in measured if cell.dataset == name
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

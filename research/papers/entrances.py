"""Writes the page of every paper: what it says, what is right, what runs in the
service, printed numbers beside ours, what is not explained or not reproduced, and a
section on every table and figure. Long tables are CSV files beside the pages.

Run ``python -m research.papers.entrances`` after runs, texts or descriptions changed; a
test compares the pages and files.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from grovekeeper_forests import catalogue
from research import papers_page, printed_pages, printed_tables
from research.papers import __main__ as tables
from research.papers import (
    ablation_runs,
    ablations,
    findings,
    huang_page,
    items,
    mrf_page,
    random_tree_page,
    ranks_page,
    song_page,
)
from research.papers.ablations import Values
from research.papers.findings import Difference, Finding, table
from research.papers.random_tree_grid import GridRun
from research.printed_pages import Accuracies
from research.printed_tables import Cell
from research.reference.literal_rules import TRUE_LOSS
from research.runs import Task, load

_REFERENCE = Path(__file__).parents[1] / "reference"
BOJARSKI_ITEMS, BOJARSKI_THEORY = (
    _REFERENCE / f"bojarski_{name}.md" for name in ("items", "theory")
)
"""Sections of a page that are written by hand; tests check their numbers."""


OVERVIEW = tables.RESULTS.parent / "papers.md"
_READING_HEADING = "## How the pages are read"
_HOW_TO_READ = "../papers.md#how-the-pages-are-read"


@dataclass(frozen=True)
class Runs:
    """All runs of a results folder.

    Attributes:
        tables: accuracies of the tables.
        ablations: numbers of figures and ablations, by name.
        seconds_of_dropout: as in ``song_page.sections``.
        seconds_of_table: likewise.
        random_trees: of Bojarski et al.
        further_grids: text of the file of their counts in further grids.
    """

    tables: Accuracies
    ablations: Mapping[str, Values] = field(
        default_factory=lambda: {name: {} for name in ablations.ABLATIONS}
    )
    seconds_of_dropout: Mapping[Task, Sequence[float]] = field(default_factory=dict)
    seconds_of_table: song_page.Seconds = field(default_factory=dict)
    random_trees: Sequence[GridRun] = ()
    further_grids: str = ""

    @classmethod
    def of(cls, results: Path) -> Runs:
        """The runs of a folder."""
        path, read = results / ablation_runs.RUNS, cache(load)
        of_tables = read(results / "runs.csv", tables.PaperRun)
        of_dropout = defaultdict[Task, list[float]](list)
        of_table = defaultdict[tuple[str, str], list[float]](list)
        for task, run in sorted(
            ablation_runs.runs_by_task("song-figure-2", path, read).items()
        ):
            of_dropout[replace(task, repeat=0)].append(run.seconds)
        for paper_run in of_tables:
            # later folds ran on a busier machine, as did all runs of Algorithm 1's stop
            is_timed = song_page.is_timed(paper_run.algorithm)
            if paper_run.repeat < printed_pages.N_FOLDS and is_timed:
                place = paper_run.dataset, paper_run.task.slug
                of_table[place].append(paper_run.seconds)
        values = {
            name: ablation_runs.values_of(name, path, read)
            for name in ablations.ABLATIONS
        }
        random_trees = load(results / "random_trees.csv", GridRun)
        grids = results / random_tree_page.OF_GRIDS
        further = grids.read_text(encoding="utf-8") if grids.exists() else ""
        return cls(
            tables.accuracies(of_tables),
            values,
            of_dropout,
            of_table,
            random_trees,
            further,
        )


@dataclass(frozen=True)
class Entrance:
    """A paper.

    Attributes:
        name: of the page.
        title: for readers.
        items: its names in ``items.csv``.
        slugs: repaired algorithms in the service.
        tables: names of the tables whose numbers are compared.
        sections: lines on figures, further tables and sentences.
        names: of the ablations whose runs the sections have.
        protocol: of all tables.
    """

    name: str
    title: str
    items: Sequence[str]
    slugs: Sequence[str]
    tables: Sequence[str]
    sections: Callable[[Runs], Iterable[str]]
    names: Sequence[str] = ()
    protocol: str = ""


_HARDLY = (
    "“when B3 decreases, the performance is hardly reduced” (preprint, appendix F)."
)


def _printed_single_trees() -> Finding:
    """What the numbers of the preprint's table 3 say on its appendix F."""
    printed = {
        (cell.dataset, cell.method): cell.printed
        for cell in printed_tables.cells()
        if cell.table == printed_pages.PREPRINT
    }
    falls = {
        dataset: printed[dataset, "B3 = 20"] - printed[dataset, "B3 = 1"]
        for dataset in dict.fromkeys(dataset for dataset, _ in printed)
    }
    shown = ", ".join(f"{fall:.1f} ({dataset})" for dataset, fall in falls.items())
    return Finding(
        _HARDLY,
        f"from B3 = 20 to 1, they fall by {shown} points; one point counts as little.",
        findings.FAILS if max(falls.values()) > 1.0 else findings.HOLDS,
        "printed numbers of table 3 of the preprint",
    )


def _single_trees(accuracies: Accuracies) -> Finding:
    """What single trees as printed say on appendix F of the preprint."""
    falls, tasks = [], []
    by_place = {
        (cell.dataset, cell.method): cell.plain
        for cell in printed_tables.rows(printed_pages.PREPRINT)
    }
    for dataset in dict.fromkeys(dataset for dataset, _ in by_place):
        pair = [by_place[dataset, f"B3 = {b3}"] for b3 in (20, 1)]
        known = [task for task in pair if task is not None and task.key in accuracies]
        if len(known) == len(pair):
            tasks += known
            falls.append(
                Difference.of(*(_percents(task, accuracies) for task in known))
            )
    return Finding(
        _HARDLY,
        f"from B3 = 20 to 1, a tree that draws its labels loses {', '.join(map(str, falls))} points, by dataset; "
        "one point counts as little.",
        findings.within(falls, 1.0),
        findings.basis(
            tasks,
            literal=" with one label drawn for each leaf, as the journal prints",
        ),
    )


def _percents(task: Task, accuracies: Accuracies) -> list[float]:
    return [100 * accuracy for accuracy in accuracies[task.key]]


def _of_bai(runs: Runs) -> Iterator[str]:
    yield from mrf_page.sections(runs.ablations)
    yield from findings.listed([_printed_single_trees(), _single_trees(runs.tables)])
    yield ""
    yield from ranks_page.of_bai(runs.tables)


def _of_huang(runs: Runs) -> Iterator[str]:
    yield from huang_page.sections(runs.ablations)
    yield from ranks_page.of_huang(runs.tables)


def _of_bojarski(runs: Runs) -> Iterator[str]:
    yield from random_tree_page.sections(runs.random_trees, runs.further_grids)
    yield _written(BOJARSKI_THEORY)


def _written(path: Path) -> str:
    """A section that is written by hand, with its links as seen from the page."""
    return path.read_text(encoding="utf-8").replace("](../../docs/", "](../../")


def _of_song(runs: Runs) -> Iterator[str]:
    yield from song_page.sections(
        runs.ablations, runs.seconds_of_dropout, runs.seconds_of_table
    )
    yield ""
    yield from ranks_page.of_song(runs.tables)


PAPERS = (
    Entrance(
        "paper-bai",
        "Bai et al. (2022) and its preprint: the multinomial random forest",
        ("preprint", "mrf"),
        ("mrf",),
        ("mrf-2", "mrf-3", "mrf-preprint-3"),
        _of_bai,
        mrf_page.NAMES,
        printed_tables.OF_BAI,
    ),
    Entrance(
        "paper-huang",
        "Huang, Lei and Kabán (2022): private ensembles of median trees",
        ("huang",),
        ("spe", "sspe-1", "sspe-2", "pte", "srt", "rdt-jagannathan", "maxtree"),
        ("spe-1", "spe-2"),
        _of_huang,
        huang_page.NAMES,
    ),
    Entrance(
        "paper-bojarski",
        "Bojarski et al. (2014): random decision trees",
        (),
        ("rdt-mv",),
        ("dprf-1",),
        _of_bojarski,
        protocol="[Table 1 as printed](#table-1-as-printed) is the reproduction; here it has declared bounds.",
    ),
    Entrance(
        "paper-song",
        "Song and Wang (2024): stacked multinomial forests",
        ("song",),
        ("bms-rf",),
        ("bms-3",),
        _of_song,
        song_page.NAMES,
        printed_tables.OF_SONG,
    ),
)


def page(entrance: Entrance, runs: Runs) -> str:
    """The page of a paper."""
    lines = [
        f"# {entrance.title}\n",
        *_service(entrance),
        *_items(entrance),
        *_beside(entrance, runs.tables),
        *_unexplained(entrance, runs.tables),
        *(printed_pages.section(name, runs.tables) for name in entrance.tables),
        *_judged(entrance),
        *entrance.sections(runs),
        "",
        *_not_reproduced(entrance, runs.tables),
        *_datasets(entrance),
    ]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def _link(name: str) -> str:
    label = printed_pages.label(name)
    return f"[{label}](#{label.replace(' ', '-')})"


def _service(entrance: Entrance) -> Iterator[str]:
    yield "## What is claimed, what is wrong, and what runs in the service\n"
    yield (
        "[The papers](../../papers.md) says so for each algorithm. True loss of the printed rules, by the algorithm "
        "that repairs them:\n"
    )
    for slug in entrance.slugs:
        place = papers_page.anchor(slug)
        proof = catalogue.algorithm(slug).about.proof.removeprefix("docs/")
        yield f"* [`{slug}`](../../papers.md#{place}): {TRUE_LOSS[slug]} ([proof](../../{proof}))."
    yield ""


def _items(entrance: Entrance) -> Iterator[str]:
    if entrance.items:
        yield "## What became of every item\n"
        yield from items.lines(entrance.items)
        yield ""
    else:
        yield _written(BOJARSKI_ITEMS)


def _cells(entrance: Entrance, accuracies: Accuracies) -> list[Cell]:
    """The cells that have runs, with every label."""
    return [
        cell
        for name in entrance.tables
        for cell in printed_tables.rows(name)
        if printed_pages.has_runs(cell, accuracies)
    ]


def _beside(entrance: Entrance, accuracies: Accuracies) -> Iterator[str]:
    by_place: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in _cells(entrance, accuracies):
        if cell.dataset not in printed_tables.OTHER_LABELS.values():
            by_place[cell.table, cell.method].append(cell)
    rows = []
    for (name, method), cells in by_place.items():
        gaps = [abs(printed_pages.gap_of(cell, accuracies)) for cell in cells]
        known = [
            printed_pages.is_chance(cell, accuracies)
            for cell in cells
            if printed_pages.has_interval(cell, accuracies)
        ]
        n_open = sum(printed_pages.is_open(cell, accuracies) for cell in cells)
        rows.append(
            (
                _link(name),
                method,
                str(len(gaps)),
                findings.range_of(
                    {printed_pages.n_folds_of(cell, accuracies) for cell in cells}
                ),
                f"{statistics.median(gaps):.1f}",
                str(sum(gap <= 1 for gap in gaps)),
                f"{sum(known)} of {len(known)}",
                str(n_open),
            )
        )
    yield "## Printed numbers beside ours\n"
    if entrance.protocol:
        yield f"{entrance.protocol}\n"
    yield (
        f"Absolute differences in points ([how to read them]({_HOW_TO_READ}))."
        f"{printed_pages.label_of(_cells(entrance, accuracies), 'its documented class')}\n"
    )
    columns = ("table", "method", "datasets", "folds", "median", "within a point")
    yield from table((*columns, "inside chance", "not explained"), rows)
    yield ""


def _unexplained(entrance: Entrance, accuracies: Accuracies) -> Iterator[str]:
    yield "## Not explained\n"
    yield "Differences above two points that have no reason.\n"
    for name in entrance.tables:
        label = printed_pages.label(name)
        yield f"{label[0].upper()}{label[1:]}:\n"
        yield from printed_pages.differences(name, accuracies, is_open=True)
        yield ""


def _judged(entrance: Entrance) -> Iterator[str]:
    if entrance.names:
        yield "## Figures and sentences of the paper\n"
        yield f"What follows “Here” is computed, and [judged by one rule]({_HOW_TO_READ}). The runs:\n"
        names = " ".join(entrance.names)
        yield f"    python -m research.papers.ablation_runs DATA --names {names}\n"


def _not_reproduced(entrance: Entrance, accuracies: Accuracies) -> Iterator[str]:
    yield "## Not reproduced\n"
    yield from items.not_reproduced(entrance.items)
    yield from printed_pages.missing(entrance.tables, accuracies)
    yield ""


def _datasets(entrance: Entrance) -> Iterator[str]:
    yield "## Datasets\n"
    yield "What differs from the paper's description:\n"
    yield from printed_pages.differing(entrance.tables)


def pages(runs: Runs) -> dict[str, str]:
    """The pages and the files behind them, by name."""
    return {
        **{f"{paper.name}.md": page(paper, runs) for paper in PAPERS},
        **mrf_page.files(runs.ablations),
        **huang_page.files(runs.ablations),
        **song_page.files(
            runs.ablations, runs.seconds_of_dropout, runs.seconds_of_table
        ),
        **random_tree_page.files(runs.random_trees),
        **ranks_page.files(runs.tables),
    }


def with_reading(overview: str) -> str:
    """The overview of the papers with its section on what is the same for all pages."""
    before, heading, rest = overview.partition(_READING_HEADING)
    _, end, after = rest.partition("\n## ")
    texts = (printed_pages.READING, printed_pages.RULE, findings.RULE, ranks_page.TESTS)
    return "\n\n".join([f"{before}{heading}", *texts]) + f"\n{end}{after}"


def write(folder: Path) -> None:
    """Writes the pages and files from the runs of the folder."""
    for name, text in pages(Runs.of(folder)).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(tables.RESULTS)
    OVERVIEW.write_text(
        with_reading(OVERVIEW.read_text(encoding="utf-8")), encoding="utf-8"
    )

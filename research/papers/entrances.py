"""Writes the page of every paper: what it says, what is right, what runs in the
service, printed numbers beside ours, what is not explained or not reproduced, and a
section on every table.

Run ``python -m research.papers.entrances`` after the pages of the tables changed; a
test compares the pages.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grovekeeper_forests import catalogue
from research import printed_pages, printed_tables
from research.papers import __main__ as tables
from research.papers import findings, items_page, random_tree_page
from research.papers.findings import Difference, Finding, table
from research.papers.items_page import Item
from research.papers.random_tree_grid import GridRun
from research.printed_pages import Accuracies
from research.printed_tables import Cell
from research.runs import Task, load


@dataclass(frozen=True)
class Entrance:
    """A paper.

    Attributes:
        name: of the page.
        title: for readers.
        items: its names in ``items.csv``.
        slugs: repaired algorithms in the service.
        tables: names of the tables whose numbers are compared.
        pages: further pages, by title.
        literal: lines on runs as printed that the tables do not contain.
    """

    name: str
    title: str
    items: Sequence[str]
    slugs: Sequence[str]
    tables: Sequence[str]
    pages: Mapping[str, str]
    literal: Callable[[Accuracies], Iterable[str]] = lambda _: ()


def _single_trees(accuracies: Accuracies) -> Iterator[str]:
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
    yield str(
        Finding(
            "“when B3 decreases, the performance is hardly reduced” (preprint, appendix F).",
            f"from B3 = 20 to 1, a tree that draws its labels loses {', '.join(map(str, falls))} points, by dataset; "
            "one point counts as little.",
            findings.within(falls, 1.0),
            findings.basis(
                tasks,
                literal=" with one label drawn for each leaf, as the journal prints",
            ),
        )
    )
    yield ""


def _percents(task: Task, accuracies: Accuracies) -> list[float]:
    return [100 * accuracy for accuracy in accuracies[task.key]]


def _random_trees(_: Accuracies) -> Iterator[str]:
    """What runs of Bojarski et al. as printed say on table 1."""
    runs = load(tables.RESULTS / "random_trees.csv", GridRun)
    yield (
        "Table 1 at its own k and h, with thresholds between the smallest and the largest value present "
        "([runs](bojarski-runs.md)). Inside is a difference of at most √2 times the printed half width, the 95 % "
        "interval of a difference of two such errors:\n"
    )
    yield from random_tree_page.table_1_counts(runs)
    yield "\nWith declared bounds:\n"


EDITIONS = {"preprint": "preprint", "mrf": "journal"}
"""What items are called whose paper has two editions, by their paper in
``items.csv``.
"""

PAPERS = (
    Entrance(
        "paper-bai",
        "Bai et al. (2022) and its preprint: the multinomial random forest",
        ("preprint", "mrf"),
        ("mrf",),
        ("mrf-2", "mrf-3", "mrf-preprint-3"),
        {
            "tables 4 and 5, figures 5 to 7": "mrf-figures.md",
            "ranks and tests": "ranks.md",
        },
        _single_trees,
    ),
    Entrance(
        "paper-huang",
        "Huang, Lei and Kabán (2022): private ensembles of median trees",
        ("huang",),
        ("spe", "sspe-1", "sspe-2", "pte"),
        ("spe-1", "spe-2"),
        {"figures and synthetic sets": "huang-figures.md", "tests": "ranks.md"},
    ),
    Entrance(
        "paper-bojarski",
        "Bojarski et al. (2014): random decision trees",
        (),
        ("rdt-mv",),
        ("dprf-1",),
        {
            "figures and table 1 as printed": "bojarski-runs.md",
            "every theorem": "bojarski.md",
        },
        _random_trees,
    ),
    Entrance(
        "paper-song",
        "Song and Wang (2024): stacked multinomial forests",
        ("song",),
        ("bms-rf",),
        ("bms-3",),
        {"figures 2 to 5 and table 4": "song-figures.md", "tests": "ranks.md"},
    ),
)
_HEAD = """# {title}

What the paper says, what is right, what runs, and what is not explained; details are on {details}.
"""


def page(entrance: Entrance, accuracies: Accuracies) -> str:
    """The page of a paper."""
    links = [
        *map(_link, entrance.tables),
        *(f"[{title}]({target})" for title, target in entrance.pages.items()),
    ]
    details = ", ".join(links)
    lines = [_HEAD.format(title=entrance.title, details=details)]
    lines += [
        *_service(entrance),
        *_checked(entrance),
        *_beside(entrance, accuracies),
        *_unexplained(entrance, accuracies),
        *_not_reproduced(entrance),
        "",
        *(printed_pages.section(name, accuracies) for name in entrance.tables),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _link(table: str) -> str:
    label = printed_pages.label(table)
    return f"[{label}](#{label.replace(' ', '-')})"


def _service(entrance: Entrance) -> Iterator[str]:
    yield "## What is claimed, what is wrong, and what runs in the service\n"
    for slug in entrance.slugs:
        about = catalogue.algorithm(slug).about
        wrong = f" **Wrong:** {about.wrong}" if about.wrong else ""
        proof = about.proof.removeprefix("docs/")
        yield (
            f"* `{slug}`. **Claimed:** {about.claimed}{wrong} **Here:** {about.here} [Proof](../../{proof})"
        )
    yield ""


def _checked(entrance: Entrance) -> Iterator[str]:
    rows = [
        (_named(item), item.about, item.where, item.remark or "holds")
        for item in items_page.items()
        if item.paper in entrance.items and item.status == items_page.CHECKED
    ]
    if rows:
        yield "## What was checked, and whether it holds\n"
        yield from table(("item", "about", "where", "result"), rows)
        yield ""


def _named(item: Item) -> str:
    edition = EDITIONS.get(item.paper)
    return f"{item.item} ({edition})" if edition else item.item


def _cells(entrance: Entrance, accuracies: Accuracies) -> list[Cell]:
    """The cells that have runs, with every label."""
    return [
        cell
        for name in entrance.tables
        for cell in printed_tables.rows(name)
        if printed_pages.has_runs(cell, accuracies)
    ]


def _beside(entrance: Entrance, accuracies: Accuracies) -> Iterator[str]:
    gaps: dict[tuple[str, str], list[float]] = defaultdict(list)
    chance: dict[tuple[str, str], list[bool]] = defaultdict(list)
    n_folds: dict[tuple[str, str], set[int]] = defaultdict(set)
    for cell in _cells(entrance, accuracies):
        if cell.dataset in printed_tables.OTHER_LABELS.values():
            continue
        place = cell.table, cell.method
        gaps[place].append(abs(printed_pages.gap_of(cell, accuracies)))
        n_folds[place].add(printed_pages.n_folds_of(cell, accuracies))
        if printed_pages.has_interval(cell, accuracies):
            chance[place].append(printed_pages.is_chance(cell, accuracies))
    rows = [
        (
            _link(name),
            method,
            str(len(of_method)),
            findings.range_of(n_folds[name, method]),
            f"{statistics.median(of_method):.1f}",
            str(sum(gap <= 1 for gap in of_method)),
            f"{sum(chance[name, method])} of {len(chance[name, method])}",
        )
        for (name, method), of_method in gaps.items()
    ]
    yield "## Printed numbers beside ours\n"
    yield from entrance.literal(accuracies)
    yield (
        "Absolute differences in points, ours without privacy where there is such a run, else private and repaired. "
        "The last column counts the datasets inside the interval of chance, of those that have folds enough for one; "
        f"few folds widen it.{printed_pages.label_of(_cells(entrance, accuracies), 'its documented class')}\n"
    )
    columns = ("table", "method", "datasets", "folds", "median", "within a point")
    yield from table((*columns, "inside chance"), rows)
    yield ""


_OPEN = ("Not explained", "The printed number")
"""How reasons begin that are none: that a printed number is odd does not say why."""


def _unexplained(entrance: Entrance, accuracies: Accuracies) -> Iterator[str]:
    yield "## Not explained\n"
    yield "Differences above two points that no run accounts for, and no property of the rule.\n"
    for name in entrance.tables:
        named = [
            f"{cell.dataset} {cell.method} {gap:+.1f}"
            for cell in _cells(entrance, accuracies)
            if cell.table == name
            and abs(gap := printed_pages.gap_of(cell, accuracies)) > 2
            and printed_pages.reason_of(cell, accuracies).startswith(_OPEN)
        ]
        label = printed_pages.label(name)
        yield f"* {label[0].upper()}{label[1:]}: {'; '.join(named) or 'none'}."
    yield ""


def _not_reproduced(entrance: Entrance) -> Iterator[str]:
    yield "## Not reproduced\n"
    for item in items_page.items():
        if item.paper in entrance.items and item.status == items_page.NOT_REPRODUCED:
            yield f"* {_named(item)}, {item.about}: {item.remark}."
    missing = dict.fromkeys(
        f"{cell.dataset}: {why}"
        for name in entrance.tables
        for cell in printed_tables.rows(name)
        if (why := printed_tables.sources()[cell.dataset].missing)
    )
    yield from (f"* {one}." for one in missing)


def pages(accuracies: Accuracies | None = None) -> dict[str, str]:
    """The pages by file name, without accuracies from the committed runs."""
    by_task = (
        tables.accuracies(load(tables.RESULTS / "runs.csv", tables.PaperRun))
        if accuracies is None
        else accuracies
    )
    return {f"{paper.name}.md": page(paper, by_task) for paper in PAPERS}


def write(folder: Path, accuracies: Accuracies | None = None) -> None:
    """Writes the pages."""
    for name, text in pages(accuracies).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(tables.RESULTS)

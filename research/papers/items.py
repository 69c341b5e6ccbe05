"""Lists the numbered items of the papers but for definitions and equations: run, checked, or not reproduced and why."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from research.papers.findings import table

ITEMS = Path(__file__).parents[1] / "reference" / "items.csv"

RUN, CHECKED, NOT_REPRODUCED = STATES = ("run", "checked", "not reproduced")

EDITIONS: Mapping[str, str] = {
    "preprint": " (preprint)",
    "mrf": " (journal)",
    "huang": "",
    "song": "",
}
"""By the first column of ``items.csv``, what is added to the items of a paper of two
editions.
"""


@dataclass(frozen=True)
class Item:
    """A numbered item of a paper.

    Attributes:
        paper: one of :data:`EDITIONS`.
        item: kind and number.
        about: what it is.
        status: one of :data:`STATES`.
        where: links, relative to the page of the paper; empty where the item is not reproduced.
        remark: what is otherwise or missing; the reason where the item is not
            reproduced.
    """

    paper: str
    item: str
    about: str
    status: str
    where: str
    remark: str


@cache
def items() -> Sequence[Item]:
    """All items, in the order of the papers."""
    with ITEMS.open(newline="", encoding="utf-8") as lines:
        return tuple(Item(**row) for row in csv.DictReader(lines))


def counts() -> dict[str, dict[str, int]]:
    """Number of items of every paper by status."""
    return {
        paper: {
            state: sum((item.paper, item.status) == (paper, state) for item in items())
            for state in STATES
        }
        for paper in EDITIONS
    }


def lines(papers: Sequence[str]) -> Iterator[str]:
    """The table of the items of a paper's editions that run or are checked, and how
    many there are.
    """
    of_state = (
        f"{sum(counts()[paper][state] for paper in papers)} {words}"
        for state, words in (
            (RUN, "run: our code measures them"),
            (
                CHECKED,
                "are checked: a proof page, a test or a comparison says whether they hold",
            ),
            (NOT_REPRODUCED, "are [not reproduced](#not-reproduced)"),
        )
    )
    n_items = sum(item.paper in papers for item in items())
    editions = " An item without its edition is that of both." * (len(papers) > 1)
    yield (
        f"Of {n_items} numbered items, {'; '.join(of_state)}. Definitions and equations are not counted: they belong "
        f"to the items that use them.{editions}\n"
    )
    by_result: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items():
        if item.paper in papers and item.status != NOT_REPRODUCED:
            by_result[item.about, _result(item)].append(item)
    rows = [
        (_named(of_result, papers), about, result)
        for (about, result), of_result in by_result.items()
    ]
    yield from table(("item", "about", "result"), rows)


def not_reproduced(papers: Sequence[str]) -> Iterator[str]:
    """The items of a paper's editions that are not reproduced, by reason."""
    by_reason: dict[str, list[Item]] = defaultdict(list)
    for item in items():
        if item.paper in papers and item.status == NOT_REPRODUCED:
            by_reason[item.remark].append(item)
    for reason, of_reason in by_reason.items():
        yield f"* {reason[0].upper()}{reason[1:]}: {_named(of_reason, papers)}."


def _result(item: Item) -> str:
    said = item.remark or ("holds" if item.status == CHECKED else "")
    return "; ".join(part for part in (item.where, said) if part)


def _named(known: Iterable[Item], papers: Sequence[str]) -> str:
    """Items in words; one of all editions without their names."""
    editions: dict[str, list[str]] = defaultdict(list)
    for item in known:
        editions[item.item].append(item.paper)
    return ", ".join(
        name
        if set(of_item) == set(papers)
        else ", ".join(f"{name}{EDITIONS[paper]}" for paper in of_item)
        for name, of_item in editions.items()
    )

"""Writes the page of every numbered item of the papers: run, checked, or not reproduced
and why.

Run ``python -m research.papers.items_page`` after a change of
``research/reference/items.csv``; a test compares the page.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from research.papers.findings import table

ITEMS = Path(__file__).parents[1] / "reference" / "items.csv"
PAGE = Path(__file__).parents[2] / "docs" / "results" / "papers" / "items.md"

RUN, CHECKED, NOT_REPRODUCED = STATES = ("run", "checked", "not reproduced")

PAPERS: Mapping[str, str] = {
    "preprint": "Li et al., Multinomial random forest: toward consistency and privacy-preservation (preprint)",
    "mrf": "Bai et al., Multinomial random forest, Pattern Recognition (2022)",
    "huang": "Huang, Lei and Kabán, Noise-efficient learning of … private partitioning machine ensembles (2022)",
    "song": "Song and Wang, Trestle random forest based on multiple randomness and privacy protection (2024)",
}
"""Titles by the first column of ``items.csv``."""

_HEAD = """# Every numbered item of the papers

Each algorithm, property, lemma, theorem, table and figure of the papers, and what became of it. *Run*: our code
measures it, with the printed numbers or findings beside ours. *Checked*: a proof page, a test or a comparison says
whether it holds; that an item is checked does not mean that it holds. *Not reproduced*: the last section says why.
Remarks name the parts of an item that did not run, such as datasets that the data folder does not hold.
"""
_BOJARSKI = (
    "Bojarski et al., Differentially- and non-differentially-private random decision trees (2014)",
    "[bojarski.md](bojarski.md)",
)
"""The items of this paper stand on a page of their own."""


@dataclass(frozen=True)
class Item:
    """A numbered item of a paper.

    Attributes:
        paper: one of :data:`PAPERS`.
        item: kind and number.
        about: what it is.
        status: one of :data:`STATES`.
        where: links, relative to the page; empty where the item is not reproduced.
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
        for paper in PAPERS
    }


def text() -> str:
    """The page."""
    lines = [_HEAD, *_counts(), ""]
    for paper, title in PAPERS.items():
        rows = [
            (item.item, item.about, item.status, item.where or "–", item.remark or "–")
            for item in items()
            if item.paper == paper
        ]
        lines += [
            f"## {title}\n",
            *table(("item", "about", "status", "where", "remark"), rows),
            "",
        ]
    lines += ["## Not reproduced\n", *_not_reproduced()]
    return "\n".join(lines) + "\n"


def _counts() -> Iterator[str]:
    rows = [
        (
            PAPERS[paper],
            str(sum(of_paper.values())),
            *(str(of_paper[state]) for state in STATES),
        )
        for paper, of_paper in counts().items()
    ]
    return table(
        ("paper", "items", *STATES),
        [*rows, (_BOJARSKI[0], f"see {_BOJARSKI[1]}", "", "", "")],
    )


def _not_reproduced() -> Iterator[str]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for item in items():
        if item.status == NOT_REPRODUCED:
            by_reason[item.remark].append(f"{item.item} ({item.paper})")
    for reason, named in by_reason.items():
        yield f"* {reason[0].upper()}{reason[1:]}: {', '.join(named)}."


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

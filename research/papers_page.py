"""Writes ``docs/papers.md`` from the catalogue: what each paper claimed, what is wrong,
and what runs here.

Run ``python -m research.papers_page`` after a description in the catalogue changed; a
test compares the page.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from grovekeeper_forests import catalogue, limits
from grovekeeper_forests.data.encoding import MAX_BINS
from grovekeeper_forests.trees import tree_parameters

PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
_HEAD = """# The papers

Published private forests claim ε-differential privacy. Of the forests below, the claims of `mrf`, `spe`, `sspe-1`,
`maxtree`, `bms-rf` and `srt` are false as written or as coded. The claim of `rdt` holds where a row is added or
removed; those of `sspe-2` and, if features are public, `pte` hold where a label is added or removed and the tree of
each label is drawn on its own. Grovekeeper runs each forest in a repaired form, at its true price.
`grovekeeper algorithms NAME` prints the same sentences; each [proof](proofs/README.md) shows the repair, and tests put
flaws back ([which ones](../tests/privacy/README.md)) and demand that an enumeration detects them.

A page for each paper says what was checked, how printed numbers stand beside ours, and what is not explained:
[Bai et al.](results/papers/paper-bai.md), [Huang, Lei and Kabán](results/papers/paper-huang.md),
[Bojarski et al.](results/papers/paper-bojarski.md), [Song and Wang](results/papers/paper-song.md).
"""


NOT_EXPRESSIBLE = Path(__file__).parent / "reference" / "not_expressible.csv"
_REST = """## What no request expresses

Modes of the papers that the service does not offer, and why. `research/papers` runs most of them on public tables, but
not split values at values present or halfway between the structure points of a node, Algorithm 3 of Huang, Lei and
Kabán with private features, labels drawn anew for every prediction, Shannon's entropy, depths of 2d from nine features
on, MaxTree on bootstrap samples, regression of median trees, SSRDT and TOP, layers until an accuracy stops rising, and
the searches for the most accurate k of Bojarski et al. and p1, p2, layers and trees of Song and Wang.

| paper | mode | why not |
|---|---|---|
"""


def text() -> str:
    """The page."""
    parts = [_HEAD]
    for described, named in _sections().items():
        parts += [f"## {_heading(named)}\n", described]
    return "\n".join([*parts, _rest()])


def anchor(slug: str) -> str:
    """The anchor of the section on an algorithm."""
    (heading,) = (
        _heading(named)
        for named in _sections().values()
        if slug in (of_section for of_section, _ in named)
    )
    return re.sub("[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def _sections() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Slugs and titles of the algorithms of papers by their description, which some
    share.
    """
    sections: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for algorithm in catalogue.algorithms():
        if algorithm["about"]["claimed"] is not None:
            described = _described(algorithm["source"], algorithm["about"])
            sections[described].append((algorithm["slug"], algorithm["title"]))
    return sections


def _heading(named: Sequence[tuple[str, str]]) -> str:
    slugs = ", ".join(f"`{slug}`" for slug, _ in named)
    return f"{slugs}: {_title([title for _, title in named])}"


def _rest() -> str:
    numbers = _numbers()
    with NOT_EXPRESSIBLE.open(newline="", encoding="utf-8") as lines:
        rows = [f"| {' | '.join(row)} |\n" for row in csv.reader(lines)]
    return _REST + "".join(row.format(**numbers) for row in rows[1:])


_N_NUMBERS = 16  # features of Pendigits, the widest table that the sentence is about
_BYTES_OF_A_CELL = 8


def _numbers() -> Mapping[str, str]:
    """Limits of the service, and what forests beyond them would need, for the sentences
    of the table.
    """

    def gigabytes(cells: int) -> str:
        return f"{cells * _BYTES_OF_A_CELL / 1e9:,.1f}"

    def deepest(n_bins: int) -> int:
        n_splits = _N_NUMBERS * (n_bins - 1)
        levels = (tree_parameters.MAX_TABLE_CELLS // n_splits).bit_length()
        return min(levels, limits.MAX_DEPTH)

    numbers = {
        "depth": limits.MAX_DEPTH,
        "leaves": f"{limits.MAX_LEAVES:,}",
        "cells": f"{limits.MAX_TREE_LEAF_CELLS:,}",
        "gigabytes": gigabytes(limits.MAX_TREE_LEAF_CELLS),
        "gigabytes_24": gigabytes(10 * 2 << 24),
        "gigabytes_33": gigabytes(10 * 2 << 33),
        "table_cells": f"{tree_parameters.MAX_TABLE_CELLS:,}",
        "n_numbers": _N_NUMBERS,
        "depth_of_255": deepest(MAX_BINS),
    }
    assert deepest(32) == limits.MAX_DEPTH  # the sentence says so
    return {name: str(number) for name, number in numbers.items()}


def _title(titles: Sequence[str]) -> str:
    """What the titles begin with, up to a comma where they differ."""
    return titles[0] if len(titles) == 1 else titles[0].partition(",")[0]


def _described(source: str, about: Mapping[str, str | None]) -> str:
    lines = [f"Source: {source}.\n", f"* **Claimed.** {about['claimed']}"]
    if about["wrong"] is not None:
        lines.append(f"* **What is wrong.** {about['wrong']}")
    lines.append(f"* **What runs here.** {about['here']}")
    proof, results = (
        str(about[name]).removeprefix("docs/") for name in ("proof", "results")
    )
    lines.append(f"* [Proof]({proof}), [measurements]({results})\n")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

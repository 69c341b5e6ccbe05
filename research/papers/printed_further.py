"""Reads printed numbers that no page of a table holds: tuned accuracies, average ranks,
times and marks of tests.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_REFERENCE = Path(__file__).parents[1] / "reference"


@cache
def numbers(item: str) -> Mapping[tuple[str, str], float]:
    """The printed numbers of an item of ``printed_further.csv``, by dataset and method.

    ``mrf-4`` and ``mrf-5`` are accuracies in percent, ``bms-4`` too; ``…-rank`` are
    average ranks, the dataset being ``Average``; ``bms-3-time`` are seconds.
    """
    with (_REFERENCE / "printed_further.csv").open(
        newline="", encoding="utf-8"
    ) as lines:
        rows = [row for row in csv.DictReader(lines) if row["item"] == item]
    return {(row["dataset"], row["method"]): float(row["printed"]) for row in rows}


@cache
def marks(table: str) -> Mapping[tuple[str, str], str]:
    """The printed marks of significance in a table, ``better`` or ``worse``, by dataset
    and method.

    They are those of MRF beside Breiman in ``mrf-2``, of a method beside MRF in
    ``mrf-3``, of the best method beside all others in ``spe-1``, and of BMS-RF beside
    another forest in ``bms-3``.
    """
    with (_REFERENCE / "printed_marks.csv").open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["table"] == table]
    return {(row["dataset"], row["method"]): row["mark"] for row in rows}

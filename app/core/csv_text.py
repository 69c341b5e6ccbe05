"""Writes lines of CSV that a spreadsheet opens without running anything in them."""

import csv
import io
from collections.abc import Sequence

from grovekeeper_common.number_text import not_computed


def line(cells: Sequence[object]) -> str:
    """A line of CSV. ``None`` is an empty cell; no spreadsheet computes a text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(not_computed, cells))
    return text.getvalue()

"""Writes cells of a dataset as words, for pages and for the command line."""

from itertools import groupby
from typing import Any

from grovekeeper_common.json_types import JsonMapping

_SHORTEST_RUN = 3
_TO = "\N{NON-BREAKING HYPHEN}"
"""Between two numbers: a narrow column would break a line behind a dash."""


def cell(scope: JsonMapping) -> str:
    """A cell or a scope in words: ``region=EU, shard=3``; the whole dataset if it names
    no partition.
    """
    parts = []
    for name, cells in scope.items():
        listed_cells = cells if isinstance(cells, list) else [cells]
        parts.append(f"{name}={', '.join(_runs(listed_cells))}")
    return "; ".join(parts) or "the whole dataset"


def covered(scope: JsonMapping) -> str:
    """The scope of an entry in words; a number stands for the first uploads that
    entries of the ledger named.
    """
    words = dict(scope)
    for name, cells in scope.items():
        if isinstance(cells, int):
            words[name] = f"the first {cells}"
    return cell(words)


def _runs(cells: list[Any]) -> list[str]:
    """Cells as texts; three or more consecutive numbers as ``0-7``."""

    def run_of(item: tuple[int, Any]) -> object:
        # Consecutive numbers at consecutive places have the same difference to them.
        index, cell = item
        return cell - index if isinstance(cell, int) else item

    texts: list[str] = []
    for _, grouped in groupby(enumerate(cells), key=run_of):
        run = [str(cell) for _, cell in grouped]
        if len(run) >= _SHORTEST_RUN:
            run = [f"{run[0]}{_TO}{run[-1]}"]
        texts += run
    return texts

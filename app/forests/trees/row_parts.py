"""Divides PRIVATE rows into parts in the form that an algorithm counts, and adds up what parts contribute."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.forests.data.coded_rows import CodedColumns, CodedRows, LocalRows, TrainingRows
from app.forests.data.encoding import Encoding
from app.forests.data.parts import HISTOGRAMS, CodedPart, Form, Parts
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.data.threads import added, in_threads, made_of, sum_over

PART_ROWS: Final = 2**17
"""Rows of a part: its codes fit into the cache of a processor, and the work on a part outweighs a call of a loop."""


def parts_of(rows: TrainingRows, encoding: Encoding, form: type[Form], *args: Any) -> Parts:
    """The PRIVATE rows in the form that an algorithm counts, in parts; at least one part.

    Args:
        rows: in this process, or on other machines. Coded rows are used up: see :meth:`CodedColumns.take`.
        encoding: public or released bins.
        form: makes its objects of the parts.
        args: further arguments of ``form.of``.
    """
    if isinstance(rows, SanitisedRows | CodedRows):
        return RowParts(made_of(_places(encoding, rows), lambda place: form.of(_part(encoding, rows, *place), *args)))
    return rows.parts(encoding, form, *args)


def _part(encoding: Encoding, rows: LocalRows, place: slice, codes: Callable[[], NDArray[np.uint8]]) -> CodedPart:
    ids = rows.row_ids if isinstance(rows, SanitisedRows) else rows.ids
    return CodedPart(encoding, codes(), rows.y[place], None if ids is None else ids[place])


def _places(encoding: Encoding, rows: LocalRows) -> list[tuple[slice, Callable[[], NDArray[np.uint8]]]]:
    """The place of every part among the rows, and what makes the codes of the part, once."""
    places, start = [], 0
    for n_rows, codes in _codes(encoding, rows.features):
        places.append((slice(start, start + n_rows), codes))
        start += n_rows
    return places


def _codes(
    encoding: Encoding, features: SanitisedColumns | CodedColumns
) -> Iterator[tuple[int, Callable[[], NDArray[np.uint8]]]]:
    if isinstance(features, CodedColumns):
        for taken in features.take(encoding, PART_ROWS):
            yield taken.n_rows, taken.codes
        return
    for start in range(0, max(features.n_rows, 1), PART_ROWS):
        columns = tuple(column[start : start + PART_ROWS] for column in features.columns)
        block = SanitisedColumns(columns, min(features.n_rows - start, PART_ROWS))
        yield block.n_rows, partial(encoding.encode, block)


class RowParts:
    """Parts of the PRIVATE rows of a job in the memory of this process; at least one. See ``Parts``."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def total(self, method: str, /, *args: Any, **named: Any) -> NDArray[np.int64]:
        """The sum of what a method returns for every part."""
        if method in HISTOGRAMS:
            return sum_over(self.parts, lambda part, onto: getattr(part, method)(*args, **named, onto=onto))
        count = methodcaller(method, *args, **named)
        return sum_over(self.parts, lambda part, onto: added(count(part), onto))

    def each(self, method: str, /, *args: Any, **named: Any) -> None:
        """Calls a method of every part."""
        act = methodcaller(method, *args, **named)
        in_threads(self.parts, lambda mine: [act(part) for part in mine])

    def map(self, method: str, /, *args: Any, **named: Any) -> "RowParts":
        """The parts that a method makes of every part."""
        make = methodcaller(method, *args, **named)
        return RowParts(made_of(self.parts, make))

"""Predicts rows of callers with a released forest, at no privacy cost (lemma L7)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests import catalogue
from grovekeeper_forests.array_types import Float64Array, Int32Array
from grovekeeper_forests.contract.plan import Forest, Reader
from grovekeeper_forests.data.sanitiser import RequestRows, SanitisedColumns
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.kernels.prediction import bound_cells
from grovekeeper_forests.trees import leaf_read_out

COIN_BITS = 53
"""Probabilities are rounded to multiples of 2^-53 before a label is drawn from them."""


class Predictor:
    """A released forest as predictions read it. Threads may share an instance.

    The trees are packed when a read-out is first asked for, and stay packed.

    Attributes:
        forest: released.
        schema: public; the schema inside the artifact.
        rows: sanitises the rows of requests.
        read_outs: those that the algorithm offers, the default first; ``number`` alone
            where the label is a number.
        row_cells: cells of a row, or of its answer where these are more.
        is_prepared: whether a prediction by the default read-out takes microseconds:
            whether :meth:`prepare` was called, or such a prediction was made.
    """

    def __init__(self, forest: Forest, schema: Schema) -> None:
        """Prepares what every prediction needs, and packs no tree yet."""
        self.forest = forest
        self.schema = schema
        self.rows = RequestRows(schema)
        self.row_cells = max(len(schema.features), schema.n_classes)
        self.read_outs = catalogue.read_outs(forest.plan.algorithm, schema.label)
        # Drawn labels are drawn from the averages: both read-outs have one reader.
        self._reader_names: dict[str | None, str] = {
            name: name for name in self.read_outs
        }
        if leaf_read_out.DRAW in self.read_outs:
            self._reader_names[leaf_read_out.DRAW] = leaf_read_out.AVERAGE
        self._reader_names[None] = self._reader_names[self.read_outs[0]]
        self._readers: dict[str, Reader] = {}
        self._reader_bytes: dict[str, int] = {}
        self.is_prepared = False

    def prepare(self) -> None:
        """Packs the trees for the default read-out, and loads the compiled code that
        predicts."""
        if not self.is_prepared:
            self._make_reader(self._reader_names[None])

    def probabilities(
        self, columns: SanitisedColumns, *, read_out: str | None = None
    ) -> Float64Array:
        """Class probabilities of rows. Deterministic: equal rows give equal numbers.

        Args:
            columns: the caller's rows, sanitised.
            read_out: a read-out of the algorithm (see
                ``grovekeeper_forests.trees.leaf_read_out``); ``None``: the default.

        Returns:
            float64 ``(n_rows, n_classes)``; rows sum to 1.

        Raises:
            ParameterInvalid: the model offers no such read-out.
            ValueError: the label is a number.
        """
        if self.schema.label.is_number:
            raise ValueError("a number has no probabilities")
        return self.read(columns, read_out=read_out)

    def numbers(
        self, columns: SanitisedColumns, *, read_out: str | None = None
    ) -> Float64Array:
        """The predicted numbers of rows, float64 ``(n_rows,)``, within the declared
        bounds. Deterministic: equal rows give equal numbers.

        Args:
            columns: the caller's rows, sanitised.
            read_out: the only one, or ``None``.

        Raises:
            ParameterInvalid: the model offers no such read-out.
            ValueError: the label has classes.
        """
        if not self.schema.label.is_number:
            raise ValueError("the label has classes")
        return self.read(columns, read_out=read_out)[:, 0]

    def read(
        self, columns: SanitisedColumns, *, read_out: str | None = None
    ) -> Float64Array:
        """What the forest says of rows: :meth:`probabilities`, or :meth:`numbers` as
        float64 ``(n_rows, 1)``, as the label has classes or is a number.
        """
        name = self._reader_names.get(read_out)
        if name is None:
            raise ParameterInvalid.named(
                "read_out", "unknown-choice", accepted=self.read_outs
            )
        reader = self._readers.get(name)
        if reader is None:
            reader = self._make_reader(name)
        return reader(columns)

    def labels(
        self,
        probabilities: Float64Array,
        *,
        read_out: str | None = None,
        below: Callable[[int], int] = secrets.randbelow,
    ) -> Int32Array:
        """One class code per row: the most probable class (the first in a tie), or for
        ``pa`` a random draw.

        Every call draws afresh, at no privacy cost: the probabilities are released, and
        the draws read no row.

        Args:
            probabilities: of the rows, from :meth:`probabilities`.
            read_out: the same as there.
            below: draws an exactly uniform integer in ``[0, n)``.

        Returns:
            int32 ``(n_rows,)``.
        """
        if (read_out or self.read_outs[0]) != leaf_read_out.DRAW:
            most_probable: Int32Array = probabilities.argmax(axis=1).astype(np.int32)
            return most_probable
        weights = (
            np.floor(probabilities * 2**COIN_BITS).astype(np.uint64).cumsum(axis=1)
        )
        drawn = [
            int(np.searchsorted(row, below(int(row[-1])), side="right"))
            for row in weights
        ]
        return np.array(drawn, dtype=np.int32)

    def memory_bytes(self) -> int:
        """Bytes of the arrays of the forest, and of those that its readers keep, which
        may be several times as many."""
        released = sum(array.nbytes for array in self.forest.arrays.values())
        return released + sum(self._reader_bytes.copy().values())

    def _make_reader(self, name: str) -> Reader:
        family = catalogue.family(self.forest.plan.algorithm)
        reader = family.reader(self.forest, self.schema, name)
        # Readers pack trees and load compiled code at their first use, and so does the
        # bounding of cells.
        reader(_one_row(self.schema))
        bound_cells(np.empty((0, 1)), np.empty((0, 4)))
        self._reader_bytes[name] = _added_bytes(reader, self.forest)
        self._readers[name] = reader
        self.is_prepared = self._reader_names[None] in self._readers
        return reader


def _one_row(schema: Schema) -> SanitisedColumns:
    columns: list[Float64Array | Int32Array] = []
    for feature in schema.features:
        if feature.is_categorical:
            columns.append(np.zeros(1, dtype=np.int32))
        else:
            columns.append(np.array([feature.lower], dtype=np.float64))
    return SanitisedColumns(tuple(columns), 1)


def _added_bytes(reader: Reader, forest: Forest) -> int:
    """Bytes of the arrays of a reader that are not those of its forest."""
    released = set(map(id, _arrays(forest.arrays)))
    added = {
        id(array): array.nbytes
        for array in _arrays(reader)
        if id(array) not in released
    }
    return sum(added.values())


def _arrays(kept: object) -> Iterator[NDArray[Any]]:
    """The arrays in a value, at any depth; of a view, the array that it shows."""
    if isinstance(kept, np.ndarray):
        yield kept.base if isinstance(kept.base, np.ndarray) else kept
        return
    if isinstance(kept, Mapping):
        parts: Iterable[object] = kept.values()
    elif isinstance(kept, tuple):
        parts = kept
    else:
        parts = vars(kept).values() if is_dataclass(kept) else ()
    for part in parts:
        yield from _arrays(part)

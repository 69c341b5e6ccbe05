"""Predicts class probabilities and labels from a released forest: post-processing, at no privacy cost."""

import secrets
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidRequest
from app.forests import catalogue
from app.forests.contract.family import Reader
from app.forests.contract.forest import Forest
from app.forests.data.request_text import RequestText
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Schema
from app.forests.trees import pooling

COIN_BITS = 53
"""Probabilities are rounded to multiples of 2^-53 before a label is drawn from them."""

_texts: WeakKeyDictionary[Forest, tuple[Schema, RequestText]] = WeakKeyDictionary()
_readers: WeakKeyDictionary[Forest, dict[str, tuple[Schema, Reader]]] = WeakKeyDictionary()


def probabilities(
    forest: Forest, schema: Schema, columns: SanitisedColumns, *, read_out: str | None
) -> NDArray[np.float64]:
    """Class probabilities of rows. Deterministic: equal rows give equal numbers.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
        columns: the caller's rows, sanitised.
        read_out: a read-out of the algorithm (see ``app.forests.trees.pooling``); ``None``: the default.

    Returns:
        float64 ``(n_rows, n_classes)``; rows sum to 1.

    Raises:
        InvalidRequest: the model offers no such read-out.
    """
    return _reader(forest, schema, _settled(forest, read_out))(columns)


def labels(
    forest: Forest,
    schema: Schema,
    columns: SanitisedColumns,
    probabilities: NDArray[np.float64],
    *,
    read_out: str | None,
    below: Callable[[int], int] = secrets.randbelow,
) -> NDArray[np.int32]:
    """One class code per row: the most probable class (the first in a tie), or for ``pa`` a random draw.

    Every call draws afresh, at no privacy cost: the probabilities are released, and the draws read no row.

    Args:
        forest: released.
        schema: public.
        columns: the caller's rows, sanitised.
        probabilities: their class probabilities, from :func:`probabilities` with the same read-out.
        read_out: as above.
        below: draws an exactly uniform integer in ``[0, n)``.

    Returns:
        int32 ``(n_rows,)``.

    Raises:
        InvalidRequest: the model offers no such read-out.
    """
    assert probabilities.shape == (columns.n_rows, schema.n_classes)
    if _settled(forest, read_out) != pooling.DRAW:
        most_probable: NDArray[np.int32] = probabilities.argmax(axis=1).astype(np.int32)
        return most_probable
    weights = np.floor(probabilities * 2**COIN_BITS).astype(np.uint64).cumsum(axis=1)
    drawn = [int(np.searchsorted(row, below(int(row[-1])), side="right")) for row in weights]
    return np.array(drawn, dtype=np.int32)


def read_request(forest: Forest, schema: Schema, body: bytes) -> tuple[SanitisedColumns, str | None] | None:
    """Reads rows and read-out of a prediction request, if the body has a usual form; see :class:`RequestText`."""
    known = _texts.get(forest)
    if known is None or known[0] != schema:
        known = _texts[forest] = schema, RequestText(schema)
    return known[1].read(body)


def prepare(forest: Forest, schema: Schema) -> None:
    """Packs the trees of a forest for its default read-out, and loads the compiled code that predicts."""
    _reader(forest, schema, _settled(forest, None))


def is_prepared(forest: Forest, *, read_out: str | None = None) -> bool:
    """Whether a forest has predicted by a read-out (default its own), so that another prediction takes microseconds."""
    named = catalogue.read_outs(forest.plan.algorithm)[0] if read_out is None else read_out
    return _shared(named) in _readers.get(forest, {})


def _shared(read_out: str) -> str:
    """The read-out whose probabilities a read-out has."""
    return pooling.AVERAGE if read_out == pooling.DRAW else read_out


def _settled(forest: Forest, read_out: str | None) -> str:
    offered = catalogue.read_outs(forest.plan.algorithm)
    if read_out is None:
        return offered[0]
    if read_out not in offered:
        raise InvalidRequest.at("/read_out", "unknown-choice", accepted=offered)
    return read_out


def _one_row(schema: Schema) -> SanitisedColumns:
    """A row that the schema allows."""
    columns = (
        np.zeros(1, dtype=np.int32) if feature.is_categorical else np.array([feature.lower], dtype=np.float64)
        for feature in schema.features
    )
    return SanitisedColumns(tuple(columns), 1)


def _reader(forest: Forest, schema: Schema, read_out: str) -> Reader:
    """The reader of a forest by a read-out, cached for the life of the forest."""
    readers = _readers.setdefault(forest, {})
    shared = _shared(read_out)
    known = readers.get(shared)
    if known is not None and known[0] == schema:
        return known[1]
    reader = catalogue.family(forest.plan.algorithm).reader(forest, schema, shared)
    # Readers pack trees and load compiled code at their first use.
    reader(_one_row(schema))
    read_request(forest, schema, b'{"rows": [{}]}')
    readers[shared] = (schema, reader)
    return reader

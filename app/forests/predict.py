"""Answers from a released forest: post-processing. Knows no ledger, no dataset, no job."""

import secrets
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidRequest
from app.forests import catalogue, pooling
from app.forests.encoding import Encoding
from app.forests.forest import Forest
from app.forests.kernels import prediction as kernels
from app.forests.mechanisms.common import leaf_scale
from app.forests.rows import SanitisedColumns
from app.forests.schema import Schema

COIN_BITS = 53
"""Probabilities are rounded to multiples of 2^-53 before a label is drawn from them."""

_leaf_values: WeakKeyDictionary[Forest, dict[str, NDArray[np.float64]]] = WeakKeyDictionary()
_encodings: WeakKeyDictionary[Forest, Encoding] = WeakKeyDictionary()


def probabilities(
    forest: Forest, schema: Schema, columns: SanitisedColumns, *, read_out: str | None
) -> NDArray[np.float64]:
    """Class probabilities of rows. The same rows give the same numbers, always.

    Args:
        forest: released.
        schema: public; the one inside the artifact.
        columns: the caller's own rows, sanitised.
        read_out: one that the algorithm offers (see ``app.forests.pooling``); ``None``: its default.

    Returns:
        float64 ``(n_rows, n_classes)``; rows sum to 1.

    Raises:
        InvalidRequest: the model offers no such read-out.
    """
    encoding = _encodings.get(forest)
    if encoding is None or encoding.schema != schema:
        encoding = _encodings[forest] = Encoding.of(schema, int(forest.plan.parameters["n_bins"]))
    settled = _settled(forest, read_out)
    sums = kernels.sum_leaf_values(
        np.ascontiguousarray(encoding.encode(columns).T),
        feature=forest.feature,
        threshold=forest.threshold,
        equals=forest.equals,
        depth=forest.depth,
        values=_values(forest, settled),
    )
    return pooling.to_probabilities(sums, settled)


def labels(
    forest: Forest,
    schema: Schema,
    columns: SanitisedColumns,
    probabilities: NDArray[np.float64],
    *,
    read_out: str | None,
    below: Callable[[int], int] = secrets.randbelow,
) -> NDArray[np.int32]:
    """One class code per row: the most probable one (the first of equals), or for ``pa`` a draw.

    The draw is anew in every call and costs nothing: its coins are public, its probabilities are released.

    Args:
        forest: released.
        schema: public.
        columns: the rows that were asked about.
        probabilities: their class probabilities, as :func:`probabilities` gave them for the same read-out.
        read_out: as above.
        below: a uniform integer in ``[0, n)``; exact.

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


def _settled(forest: Forest, read_out: str | None) -> str:
    offered = catalogue.read_outs(forest.plan.algorithm)
    if read_out is None:
        return offered[0]
    if read_out not in offered:
        raise InvalidRequest.at("/read_out", "unknown-choice")
    return read_out


def _values(forest: Forest, read_out: str) -> NDArray[np.float64]:
    """What each leaf adds to a row's sum; made once per forest and read-out."""
    own = _leaf_values.setdefault(forest, {})
    shared = pooling.AVERAGE if read_out == pooling.DRAW else read_out
    if shared not in own:
        noise_scale = float(1 / leaf_scale(forest.plan.event))
        own[shared] = pooling.leaf_values(forest.counts, shared, noise_scale=noise_scale)
    return own[shared]

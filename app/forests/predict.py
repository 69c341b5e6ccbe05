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

_leaf_values: WeakKeyDictionary[Forest, dict[bool, NDArray[np.float64]]] = WeakKeyDictionary()
_encodings: WeakKeyDictionary[Forest, Encoding] = WeakKeyDictionary()


def probabilities(
    forest: Forest, schema: Schema, columns: SanitisedColumns, *, read_out: str | None
) -> NDArray[np.float64]:
    """Class probabilities of rows. The same rows give the same numbers, always.

    Args:
        forest: released.
        schema: public; the one inside the artifact.
        columns: the caller's own rows, sanitised.
        read_out: ``mv`` is the share of trees whose leaf votes for the class, ``ta`` and ``pa`` the mean of the
            leaves' proportions; ``None``: the algorithm's default.

    Returns:
        float64 ``(n_rows, n_classes)``; rows sum to 1.

    Raises:
        InvalidRequest: the model offers no such read-out.
    """
    encoding = _encodings.get(forest)
    if encoding is None or encoding.schema != schema:
        encoding = _encodings[forest] = Encoding.of(schema, int(forest.plan.parameters["n_bins"]))
    values = _values(forest, as_votes=_settled(forest, read_out) == "mv")
    X = np.ascontiguousarray(encoding.encode(columns).T)
    return kernels.sum_leaf_values(
        X, feature=forest.feature, threshold=forest.threshold, equals=forest.equals, depth=forest.depth, values=values
    )


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
    if _settled(forest, read_out) != "pa":
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


def _values(forest: Forest, *, as_votes: bool) -> NDArray[np.float64]:
    """What each leaf adds to a row's probabilities; made once per forest and read-out."""
    own = _leaf_values.setdefault(forest, {})
    if as_votes not in own:
        noise_scale = float(1 / leaf_scale(forest.plan.event))
        counts = forest.counts.astype(np.float64)
        theta = pooling.proportions(
            counts, pseudo_rows=pooling.SHRINKAGE * noise_scale, prior=pooling.class_prior(counts, noise_scale)
        )
        own[as_votes] = (pooling.votes(theta) if as_votes else theta) / len(counts)
    return own[as_votes]

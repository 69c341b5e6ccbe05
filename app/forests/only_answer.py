"""Decides whether a released forest can answer one class only: post-processing, at no privacy cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from app.forests import catalogue
from app.forests.algorithms.nbrt.read import BoostedScores
from app.forests.contract.plan import Forest, Plan
from app.forests.data.schema import Schema
from app.forests.trees import leaf_read_out
from app.forests.trees.leaf_read_out import PackedForest, PooledSums
from app.privacy.events import DiscreteLaplace, Event, Parallel, RoundedGaussian, Sequential


def only_answer(forest: Forest, schema: Schema) -> str | None:
    """The class that a forest answers whatever the row is, by its default read-out.

    The class is certain: in every tree the reachable leaf that favours it least is added up, and the class still leads
    every other. The leaves of several trees need not be reachable together, so a forest of many trees may answer one
    class without this proof; then, and for read-outs that draw labels, the result is ``None``.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
    """
    read_out = catalogue.read_outs(forest.plan.algorithm)[0]
    if read_out == leaf_read_out.DRAW:
        return None
    match catalogue.family(forest.plan.algorithm).reader(forest, schema, read_out):
        case PooledSums() as reader:
            packed, start = reader.sums.packed, np.zeros(schema.n_classes)
        case BoostedScores() as reader:
            packed, start = reader.packed, reader.arrays["start"].astype(np.float64)
        case _:
            return None
    scores = packed.trees.values.transpose(0, 2, 1)
    if scores.shape[2] == 1:  # of the second of two classes; the first has none
        scores, start = np.concatenate((np.zeros_like(scores), scores), axis=2), np.concatenate(([0.0], start))
    code = _leading(scores, start, _reachable(packed))
    return None if code is None else schema.label.classes[code]


def stated(forest: Forest, schema: Schema, expected_rows: object) -> dict[str, str] | None:
    """The only class of a forest as ``label``, and sentences about it as ``text``; ``None`` without such a class.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
        expected_rows: in the scope, by declared sizes; ``None`` where no size was declared.
    """
    label = only_answer(forest, schema)
    if label is None:
        return None
    sentences = [
        f"The model answers {label} whatever the row is: all leaves of its trees lead to that class.",
        *_in_numbers(forest.plan, expected_rows),
        "Either noise hid what there was to learn, and more ε or rows would help, or the splits gained nothing.",
    ]
    return {"label": label, "text": " ".join(sentences)}


def _in_numbers(plan: Plan, expected_rows: object) -> list[str]:
    """Rows × ε, depth, and the noise of a leaf beside its expected rows, from public numbers alone."""
    noise, depth = noise_in_rows(plan.event), int(plan.parameters["max_depth"])
    if not isinstance(expected_rows, int) or noise is None:
        return []
    shares = plan.n_trees if plan.parameters.get("assignment") == "sharded" else 1
    of_a_leaf = expected_rows / shares / 2**depth
    return [
        f"It was trained at ε = {float(plan.epsilon):g} on about {expected_rows} declared rows, so rows × ε is about "
        f"{expected_rows * float(plan.epsilon):,.0f}; at depth {depth}, a leaf has about {of_a_leaf:,.1f} of them, and "
        f"the noise of a count has a standard deviation of about {noise:,.1f} rows."
    ]


def noise_in_rows(event: Event) -> float | None:
    """The standard deviation of the noise of the largest noisy table of an event, in rows; ``None`` without a table."""
    tables = sorted(_tables(event), key=lambda table: table.coordinates)
    match tables[-1:]:
        case [DiscreteLaplace(l1_sensitivity=sensitivity, inverse_scale=inverse)] if inverse > 0:
            return math.sqrt(2) / float(inverse * sensitivity)
        case [RoundedGaussian(l2_sensitivity_squared=squared, sigma_squared=variance)] if squared > 0:
            return math.sqrt(variance / squared)
        case _:
            return None


def _tables(event: Event) -> Iterator[DiscreteLaplace | RoundedGaussian]:
    match event:
        case Sequential(parts=parts) | Parallel(parts=parts):
            for part in parts:
                yield from _tables(part.event)
        case DiscreteLaplace() | RoundedGaussian():
            yield event


def _reachable(packed: PackedForest) -> NDArray[np.bool_]:
    """Whether each split on the path to a leaf sends some code there, bool ``(n_trees, n_leaves)``."""
    trees = packed.trees
    codes = np.arange(trees.right.shape[1] * 64) < packed.encoding.n_codes[:, np.newaxis]
    legal = np.packbits(codes, axis=1, bitorder="little").view(np.uint64)[trees.feature]
    goes_left, goes_right = ((legal & ~trees.right) != 0).any(axis=1), ((legal & trees.right) != 0).any(axis=1)
    n_trees, n_nodes = trees.number.shape
    reachable = np.ones((n_trees, 1), dtype=np.bool_)
    while (n_level := reachable.shape[1]) <= n_nodes:
        number = trees.number[:, n_level - 1 : 2 * n_level - 1]
        sides = (reachable & goes_left[number], reachable & goes_right[number])
        reachable = np.stack(sides, axis=2).reshape(n_trees, -1)
    return reachable


def _leading(scores: NDArray[np.float64], start: NDArray[np.float64], reachable: NDArray[np.bool_]) -> int | None:
    """The class with the largest sum of scores on all reachable leaves, the first in a tie; ``None`` if none is shown.

    Args:
        scores: of every leaf, float64 ``(n_trees, n_leaves, n_classes)``.
        start: float64 ``(n_classes,)``, before the first tree.
        reachable: bool ``(n_trees, n_leaves)``.
    """
    weights = reachable / reachable.sum(axis=1, keepdims=True)
    # A class that leads everywhere leads on average.
    code = int((start + np.einsum("tl,tlc->c", weights, scores)).argmax())
    leads = np.where(reachable[..., np.newaxis], scores[..., code : code + 1] - scores, np.inf).min(axis=1)
    ahead = start[code] - start + leads.sum(axis=0)
    is_never_behind = (leads >= 0).all(axis=0) & (start[code] >= start)
    rounding = 1e-9 * (np.abs(start).max() + np.abs(scores).max(axis=(1, 2)).sum())
    wins_ties = np.arange(len(start)) > code
    wins = (ahead > rounding) | (is_never_behind & wins_ties)
    wins[code] = True
    return code if wins.all() else None

"""Chooses and limits the size of a forest, its bins and its working memory by public rules, before any row is read."""

import math

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import InvalidRequest
from app.forests.bins import quantile_bins
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.trees import tree_parameters

MAX_TABLE_CELLS = 2**24
"""Limit on nodes × candidates of one level, and on nodes × codes × classes of one feature."""

BLOCK_CELLS = 2**22
"""Limit on histogram cells (nodes × codes × classes) that are tabulated at once."""


def deepest(encoding: Encoding) -> int:
    """Depth at which every box holds one value of every feature: deeper trees would only add empty leaves."""
    candidates = encoding.candidates
    cuts = np.bincount(candidates.feature, minlength=len(encoding.n_codes))
    one_against_rest = np.bincount(candidates.feature, weights=candidates.equals, minlength=len(encoding.n_codes)) > 1
    return int((cuts - one_against_rest).sum())


def leaf_cells(n_trees: int, depth: int, n_classes: int) -> int:
    """Number of released counts of a forest."""
    return n_trees * n_classes << depth


def table_cells(depth: int, encoding: Encoding) -> int:
    """Number of cells of the largest table that a data-dependent choice of splits keeps in memory."""
    widest = int(encoding.n_codes.max(initial=1)) * encoding.schema.n_classes
    return max(len(encoding.candidates), widest) << max(depth - 1, 0)


def settle_depth(settled: dict[str, Value], rule: int, encoding: Encoding, *, tables: bool) -> tuple[str, ...]:
    """Sets ``max_depth``: the requested depth, or the rule's depth reduced to the public limits.

    Args:
        settled: the other parameters, with ``n_estimators``; gains ``max_depth``.
        rule: depth by the mechanism's public rule.
        encoding: public bins.
        tables: whether the mechanism tabulates every candidate of a level.

    Returns:
        Warnings.

    Raises:
        InvalidRequest: an explicit depth (or number of trees) is over a public limit.
    """
    n_trees, n_classes = int(settled["n_estimators"]), encoding.schema.n_classes
    is_requested = "max_depth" in settled
    requested = int(settled.get("max_depth", rule))
    depth = min(requested, deepest(encoding))
    while not is_requested and depth > 0 and not _fits(n_trees, depth, encoding, tables=tables):
        depth -= 1
    if not _fits(n_trees, depth, encoding, tables=tables):
        if not _fits(n_trees, 0, encoding, tables=tables):
            most = limits.MAX_TREE_LEAF_CELLS // leaf_cells(1, 0, n_classes)
            raise InvalidRequest.at("/parameters/n_estimators", "too-large", limit=most)
        deepest_that_fits = max(level for level in range(depth) if _fits(n_trees, level, encoding, tables=tables))
        raise InvalidRequest.at("/parameters/max_depth", "too-large", limit=deepest_that_fits)
    settled["max_depth"] = depth
    if depth == 0 and len(encoding.candidates) == 0:
        return ("The public schema allows no split: every row lies in one leaf.",)
    if is_requested and depth < requested:
        return (f"max_depth was lowered to {depth}: deeper, the public schema allows no further split.",)
    return ()


def _fits(n_trees: int, depth: int, encoding: Encoding, *, tables: bool) -> bool:
    if leaf_cells(n_trees, depth, encoding.schema.n_classes) > limits.MAX_TREE_LEAF_CELLS:
        return False
    return not tables or depth == 0 or table_cells(depth, encoding) <= MAX_TABLE_CELLS


def feature_blocks(encoding: Encoding, n_nodes: int) -> list[slice]:
    """Blocks of consecutive features whose histogram has at most :data:`BLOCK_CELLS` cells; at least one feature each.

    A single feature may exceed the limit.
    """
    return blocks(encoding.n_codes, cells=n_nodes * encoding.schema.n_classes)


def blocks(n_codes: NDArray[np.int32], *, cells: int) -> list[slice]:
    """Blocks of consecutive features whose tables, of ``cells`` per code, have at most :data:`BLOCK_CELLS` cells.

    A block has at least one feature, which alone may exceed the limit.
    """
    slices, start, n_cells = [], 0, 0
    for feature, n_feature_cells in enumerate(n_codes.astype(np.int64) * cells):
        if n_cells and n_cells + n_feature_cells > BLOCK_CELLS:
            slices.append(slice(start, feature))
            start, n_cells = feature, 0
        n_cells += int(n_feature_cells)
    return [*slices, slice(start, len(n_codes))]


def encoding_of(schema: Schema, n_bins: Value, profile: ReusedProfile | None) -> Encoding:
    """The bins that splits refer to; planning, growth and prediction all use this function.

    Args:
        schema: public.
        n_bins: public bins per numeric feature, where no profile is reused.
        profile: an earlier release, whose cuts are public.
    """
    if profile is None:
        return Encoding.of(schema, int(n_bins))
    return quantile_bins.encoding(schema, profile.cut_array)


def fill_greedy_sizes(requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Fills in the number and depth of trees by public rules; see ``Algorithm.settle``."""
    settled = dict(requested)
    encoding = encoding_of(facts.schema, settled["n_bins"], facts.profile)
    settled.setdefault("n_estimators", tree_parameters.default_n_trees(facts))
    depth = default_depth(facts, int(settled["n_estimators"]))
    warnings = settle_depth(settled, depth, encoding, tables=True)
    return settled, warnings


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule of the size, ε, the number of classes and the number of trees."""
    strength = math.log2(max(facts.size * float(facts.epsilon) / n_trees, 4.0))
    return min(max(round(0.55 * strength - 0.75 + 0.35 * math.log2(facts.schema.n_classes / 2)), 1), 8)

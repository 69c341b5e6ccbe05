"""Defines the parameters that several algorithms share, and the public rules that
choose and limit sizes of forests.

The rules are functions of the schema, the public size and ε. They bound trees, bins and
working memory before any row is read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from grovekeeper_forests import amounts, limits
from grovekeeper_forests.array_types import Int32Array
from grovekeeper_forests.contract.algorithm import (
    Parameter,
    Parameters,
    PublicFacts,
    Value,
)
from grovekeeper_forests.contract.plan import encoding_of
from grovekeeper_forests.data.encoding import MAX_BINS, Encoding
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.accountants import pure

SEQUENTIAL, SHARDED = "sequential", "sharded"

N_ESTIMATORS = Parameter(
    "n_estimators",
    "integer",
    "Number of trees. By default a public rule of the schema, the size and ε.",
    minimum=Fraction(1),
    maximum=Fraction(limits.MAX_TREES),
)
TEN_TREES = replace(N_ESTIMATORS, description="Number of trees.", default=10)
MAX_DEPTH = Parameter(
    "max_depth",
    "integer",
    "Splits on every path; the only stopping rule. By default a public rule of the schema, the size and ε.",
    minimum=Fraction(0),
    maximum=Fraction(limits.MAX_DEPTH),
)
N_BINS = Parameter(
    "n_bins",
    "integer",
    "Public bins per number between its declared bounds; an integer with fewer values has a bin per value.",
    default=32,
    minimum=Fraction(2),
    maximum=Fraction(MAX_BINS),
)
ASSIGNMENT = Parameter(
    "assignment",
    "choice",
    "Every tree sees all rows at its share of ε, or each row is in one tree (by a keyed hash of its id) at all of ε.",
    default=SEQUENTIAL,
    choices=(SEQUENTIAL, SHARDED),
)

SHARDED_ASSIGNMENT = replace(ASSIGNMENT, default=SHARDED)

STRUCTURE_SHARE_WITH_DELTA = "0.85"
"""Default on accounts with a δ: as accurate as the usual share or more, on every table
(docs/results/papers.md).
"""

MAX_RULE_TREES = 16
"""Largest number of trees that :func:`default_n_trees` chooses."""

_COUNTS = "counts"

NONE, HASH = "none", "hash"

SEPARATION = Parameter(
    "se",
    "choice",
    "Split each tree's rows into a structure part and an estimation part by keyed hash, or not.",
    default=NONE,
    choices=(NONE, HASH),
)


def is_sharded(parameters: Parameters) -> bool:
    """Whether each row is in one tree only."""
    return parameters["assignment"] == SHARDED


def default_n_trees(facts: PublicFacts) -> int:
    """Number of trees of a forest whose splits depend on rows: a public rule of the
    size, ε and the classes.
    """
    factor = 1.6 if facts.schema.n_classes == 2 else 3.0
    trees: float = factor * float(facts.epsilon) ** 0.6 * (facts.size / 10_000) ** 0.4
    return min(max(round(trees), 1), MAX_RULE_TREES)


def fill_structure_share(
    settled: dict[str, Value], facts: PublicFacts, *, usual: str
) -> None:
    """Sets ``structure_share`` where the request does not; higher on accounts with a δ
    whose leaves release counts.

    In ρ or μ², selections cost less than in ε, and counts get normal noise, which is
    usually smaller than Laplace noise at the same price. So a smaller share suffices
    for the leaves.

    Args:
        settled: gains the parameter.
        facts: public.
        usual: the share on accounts that count ε, and for leaves that release labels.
    """
    cheap = (
        facts.budget.accountant != pure.NAME and settled.get("leaf", _COUNTS) == _COUNTS
    )
    settled.setdefault(
        "structure_share", STRUCTURE_SHARE_WITH_DELTA if cheap else usual
    )


def structure_share(parameters: Parameters) -> Fraction:
    """Share of a tree's loss that its selections get: zero for a tree without
    selections.
    """
    if int(parameters["max_depth"]) > 0:
        return amounts.parse(parameters["structure_share"])
    return Fraction(0)


MAX_TABLE_CELLS = 2**24
"""Limit on nodes × candidates of one level, and on nodes × codes × classes of one
feature.
"""

BLOCK_CELLS = 2**22
"""Limit on histogram cells (nodes × codes × classes) that are tabulated at once."""


def deepest(encoding: Encoding) -> int:
    """Depth at which every box holds one value of every feature: deeper trees would
    only add empty leaves.
    """
    candidates = encoding.candidates
    cuts = np.bincount(candidates.feature, minlength=len(encoding.n_codes))
    one_against_rest = (
        np.bincount(
            candidates.feature,
            weights=candidates.equals,
            minlength=len(encoding.n_codes),
        )
        > 1
    )
    return int((cuts - one_against_rest).sum())


def table_cells(depth: int, encoding: Encoding) -> int:
    """Number of cells of the largest table that a data-dependent choice of splits keeps
    in memory.
    """
    widest = int(encoding.n_codes.max(initial=1)) * encoding.schema.n_classes
    return max(len(encoding.candidates), widest) << max(depth - 1, 0)


def fill_depth(
    settled: dict[str, Value], rule: int, encoding: Encoding, *, tables: bool
) -> tuple[str, ...]:
    """Sets ``max_depth``: the requested depth, or the rule's depth reduced to the
    public limits.

    Args:
        settled: the other parameters, with ``n_estimators``; gains ``max_depth``.
        rule: depth by the mechanism's public rule.
        encoding: public bins.
        tables: whether the mechanism tabulates every candidate of a level.

    Returns:
        Warnings.

    Raises:
        ParameterInvalid: an explicit depth (or number of trees) is over a public limit.
    """
    n_trees = int(settled["n_estimators"])
    n_classes = encoding.schema.n_classes
    is_requested = "max_depth" in settled
    requested = int(settled.get("max_depth", rule))
    depth = min(requested, deepest(encoding))
    while (
        not is_requested
        and depth > 0
        and not _fits(n_trees, depth, encoding, tables=tables)
    ):
        depth -= 1
    if not _fits(n_trees, depth, encoding, tables=tables):
        if not _fits(n_trees, 0, encoding, tables=tables):
            most = limits.MAX_TREE_LEAF_CELLS // max(n_classes, 1)
            raise ParameterInvalid.named("n_estimators", "too-large", limit=most)
        deepest_that_fits = max(
            level
            for level in range(depth)
            if _fits(n_trees, level, encoding, tables=tables)
        )
        raise ParameterInvalid.named("max_depth", "too-large", limit=deepest_that_fits)
    settled["max_depth"] = depth
    if depth == 0 and len(encoding.candidates) == 0:
        return ("The public schema allows no split: every row lies in one leaf.",)
    if is_requested and depth < requested:
        return (
            f"max_depth was lowered to {depth}: deeper, the public schema allows no further split.",
        )
    return ()


def _fits(n_trees: int, depth: int, encoding: Encoding, *, tables: bool) -> bool:
    n_leaves = n_trees << depth
    # a leaf has a cell for each class, or one for a number
    n_cells = n_leaves * max(encoding.schema.n_classes, 1)
    if n_leaves > limits.MAX_LEAVES or n_cells > limits.MAX_TREE_LEAF_CELLS:
        return False
    return not tables or depth == 0 or table_cells(depth, encoding) <= MAX_TABLE_CELLS


def feature_blocks(encoding: Encoding, n_nodes: int) -> list[slice]:
    """Blocks of consecutive features whose histogram has at most :data:`BLOCK_CELLS`
    cells; at least one feature each.

    A single feature may exceed the limit.
    """
    return blocks(encoding.n_codes, cells=n_nodes * encoding.schema.n_classes)


def blocks(n_codes: Int32Array, *, cells: int) -> list[slice]:
    """Blocks of consecutive features whose tables, of ``cells`` per code, have at most
    :data:`BLOCK_CELLS` cells.

    A block has at least one feature, which alone may exceed the limit.
    """
    slices = []
    start = 0
    n_cells = 0
    for feature, n_feature_cells in enumerate(n_codes.astype(np.int64) * cells):
        if n_cells and n_cells + n_feature_cells > BLOCK_CELLS:
            slices.append(slice(start, feature))
            start = feature
            n_cells = 0
        n_cells += int(n_feature_cells)
    return [*slices, slice(start, len(n_codes))]


def fill_greedy_sizes(settled: dict[str, Value], facts: PublicFacts) -> tuple[str, ...]:
    """Fills in the number and depth of trees by public rules; see
    ``Algorithm.fill_defaults``.
    """
    encoding = encoding_of(facts.schema, settled["n_bins"], facts.profile)
    settled.setdefault("n_estimators", default_n_trees(facts))
    return fill_depth(
        settled,
        default_depth(facts, int(settled["n_estimators"])),
        encoding,
        tables=True,
    )


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule of the size, ε, the number of classes and the number of
    trees.
    """
    strength = math.log2(max(facts.size * float(facts.epsilon) / n_trees, 4.0))
    return min(
        max(
            round(
                0.55 * strength - 0.75 + 0.35 * math.log2(facts.schema.n_classes / 2)
            ),
            1,
        ),
        8,
    )

"""Grows trees of private medians: selects medians level by level, then releases noisy leaf counts."""

import numpy as np
from numpy.typing import NDArray

from app.forests.contract.algorithm import Parameters
from app.forests.data.encoding import Encoding
from app.forests.noise.randomness import Randomness
from app.forests.trees.grow import leaves, private_medians, structure
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.forests.trees.tree_price import TreePrice
from app.privacy.events import Event


def grow_tree(
    event: Event,
    _parameters: Parameters,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Selects private medians level by level on the PRIVATE rows, then releases noisy leaf counts.

    Args:
        event: the priced event, which fixes every noise scale.
        encoding: public bins and candidates.
        rows: PRIVATE rows of this tree.
        randomness: source of the public features and of all private draws.

    Returns:
        The released tree. One call is one release, at the loss of one part of ``event``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The feature of a node is drawn from the
        features that the node's public box can still split. The candidates are that feature's public splits, never
        values between the smallest and largest present. The utility −|2·#{rows on one side} − #{rows}| changes by ±1
        with a row: range sensitivity 2, not monotone (lemma L2, or L1 on accounts in ρ and μ²). A path pays Σ_l ε_l
        (lemma L4), leaf counts have L1 sensitivity 1 (lemma L3), depth is the only stopping rule. Sharded trees, the
        default, see disjoint rows by a keyed hash and cost the largest loss of a tree (lemma L5); the losses of
        sequential trees add. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithms 1 and 2, whose guarantee does not hold as stated; repaired in Theorem 1 of
        docs/proofs/spe.md.
    """
    priced = TreePrice.of(event)

    def choose(level: int, level_boxes: list[NDArray[np.bool_]]) -> list[int | None]:
        (selection,) = priced.levels[level]
        return private_medians.choose_medians(selection, encoding, rows, level_boxes=level_boxes, randomness=randomness)

    splits = structure.grow_levels(encoding.candidates, len(priced.levels), rows, choose)
    return leaves.release(splits, priced.leaves, rows, randomness)

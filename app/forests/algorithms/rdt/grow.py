"""Grows random decision trees: draws the structure without rows, then releases noisy leaf counts."""

from app.forests.contract.algorithm import Parameters
from app.forests.data.encoding import Encoding
from app.forests.noise.randomness import Randomness
from app.forests.trees import tree_price
from app.forests.trees.grow import leaves
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.forests.trees.grow.structure import drop, random_structure
from app.privacy.events import Event


def grow_tree(
    event: Event,
    parameters: Parameters,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Draws a structure, drops the PRIVATE rows through it and releases noisy counts.

    Args:
        event: the priced event, which fixes the noise scale.
        parameters: settled parameters.
        encoding: public bins.
        rows: PRIVATE rows of this tree.
        randomness: source of the public structure and of the noise.

    Returns:
        The released tree. One call is one release, at the loss of one part of ``event``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. One row adds one to one count of one tree's
        (leaf, class) histogram, so that histogram has L1 sensitivity 1. Sequential trees all see every row: the losses
        ε/T of T trees add up. Sharded trees see disjoint rows by a keyed hash of the row id: the largest tree's loss is
        the forest's. Empty leaves are released like any other. *Not covered:* running time.

    Source:
        Bojarski, Choromanska, Choromanski, LeCun 2014, Algorithm 2 in its three versions; Jagannathan,
        Pillaipakkamnatt and Wright, Transactions on Data Privacy 5 (2012), 273-295. Theorem 1 of docs/proofs/rdt.md.
    """
    splits = random_structure(encoding.candidates, int(parameters["max_depth"]), randomness)
    drop(rows, splits)
    return leaves.release(splits, tree_price.tree_event(event), rows, randomness)

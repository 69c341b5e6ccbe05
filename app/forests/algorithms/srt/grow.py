"""Grows random trees: draws the structure without rows, then releases one label per leaf."""

from app.forests.contract.algorithm import Parameters
from app.forests.data.encoding import Encoding
from app.forests.noise.randomness import Randomness
from app.forests.trees.grow import leaves, structure
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.forests.trees.tree_price import TreePrice
from app.privacy.events import Event


def grow_tree(
    event: Event,
    parameters: Parameters,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Draws a structure, drops the PRIVATE rows through it and releases a label per leaf.

    Args:
        event: the priced event, which fixes the scale of the selections.
        parameters: settled parameters.
        encoding: public bins.
        rows: PRIVATE rows of this tree.
        randomness: source of the public structure and of the selections.

    Returns:
        The released tree. One call is one release, at the loss of one part of ``event``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The structure is drawn without a row. A
        leaf's label is selected by its class counts, which one row changes by one in one class of one leaf: range
        sensitivity 1 (lemma L2, or L1 on accounts in ρ and μ²); leaves hold disjoint rows. Sharded trees, the default,
        see disjoint rows by a keyed hash, so the largest tree's loss is the forest's (lemma L5); sequential losses add.
        Empty leaves release a label like any other. *Not covered:* running time.

    Source:
        Fletcher and Islam, Expert Systems with Applications 78 (2017), whose smooth sensitivity does not give a
        private exponential mechanism; repaired in Theorem 1 of docs/proofs/srt.md.
    """
    splits = structure.random_structure(encoding.candidates, int(parameters["max_depth"]), randomness)
    structure.drop(rows, splits)
    return leaves.release(splits, TreePrice.of(event).leaves, rows, randomness)

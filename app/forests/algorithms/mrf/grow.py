"""Grows trees of the multinomial random forest: selects splits level by level, then releases the leaves."""

from app.core import amounts
from app.forests.contract.algorithm import Parameters
from app.forests.data.encoding import Encoding
from app.forests.noise.randomness import Randomness
from app.forests.trees.grow import greedy
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.privacy.events import Event


def grow_tree(
    event: Event,
    parameters: Parameters,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Selects splits level by level on the PRIVATE rows, then releases the leaves.

    Args:
        event: the priced event, which fixes every noise scale.
        parameters: settled parameters.
        encoding: public bins and candidates.
        rows: PRIVATE rows of this tree.
        randomness: source of all draws.

    Returns:
        The released tree. One call is one release, at the loss of one part of ``event``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. Each node chooses among public candidates,
        in one selection or in two (lemma L2, or L1 on accounts in ρ and μ²), by a utility whose range sensitivity is
        2^(q+1) for the count Gini and 1 for the miscount; the nodes of a level hold disjoint rows, so a path pays Σ_l
        ε_l (lemma L4). Leaf counts have L1 sensitivity 1 (lemma L3), a label is a selection by the counts. A tree costs
        Σ_l ε_l + ε_leaf, or the larger of the two where a keyed hash separates the rows for structure from the rows for
        leaves (lemma L5); the losses of sequential trees add, sharded trees cost the largest loss of a tree. Random
        splits cost nothing (lemma L0). Trees stop at the public depth only. *Not covered:* running time.

    Source:
        Bai et al., "Multinomial random forest", Pattern Recognition (2022), Theorem 2, which does not hold as stated;
        repaired in Theorem 1 of docs/proofs/mrf.md. Permute-and-flip: McKenna and Sheldon 2020.
    """
    rule = greedy.SplitRule(str(parameters["utility"]), amounts.parse(parameters["exploration"]))
    return greedy.grow_tree(event, rule, encoding=encoding, rows=rows, randomness=randomness)

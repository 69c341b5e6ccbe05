"""Grows greedy trees by the maximal vote: selects splits level by level, then releases noisy leaf counts."""

from app.forests.contract.algorithm import Parameters
from app.forests.data.encoding import Encoding
from app.forests.noise.randomness import Randomness
from app.forests.trees import utilities
from app.forests.trees.grow import greedy
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.privacy.events import Event

_RULE = greedy.SplitRule(utilities.MISCOUNT)


def grow_tree(
    event: Event,
    _parameters: Parameters,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Selects splits level by level on the PRIVATE rows, then releases noisy leaf counts.

    Args:
        event: the priced event, which fixes every noise scale.
        encoding: public bins and candidates.
        rows: PRIVATE rows of this tree, each row once.
        randomness: source of all draws.

    Returns:
        The released tree. One call is one release, at the loss of one part of ``event``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The utility −(miscount left + miscount
        right) is monotone with range sensitivity 1; a selection by it among public splits is ε_l-DP (lemma L2, or L1 on
        accounts in ρ and μ²), and a path pays Σ_l ε_l (lemma L4). Leaf counts have L1 sensitivity 1 (lemma L3). No tree
        holds a row more than once: in a bootstrap, a row that is drawn m times would change a count by m. The losses of
        sequential trees add; sharded trees cost the largest loss of a tree (lemma L5). *Not covered:* running time.

    Source:
        Liu, Li, Li and Chen, "Differentially private classification with decision tree ensemble", Applied Soft
        Computing (2018), as Huang, Lei and Kabán describe it; Theorem 1 of docs/proofs/maxtree.md.
    """
    return greedy.grow_tree(event, _RULE, encoding=encoding, rows=rows, randomness=randomness)

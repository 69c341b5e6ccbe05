"""Grows median trees on public features, then releases noisy label counts, or one label, of every leaf."""

from collections.abc import Callable

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.noise.randomness import Randomness
from app.forests.trees.grow import exact_medians
from app.forests.trees.grow.collect import forest_of


def grow_forest(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Builds every tree from public features, then releases its leaves over PRIVATE labels. One call, one release.

    Args:
        plan: the priced plan.
        schema: public.
        rows: all rows of the scope; features and ids are public, labels PRIVATE, −1 where unknown.
        randomness: source of the features of nodes, of the key of the shards, and of the noise.
        on_tree_done: called after each tree.

    Privacy:
        ε-DP for one label that changes, ε being the request's; *none under add/remove or replace-one*: the owner
        declared features and membership public. The structure is a function of the features, which are the same in both
        neighbours (lemma L0). A label that changes moves two counts of one leaf by one: L1 sensitivity 2 (lemma L3),
        range sensitivity 2 (lemma L2, or L1 on accounts in ρ and μ²). A label that becomes unknown moves one count.
        Sharded trees, the default, count disjoint labels by a keyed hash and cost the largest loss of a tree (lemma
        L5); the losses of sequential trees add. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 3, setting (II), whose Lap(1/ε) gives 2ε; repaired in Theorem 1 of
        docs/proofs/sspe-2.md.
    """
    trees = exact_medians.label_trees(plan, schema, rows, randomness, n_trees=plan.n_trees)
    return forest_of(plan, trees, on_tree_done=on_tree_done)

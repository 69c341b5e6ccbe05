"""Random trees whose leaves release one label each: smooth random trees without the smooth sensitivity.

Fletcher and Islam, "Differentially private random decision forests using smooth sensitivity" (2017). Why their label
rule is not private, and the proof of this one, stand in docs/proofs/srt.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.forests.bins import tree_bins
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.trees import common, leaves, shapes, structure
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.label_read_out import LabelFamily
from app.forests.trees.tree_price import TreePrice
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

DEFAULT_TREES = 20
DEEPEST_BY_RULE = 10


_ABOUT = About(
    claimed=(
        "ε-differential privacy of one label per leaf, drawn by the exponential mechanism scaled by a smooth "
        "sensitivity."
    ),
    wrong=(
        "There is no such theorem: at a claim of 1 the loss has no bound. The smooth sensitivity is too small "
        "besides; ranges and categories are read off the rows, and the code publishes exact statistics."
    ),
    here=(
        "Random trees on hashed parts of the rows; labels by permute-and-flip on counts, which is as accurate as the "
        "paper meant to be. Smooth sensitivity is dropped."
    ),
    proof="docs/proofs/srt.md",
    results="docs/results/papers.md",
    accuracy=at_epsilon_one("76.2 81.5 95.0 76.5 82.4"),
)


@dataclass(frozen=True)
class LabelledRandomTrees:
    """Trees drawn from public randomness, on disjoint rows, each leaf releasing a label by permute-and-flip.

    Categories are split one against the rest, not one branch each: trees are binary here.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The structure is drawn without a row. A
        leaf's label is selected by its class counts, which one row changes by one in one class of one leaf: range
        sensitivity 1 (lemma L2, or L1 on accounts in ρ and μ²); leaves hold disjoint rows. Sharded trees, the default,
        see disjoint rows by a keyed hash, so the largest tree's loss is the forest's (lemma L5); sequential trees add.
        Empty leaves release a label like any other. *Not covered:* running time.

    Source:
        Fletcher and Islam, Expert Systems with Applications 78 (2017), whose smooth sensitivity does not give a
        private exponential mechanism; repaired in Theorem 1 of docs/proofs/srt.md.
    """

    slug: str = "srt"
    title: str = "Random trees with private labels"
    source: str = "Fletcher and Islam (2017), smooth random trees; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    read_outs: tuple[str, ...] = ("mv",)
    family: Family = LabelFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        replace(
            common.N_ESTIMATORS, description="Number of trees; each adds a vote and takes its share of the rows or ε."
        ),
        replace(common.MAX_DEPTH, description="Splits on every path. By default a rule of the features and the size."),
        common.N_BINS,
        common.SHARDED_ASSIGNMENT,
    )

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the number of trees and, from the features of the schema, their depth."""
        settled = dict(asked)
        settled.setdefault("n_estimators", DEFAULT_TREES)
        encoding = tree_bins.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        warnings = shapes.settle_depth(settled, default_depth(facts.schema), encoding, tables=False)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees on disjoint rows, or one after another; a tree is a label per leaf."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = common.loss_per_tree(parameters, facts.epsilon)
        price = TreePrice((), leaves.priced(leaves.LABEL, per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=common.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        price = TreePrice.of(event)
        price.require(depth=0, selections=[], apart=False)
        leaves.require(leaves.LABEL, price.leaves)

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Draws a structure, drops the PRIVATE rows through it and releases a label per leaf.

        Args:
            event: what was priced; the scale of the selections is taken from it.
            parameters: settled.
            encoding: public bins.
            rows: PRIVATE rows of this tree.
            randomness: source of the public structure and of the selections.

        Returns:
            The released tree. One call is one release, at the loss of one part of ``event``.
        """
        splits = structure.random_structure(encoding.candidates, int(parameters["max_depth"]), randomness)
        structure.drop(rows, splits)
        return leaves.release(splits, TreePrice.of(event).leaves, rows, randomness)


def default_depth(schema: Schema) -> int:
    """Depth by the paper's rule of the public number of features.

    For m numbers, the smallest d at which a path of d random features is expected to leave at most half of them
    untested, m(1 − 1/m)^d ≤ m/2; half of the categorical features more.
    """
    n_categorical = sum(feature.is_categorical for feature in schema.features)
    n_numbers = len(schema.features) - n_categorical
    depth, untested = 0, float(n_numbers)
    while untested > n_numbers / 2:
        depth += 1
        untested *= 1 - 1 / n_numbers
    return min(max(depth + n_categorical // 2, 1), DEEPEST_BY_RULE)

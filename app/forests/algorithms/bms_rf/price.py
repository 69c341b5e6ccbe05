"""The stacked forest with Bernoulli dropout, repaired: every layer pays, and sees released leaves of the one before.

Song and Wang, "Trestle random forest based on multiple randomness and privacy protection" (2024), which calls it
BMS-RF. What was wrong with its rules, and the proof of this version, stand in docs/proofs/bms-rf.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from app.core import amounts
from app.core.errors import InvalidRequest
from app.forests.algorithms.bms_rf import layers
from app.forests.algorithms.bms_rf.read import StackedFamily
from app.forests.algorithms.mrf.price import USUAL_STRUCTURE_SHARE, MultinomialForest
from app.forests.bins import tree_bins
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.parameters import POINTER, Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.trees import common, greedy, shapes
from app.forests.trees.histograms import TreeHistograms
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

if TYPE_CHECKING:
    from app.forests.contract.forest import Forest
    from app.forests.contract.plan import Plan
    from app.forests.data.rows import SanitisedRows
    from app.forests.data.schema import Schema
    from app.forests.noise.randomness import Randomness

DEFAULT_LAYERS = 2
MAX_LAYERS = 8

_OWN_PARAMETERS = (
    Parameter(
        "n_layers",
        "integer",
        "Layers that the trees are dealt out to, as evenly as they can be. By default two, or one where there is one "
        "tree.",
        minimum=Fraction(1),
        maximum=Fraction(MAX_LAYERS),
    ),
    replace(
        common.ASSIGNMENT,
        name="layer_assignment",
        description="Every layer sees all rows at its share of ε, or each row is in one layer (by a keyed hash of its "
        "id) at all of ε.",
    ),
    Parameter(
        "shift",
        "number",
        "How far the votes of a layer can move a number in the rows of the next, as a share of its declared range.",
        default="0.35",
        minimum=Fraction(0),
        maximum=Fraction(1),
    ),
    Parameter(
        "kept_features",
        "number",
        "Probability that a node looks at a feature; where none is left, at one that is drawn.",
        default="0.8",
        minimum=Fraction(1, 100),
        maximum=Fraction(1),
    ),
    Parameter(
        "kept_splits",
        "number",
        "Probability that a node looks at a split of such a feature; where none is left, at one that is drawn.",
        default="0.8",
        minimum=Fraction(1, 100),
        maximum=Fraction(1),
    ),
)


@dataclass(frozen=True)
class _Layer(MultinomialForest):
    """The multinomial forest of one layer; a node's selection sees what Bernoulli dropout leaves.

    Privacy:
        That of ``MultinomialForest``, under add/remove and replace-one: coins are public, and a utility has at most the
        range sensitivity over fewer candidates that it has over all. *Not covered:* running time.

    Source:
        Song and Wang (2024), Algorithm 2; lemma B2 of docs/proofs/bms-rf.md.
    """

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Selects splits level by level on the PRIVATE rows, then releases the leaves; see ``TreeMechanism``."""
        rule = greedy.SplitRule(
            str(parameters["utility"]),
            kept_features=amounts.parse(parameters["kept_features"]),
            kept_splits=amounts.parse(parameters["kept_splits"]),
        )
        return greedy.grow_tree(event, rule, encoding=encoding, rows=rows, randomness=randomness)


LAYER = _Layer()
"""What every layer is grown by."""

_SHARED = tuple(own for own in LAYER.parameters if own.name != "exploration")
"""The parameters of a layer. Its exploration is the dropout: a node that keeps one split takes a random one."""


_ABOUT = About(
    claimed="ε-differential privacy of stacked layers of multinomial forests, with dropout of features and splits.",
    wrong=(
        "Each layer costs ε, so N layers cost Nε. The next layer's features are exact class shares, which one label "
        "moves for every row of a leaf: the loss grows with the rows, to 15 at a claim of 1 with 200 of them. Layers "
        "are added until an exact accuracy stops to improve."
    ),
    here=(
        "Layers pay one after another, or are on disjoint rows; features of the next layer come from what the one "
        "before released; the number of layers is public."
    ),
    proof="docs/proofs/bms-rf.md",
    results="docs/results/papers.md",
    accuracy=at_epsilon_one("83.7 89.6 99.4 89.7 85.0"),
)


@dataclass(frozen=True)
class StackedForest:
    """Layers of multinomial trees with dropout; each layer's rows are moved by the votes of the released one before.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. A layer is a multinomial forest
        (Theorem 1 of docs/proofs/mrf.md) on rows ``X + shift · votes · W``, where W is public and the votes of a row
        are read off *released* leaves alone: a record-wise map (lemmas L6 and B1), in whole numbers, so that no row
        moves another and every sensitivity is that of one forest. Dropout tosses public coins and restricts public
        candidates (lemma B2). Layers on the same rows add up (Theorem L), ε/N each; layers on rows apart by a keyed
        hash count at their largest (lemma L5). The number of layers is public: no accuracy on rows decides it.
        *Not covered:* running time.

    Source:
        Song and Wang (2024), Algorithms 1 and 2; its Lemma 8 does not hold as stated. Theorem 1 of
        docs/proofs/bms-rf.md.
    """

    slug: str = "bms-rf"
    title: str = "Stacked multinomial forest with Bernoulli dropout, repaired"
    source: str = "Song, Wang (2024), BMS-RF, Journal of Data Acquisition and Processing; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    read_outs: tuple[str, ...] = ("log", "ta", "mv")
    family: Family = StackedFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (*_SHARED, *_OWN_PARAMETERS)

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the number and depth of trees from the public size, ε and the schema, and the number of layers."""
        settled = dict(asked)
        common.settle_structure_share(settled, facts, usual=USUAL_STRUCTURE_SHARE)
        settled.setdefault("n_estimators", max(greedy.default_n_trees(facts), int(settled.get("n_layers", 1))))
        n_trees = int(settled["n_estimators"])
        settled.setdefault("n_layers", min(DEFAULT_LAYERS, n_trees))
        if int(settled["n_layers"]) > n_trees:
            raise InvalidRequest.at(f"{POINTER}/n_layers", "more-than-trees")
        depth = greedy.default_depth(facts, n_trees)
        first = tree_bins.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        for own in layers.schemas(facts.schema, settled)[1:2]:
            # Its tables must fit as well; that it can split deeper is no reason to.
            encoding = Encoding.of(own, int(settled["n_bins"]))
            fitting = dict(settled)
            shapes.settle_depth(fitting, depth, encoding, tables=True)
            depth = min(depth, int(fitting["max_depth"]))
        return settled, shapes.settle_depth(settled, depth, first, tables=True)

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """N forests, one after another or on disjoint rows."""
        disjoint = layers.is_disjoint(parameters)
        n_trees = layers.sizes(parameters)
        own_facts = replace(facts, epsilon=facts.epsilon if disjoint else facts.epsilon / len(n_trees))
        schemas = layers.schemas(facts.schema, parameters)
        told = zip(n_trees, schemas, layers.profiles(facts.profile, parameters), strict=True)
        events = tuple(
            LAYER.event({**parameters, "n_estimators": size}, replace(own_facts, schema=schema, profile=profile))
            for size, schema, profile in told
        )
        return layers.joined(events, disjoint=disjoint)

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        for own in layers.events(event, parameters):
            LAYER.check(own, parameters)

    def grow_forest(
        self,
        plan: Plan,
        schema: Schema,
        rows: SanitisedRows,
        randomness: Randomness,
        *,
        on_tree_done: Callable[[], None],
    ) -> Forest:
        """Releases layer after layer on the PRIVATE rows, as the layer before it moves them. One call is one release.

        The projections are drawn before any row is read.
        """
        from app.forests.algorithms.bms_rf.grow import grow_layers

        return grow_layers(LAYER, plan, schema=schema, rows=rows, randomness=randomness, on_tree_done=on_tree_done)

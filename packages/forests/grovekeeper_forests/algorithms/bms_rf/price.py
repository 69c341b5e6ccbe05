"""Prices ``bms-rf``, a repaired stacked forest: each layer costs budget and passes on
only released votes.

Song and Wang, "Trestle random forest based on multiple randomness and privacy
protection" (2024), name the algorithm BMS-RF. docs/proofs/bms-rf.md shows the errors of
the paper and proves the guarantee of this version.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from grovekeeper_forests.algorithms.bms_rf import layers
from grovekeeper_forests.contract.algorithm import (
    About,
    Algorithm,
    Parameter,
    Parameters,
    PublicFacts,
    Value,
    share,
)
from grovekeeper_forests.contract.plan import encoding_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.events import Event
from grovekeeper_forests.trees import tree_parameters, tree_price

DEFAULT_LAYERS = 2
MAX_LAYERS = 8

_OWN_PARAMETERS = (
    Parameter(
        "n_layers",
        "integer",
        "Number of layers, among which the trees are divided as evenly as possible. By default two, or one if there "
        "is one tree.",
        minimum=Fraction(1),
        maximum=Fraction(MAX_LAYERS),
    ),
    replace(
        tree_parameters.ASSIGNMENT,
        name="layer_assignment",
        description="Every layer sees all rows at its share of ε, or each row is in one layer (by a keyed hash of its "
        "id) at all of ε.",
    ),
    Parameter(
        "shift",
        "number",
        "Largest shift of a number by the votes of a layer, as a share of the number's declared range.",
        default="0.35",
        minimum=Fraction(0),
        maximum=Fraction(1),
    ),
    share(
        "kept_features",
        "Probability that a node considers a feature. If no feature is left, the node considers one drawn at random.",
        default="0.8",
        most=Fraction(1),
    ),
    share(
        "kept_splits",
        "Probability that a node considers a split of such a feature. If no split is left, it considers one at random.",
        default="0.8",
        most=Fraction(1),
    ),
)


class StackedForest(Algorithm):
    """Layers of multinomial trees with dropout; votes of a released layer are added to
    the rows of the next layer.
    """

    slug = "bms-rf"
    title = "Stacked multinomial forest with Bernoulli dropout, repaired"
    source = "Song, Wang (2024), BMS-RF, Journal of Data Acquisition and Processing; repaired"
    about = About(
        claimed="ε-differential privacy of stacked layers of multinomial forests, with dropout of features and splits.",
        wrong=(
            "Each layer costs ε, so N layers cost Nε. The next layer's features are exact class shares, which one "
            "label moves for every row of a leaf: where a row is added or removed the loss grows with the rows, to "
            "4.12 at a claim of 1 with seven of them. Layers are added until an exact accuracy on test rows stops "
            "improving."
        ),
        here=(
            "Layers pay one after another, or are on disjoint rows; the features of a layer follow from the releases "
            "of the layer before; the number of layers is public."
        ),
        proof="docs/proofs/bms-rf.md",
        results="docs/results/papers.md",
    )
    read_outs = ("log", "ta", "mv")
    reads_values = True
    parameters = (*tree_price.MULTINOMIAL_PARAMETERS, *_OWN_PARAMETERS)

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the number and depth of trees from the public size, ε and the
        schema, and the number of layers.
        """
        tree_parameters.fill_structure_share(
            settled, facts, usual=tree_price.USUAL_STRUCTURE_SHARE
        )
        settled.setdefault(
            "n_estimators",
            max(
                tree_parameters.default_n_trees(facts), int(settled.get("n_layers", 1))
            ),
        )
        n_trees = int(settled["n_estimators"])
        settled.setdefault("n_layers", min(DEFAULT_LAYERS, n_trees))
        if int(settled["n_layers"]) > n_trees:
            raise ParameterInvalid.named("n_layers", "more-than-trees", limit=n_trees)
        depth = tree_parameters.default_depth(facts, n_trees)
        first = encoding_of(facts.schema, settled["n_bins"], facts.profile)
        for schema in layers.schemas(facts.schema, settled)[1:2]:
            # Histograms of later layers must fit in memory, too. Later layers never
            # make the trees deeper.
            encoding = Encoding.of(schema, int(settled["n_bins"]))
            fitting = dict(settled)
            tree_parameters.fill_depth(fitting, depth, encoding, tables=True)
            depth = min(depth, int(fitting["max_depth"]))
        return tree_parameters.fill_depth(settled, depth, first, tables=True)

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """N forests, sequential or on disjoint rows."""
        disjoint = layers.is_disjoint(parameters)
        n_trees = layers.sizes(parameters)
        own_facts = replace(
            facts, epsilon=facts.epsilon if disjoint else facts.epsilon / len(n_trees)
        )
        schemas = layers.schemas(facts.schema, parameters)
        layer_facts = zip(
            n_trees, schemas, layers.profiles(facts.profile, parameters), strict=True
        )
        events = tuple(
            tree_price.multinomial_event(
                {**parameters, "n_estimators": size},
                replace(own_facts, schema=schema, profile=profile),
            )
            for size, schema, profile in layer_facts
        )
        return layers.joined(events, disjoint=disjoint)

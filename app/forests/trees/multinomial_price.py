"""Plans and prices trees whose splits are private selections by a utility of class counts."""

from fractions import Fraction

import numpy as np

from app.core import amounts
from app.forests.contract.algorithm import Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, share
from app.forests.data.encoding import Encoding
from app.forests.trees import leaf_prices, shapes, tree_parameters, tree_price, utilities
from app.forests.trees.tree_price import Selection, TreePrice
from app.privacy.events import Event

JOINT, TWO_STAGE = "joint", "two_stage"


USUAL_STRUCTURE_SHARE = "0.6"


PARAMETERS = (
    tree_parameters.N_ESTIMATORS,
    tree_parameters.MAX_DEPTH,
    tree_parameters.N_BINS,
    tree_parameters.ASSIGNMENT,
    share(
        "structure_share",
        "Share of each tree's ε that its selections of splits get; the rest goes to its leaves. Without effect where "
        "se is hash: each part of the rows is then worth all of the tree's ε. By default 0.6, and 0.85 on accounts "
        "with a δ where leaves release counts.",
        only_with=(tree_parameters.SEPARATION.name, tree_parameters.NONE),
    ),
    Parameter(
        "selection",
        "choice",
        "Choose feature and threshold in one draw, or the feature first, each stage at its own budget.",
        default=JOINT,
        choices=(JOINT, TWO_STAGE),
    ),
    share(
        "feature_share",
        "Share of a selection's ε that choosing the feature gets, where the feature is chosen first.",
        default="0.5",
        only_with=("selection", TWO_STAGE),
    ),
    Parameter(
        "utility",
        "choice",
        "The cost that a good split lowers: the count Gini, or the number of rows outside the most common class of "
        "their side.",
        default=utilities.GINI,
        choices=(utilities.GINI, utilities.MISCOUNT),
    ),
    leaf_prices.LEAF,
    tree_parameters.SEPARATION,
    share(
        "structure_rows",
        "Where se is hash, the expected share of rows in the structure part.",
        default="0.5",
        only_with=(tree_parameters.SEPARATION.name, tree_parameters.HASH),
    ),
)


def _node(loss: Fraction, parameters: Parameters, encoding: Encoding, facts: PublicFacts) -> tuple[Selection, ...]:
    """Prices the selections of one node at ``loss`` in total."""
    sensitivity = utilities.RANGE_SENSITIVITIES[str(parameters["utility"])]
    if parameters["selection"] == JOINT:
        n_candidates = len(encoding.candidates)
        return (tree_price.selection_event(loss, facts, range_sensitivity=sensitivity, max_candidates=n_candidates),)
    share = amounts.parse(parameters["feature_share"])
    per_feature = np.unique(encoding.candidates.feature, return_counts=True)[1]
    return (
        tree_price.selection_event(share * loss, facts, range_sensitivity=sensitivity, max_candidates=len(per_feature)),
        tree_price.selection_event(
            (1 - share) * loss, facts, range_sensitivity=sensitivity, max_candidates=int(per_feature.max())
        ),
    )


def event(parameters: Parameters, facts: PublicFacts) -> Event:
    """The event of T trees, sequential or on disjoint rows; a tree is the selections of a path, then its leaves."""
    n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
    apart = parameters["se"] == tree_parameters.HASH
    per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
    share = tree_parameters.structure_share(parameters)
    for_levels, for_leaves = (per_tree, per_tree) if apart else (share * per_tree, (1 - share) * per_tree)
    encoding = shapes.encoding_of(facts.schema, parameters["n_bins"], facts.profile)
    price = TreePrice(
        tuple(_node(loss, parameters, encoding, facts) for loss in tree_price.level_losses(for_levels, depth)),
        leaf_prices.priced(str(parameters["leaf"]), for_leaves, depth, facts),
        apart=apart,
    )
    return price.forest_event(n_trees, sharded=tree_parameters.is_sharded(parameters))


def check(event: Event, parameters: Parameters) -> None:
    """See ``Algorithm.check``."""
    price = TreePrice.of(event)
    sensitivity = Fraction(utilities.RANGE_SENSITIVITIES[str(parameters["utility"])])
    n_selections = 1 if parameters["selection"] == JOINT else 2
    price.require(
        depth=int(parameters["max_depth"]),
        selections=[sensitivity] * n_selections,
        apart=parameters["se"] == tree_parameters.HASH,
    )
    leaf_prices.require(str(parameters["leaf"]), price.leaves)

"""Prices ``rpf``, the reweighted ℓ4 permute-and-flip forest: boosting with row weights of at most one, for pure ε.

The proof is in docs/proofs/rpf.md, the proof for the bins in docs/proofs/bins.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import islice
from math import comb

from app.core import amounts
from app.core.errors import InvalidRequest
from app.forests.algorithms.rpf import joint_limits
from app.forests.algorithms.rpf.path_event import (
    L1_SENSITIVITY,
    RANGE_SENSITIVITY,
    PathScales,
    Stage,
    events_of,
    stages,
)
from app.forests.algorithms.rpf.read import (
    BY_LEVEL,
    BY_NODE,
    NO_PAIRS,
    PAIRS,
    PLAIN,
    TEMPERED,
)
from app.forests.bins import quantile_bins
from app.forests.bins.noisy_counts import draw_scale
from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value, share
from app.forests.data import pairs
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.trees import shapes, tree_parameters, tree_price
from app.privacy.events import Event, Part, Sequential, UnknownPrivacyEvent

_MIN_RULE_DEPTH, _MAX_RULE_DEPTH = 1, 8
_SHARE_PER_DOUBLING, _MIN_RULE_SHARE = 0.05, 0.3

HOPELESS = 20
"""Public size × ε below which noise outweighs any structure: a single leaf with noisy class counts is more accurate."""

_HOPELESS = (
    "ε times the public size is so small that noise outweighs any structure: the model will be the noisy class "
    "proportions, the same for every row."
)
_OWN_PARAMETERS = (
    share(
        "structure_share",
        "Share of each tree's ε that its selections of splits get. By default 0.7 for one tree, 0.6 for several, and "
        "0.05 less for every doubling of the number of classes.",
    ),
    share(
        "bins_share",
        "Share of ε for the private quantile bins of numbers, if any feature needs them and a tree has a split.",
        default="0.08",
        most=Fraction(1, 2),
    ),
    Parameter(
        "splits",
        "choice",
        "One split for all nodes of a level, chosen by all rows, or one split per node.",
        default=BY_LEVEL,
        choices=(BY_LEVEL, BY_NODE),
    ),
    Parameter(
        "at_once",
        "integer",
        "Number of levels whose splits one selection chooses together, at the budget of all of them: 1 or 2. By "
        "default 2 where there are few enough sets of two splits for the declared size, if each level has one split. "
        "With many splits, levels and classes, fewer trees may choose two levels at once.",
        minimum=Fraction(1),
        maximum=Fraction(joint_limits.MOST_AT_ONCE),
        most_stored=Fraction(joint_limits.MOST_STORED),
    ),
    Parameter(
        "pairs",
        "choice",
        "Also split on sums and differences of every two ordered columns. By default where there are 2 to "
        f"{pairs.MAX_ORDERED} of them.",
        choices=(PAIRS, NO_PAIRS),
    ),
    Parameter(
        "calibration",
        "choice",
        "Softmax of the summed scores divided by the fourth root of the number of trees, or softmax of the summed "
        "scores.",
        default=TEMPERED,
        choices=(TEMPERED, PLAIN),
    ),
)


_ABOUT = About(
    claimed=None,
    wrong=None,
    here=(
        "Boosting in which a row never counts more than once: a few trees, each on rows weighted by the doubt of the "
        "trees before it, splits chosen by permute-and-flip on a norm that one row moves by at most one, all in "
        "integers."
    ),
    proof="docs/proofs/rpf.md",
    results="docs/results/rpf.md",
)


class ReweightedForest(Algorithm):
    """Sequential trees, each on rows weighted by the doubt of earlier trees in the row's class."""

    slug = "rpf"
    title = "Reweighted ℓ4 permute-and-flip forest"
    source = "Grovekeeper; docs/proofs/rpf.md"
    about = _ABOUT
    read_outs = ("log",)
    parameters = (tree_parameters.N_ESTIMATORS, tree_parameters.MAX_DEPTH, *_OWN_PARAMETERS)

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the number and depth of trees and the shares of ε from the public size, ε and the schema."""
        settled = dict(requested)
        hopeless = facts.size * facts.epsilon < HOPELESS and "max_depth" not in requested
        settled.setdefault("n_estimators", 1 if hopeless else tree_parameters.default_n_trees(facts))
        n_trees = int(settled["n_estimators"])
        settled.setdefault("structure_share", default_share(facts, n_trees))
        settled.setdefault("pairs", default_pairs(facts.schema))
        depth = 0 if hopeless else default_depth(facts, n_trees, by_level=settled["splits"] == BY_LEVEL)
        widest = widest_encoding(settled, facts.schema)
        warnings = shapes.settle_depth(settled, depth, widest, tables=True)
        _settle_at_once(settled, widest, facts)
        return settled, (*warnings, _HOPELESS) if hopeless else warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """Private bins, if a feature needs them and no profile is reused; then T sequential trees."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        bins: tuple[Part, ...] = ()
        for_trees = facts.epsilon
        if depth > 0 and facts.profile is None and quantile_bins.private_features(facts.schema):
            for_bins = amounts.parse(parameters["bins_share"]) * facts.epsilon
            bins = (Part(1, quantile_bins.event(facts.schema, for_bins)),)
            for_trees -= for_bins
        share = amounts.parse(parameters["structure_share"]) if depth > 0 else Fraction(0)
        per_tree = for_trees / n_trees
        of_selections = _stages(parameters, widest_encoding(parameters, facts.schema))
        losses = iter(tree_price.level_losses(share * per_tree, depth))
        scales = PathScales(
            tuple(
                draw_scale(sum(islice(losses, stage.n_splits), Fraction(0)), RANGE_SENSITIVITY)
                for stage in of_selections
            ),
            draw_scale((1 - share) * per_tree, L1_SENSITIVITY),
        )
        by_level = parameters["splits"] == BY_LEVEL
        tree = scales.event(of_selections, n_classes=facts.schema.n_classes, by_level=by_level)
        return Sequential((*bins, Part(n_trees, tree)))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        _, scales = events_of(event)
        if len(scales.levels) != len(stages(int(parameters["max_depth"]), int(parameters["at_once"]))):
            raise UnknownPrivacyEvent("not the event of a forest of this depth")


def widest_encoding(parameters: Parameters, schema: Schema) -> Encoding:
    """The encoding with the largest possible number of bins and columns.

    Raises:
        InvalidRequest: pairs are requested for a schema with too many ordered columns.
    """
    encoding = quantile_bins.widest_encoding(schema)
    if parameters["pairs"] == NO_PAIRS:
        return encoding
    if len(pairs.ordered(schema)) > pairs.MAX_ORDERED:
        raise InvalidRequest.at("/parameters/pairs", "too-large", accepted=[NO_PAIRS])
    return encoding.paired(pairs.of_schema(schema))


def _settle_at_once(settled: dict[str, Value], widest: Encoding, facts: PublicFacts) -> None:
    """Sets ``at_once``: 2 only if each level has one split and the sets of splits are few enough.

    Raises:
        InvalidRequest: two levels are requested although each node has its own split, the sets of splits are too many,
            or the trees are too many for joint selections.
    """
    by_level, depth = settled["splits"] == BY_LEVEL, int(settled["max_depth"])
    n_trees = int(settled["n_estimators"])
    if "at_once" not in settled:
        by_rule = joint_limits.default(widest, depth, n_trees=n_trees, size=facts.size)
        settled["at_once"] = by_rule if by_level else 1
    elif settled["at_once"] != 1 and not by_level:
        raise InvalidRequest.at("/parameters/at_once", "not-with-splits-node")
    elif settled["at_once"] != 1 and depth > 1:
        if not joint_limits.is_affordable(widest, depth):
            raise InvalidRequest.at("/parameters/at_once", "too-large", accepted=["1"])
        if n_trees > (most := joint_limits.most_trees(widest, depth)):
            raise InvalidRequest.at("/parameters/n_estimators", "too-large", limit=most)


def _stages(parameters: Parameters, widest: Encoding) -> tuple[Stage, ...]:
    """The stages of a path from public numbers; "stop" counts as a candidate."""
    n_all = len(widest.candidates)
    n_joint = joint_limits.n_candidates(widest, joint_limits.n_columns(widest))
    return tuple(
        Stage(n_splits, max(n_all, comb(n_joint, n_splits)) + 1)
        for n_splits in stages(int(parameters["max_depth"]), int(parameters["at_once"]))
    )


def default_pairs(schema: Schema) -> str:
    """Pairs if the schema has at least two ordered columns, but not too many to tabulate every pair."""
    return PAIRS if 2 <= len(pairs.ordered(schema)) <= pairs.MAX_ORDERED else NO_PAIRS


def default_share(facts: PublicFacts, n_trees: int) -> str:
    """The default share of ε for selections, from the number of classes and of trees.

    Every leaf releases one noisy number per class, so more classes need a larger share of the budget for leaves.
    """
    most = 0.7 if n_trees == 1 else 0.6
    share = most - _SHARE_PER_DOUBLING * math.log2(facts.schema.n_classes / 2)
    return f"{max(share, _MIN_RULE_SHARE):.2f}".rstrip("0")


def default_depth(facts: PublicFacts, n_trees: int, *, by_level: bool) -> int:
    """The default depth, from the public size, ε, the number of classes and of trees.

    A split that a whole level shares is chosen on all rows at any depth, so trees with one split per level are deeper.
    """
    strength = math.log2(max(facts.size * float(facts.epsilon) / n_trees, 4.0))
    by_size = 0.75 * strength - 3.2 if by_level else 0.65 * strength - 2.5
    depth = round(by_size + 0.35 * math.log2(facts.schema.n_classes / 2))
    return min(max(depth, _MIN_RULE_DEPTH), _MAX_RULE_DEPTH)

"""Prices ``rpf``, the reweighted ℓ4 permute-and-flip forest: boosting with row weights
of at most one, for pure ε.

The event is private bins, then trees with the same loss on every path; of a label that
is a number, also the selections of its start and a last mean. Public limits
bound the sets of two splits, one per level, that one selection chooses among. The proof
is in docs/proofs/rpf.md, the proof for the bins in docs/proofs/bins.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from math import comb
from typing import Final, NamedTuple

import numpy as np

from grovekeeper_forests import amounts
from grovekeeper_forests.bins import number_targets, quantile_bins
from grovekeeper_forests.bins.noisy_counts import draw_scale
from grovekeeper_forests.contract.algorithm import (
    About,
    Algorithm,
    Parameter,
    Parameters,
    PublicFacts,
    Value,
    share,
)
from grovekeeper_forests.data.encoding import (
    MAX_ORDERED,
    Encoding,
    ordered_columns,
    pairs_of_schema,
)
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.kernels.boosting import UNIT
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.trees import tree_parameters, tree_price

MOST_AT_ONCE: Final = 2
"""Most levels whose splits one selection chooses; three are no more accurate on most
tables (docs/results/rpf.md).
"""

MAX_WITH_PAIRS: Final = 500
"""Most public splits, including those on sums and differences, for which joint
selections use all columns.
"""

MAX_CANDIDATES: Final = 1_000
"""Most public splits that may compete in joint selections."""

MAX_COLUMNS: Final = 64
"""Most columns for which every two columns are tabulated against each other."""

N_SIDES: Final = 2
"""Sides of a residual, which take the place of classes where the label is a number."""

LEAF_CLIP, MEAN_CLIP = Fraction(5, 4), Fraction(3)
"""Lengths, in spreads, at which residuals are clipped in leaves and in the last mean."""

STRUCTURE_SHARE_OF_NUMBERS: Final = "0.6"

MAX_WORK: Final = 2**31
"""Most sets of splits × nodes × classes in a tree's largest selection: bounds the time
to evaluate the utilities.
"""

MAX_FOREST_WORK: Final = 2**35
"""Most sets of splits × nodes × classes for all trees together: ten to fifteen minutes
of one core. The rule for the number of trees stays below this limit.
"""

WORK_PER_ROW: Final = 10_000
"""Most sets of splits × nodes × classes for all trees, per row of the public size, by
:func:`default_at_once`.
"""

FEWEST_PAYING_ROWS: Final = 2**15
"""A smaller table may take the work of a table of so many rows: seconds, for three
points more accuracy on small tables of many classes (docs/results/ceiling.md).
"""


def n_joint_columns(widest: Encoding) -> int:
    """The number of columns, counted from the first of an encoding, whose splits
    compete in joint selections.

    All columns, or only the declared columns if there are many splits. Splits on sums
    and differences still compete in selections of a single level.

    Args:
        widest: public; the encoding with the largest possible number of bins, so that
            the result depends on the plan only.
    """
    if len(widest.candidates) <= MAX_WITH_PAIRS:
        return len(widest.n_codes)
    return len(widest.edges)


def n_joint_candidates(encoding: Encoding, columns: int) -> int:
    """The number of an encoding's splits on its first ``columns`` columns."""
    return int(np.searchsorted(encoding.candidates.feature, columns))


def is_affordable(widest: Encoding, depth: int) -> bool:
    """Whether a tree of at least two levels may choose two at once; a function of
    public facts.
    """
    columns = n_joint_columns(widest)
    return (
        2 <= n_joint_candidates(widest, columns) <= MAX_CANDIDATES
        and columns <= MAX_COLUMNS
        and _work(widest, depth) <= MAX_WORK
        and _table_cells(widest, depth) <= tree_parameters.MAX_TABLE_CELLS
    )


def most_trees(widest: Encoding, depth: int) -> int:
    """The most trees that may choose splits jointly if one tree may; most of the work
    does not depend on the rows.
    """
    return MAX_FOREST_WORK // _work(widest, depth)


def default_at_once(widest: Encoding, depth: int, *, n_trees: int, size: int) -> int:
    """The default number of levels per selection, from the declaration, the depth, the
    trees and the public size.

    Many deep trees on few rows choose one level at a time, because evaluating sets of
    splits takes the same time for few rows as for many. Such trees have enough budget
    per selection to find splits one by one.
    """
    most_work = min(WORK_PER_ROW * size, MAX_FOREST_WORK)
    is_cheap = (
        depth >= 2
        and is_affordable(widest, depth)
        and n_trees * _work(widest, depth) <= most_work
    )
    return 2 if is_cheap else 1


def _work(widest: Encoding, depth: int) -> int:
    """Sets of two splits × nodes × classes in the deepest selection of a tree."""
    return comb(
        n_joint_candidates(widest, n_joint_columns(widest)), 2
    ) * widest.schema.n_classes << (depth - 2)


def _table_cells(widest: Encoding, depth: int) -> int:
    """The number of cells of the largest table of two columns, which is in a tree's
    deepest selection.
    """
    n_codes = int(widest.n_codes[: n_joint_columns(widest)].max())
    return n_codes**2 * widest.schema.n_classes << (depth - 2)


RANGE_SENSITIVITY = UNIT
"""One row raises the utility of every candidate of its node by an integer from 0 to
256.
"""

L1_SENSITIVITY = UNIT
"""One row raises one weight of one leaf by at most 256."""


class Stage(NamedTuple):
    """One selection on a path: the public number of splits that it chooses, and the
    most candidates.
    """

    n_splits: int
    max_candidates: int


def stages(depth: int, at_once: int) -> tuple[int, ...]:
    """The number of splits that each selection on a path chooses, root first, with as
    few selections as possible.

    Numbers differ by at most one; smaller numbers come first. Five levels, two at once,
    give 1, 2, 2.

    Args:
        depth: of the tree.
        at_once: most levels whose splits are chosen by one selection.
    """
    n_selections = -(-depth // at_once)  # rounded up
    return tuple((depth + place) // n_selections for place in range(n_selections))


@dataclass(frozen=True)
class PathScales:
    """Inverse scales of the draws on a path, in integer units of weight (1/256 row).

    Attributes:
        levels: inverse scale of each selection, root first; a selection covers one
            level or several.
        last: inverse scale of the noise in a leaf at full depth.
    """

    levels: tuple[Fraction, ...]
    last: Fraction

    @kept_property
    def leaves(self) -> tuple[Fraction, ...]:
        """Inverse scale of the noise in a leaf, by the number of selections on its
        path, from 0 to all.

        The leaf gets the budget that its path did not spend on selections (lemma L4).
        Selections and weights have the same sensitivity, so inverse scales add up as
        losses do, and every path has exactly the same loss.
        """
        return tuple(
            sum(self.levels[spent:], self.last) for spent in range(len(self.levels) + 1)
        )

    def event(
        self, of_selections: Sequence[Stage], *, n_classes: int, by_level: bool = False
    ) -> Event:
        """Describes one tree as an event, with every possible end of a path at the same
        loss.

        Args:
            of_selections: one stage per inverse scale in :attr:`levels`.
            by_level: whether one selection serves all nodes of a level, instead of one
                selection per node.
        """
        if len(of_selections) != len(self.levels):
            raise UnknownPrivacyEvent(
                "a selection without a price, or a price without a selection"
            )
        # From the leaves to the root: each selection is followed, on the same rows, by
        # what is below it.
        n_splits = sum(stage.n_splits for stage in of_selections)
        event: Event = self._leaf(len(self.levels), n_classes << n_splits)
        for index, stage in reversed(list(enumerate(of_selections))):
            n_splits -= stage.n_splits
            selection = PermuteAndFlip(
                Adjacency.ADD_REMOVE_ONE,
                range_sensitivity=Fraction(RANGE_SENSITIVITY),
                inverse_scale=self.levels[index],
                max_candidates=stage.max_candidates,
            )
            n_selections = 1 if by_level else 1 << n_splits
            event = Sequential(
                (
                    Part(1, Parallel("nodes", (Part(n_selections, selection),))),
                    Part(1, event),
                )
            )
            # A path may end before each selection but the first.
            if index > 0:
                event = Parallel(
                    "nodes",
                    (Part(1, self._leaf(index, n_classes << n_splits)), Part(1, event)),
                )
        return event

    def _leaf(self, n_selections: int, coordinates: int) -> Event:
        return DiscreteLaplace(
            Adjacency.ADD_REMOVE_ONE,
            l1_sensitivity=Fraction(L1_SENSITIVITY),
            inverse_scale=self.leaves[n_selections],
            coordinates=coordinates,
        )

    @classmethod
    def of(cls, event: Event) -> PathScales:
        """Reads the scales out of a priced event: the inverse of :meth:`event`.

        Raises:
            UnknownPrivacyEvent: not the event of a reweighted tree.
        """
        levels: list[Fraction] = []
        while True:
            match event:
                case DiscreteLaplace():
                    return cls(tuple(levels), event.inverse_scale)
                case Parallel(
                    _,
                    (
                        Part(event=DiscreteLaplace()),
                        Part(event=Sequential() as going_on),
                    ),
                ):
                    event = going_on
                case Sequential(
                    (
                        Part(
                            event=Parallel(
                                _, (Part(event=PermuteAndFlip() as selection),)
                            )
                        ),
                        Part(event=deeper),
                    )
                ):
                    levels.append(selection.inverse_scale)
                    event = deeper
                case _:
                    raise UnknownPrivacyEvent("not the event of a reweighted tree")


def events_of(event: Event) -> tuple[Event | None, PathScales]:
    """The event of the bins, if any were priced, and the scales of the trees.

    Raises:
        UnknownPrivacyEvent: not the event of a reweighted forest.
    """
    match event:
        case Sequential((*before, Part(event=PermuteAndFlip()), _, trees, _)):
            event = Sequential((*before, trees))
    match event:
        case Sequential((Part(event=tree),)):
            return None, PathScales.of(tree)
        case Sequential((Part(event=bins), Part(event=tree))):
            quantile_bins.medians_of(bins)
            return bins, PathScales.of(tree)
    raise UnknownPrivacyEvent("not the event of a reweighted forest")


class NumberScales(NamedTuple):
    """Inverse scales of what a label that is a number releases beside bins and trees.

    Attributes:
        middle: of the selection of the median.
        spread: of the selection of the spread.
        mean: of the noise in the mean of the residuals.
    """

    middle: Fraction
    spread: Fraction
    mean: Fraction

    @classmethod
    def of(cls, event: Event) -> NumberScales:
        """Reads the scales out of a priced event.

        Raises:
            UnknownPrivacyEvent: not the event of a reweighted forest of numbers.
        """
        match event:
            case Sequential(
                (
                    *_,
                    Part(1, PermuteAndFlip() as middle),
                    Part(1, PermuteAndFlip() as spread),
                    _,
                    Part(1, DiscreteLaplace() as mean),
                )
            ):
                return cls(
                    middle.inverse_scale, spread.inverse_scale, mean.inverse_scale
                )
        raise UnknownPrivacyEvent("not the event of a reweighted forest of numbers")


def by_sides(schema: Schema) -> Schema:
    """The schema that trees grow on. In place of a label that is a number they have the
    side, below or above, of a row's residual.
    """
    if not schema.label.is_number:
        return schema
    # Growth, prices and limits then need no other case for numbers.
    sides = Label(schema.label.name, ("below", "above"))
    return replace(schema, label=sides)


START_SHARE, SINGLE_START_SHARE = Fraction(1, 10), Fraction(1, 5)
"""Shares of ε (after the bins) that the selections of a number's median and spread get,
half each; the second where the forest is a single tree, because the noise is large then.
"""

MEAN_SHARE = Fraction(1, 50)
"""Share of ε (after the bins) that the mean of a number's residuals after the trees
gets.
"""


def start_share(n_trees: int) -> Fraction:
    """The share of ε (after the bins) of the selections of a median and a spread.

    It depends on the number of trees, which follows from size and budget, and not on
    the size itself: a stored plan is priced again without a size.
    """
    if n_trees == 1:
        return SINGLE_START_SHARE
    return START_SHARE


def share_of_trees(n_trees: int) -> Fraction:
    """What the start and the mean of a number leave for the trees, of ε after the bins."""
    return 1 - start_share(n_trees) - MEAN_SHARE


BY_LEVEL, BY_NODE = "level", "node"
"""One split for all nodes of a level, or one split per node."""

PAIRS, NO_PAIRS = "ordered", "none"
"""Splits on columns and on sums and differences of ordered columns, or on columns only."""

TEMPERED, PLAIN = "temperature", "none"
"""How sums of scores become probabilities: softmax of the sums divided by T^¼, or
softmax of the sums.
"""

_MIN_RULE_DEPTH, _MAX_RULE_DEPTH = 1, 8
_MIN_NUMBER_DEPTH = 2
_SHARE_PER_DOUBLING, _MIN_RULE_SHARE = 0.05, 0.3

MIN_SIZE_TIMES_EPSILON = 20
"""Public size × ε below which noise outweighs any structure: a single leaf with noisy
class counts is more accurate.
"""

_HOPELESS = (
    "ε times the public size is so small that noise outweighs any structure: the model will be the noisy class "
    "proportions, the same for every row."
)
_HOPELESS_NUMBER = (
    "ε times the public size is so small that noise outweighs any structure: the model will be a noisy average, the "
    "same for every row."
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
        maximum=Fraction(MOST_AT_ONCE),
    ),
    Parameter(
        "pairs",
        "choice",
        "Also split on sums and differences of every two ordered columns. By default where there are 2 to "
        f"{MAX_ORDERED} of them.",
        choices=(PAIRS, NO_PAIRS),
    ),
    Parameter(
        "calibration",
        "choice",
        "Softmax of the summed scores divided by the fourth root of the number of trees, or softmax of the summed "
        "scores. No effect where the label is a number.",
        default=TEMPERED,
        choices=(TEMPERED, PLAIN),
        only_of_classes=True,
    ),
)


class ReweightedForest(Algorithm):
    """Sequential trees, each on rows weighted by the doubt of earlier trees in the
    row's class.
    """

    slug = "rpf"
    title = "Reweighted ℓ4 permute-and-flip forest"
    source = "Grovekeeper; docs/proofs/rpf.md"
    about = About(
        claimed=None,
        wrong=None,
        here=(
            "Boosting in which a row never counts more than once: a few trees, each on rows weighted by the doubt of "
            "the trees before it, splits chosen by permute-and-flip on a norm that one row moves by at most one, all "
            "in integers."
        ),
        proof="docs/proofs/rpf.md",
        results="docs/results/rpf.md",
    )
    read_outs = ("log",)
    predicts_numbers = True
    parameters = (
        tree_parameters.N_ESTIMATORS,
        tree_parameters.MAX_DEPTH,
        *_OWN_PARAMETERS,
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the number and depth of trees and the shares of ε from the public
        size, ε and the schema.
        """
        hopeless = (
            facts.size * facts.epsilon < MIN_SIZE_TIMES_EPSILON
            and "max_depth" not in settled
        )
        is_number = facts.schema.label.is_number
        rule = n_trees_of_numbers if is_number else tree_parameters.default_n_trees
        settled.setdefault("n_estimators", 1 if hopeless else rule(facts))
        n_trees = int(settled["n_estimators"])
        if is_number:
            _fill_for_numbers(settled)
        else:
            settled.setdefault("structure_share", default_share(facts, n_trees))
        settled.setdefault("pairs", default_pairs(facts.schema))
        depth = 0
        if is_number and not hopeless:
            depth = depth_of_numbers(facts, n_trees, bins_share=settled["bins_share"])
        elif not hopeless:
            depth = default_depth(
                facts, n_trees, by_level=settled["splits"] == BY_LEVEL
            )
        widest = widest_encoding(settled, facts.schema)
        warnings = tree_parameters.fill_depth(settled, depth, widest, tables=True)
        _fill_at_once(settled, widest, facts)
        if hopeless:
            warnings = (*warnings, _HOPELESS_NUMBER if is_number else _HOPELESS)
        return warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """Private bins, if a feature needs them and no profile is reused; then T
        sequential trees. A label that is a number has two selections before them, of
        its median and its spread, and a mean of residuals after them.
        """
        n_trees = int(parameters["n_estimators"])
        depth = int(parameters["max_depth"])
        bins: tuple[Part, ...] = ()
        for_trees = facts.epsilon
        if (
            depth > 0
            and facts.profile is None
            and quantile_bins.private_features(facts.schema)
        ):
            for_bins = amounts.parse(parameters["bins_share"]) * facts.epsilon
            bins = (
                Part(1, quantile_bins.event(facts.schema, for_bins, size=facts.size)),
            )
            for_trees -= for_bins
        start, mean = tuple[Part, ...](), tuple[Part, ...]()
        if facts.schema.label.is_number:
            start, mean = _beside_trees(facts.schema.label, for_trees, n_trees)
            for_trees *= share_of_trees(n_trees)
        if depth > 0:
            for_structure = amounts.parse(parameters["structure_share"])
        else:
            for_structure = Fraction(0)
        per_tree = for_trees / n_trees
        of_selections = _stages(parameters, widest_encoding(parameters, facts.schema))
        losses = iter(tree_price.level_losses(for_structure * per_tree, depth))
        scales = PathScales(
            tuple(
                draw_scale(
                    sum(islice(losses, stage.n_splits), Fraction(0)), RANGE_SENSITIVITY
                )
                for stage in of_selections
            ),
            draw_scale((1 - for_structure) * per_tree, L1_SENSITIVITY),
        )
        by_level = parameters["splits"] == BY_LEVEL
        grown_on = by_sides(facts.schema)
        n_classes = grown_on.n_classes
        tree = scales.event(of_selections, n_classes=n_classes, by_level=by_level)
        return Sequential((*bins, *start, Part(n_trees, tree), *mean))


def _beside_trees(
    label: Label, left: Fraction, n_trees: int
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """The selections of a median and a spread, and the mean of the residuals, as shares
    of the ε after the bins.
    """
    for_both = start_share(n_trees) * left
    for_each = for_both / 2
    edges = number_targets.edges_of(label)
    n_edges = len(edges)
    selections = (
        (number_targets.MIDDLE_SENSITIVITY, n_edges),
        (number_targets.SPREAD_SENSITIVITY, number_targets.N_SPREADS),
    )
    start = tuple(
        PermuteAndFlip(
            Adjacency.ADD_REMOVE_ONE,
            range_sensitivity=Fraction(sensitivity),
            inverse_scale=draw_scale(for_each, sensitivity),
            max_candidates=n_candidates,
        )
        for sensitivity, n_candidates in selections
    )
    mean = DiscreteLaplace(
        Adjacency.ADD_REMOVE_ONE,
        l1_sensitivity=Fraction(L1_SENSITIVITY),
        inverse_scale=draw_scale(MEAN_SHARE * left, L1_SENSITIVITY),
        coordinates=N_SIDES,
    )
    before = tuple(Part(1, selection) for selection in start)
    after = (Part(1, mean),)
    return before, after


def _fill_for_numbers(settled: dict[str, Value]) -> None:
    """Sets the parameters whose default differs for a label that is a number."""
    settled.setdefault("structure_share", STRUCTURE_SHARE_OF_NUMBERS)
    settled.setdefault("pairs", NO_PAIRS)
    # A single tree means few rows × ε, and noise then favours any of many sets.
    if int(settled["n_estimators"]) == 1:
        settled.setdefault("at_once", 1)


def widest_encoding(parameters: Parameters, schema: Schema) -> Encoding:
    """The encoding with the largest possible number of bins and columns.

    Raises:
        ParameterInvalid: pairs are requested for a schema with too many ordered
            columns.
    """
    encoding = quantile_bins.widest_encoding(by_sides(schema))
    if parameters["pairs"] == NO_PAIRS:
        return encoding
    if len(ordered_columns(schema)) > MAX_ORDERED:
        raise ParameterInvalid.named("pairs", "too-large", accepted=[NO_PAIRS])
    return encoding.paired(pairs_of_schema(schema))


def _fill_at_once(
    settled: dict[str, Value], widest: Encoding, facts: PublicFacts
) -> None:
    """Sets ``at_once``: 2 only if each level has one split and the sets of splits are
    few enough.

    Raises:
        ParameterInvalid: two levels are requested although each node has its own split,
            the sets of splits are too many, or the trees are too many for joint
            selections.
    """
    by_level = settled["splits"] == BY_LEVEL
    depth = int(settled["max_depth"])
    n_trees = int(settled["n_estimators"])
    if "at_once" not in settled:
        n_paying = max(facts.size, FEWEST_PAYING_ROWS)
        by_rule = default_at_once(widest, depth, n_trees=n_trees, size=n_paying)
        settled["at_once"] = by_rule if by_level else 1
    elif settled["at_once"] != 1 and not by_level:
        raise ParameterInvalid.named("at_once", "not-with-splits-node")
    elif settled["at_once"] != 1 and depth > 1:
        if not is_affordable(widest, depth):
            raise ParameterInvalid.named("at_once", "too-large", accepted=["1"])
        if n_trees > (most := most_trees(widest, depth)):
            raise ParameterInvalid.named("n_estimators", "too-large", limit=most)


def _stages(parameters: Parameters, widest: Encoding) -> tuple[Stage, ...]:
    """The stages of a path from public numbers; "stop" counts as a candidate."""
    n_all = len(widest.candidates)
    n_joint = n_joint_candidates(widest, n_joint_columns(widest))
    return tuple(
        Stage(n_splits, max(n_all, comb(n_joint, n_splits)) + 1)
        for n_splits in stages(int(parameters["max_depth"]), int(parameters["at_once"]))
    )


def default_pairs(schema: Schema) -> str:
    """Pairs if the schema has at least two ordered columns, but not too many to
    tabulate every pair.
    """
    if 2 <= len(ordered_columns(schema)) <= MAX_ORDERED:
        return PAIRS
    return NO_PAIRS


def default_share(facts: PublicFacts, n_trees: int) -> str:
    """The default share of ε for selections, from the number of classes and of trees.

    Every leaf releases one noisy number per class, so more classes need a larger share
    of the budget for leaves.
    """
    most = 0.7 if n_trees == 1 else 0.6
    share = most - _SHARE_PER_DOUBLING * math.log2(facts.schema.n_classes / 2)
    return f"{max(share, _MIN_RULE_SHARE):.2f}".rstrip("0")


def default_depth(facts: PublicFacts, n_trees: int, *, by_level: bool) -> int:
    """The default depth, from the public size, ε, the number of classes and of trees.

    A split that a whole level shares is chosen on all rows at any depth, so trees with
    one split per level are deeper.
    """
    strength = math.log2(max(facts.size * float(facts.epsilon) / n_trees, 4.0))
    if by_level:
        by_size = 0.75 * strength - 3.2
    else:
        by_size = 0.65 * strength - 2.5
    depth = round(by_size + 0.35 * math.log2(facts.schema.n_classes / 2))
    return min(max(depth, _MIN_RULE_DEPTH), _MAX_RULE_DEPTH)


def n_trees_of_numbers(facts: PublicFacts) -> int:
    """The default number of trees for a label that is a number, from public size × ε."""
    strength = facts.size * float(facts.epsilon)
    by_strength: float = 2.0 * (strength / 1_000) ** 0.35
    trees = round(by_strength)
    return min(max(trees, 1), tree_parameters.MAX_RULE_TREES)


def depth_of_numbers(facts: PublicFacts, n_trees: int, *, bins_share: Value) -> int:
    """The default depth for a label that is a number, from the public size and the ε of
    a tree.
    """
    left = share_of_trees(n_trees)
    if quantile_bins.private_features(facts.schema):
        left *= 1 - amounts.parse(bins_share)
    for_trees = float(left * facts.epsilon)
    of_tree = facts.size * for_trees / n_trees
    strength = math.log2(max(of_tree, 4.0))
    depth = round(0.65 * strength - 2.4)
    return min(max(depth, _MIN_NUMBER_DEPTH), _MAX_RULE_DEPTH)

"""Prices ``nbrt``, noise-matched boosting of random trees: many small steps at a small
cost each, for (ε, δ).

Trees are drawn without reading rows. Each leaf releases a noisy sum of clipped
gradients and a noisy count. The proof is in docs/proofs/nbrt.md, the proof for the bins
in docs/proofs/bins.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from grovekeeper_forests import amounts
from grovekeeper_forests.algorithms.nbrt import read
from grovekeeper_forests.algorithms.nbrt.read import (
    CALIBRATED,
    FOR_CLIP,
    LOGISTIC,
    MEASURED,
    NOT_FOR_CLIP,
)
from grovekeeper_forests.algorithms.nbrt.scales import loss_of
from grovekeeper_forests.bins import number_targets, quantile_bins
from grovekeeper_forests.bins.noisy_counts import (
    LARGEST_START,
    VARIANCE,
    draw_scale,
    loss_of_unit,
    mu_squared,
    noise,
    noise_at,
)
from grovekeeper_forests.contract.algorithm import (
    About,
    Algorithm,
    Parameter,
    Parameters,
    PublicFacts,
    Value,
    share,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.kernels.boosting import LARGEST_SQUARED_LENGTH
from grovekeeper_forests.privacy.accountants import gdp, zcdp
from grovekeeper_forests.privacy.calibration import fitted
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    ExponentialMechanism,
    Part,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.trees import tree_parameters

START_SHARE = Fraction(3, 100)
"""Share of μ² (after the bins) that the class counts get."""

NUMBER_SHARE, SHALLOW_NUMBER_SHARE = Fraction(1, 20), Fraction(1, 10)
"""Share of μ² (after the bins) that the selections of the median and the spread of a
label that is a number get; the larger one where trees are shallow, because budget or
size are small, and where they have no splits.
"""

MIDDLE_SHARE = Fraction(3, 5)
"""Share of the selections that the median gets."""

MEAN_SHARE = Fraction(1, 50)
"""Share of μ² (after the bins) that the mean of a number's residuals before the trees
gets.
"""

SPLIT_SHARE = Fraction(3, 200)
"""Share of μ² (after the bins) that the selection of a first split gets."""

SIDES_SHARE = Fraction(7, 200)
"""Share of μ² (after the bins) that the class counts on the two sides of a first split
get.
"""

WORTH_A_SPLIT = 1000
"""Public size × μ from which forests of two classes start with a selected split."""

TALLY_SHARE = Fraction(1, 50)
"""Share of μ² (after the bins) that the table of margins gets, or the mean of a number's
residuals after the trees.
"""

_SHALLOW = 2

FROM_SPLIT, FROM_CLASSES = "split", "classes"

_OFFSET, _OFFSET_OF_NUMBERS = 0.9, 0.7
_MIN_RULE_DEPTH, _MAX_RULE_DEPTH = 2, 6

_N_ESTIMATORS = replace(
    tree_parameters.N_ESTIMATORS,
    description="Number of trees. The total noise does not depend on this number, so choose as many as the running "
    "time allows.",
    default=400,
)
_BINS_SHARE = share(
    "bins_share",
    "Share of the budget for the private quantile bins of numbers, if any feature needs them and a tree has a split.",
    default="0.068",
    most=Fraction(1, 2),
)
_CALIBRATION = Parameter(
    "calibration",
    "choice",
    "How the default read-out turns scores into probabilities: by a temperature that a last private release "
    "measures, for two percent of the budget; by the softmax alone; or, for two classes, by correcting the bias of "
    "clipped gradients. Where the label is a number, the last release, if measured, is the mean of the residuals.",
    default=MEASURED,
    choices=(MEASURED, NOT_FOR_CLIP, FOR_CLIP),
)
_NO_CLIP = "calibration has no effect as clip, which corrects probabilities of two classes: it acts as none."
_NO_FIRST_SPLIT = "start was set to classes: a first split needs two trees, with splits, and no profile."
_START = Parameter(
    "start",
    "choice",
    "Start of the forest: class counts, or a split that is selected privately and the class counts on its two "
    "sides. By default the split, for two classes and a size times μ of at least a thousand without a profile. A "
    "label that is a number has no first split: its start is a median, moved by a mean.",
    choices=(FROM_SPLIT, FROM_CLASSES),
    only_of_classes=True,
)


class NoiseMatchedBoosting(Algorithm):
    """Boosted random trees with gradients clipped far below their worst case."""

    slug = "nbrt"
    title = "Noise-matched boosting of random trees"
    source = "Grovekeeper; docs/proofs/nbrt.md"
    about = About(
        claimed=None,
        wrong=None,
        here=(
            "Four hundred small steps along noisy gradients on trees that are drawn without the rows, with exactly "
            "rounded normal noise and a step size that matches it."
        ),
        proof="docs/proofs/nbrt.md",
        results="docs/results/flagships.md",
    )
    accountants = (gdp.NAME, zcdp.NAME)
    read_outs = (CALIBRATED, LOGISTIC)
    predicts_numbers = True
    parameters = (
        _N_ESTIMATORS,
        tree_parameters.MAX_DEPTH,
        _BINS_SHARE,
        _CALIBRATION,
        _START,
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the depth and the start from the public size and the budget."""
        strength = facts.size * math.sqrt(mu_squared(facts.budget))
        encoding = quantile_bins.widest_encoding(facts.schema)
        is_number = facts.schema.label.is_number
        depth = default_depth(strength, _OFFSET_OF_NUMBERS if is_number else _OFFSET)
        warnings = tree_parameters.fill_depth(settled, depth, encoding, tables=False)
        has_two_classes = facts.schema.n_classes == 2
        if settled["calibration"] == FOR_CLIP and not has_two_classes:
            warnings = (*warnings, _NO_CLIP)
        is_strong = has_two_classes and strength >= WORTH_A_SPLIT
        if is_number:
            settled["start"] = FROM_CLASSES
        elif (
            facts.profile is not None
            or int(settled["max_depth"]) == 0
            or int(settled["n_estimators"]) == 1
        ):
            if settled.get("start") == FROM_SPLIT:
                warnings = (*warnings, _NO_FIRST_SPLIT)
            settled["start"] = FROM_CLASSES
        settled.setdefault("start", FROM_SPLIT if is_strong else FROM_CLASSES)
        return warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """Private bins, if needed; class counts; T sequential trees; the table of
        margins, if requested. Where the label is a number, its median, spread and mean
        take the place of class counts, and a mean that of margins.

        At depth 0 the class counts get the whole budget, because trees without splits
        give every row equal scores. At other depths a reused profile replaces bins and
        class counts, and the trees get their share of the budget. It has no start of a
        label that is a number, which is released as without a profile.
        """
        n_trees = int(parameters["n_estimators"])
        depth = int(parameters["max_depth"])
        left = mu_squared(facts.budget)
        n_classes = facts.schema.n_classes
        if depth == 0 and facts.schema.label.is_number:
            whole = left / (SHALLOW_NUMBER_SHARE + MEAN_SHARE)
            return Sequential(_start_of_number(facts, whole, SHALLOW_NUMBER_SHARE))
        if depth == 0:
            return Sequential((Part(1, _counts(left, coordinates=n_classes)),))
        before = tuple[Part, ...]()
        if facts.profile is None and quantile_bins.private_features(facts.schema):
            part = facts.part(amounts.parse(parameters["bins_share"]))
            chosen = quantile_bins.price_bins(
                facts.schema, part.epsilon, part.budget, size=facts.size
            )
            before = (Part(1, chosen),)
            left -= facts.budget.loss(chosen) / loss_of_unit(facts.budget)
        if parameters["calibration"] == MEASURED:
            for_tally = TALLY_SHARE * left
        else:
            for_tally = Fraction(0)
        after = tuple[Part, ...]()
        if for_tally:
            after = (Part(1, _tally_noise(for_tally, facts.schema)),)
        if facts.profile is not None and not facts.schema.label.is_number:
            alone = trees_alone(
                n_trees, _tree(left - for_tally, n_trees, depth, facts.schema)
            )
            return Sequential((Part(1, alone), *after))
        start = _start(parameters, facts, left)
        squares = facts.budget.loss(Sequential(start)) / loss_of_unit(facts.budget)
        n_random = n_trees - (parameters["start"] == FROM_SPLIT)
        tree = _tree(left - squares - for_tally, n_random, depth, facts.schema)
        return Sequential((*before, *start, Part(n_random, tree), *after))


def _start(
    parameters: Parameters, facts: PublicFacts, left: Fraction
) -> tuple[Part, ...]:
    """Class counts, or the selection of a split and class counts on its sides, as
    shares of the μ² after the bins.
    """
    n_classes = facts.schema.n_classes
    if facts.schema.label.is_number:
        is_shallow = int(parameters["max_depth"]) <= _SHALLOW
        share = SHALLOW_NUMBER_SHARE if is_shallow else NUMBER_SHARE
        return _start_of_number(facts, left, share)
    if parameters["start"] == FROM_CLASSES:
        return (Part(1, _counts(START_SHARE * left, coordinates=n_classes)),)
    n_candidates = len(quantile_bins.widest_encoding(facts.schema).candidates)
    sides = _counts(SIDES_SHARE * left, coordinates=N_SIDES * n_classes)
    return (
        _selection(facts, SPLIT_SHARE * left, RANGE_SENSITIVITY, n_candidates),
        Part(1, sides),
    )


def _start_of_number(
    facts: PublicFacts, left: Fraction, share: Fraction
) -> tuple[Part, ...]:
    """The selections of a median and a spread, at a share of the μ² after the bins, and
    a mean of residuals.
    """
    n_edges = len(number_targets.edges_of(facts.schema.label))
    for_middle = MIDDLE_SHARE * share * left
    for_spread = share * left - for_middle
    return (
        _selection(facts, for_middle, number_targets.MIDDLE_SENSITIVITY, n_edges),
        _selection(
            facts,
            for_spread,
            number_targets.SPREAD_SENSITIVITY,
            number_targets.N_SPREADS,
        ),
        Part(1, _mean_noise(MEAN_SHARE * left)),
    )


def _tally_noise(squared: Fraction, schema: Schema) -> RoundedGaussian:
    """Noise on the table of margins, or on the mean of a number's residuals."""
    if schema.label.is_number:
        return _mean_noise(squared)
    return _counts(squared, coordinates=2 * read.N_MARGIN_BINS)


def _mean_noise(squared: Fraction) -> RoundedGaussian:
    """Noise on a sum of residuals and their count."""
    affordable = min(int(squared * VARIANCE), LARGEST_SQUARED_LENGTH)
    return noise(affordable, Adjacency.ADD_REMOVE_ONE, coordinates=2)


def _selection(
    facts: PublicFacts, squared: Fraction, range_sensitivity: int, n_candidates: int
) -> Part:
    """One selection by the exponential mechanism at a price in μ²."""

    def selection(epsilon: Fraction) -> Event:
        return ExponentialMechanism(
            Adjacency.ADD_REMOVE_ONE,
            range_sensitivity=Fraction(range_sensitivity),
            inverse_scale=draw_scale(epsilon, range_sensitivity),
            max_candidates=n_candidates,
        )

    share = squared * loss_of_unit(facts.budget) / facts.budget.limit
    budget = facts.part(share).budget
    fitted_selection = fitted(budget, selection, start=Fraction(1, 10))
    return Part(1, fitted_selection)


def _counts(squared: Fraction, *, coordinates: int) -> RoundedGaussian:
    return noise_at(squared, Adjacency.ADD_REMOVE_ONE, coordinates=coordinates)


def _tree(
    squared: Fraction, n_trees: int, depth: int, schema: Schema
) -> RoundedGaussian:
    """Noise on one of ``n_trees`` trees that share a squared ratio of sensitivity to
    standard deviation.
    """
    n_scores = loss_of(schema.n_classes).n_scores
    per_tree = min(int(squared * VARIANCE / n_trees), LARGEST_SQUARED_LENGTH)
    return noise(
        per_tree, Adjacency.ADD_REMOVE_ONE, coordinates=(n_scores + 1) << depth
    )


def default_depth(strength: float, offset: float = _OFFSET) -> int:
    """The default depth, from public size × μ: every level doubles the number of leaves
    that share the rows.

    Args:
        strength: size × μ.
        offset: levels above the leaves whose rows and noise are alike.
    """
    levels = 0.5 * math.log2(max(strength, 1.0))
    depth = round(levels - offset)
    return min(max(depth, _MIN_RULE_DEPTH), _MAX_RULE_DEPTH)


@dataclass(frozen=True)
class PricedDraws:
    """A priced event, taken apart.

    Attributes:
        bins: the event of private bins, or ``None``.
        start: squared sensitivity of the class counts, or of the mean of a number's
            residuals, in units of 2^-48 variances; 0 if a profile is reused.
        tree: squared sensitivity of one tree; 0 if trees have no splits, so that no
            tree is released.
        tally: squared sensitivity of the table of margins; 0 if no table is released.
        split: inverse scale of the selection of a first split; 0 if no split is
            selected.
        middle: inverse scale of the selection of the median of a label that is a
            number; 0 if none is selected.
        spread: inverse scale of the selection of its spread, likewise.
    """

    bins: Event | None
    start: int
    tree: int
    tally: int = 0
    split: Fraction = Fraction(0)
    middle: Fraction = Fraction(0)
    spread: Fraction = Fraction(0)

    @classmethod
    def of(cls, event: Event) -> PricedDraws:
        """Reads the event of a plan.

        Raises:
            UnknownPrivacyEvent: not the event of boosted random trees.
        """
        rest = list(event.parts) if isinstance(event, Sequential) else []
        match rest:
            case [Part(1, RoundedGaussian() as start)]:
                return cls(None, _squared_sensitivity(start), 0)
            case [Part(1, Sequential((Part(_, RoundedGaussian() as tree),))), *after]:
                return cls(None, 0, _squared_sensitivity(tree), _tally(after))
        bins = None
        if rest and isinstance(rest[0].event, Sequential):
            bins = rest.pop(0).event
        if bins is not None:
            quantile_bins.medians_of(bins)
        selections = list[ExponentialMechanism]()
        while rest and isinstance(selected := rest[0].event, ExponentialMechanism):
            selections.append(selected)
            rest.pop(0)
        scales = _inverse_scales(selections)
        match rest:
            case [Part(1, RoundedGaussian() as start)] if scales[-1]:
                return cls(None, _squared_sensitivity(start), 0, 0, *scales)
            case [
                Part(1, RoundedGaussian() as start),
                Part(_, RoundedGaussian() as tree),
                *after,
            ]:
                squares = (
                    _squared_sensitivity(start),
                    _squared_sensitivity(tree),
                    _tally(after),
                )
                return cls(bins, *squares, *scales)
        raise UnknownPrivacyEvent("not the event of boosted random trees")


def trees_alone(n_trees: int, tree: RoundedGaussian) -> Event:
    """The event of trees on a reused profile, nested so that it differs from the event
    of class counts alone.
    """
    return Sequential((Part(n_trees, tree),))


def _tally(rest: Sequence[Part]) -> int:
    """Squared sensitivity of the table of margins after the trees; 0 if no table
    follows.
    """
    match rest:
        case []:
            return 0
        case [Part(1, RoundedGaussian() as tally)]:
            return _squared_sensitivity(tally)
    raise UnknownPrivacyEvent("not the event of boosted random trees")


def _inverse_scales(
    selections: Sequence[ExponentialMechanism],
) -> tuple[Fraction, Fraction, Fraction]:
    """Inverse scales of the selections of a first split, and of the middle and the
    spread of a number; 0 for what is not selected.
    """
    scales = [selection.inverse_scale for selection in selections]
    none = Fraction(0)
    match [int(selection.range_sensitivity) for selection in selections]:
        case []:
            return none, none, none
        case [sensitivity] if sensitivity == RANGE_SENSITIVITY:
            return scales[0], none, none
        case [number_targets.MIDDLE_SENSITIVITY, number_targets.SPREAD_SENSITIVITY]:
            return none, scales[0], scales[1]
    raise UnknownPrivacyEvent("not the selections of boosted random trees")


def _squared_sensitivity(noise: RoundedGaussian) -> int:
    square = noise.l2_sensitivity_squared
    if (
        noise.sigma_squared != VARIANCE
        or square.denominator != 1
        or square > LARGEST_START
    ):
        raise UnknownPrivacyEvent("not noise of boosted random trees")
    return int(square)


RANGE_SENSITIVITY: Final = 1
"""A row raises the utility ‖left‖₄ + ‖right‖₄, in whole rows, of every split by 0 or 1."""


N_SIDES: Final = 2

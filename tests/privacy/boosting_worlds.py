"""Exact integers of boosting on two neighbouring datasets, compared on one transcript
of released values.

A mechanism with added noise is private because, *given* all earlier releases, the exact
integers of two neighbours differ by a short vector. So production code runs on one
dataset with real noise, then on the neighbours of that dataset with the released values
of the first run, and the exact integers are compared.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.nbrt import targets
from grovekeeper_forests.algorithms.nbrt.boosted_rows import (
    LocalBoostedRows,
    LocalNumberRows,
)
from grovekeeper_forests.algorithms.nbrt.grow import boost
from grovekeeper_forests.algorithms.nbrt.price import PricedDraws
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.bins import number_targets
from grovekeeper_forests.bins.noisy_counts import VARIANCE
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    ExponentialMechanism,
    Part,
    RoundedGaussian,
    Sequential,
    quantised,
)
from tests.privacy.enumeration import Noise


def event_of(
    start: int,
    tree: int,
    *,
    n_trees: int,
    tally: int = 0,
    split: Fraction = Fraction(0),
) -> Sequential:
    """A priced event with these squared sensitivities, in units of 2^-48 variances, and
    this strength of a first split.

    The first split counts as a tree.
    """

    def noise(square: int) -> RoundedGaussian:
        return RoundedGaussian(
            Adjacency.ADD_REMOVE_ONE, Fraction(square), Fraction(VARIANCE), 1
        )

    after = (Part(1, noise(tally)),) if tally else ()
    before = (
        (
            Part(
                1,
                ExponentialMechanism(Adjacency.ADD_REMOVE_ONE, Fraction(1), split, 99),
            ),
        )
        if split
        else ()
    )
    return Sequential(
        (
            *before,
            Part(1, noise(start)),
            Part(n_trees - len(before), noise(tree)),
            *after,
        )
    )


def plan_of(
    *,
    n_trees: int,
    depth: int,
    mu_squared: float = 0.05,
    start_share: float = 0.03,
    tally_share: float = 0.0,
    split: Fraction = Fraction(0),
) -> Plan:
    """A plan with a Gaussian event, and the selection of a first split whose cost is
    added to ``mu_squared``.
    """
    start, tally = (
        int((share * mu_squared) ** 0.5 * 2**24) ** 2
        for share in (start_share, tally_share)
    )
    tree = int((1.0 - start_share - tally_share) * mu_squared / n_trees * VARIANCE)
    event = event_of(start, tree, n_trees=n_trees, tally=tally, split=split)
    parameters = {"n_estimators": n_trees, "max_depth": depth, "bins_share": "0.068"}
    return Plan("nbrt", parameters, Fraction(1), n_trees, event, ())


def number_plan_of(
    *,
    n_trees: int,
    depth: int,
    mu_squared: float = 0.05,
    mean_share: float = 0.05,
    strength: Fraction = Fraction(1, 8),
) -> Plan:
    """A plan for a label that is a number: two means of residuals around the trees, and
    before them the selections of a median and a spread, whose cost is added to
    ``mu_squared``.
    """
    mean = int(mean_share * mu_squared * VARIANCE)
    tree = int((1.0 - 2 * mean_share) * mu_squared / n_trees * VARIANCE)
    released = event_of(mean, tree, n_trees=n_trees, tally=mean)
    selections = [
        ExponentialMechanism(
            Adjacency.ADD_REMOVE_ONE,
            Fraction(sensitivity),
            quantised(strength / sensitivity),
            n_candidates,
        )
        for sensitivity, n_candidates in (
            (number_targets.MIDDLE_SENSITIVITY, 334),
            (number_targets.SPREAD_SENSITIVITY, number_targets.N_SPREADS),
        )
    ]
    before = tuple(Part(1, selection) for selection in selections)
    event = Sequential((*before, *released.parts))
    parameters = {"n_estimators": n_trees, "max_depth": depth, "bins_share": "0.068"}
    return Plan("nbrt", parameters, Fraction(1), n_trees, event, ())


@dataclass
class Transcript:
    """A ``Randomness`` that records every exact query and every release, and can replay
    the releases.
    """

    structure_seed: int
    replay: list[NDArray[np.int64]] | None = None
    chosen: list[int] | None = None
    exact: list[NDArray[np.int64]] = field(default_factory=list)
    released: list[NDArray[np.int64]] = field(default_factory=list)
    utilities: list[NDArray[np.int64]] = field(default_factory=list)
    selected: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._structure = np.random.default_rng(self.structure_seed)
        self._noise = SystemRandomness()

    def uniform(self, n: int) -> int:
        return int(self._structure.integers(n))

    def select_exponential(
        self, utilities: NDArray[np.int64], *, inverse_scale: Fraction
    ) -> int:
        self.utilities.append(utilities.copy())
        if self.chosen is None:
            self.selected.append(
                self._noise.select_exponential(utilities, inverse_scale=inverse_scale)
            )
        else:
            self.selected.append(self.chosen[len(self.selected)])
        return self.selected[-1]

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> "_Meeting":
        assert scale_bits == 24
        return _Meeting(self, shape)


class _Meeting(Noise):
    """Noise that records the exact query to which it is added."""

    def __init__(self, transcript: Transcript, shape: tuple[int, ...]) -> None:
        self._transcript, self._shape = transcript, shape

    def added_to(self, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        assert exact.shape == self._shape
        transcript = self._transcript
        transcript.exact.append(exact.copy())
        if transcript.replay is not None:
            transcript.released.append(transcript.replay[len(transcript.released)])
        else:
            transcript.released.append(
                exact + transcript._noise.rounded_gaussian(self._shape, scale_bits=24)
            )
        return transcript.released[-1]


def run(
    plan: Plan,
    encoding: Encoding,
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    transcript: Transcript,
) -> Transcript:
    """Runs production code on rows, with a transcript."""
    form = LocalNumberRows if encoding.schema.label.is_number else LocalBoostedRows
    rows = form(np.ascontiguousarray(X), y, n_classes=encoding.schema.n_classes)
    boost(plan, encoding, rows, transcript, on_tree_done=lambda: None)
    return transcript


def _times(event: Event) -> int:
    """How many tables with noise an event pays for."""
    if isinstance(event, Sequential):
        return sum(part.times * _times(part.event) for part in event.parts)
    return int(isinstance(event, RoundedGaussian))


def _check_ranges(one: Transcript, other: Transcript) -> None:
    """Asserts that a row moves the utilities of the median and of the spread against
    each other by no more than was priced.
    """
    sensitivities = (
        number_targets.MIDDLE_SENSITIVITY,
        number_targets.SPREAD_SENSITIVITY,
    )
    for mine, theirs, sensitivity in zip(
        one.utilities, other.utilities, sensitivities, strict=True
    ):
        assert int(np.ptp(mine - theirs)) <= sensitivity


def check_neighbours(plan: Plan, one: Transcript, other: Transcript) -> float:
    """Asserts the priced sensitivities on two runs of one transcript; returns the
    largest share that a tree reaches.
    """
    parts = PricedDraws.of(plan.event)
    trees = [mine - theirs for mine, theirs in zip(one.exact, other.exact, strict=True)]
    assert len(trees) == _times(plan.event)
    if parts.middle:
        for mean, priced in ((trees.pop(0), parts.start), (trees.pop(), parts.tally)):
            assert abs(int(mean[1])) == targets.mean_scales(priced).count
            assert int(np.square(mean.astype(object)).sum()) <= priced
        _check_ranges(one, other)
    elif parts.start:
        assert np.square(trees.pop(0)).sum() == parts.start
    if parts.tally and not parts.middle:
        tally = trees.pop()
        assert np.count_nonzero(tally) <= 1
        assert np.square(tally).sum() in (0, parts.tally)
    if parts.split:
        for mine, theirs in zip(one.utilities, other.utilities, strict=True):
            moved = mine - theirs  # the row raises every split's utility by 0 or 1
            assert int(moved.min()) >= 0
            assert int(moved.max()) <= 1
    # a leaf has one gradient per class, or one for two classes, and a count
    n_classes = 0 if parts.middle else max(trees[0].shape[-1] - 1, 2)
    count = Scales.of(parts.tree, n_trees=plan.n_trees, n_classes=n_classes).count
    largest = 0
    for tree in (integers.astype(object) for integers in trees):
        assert np.count_nonzero(tree.any(axis=1)) == 1  # one leaf
        assert np.abs(tree[:, -1]).sum() == count
        square = int(np.square(tree).sum())
        assert square <= parts.tree
        largest = max(largest, square)
    return largest / parts.tree

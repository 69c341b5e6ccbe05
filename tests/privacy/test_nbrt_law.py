"""T1 for noise-matched boosting: the exact output law of production code on tiny data,
against the curve of its price.

Every noisy coordinate is folded to one bit, whether it is above a public threshold,
with the exact probability of the rounded normal law; the released value is a number far
on that side. Folding is post-processing, so for neighbours P, Q and every ε the
hockey-stick divergence Σ max(P − e^ε Q, 0) must stay below δ(ε, μ) of the event's μ.
"""

import math
from collections.abc import Hashable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.nbrt import boosted_rows as rows_module
from grovekeeper_forests.algorithms.nbrt import grow as boost_module
from grovekeeper_forests.algorithms.nbrt import read
from grovekeeper_forests.algorithms.nbrt.boosted_rows import LocalBoostedRows
from grovekeeper_forests.algorithms.nbrt.grow import boost
from grovekeeper_forests.algorithms.nbrt.price import PricedDraws
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.privacy.accountants import gdp
from grovekeeper_forests.privacy.events import Adjacency, Sequential
from tests.privacy.boosting_worlds import plan_of
from tests.privacy.enumeration import (
    EnumeratingRandomness,
    Noise,
    aligned,
    divergence,
    output_law,
)
from tests.support.schemas import schema_of

FAR = 2**27
EPSILONS = (0.0, 0.1, 0.3, 0.6, 1.0, 2.0)
RECORDS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""(code, class)."""


def encoding_of(n_columns: int) -> Encoding:
    features = [
        {"name": f"size {i}", "type": "integer", "lower": 0, "upper": 1}
        for i in range(n_columns)
    ]
    return Encoding.of(schema_of(*features, classes=["no", "yes"]), 2)


ONE_SPLIT, TWO_COLUMNS = encoding_of(1), encoding_of(2)


class FoldedNoise:
    """A ``Randomness`` over a walk whose noisy integers are folded at public
    thresholds.
    """

    def __init__(
        self,
        randomness: EnumeratingRandomness,
        *,
        count: int,
        n_random: int,
        silent_counts: bool,
        without_trees: bool = False,
    ) -> None:
        self._randomness, self._count, self._silent_counts = (
            randomness,
            count,
            silent_counts,
        )
        self._n_random, self._without_trees = n_random, without_trees
        self._n_drawn = 0
        self.released = list[bytes]()

    def uniform(self, n: int) -> int:
        return self._randomness.uniform(n)

    def select_exponential(
        self, utilities: NDArray[np.int64], *, inverse_scale: Fraction
    ) -> int:
        return self._randomness.select_exponential(
            utilities, inverse_scale=inverse_scale
        )

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> "_Folded":
        """Noise of the start, then of the random trees, then of the margins if they are
        released.
        """
        assert scale_bits == 24
        is_tree = 0 < self._n_drawn <= self._n_random
        self._n_drawn += 1
        return _Folded(self, shape, is_tree=is_tree)


class _Folded(Noise):
    def __init__(
        self, noise: FoldedNoise, shape: tuple[int, ...], *, is_tree: bool
    ) -> None:
        self._noise, self._shape, self._is_tree = noise, shape, is_tree

    def added_to(self, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        assert exact.shape == self._shape
        is_tree = self._is_tree
        if is_tree and self._noise._without_trees:
            return np.zeros_like(exact)
        result = np.empty_like(exact)
        for index, query in np.ndenumerate(exact):
            is_count = is_tree and index[-1] == self._shape[-1] - 1
            threshold = self._noise._count // 2 if is_count else 0 if is_tree else 2**21
            if is_count and self._noise._silent_counts:
                above = query > threshold
            else:
                chance = 0.5 * math.erfc(
                    (threshold - 0.5 - int(query)) / 2**24 / math.sqrt(2.0)
                )
                above = (
                    self._noise._randomness._walk.branch([1.0 - chance, chance]) == 1
                )
            result[index] = threshold + (FAR if above else -FAR)
        self._noise.released.append(result.tobytes())
        return result


def law_of(
    plan: Plan, dataset: tuple[tuple[int, int], ...], *, silent_counts: bool = False
) -> dict[Hashable, float]:
    """The exact law of all releases, folded.

    With a first split the data have a second column of zeros, and the releases of the
    trees are omitted.
    """
    parts = PricedDraws.of(plan.event)
    encoding = TWO_COLUMNS if parts.split else ONE_SPLIT
    X = np.array(
        [[code, 0][: len(encoding.n_codes)] for code, _ in dataset], dtype=np.uint8
    )
    X = X.reshape(-1, len(encoding.n_codes))
    y = np.array([label for _, label in dataset], dtype=np.int32)
    priced = parts.tree
    count = Scales.of(priced, n_trees=plan.n_trees, n_classes=2).count

    def run(randomness: EnumeratingRandomness) -> Hashable:
        rows = LocalBoostedRows(X, y, n_classes=2)
        noise = FoldedNoise(
            randomness,
            count=count,
            n_random=plan.n_trees - (parts.split > 0),
            silent_counts=silent_counts,
            without_trees=encoding is TWO_COLUMNS,
        )
        made = boost(plan, encoding, rows, noise, on_tree_done=lambda: None).arrays()
        return (
            *noise.released,
            *(array.tobytes() for _, array in sorted(made.items())),
        )

    return output_law(run)


def pairs(
    n_rows: int,
) -> Iterator[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]]:
    for base in ((), *((record,) for record in RECORDS))[: 1 + 4 * (n_rows > 1)]:
        for added in RECORDS:
            yield base, (*base, added)


def worst_excess(
    plan: Plan, *, n_rows: int, silent_counts: bool = False
) -> tuple[float, float]:
    """The largest divergence over its limit, and the largest share of the limit at ε =
    0.
    """
    released = (
        Sequential(plan.event.parts[:2])
        if PricedDraws.of(plan.event).split
        else plan.event
    )
    mu_squared = gdp.loss(released, adjacency=Adjacency.ADD_REMOVE_ONE)
    limits = {
        epsilon: float(gdp.delta_of(Fraction(epsilon), mu_squared).upper())
        for epsilon in EPSILONS
    }
    excess, share = -math.inf, 0.0
    known = {}
    for datasets in pairs(n_rows):
        for dataset in datasets:
            if dataset not in known:
                known[dataset] = law_of(plan, dataset, silent_counts=silent_counts)
        less, more = aligned(*(known[dataset] for dataset in datasets))
        for one, other in ((less, more), (more, less)):
            excess = max(
                excess,
                *(
                    divergence(one, other, epsilon) - limits[epsilon]
                    for epsilon in EPSILONS
                ),
            )
            share = max(share, divergence(one, other, 0.0) / limits[0.0])
    return excess, share


@pytest.mark.parametrize("mu_squared", [0.25, 0.02])
def test_one_tree_loses_no_more_than_its_price(mu_squared: float) -> None:
    excess, share = worst_excess(
        plan_of(n_trees=1, depth=1, mu_squared=mu_squared), n_rows=2
    )
    assert excess <= 1e-9
    assert share > 0.5


def test_two_adaptive_trees_lose_no_more_than_their_price() -> None:
    """The gradients that the second tree sums depend on the release of the first tree."""
    excess, share = worst_excess(plan_of(n_trees=2, depth=1, mu_squared=0.5), n_rows=1)
    assert excess <= 1e-9
    assert share > 0.4


FROM_SPLIT = plan_of(
    n_trees=2, depth=1, mu_squared=0.5, start_share=0.4, split=Fraction(1, 2)
)


def test_a_first_split_and_its_sides_lose_no_more_than_their_price() -> None:
    excess, share = worst_excess(FROM_SPLIT, n_rows=2)
    assert excess <= 1e-9
    assert share > 0.4


def test_a_first_split_that_is_drawn_too_sharply_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = boost_module.boosted_rows.first_split_utilities
    monkeypatch.setattr(
        boost_module.boosted_rows,
        "first_split_utilities",
        lambda *own: 6 * honest(*own),
    )
    excess, _ = worst_excess(FROM_SPLIT, n_rows=2)
    assert excess > 0.01


def test_sides_that_count_five_times_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LocalBoostedRows.leaf_counts
    monkeypatch.setattr(
        LocalBoostedRows, "leaf_counts", lambda rows, tree: 5 * honest(rows, tree)
    )
    excess, _ = worst_excess(FROM_SPLIT, n_rows=1)
    assert excess > 0.01


@pytest.fixture
def two_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of margins that is small enough to be enumerated."""
    monkeypatch.setattr(read, "_MARGINS", (0.1,))
    monkeypatch.setattr(read, "MARGIN_EDGES", (6553,))
    monkeypatch.setattr(read, "N_MARGIN_BINS", 2)


@pytest.mark.usefixtures("two_margins")
def test_a_tree_and_the_margins_lose_no_more_than_their_price() -> None:
    excess, share = worst_excess(
        plan_of(n_trees=1, depth=1, mu_squared=0.4, tally_share=0.5), n_rows=1
    )
    assert excess <= 1e-9
    assert share > 0.4


@pytest.mark.usefixtures("two_margins")
def test_margins_that_count_thrice_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = read.tally_margins
    monkeypatch.setattr(read, "tally_margins", lambda scores, y: 3 * honest(scores, y))
    excess, _ = worst_excess(
        plan_of(n_trees=1, depth=1, mu_squared=0.4, tally_share=0.5), n_rows=1
    )
    assert excess > 0.01


def test_every_release_can_come_from_every_dataset() -> None:
    """T2: supports, and so shapes, do not depend on rows."""
    plan = plan_of(n_trees=1, depth=1, mu_squared=0.25)
    support = law_of(plan, ()).keys()
    for _, dataset in pairs(2):
        assert law_of(plan, dataset).keys() == support


# --- flaws must be detected -------------------------------------------------------------------------------------

_honest = rows_module.kernels.gradients


def _five_times_too_long(
    scores: NDArray[np.int64], y: NDArray[np.int32], scales: Scales
) -> NDArray[np.int32]:
    return 5 * _honest(scores, y, scales)


def test_a_gradient_without_its_clip_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module.kernels, "gradients", _five_times_too_long)
    excess, _ = worst_excess(plan_of(n_trees=1, depth=1, mu_squared=0.25), n_rows=1)
    assert excess > 0.05


def test_counts_without_noise_are_seen() -> None:
    excess, share = worst_excess(
        plan_of(n_trees=1, depth=1, mu_squared=0.25), n_rows=1, silent_counts=True
    )
    assert excess > 0.1
    assert share > 1

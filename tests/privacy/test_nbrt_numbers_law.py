"""T1 for noise-matched boosting of a number: the exact output law of production code on
tiny data, against the curves of its price in μ² and in ρ.

There are two candidates of the median and two of the spread, whose laws are exact.
Every noisy coordinate is folded to one bit, as in ``test_nbrt_law.py``.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.nbrt import targets
from grovekeeper_forests.algorithms.nbrt.boosted_rows import LocalNumberRows
from grovekeeper_forests.algorithms.nbrt.grow import boost
from grovekeeper_forests.algorithms.nbrt.price import PricedDraws
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.bins import number_targets
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.schema import TARGET_STEPS
from grovekeeper_forests.kernels import boosting as kernels
from grovekeeper_forests.privacy.accountants import gdp, zcdp
from grovekeeper_forests.privacy.events import Adjacency, Sequential
from tests.privacy.boosting_worlds import number_plan_of
from tests.privacy.enumeration import (
    EnumeratingRandomness,
    Noise,
    aligned,
    divergence,
    output_law,
    renyi,
)
from tests.privacy.few_spreads import keep_two_spreads
from tests.support.schemas import number_schema

FAR = 2**27
EPSILONS = (0.0, 0.1, 0.3, 0.6, 1.0, 2.0, 3.0)
ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0)
RECORDS = tuple(
    (code, y) for code in (0, 1) for y in (0, TARGET_STEPS // 3, TARGET_STEPS)
)
"""(code of the feature, code of the number)."""

Dataset = tuple[tuple[int, int], ...]
Law = dict[Hashable, float]

ENCODING = Encoding.of(
    number_schema(
        {"name": "size", "type": "integer", "lower": 0, "upper": 1}, lower=0, upper=60
    ),
    2,
)
PLAN = number_plan_of(
    n_trees=1,
    depth=1,
    mu_squared=0.3,
    mean_share=0.25,
    strength=Fraction(
        1,
        2,
    ),
)
WITHOUT_TREES = replace(
    PLAN,
    event=Sequential(PLAN.event.parts[:3]),
    parameters={**PLAN.parameters, "max_depth": 0},
)


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two edges and two spreads, so that selections can be enumerated."""
    edges = np.array(
        [TARGET_STEPS // 4, TARGET_STEPS // 2],
        dtype=np.int32,
    )
    keep_two_spreads(monkeypatch, edges)


class _FoldedNoise:
    """A ``Randomness`` over a walk whose noisy integers are folded: sums at 0, and counts
    at half of what a row adds.
    """

    def __init__(self, randomness: EnumeratingRandomness, counts: list[int]) -> None:
        self.uniform = randomness.uniform
        self.select_exponential = randomness.select_exponential
        self._walk, self._counts = randomness._walk, iter(counts)
        self.released = list[bytes]()

    def rounded_gaussian(
        self,
        shape: tuple[int, ...],
        *,
        scale_bits: int,
    ) -> "_Folded":
        assert scale_bits == 24
        return _Folded(self, shape, next(self._counts))


class _Folded(Noise):
    def __init__(
        self,
        noise: _FoldedNoise,
        shape: tuple[int, ...],
        count: int,
    ) -> None:
        self._noise, self._shape, self._count = noise, shape, count

    def added_to(
        self,
        exact: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        assert exact.shape == self._shape
        result = np.empty_like(exact)
        for index, query in np.ndenumerate(exact):
            is_count = index[-1] == self._shape[-1] - 1
            threshold = self._count // 2 if is_count else 0
            distance = (threshold - 0.5 - int(query)) / 2**24 / math.sqrt(2.0)
            chance = 0.5 * math.erfc(distance)
            is_above = self._noise._walk.branch([1.0 - chance, chance]) == 1
            result[index] = threshold + (FAR if is_above else -FAR)
        self._noise.released.append(result.tobytes())
        return result


def law_of(plan: Plan, dataset: Dataset) -> Law:
    """The exact law of all releases, folded."""
    X = np.array([[code] for code, _ in dataset], dtype=np.uint8).reshape(
        -1,
        1,
    )
    y = np.array(
        [label for _, label in dataset],
        dtype=np.int32,
    )
    parts = PricedDraws.of(plan.event)
    of_mean = targets.mean_scales(parts.start).count
    counts = [of_mean]
    if parts.tree:
        of_tree = Scales.of(parts.tree, n_trees=1, n_classes=0).count
        counts += [of_tree, of_mean]

    def run(randomness: EnumeratingRandomness) -> Hashable:
        noise = _FoldedNoise(randomness, counts)
        rows = LocalNumberRows(X, y, n_classes=0)
        made = boost(plan, ENCODING, rows, noise, on_tree_done=lambda: None).arrays()
        arrays = [array.tobytes() for _, array in sorted(made.items())]
        return (*noise.released, *arrays)

    return output_law(run)


def pairs(*bases: Dataset) -> Iterator[tuple[Dataset, Dataset]]:
    """Neighbours: no row, or one of some bases, and one row more."""
    for base in ((), *bases):
        for record in RECORDS:
            yield base, (*base, record)


def few_pairs() -> Iterator[tuple[Dataset, Dataset]]:
    """Neighbours of no row and of one, whose divergences are large."""
    low, middle, high = RECORDS[:3]
    for base in ((), (middle,)):
        for record in (low, high):
            yield base, (*base, record)


def worst_excess(
    neighbours: Iterator[tuple[Dataset, Dataset]],
    *,
    squared: int = 1,
    plan: Plan = PLAN,
) -> tuple[float, float]:
    """The largest divergence over its limit in μ² or in ρ, and the largest share of the
    limit at ε = 0.

    Args:
        neighbours: pairs of datasets.
        squared: square of the number of rows in which they differ.
        plan: whose price is the limit.
    """
    mu_squared = squared * gdp.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE)
    rho = squared * zcdp.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE)
    limits = {
        epsilon: float(gdp.delta_of(Fraction(epsilon), mu_squared).upper())
        for epsilon in EPSILONS
    }
    excess, share = -math.inf, 0.0
    known = dict[Dataset, Law]()
    for datasets in neighbours:
        for dataset in datasets:
            if dataset not in known:
                known[dataset] = law_of(plan, dataset)
        less, more = aligned(*(known[dataset] for dataset in datasets))
        for one, other in ((less, more), (more, less)):
            share = max(share, divergence(one, other, 0.0) / limits[0.0])
            over = [
                divergence(one, other, epsilon) - limit
                for epsilon, limit in limits.items()
            ]
            in_rho = [renyi(one, other, order) - order * float(rho) for order in ORDERS]
            excess = max(excess, *over, *in_rho)
    return excess, share


def test_selections_means_and_a_tree_lose_no_more_than_their_price() -> None:
    excess, share = worst_excess(pairs((RECORDS[4],)))
    assert excess <= 1e-9
    assert share > 0.5


def test_a_unit_of_two_rows_and_a_replaced_row_lose_what_two_rows_cost() -> None:
    two = [((), (one, other)) for one in RECORDS[::2] for other in RECORDS[1::4]]
    replaced = [((one,), (other,)) for one in RECORDS[::2] for other in RECORDS[1::4]]
    excess, share = worst_excess(
        iter([*two, *replaced]),
        squared=4,
    )
    assert excess <= 1e-9
    assert share > 0.4


def test_a_forest_without_splits_loses_no_more_than_its_price() -> None:
    excess, share = worst_excess(few_pairs(), plan=WITHOUT_TREES)
    assert excess <= 1e-9
    assert share > 0.4


def test_every_release_can_come_from_every_dataset() -> None:
    """T2: supports, and so shapes, do not depend on rows."""
    support = law_of(PLAN, ()).keys()
    for dataset in ((RECORDS[0],), (RECORDS[2], RECORDS[5])):
        assert law_of(PLAN, dataset).keys() == support


# --- flaws must be detected -------------------------------------------------------------------------------------


def _longer(honest: Callable[..., NDArray[np.int64]]) -> Callable[..., object]:
    """What a row adds, times five."""
    return lambda *given: 5 * honest(*given)


def _of_more_rows(honest: Callable[..., NDArray[np.int64]]) -> Callable[..., object]:
    """Utilities of counts in another unit than their price has."""
    return lambda counts, *more: honest(8 * counts, *more)


@pytest.mark.parametrize(
    ("owner", "name", "flaw"),
    [
        (kernels, "gradients_of_numbers", _longer),
        (LocalNumberRows, "residual_sums", _longer),
        (number_targets, "middle_utilities", _of_more_rows),
        (number_targets, "spread_utilities", _of_more_rows),
    ],
)
def test_a_contribution_of_another_size_is_seen(
    owner: object,
    name: str,
    flaw: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, flaw(getattr(owner, name)))
    excess, _ = worst_excess(few_pairs())
    assert excess > 0.1

"""T1 for whole jobs of forests that predict a number: the exact law of ``grow`` on every
account, for each kind of neighbours that an account protects.

There are two candidates of the median and two of the spread, whose laws are exact. Noisy
numbers are folded (post-processing, lemma L7): each number of a leaf of ``rpf`` to
whether it is above 0, or, where a job has many leaves, both together; a sum of ``nbrt``
to its sign, and its count to a constant (``test_nbrt_numbers_law.py`` folds counts, too).
"""

import math
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.rpf.price import NumberScales
from grovekeeper_forests.bins import number_targets
from grovekeeper_forests.data.schema import TARGET_STEPS, Schema
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest
from tests.privacy.enumeration import (
    TOLERANCE,
    EnumeratingRandomness,
    Noise,
    loss,
    output_law,
)
from tests.privacy.few_spreads import keep_two_spreads
from tests.privacy.test_delta_accounts import DELTA, share_of_curve
from tests.privacy.test_rpf_exact_loss import SIXTEEN_ROWS, Rows, rows_of
from tests.support.schemas import number_schema

Law = Mapping[Hashable, float]

FAR = 2**27

ACCOUNTS = ("pure", "zcdp", "gdp")
EPSILONS = {"pure": "6", "zcdp": "9", "gdp": "9"}
DELTA_ACCOUNTS = ACCOUNTS[1:]

EDGES = (TARGET_STEPS // 4, TARGET_STEPS // 2)
DISTANCES = (TARGET_STEPS >> 4, TARGET_STEPS >> 3, TARGET_STEPS >> 1)
"""Half of the smaller candidate, and the candidates: spreads of 3/16 and 3/4 of the
range.
"""

LOW, HIGH = ((0,), 0), ((0,), TARGET_STEPS)
AT_LEAF_CLIP = ((0,), TARGET_STEPS * 31 // 64)
"""Residual 5/4 from the lower edge in the smaller spread."""
AT_MEAN_CLIP = ((1,), TARGET_STEPS * 13 // 16)
"""Residual 3, likewise."""

PAIRS: Mapping[str, tuple[tuple[Rows, Rows], ...]] = {
    "row": (
        *(((), (record,)) for record in (LOW, HIGH, AT_LEAF_CLIP, AT_MEAN_CLIP)),
        *(((HIGH,), (HIGH, record)) for record in (LOW, HIGH, AT_MEAN_CLIP)),
        ((LOW,), (LOW, AT_MEAN_CLIP)),  # one split keeps the two apart
    ),
    "label": (((LOW,), (HIGH,)), ((AT_LEAF_CLIP,), (LOW,))),
    "unit": tuple(((), (HIGH, record)) for record in (LOW, HIGH, AT_MEAN_CLIP)),
}
"""Neighbours: a row more, a number in place of another, a unit of two rows."""

STEPS = {"row": 1, "label": 2, "unit": 2}
"""How many rows more or fewer lead from one to the other."""


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, distances = (np.array(codes, dtype=np.int32) for codes in (EDGES, DISTANCES))
    keep_two_spreads(monkeypatch, edges)
    monkeypatch.setattr(number_targets, "distances", lambda: distances)


class Folding:
    """A ``Randomness`` over a walk, whose noisy numbers become 0 or sixteen rows."""

    def __init__(
        self, inner: EnumeratingRandomness, *, mean: Fraction, is_joint: bool
    ) -> None:
        self._inner, self._mean, self._is_joint = inner, mean, is_joint
        self.released = list[bytes]()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> "_Folded":
        is_joint = self._is_joint or inverse_scale == self._mean
        scale = float(inverse_scale)
        return _Folded(self, shape, scale, is_joint=is_joint)

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> "_Signs":
        return _Signs(self, shape, 2**scale_bits)

    def is_above(self, chance: float) -> bool:
        """A branch of the walk; ``chance`` is that of no."""
        return self._inner._walk.branch([chance, 1.0 - chance]) == 1


class _Signs(Noise):
    """Normal noise; of every sum the sign is released, of every count a constant."""

    def __init__(self, walk: Folding, shape: tuple[int, ...], deviation: int) -> None:
        self._walk, self._shape, self._deviation = walk, shape, deviation

    def added_to(self, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        assert exact.shape == self._shape
        released = np.full_like(exact, FAR)
        for index, total in np.ndenumerate(exact[..., 0]):
            distance = (int(total) - 0.5) / self._deviation
            chance = 0.5 * math.erfc(distance / math.sqrt(2.0))
            is_above = self._walk.is_above(chance)
            released[(*index, 0)] = FAR if is_above else -FAR
        self._walk.released.append(released.tobytes())
        return released


class _Folded(Noise):
    """Discrete Laplace noise; of every number it is released whether it is above 0, or
    of every leaf whether one of its numbers is.
    """

    def __init__(
        self,
        walk: Folding,
        shape: tuple[int, ...],
        inverse_scale: float,
        *,
        is_joint: bool,
    ) -> None:
        self._walk, self._shape, self._is_joint = walk, shape, is_joint
        self._inverse_scale = inverse_scale

    def added_to(self, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        assert exact.shape == self._shape
        released = np.zeros_like(exact)
        for of_leaf, places in zip(exact.tolist(), released, strict=True):
            chances = [self._of_at_most_0(number) for number in of_leaf]
            if self._is_joint:
                # as if residuals were positive
                places[-1] = self._walk.is_above(math.prod(chances))
            else:
                places[:] = [self._walk.is_above(chance) for chance in chances]
        self._walk.released.append(released.tobytes())
        return SIXTEEN_ROWS * released

    def _of_at_most_0(self, number: int) -> float:
        """The chance that a number with discrete Laplace noise is at most 0."""
        q = math.exp(-self._inverse_scale)
        if number <= 0:
            return 1.0 - q ** (1 - number) / (1.0 + q)
        return q**number / (1.0 + q)


class Job:
    """A plan of whole jobs and their exact laws."""

    def __init__(
        self,
        slug: str,
        schema: Schema,
        accountant: str,
        *,
        is_joint: bool = True,
        **parameters: object,
    ) -> None:
        self._schema, self._is_joint = schema, is_joint
        self.accountant = accountant
        delta = None if accountant == "pure" else DELTA
        terms = Terms(Fraction(EPSILONS[accountant]), accountant, delta)
        body = {"n_estimators": 1, **parameters}
        self.plan = forest_price.plan(PlanRequest(slug, body, terms, 1_000), schema)
        self._mean = Fraction(0)
        if slug == "rpf":
            self._mean = NumberScales.of(self.plan.event).mean
        self._laws = dict[Rows, Law]()

    def law(self, records: Rows) -> Law:
        """The exact law of the folded forest."""
        if records not in self._laws:
            rows = rows_of(records, 1)
            form = {"mean": self._mean, "is_joint": self._is_joint}

            def run(randomness: EnumeratingRandomness) -> Hashable:
                folding: Any = Folding(randomness, **form)  # type: ignore[arg-type]
                forest = grow(
                    self.plan, self._schema, rows, folding, on_tree_done=lambda: None
                )
                arrays = [
                    (name, array.shape, array.tobytes())
                    for name, array in sorted(forest.arrays.items())
                ]
                return (*folding.released, *arrays)

            self._laws[records] = output_law(run)
        return self._laws[records]

    def charge(self, kind: str) -> Fraction:
        """What the account charges for the event, for a kind of neighbours."""
        unit = accountants.by_name(self.accountant)
        one_row = unit.loss(self.plan.event, adjacency=Adjacency.ADD_REMOVE_ONE)
        assert one_row <= self.plan.terms.budget().limit
        return unit.group(STEPS[kind]) * one_row

    def share(self, kind: str, *, of_charge: float = 1.0) -> float:
        """The largest share of the charge that any pair of a kind reaches."""
        laws = [(self.law(one), self.law(other)) for one, other in PAIRS[kind]]
        charge = self.charge(kind) * Fraction(of_charge)
        if self.accountant == "pure":
            return max(loss(*pair) for pair in laws) / float(charge)
        return share_of_curve(laws, charge, accountant=self.accountant)


def sizes(n_values: int, kind: str = "integer") -> Schema:
    feature = {"name": "size", "type": kind, "lower": 0, "upper": n_values - 1}
    return number_schema(feature, lower=0, upper=60)


LEAVES_FIRST = {"structure_share": "0.1"}
"""For a root with one split, which has no choice."""


def two_leaves(accountant: str) -> Job:
    shape = {"max_depth": 1, **LEAVES_FIRST}
    return Job("rpf", sizes(2), accountant, is_joint=False, **shape)


def stops_by_level(accountant: str) -> Job:
    """Two levels; the whole tree may stop after the first."""
    return Job("rpf", sizes(3), accountant, max_depth=2, at_once=1)


def stops_by_node(accountant: str) -> Job:
    return Job("rpf", sizes(3), accountant, max_depth=2, splits="node")


def two_levels_at_once(accountant: str) -> Job:
    return Job("rpf", sizes(4), accountant, max_depth=2, at_once=2)


def two_trees(accountant: str) -> Job:
    """The second tree sees the residuals that the first one leaves."""
    shape = {"max_depth": 1, "n_estimators": 2, **LEAVES_FIRST}
    return Job("rpf", sizes(2), accountant, **shape)


def boosted_start(accountant: str) -> Job:
    """No splits: the two selections and a mean get everything."""
    return Job("nbrt", sizes(2), accountant, max_depth=0)


def boosted_trees(accountant: str) -> Job:
    """Two trees between two means."""
    return Job("nbrt", sizes(2), accountant, max_depth=1, n_estimators=2)


JOBS = (two_leaves, stops_by_level, stops_by_node, two_levels_at_once, two_trees)
BOOSTED = (boosted_start, boosted_trees)


@cache
def job(case: Callable[[str], Job], accountant: str) -> Job:
    return case(accountant)


@pytest.mark.covering("case", "accountant")
@pytest.mark.parametrize(
    ("case", "accountant"),
    [
        *((case, accountant) for case in JOBS for accountant in ACCOUNTS),
        *((case, accountant) for case in BOOSTED for accountant in DELTA_ACCOUNTS),
    ],
)
def test_a_whole_job_loses_no_more_than_its_charge(
    case: Callable[[str], Job], accountant: str
) -> None:
    """A row, a number in place of another, and a unit of two rows; and every forest can
    come from every dataset.
    """
    made = job(case, accountant)
    shares = {kind: made.share(kind) for kind in PAIRS}
    assert max(shares.values()) <= 1 + TOLERANCE
    assert shares["row"] > {"pure": 0.7, "zcdp": 0.1, "gdp": 0.2}[accountant]
    support = made.law(()).keys()
    assert len(support) >= 7
    assert all(law.keys() == support for law in made._laws.values())


@pytest.mark.parametrize(
    ("case", "accountant", "kind"),
    [
        (two_leaves, "pure", "row"),
        (two_leaves, "pure", "unit"),
        (boosted_trees, "gdp", "row"),
        (boosted_trees, "gdp", "unit"),
    ],
)
def test_a_quarter_of_the_charge_would_be_too_little(
    case: Callable[[str], Job], accountant: str, kind: str
) -> None:
    """The control: else too little noise could go unseen."""
    assert job(case, accountant).share(kind, of_charge=0.25) > 1

"""The reweighted forest for a label that is a number: the exact law of ``grow`` on tiny
data, the effect of one record on production sums, rows on their own, and flaws that
break them.
"""

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.rpf import grow as grow_module
from grovekeeper_forests.algorithms.rpf import reweighted_rows
from grovekeeper_forests.algorithms.rpf.grow import split_utilities
from grovekeeper_forests.algorithms.rpf.price import by_sides
from grovekeeper_forests.algorithms.rpf.reweighted_rows import (
    LocalResidualRows,
    ReweightedRows,
)
from grovekeeper_forests.bins import number_targets
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.coded_rows import RowParts, TrainingRows
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import TARGET_STEPS
from grovekeeper_forests.kernels.boosting import UNIT
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, Sequential
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import code_request, grow
from grovekeeper_forests.releases.forest.price import PlanRequest
from tests.privacy.enumeration import TOLERANCE
from tests.privacy.few_spreads import keep_two_spreads
from tests.privacy.noiseless import coded
from tests.privacy.recorder import Draw, Recorder, check
from tests.privacy.test_delta_accounts import DELTA, share_of_curve
from tests.privacy.test_recorded_draws import Machines, is_equal
from tests.privacy.test_rpf_exact_loss import EMPTY, SIXTEEN_ROWS, Case, Rows
from tests.support.forest_fixtures import DivideRows
from tests.support.schemas import number_schema

CODES = (0, TARGET_STEPS // 3, TARGET_STEPS)
"""The numbers of the records of tiny datasets."""


class OfNumbers(Case):
    """A case whose label is a number."""

    def __init__(
        self,
        n_values: int,
        epsilon: str,
        *,
        n_rows: int,
        accountant: str = "pure",
        codes: tuple[int, ...] = CODES,
        **parameters: object,
    ) -> None:
        shape = {
            name: parameters.pop(name)
            for name in ("window", "units")
            if name in parameters
        }
        self._codes = codes
        super().__init__(n_values, epsilon, n_rows=n_rows, **shape)  # type: ignore[arg-type]
        self._schema = number_schema(
            {"name": "size", "type": "integer", "lower": 0, "upper": n_values - 1},
            lower=0,
            upper=60,
        )
        delta = None if accountant == "pure" else DELTA
        terms = Terms(Fraction(epsilon), accountant, delta)
        body = {"n_estimators": 1, **parameters}
        request = PlanRequest("rpf", body, terms, 1_000)
        self.plan = forest_price.plan(request, self._schema)

    def datasets(self) -> Iterator[Rows]:
        values = ((value,) for value in range(self._n_values))
        records = list(itertools.product(values, self._codes))
        for size in range(self.n_rows + 1):
            yield from itertools.combinations_with_replacement(records, size)


class StartAlone(OfNumbers):
    """A case whose noisy weights are ignored, so that the two selections remain."""

    @property
    def claim(self) -> float:
        start = Sequential(self.plan.event.parts[:2])  # type: ignore[union-attr]
        return float(pure.loss(start, adjacency=Adjacency.ADD_REMOVE_ONE))


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two edges and two spreads, so that selections can be enumerated."""
    edges = np.array(
        [TARGET_STEPS // 4, TARGET_STEPS // 2],
        dtype=np.int32,
    )
    keep_two_spreads(monkeypatch, edges)


def start_alone() -> Case:
    return StartAlone(
        2,
        "8",
        n_rows=2,
        window=(0, 0),
        max_depth=0,
    )


def one_leaf() -> Case:
    return OfNumbers(2, "4", n_rows=1, max_depth=0)


def choices(n_rows: int, depth: int) -> Case:
    """Splits of three values, with a stop at level 1; leaves are ignored."""
    return OfNumbers(
        3,
        "6",
        n_rows=n_rows,
        codes=(0, TARGET_STEPS),
        window=(0, 0),
        max_depth=depth,
        at_once=1,
        structure_share="0.99",
    )


def one_split() -> Case:
    return choices(2, 1)


def stops() -> Case:
    return choices(2, 2)


def two_trees() -> Case:
    """The second tree and the mean see the residuals of the first tree."""
    return OfNumbers(
        2,
        "12",
        n_rows=1,
        units=SIXTEEN_ROWS,
        n_estimators=2,
        max_depth=0,
    )


CASES = [
    pytest.param(start_alone, 0.5, id="start-alone"),
    pytest.param(one_leaf, 0.8, id="one-leaf"),
    pytest.param(one_split, 0.3, id="one-split"),
    pytest.param(
        stops,
        0.3,
        id="stops",
        marks=pytest.mark.long,
    ),
    pytest.param(two_trees, 0.5, id="two-trees"),
]


@pytest.mark.usefixtures("few_candidates")
@pytest.mark.parametrize(("case", "reached"), CASES)
def test_a_forest_of_numbers_loses_at_most_what_was_charged(
    case: Callable[[], Case], reached: float
) -> None:
    result = case()
    worst = result.worst()
    assert result.claim <= result.plan.terms.epsilon
    assert reached * result.claim <= worst <= result.claim + TOLERANCE
    support = result.law(EMPTY).keys()
    assert len(support) >= 4
    assert all(result.law(rows).keys() == support for rows in result.datasets())


@pytest.mark.usefixtures("few_candidates")
@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_a_forest_of_numbers_stays_below_the_curve_of_its_charge(
    accountant: str,
) -> None:
    result = OfNumbers(2, "4", n_rows=1, accountant=accountant, max_depth=0)
    charge = result.plan.terms.budget().loss(result.plan.event)
    pairs = [
        (result.law(rows), result.law(rows[:gone] + rows[gone + 1 :]))
        for rows in result.datasets()
        for gone in range(len(rows))
    ]
    assert 0.1 < share_of_curve(pairs, charge, accountant=accountant) <= 1 + TOLERANCE
    assert share_of_curve(pairs, charge / 4, accountant=accountant) > 1


# --- flaws must be detected -------------------------------------------------------------------------------------


def unclipped_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals of a leaf, of twice the length: a row adds −128 and 384."""
    honest = LocalResidualRows.leaf_weights

    def doubled(self: LocalResidualRows) -> NDArray[np.int64]:
        weights = honest(self)
        difference = weights[:, 1:] - weights[:, :1]
        extra = np.concatenate((-difference, difference), axis=1) // 2
        result: NDArray[np.int64] = weights + extra
        return result

    monkeypatch.setattr(LocalResidualRows, "leaf_weights", doubled)


def weight_of_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LocalResidualRows.leaf_weights
    monkeypatch.setattr(
        LocalResidualRows, "leaf_weights", lambda self: 2 * honest(self)
    )


def unpaid_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole rows on either side, as if a count cost nothing beside a sum."""
    honest = LocalResidualRows.leaf_weights

    def both(self: LocalResidualRows) -> NDArray[np.int64]:
        rows = honest(self).sum(axis=1, keepdims=True)
        return np.concatenate((rows, rows), axis=1)

    monkeypatch.setattr(LocalResidualRows, "leaf_weights", both)


def double_utility(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = grow_module.split_utilities
    monkeypatch.setattr(
        grow_module,
        "split_utilities",
        lambda *given: tuple(2 * utility for utility in honest(*given)),
    )


def double_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = number_targets.middle_utilities
    monkeypatch.setattr(
        number_targets, "middle_utilities", lambda *given: 3 * honest(*given)
    )


def double_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = number_targets.spread_utilities
    monkeypatch.setattr(
        number_targets, "spread_utilities", lambda *given: 3 * honest(*given)
    )


def handicap_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = number_targets.spread_utilities

    def biased(
        by_distance: NDArray[np.int64],
        scale: Fraction,
    ) -> NDArray[np.int64]:
        steps = np.arange(number_targets.N_SPREADS)
        return honest(by_distance, scale) - 40 * int(by_distance.sum()) * steps

    monkeypatch.setattr(number_targets, "spread_utilities", biased)


@pytest.mark.usefixtures("few_candidates")
@pytest.mark.parametrize(
    ("case", "mutate"),
    [
        (one_leaf, unclipped_residual),
        (one_leaf, weight_of_two_rows),
        (one_leaf, unpaid_count),
        (one_split, double_utility),
        (start_alone, double_middle),
        (start_alone, double_spread),
        (start_alone, handicap_of_the_rows),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_flaw_put_back_is_seen(
    monkeypatch: pytest.MonkeyPatch,
    case: Callable[[], Case],
    mutate: Callable[..., None],
) -> None:
    mutate(monkeypatch)
    result = case()
    assert any(loss > 1.02 * result.claim for loss in result.losses())


# --- the sums of a job ------------------------------------------------------------------------------------------

SCHEMA = number_schema(
    {"name": "a", "type": "integer", "lower": 0, "upper": 9},
    {"name": "b", "type": "categorical", "categories": ["x", "y", "z"]},
    lower=-5,
    upper=12,
)
ENCODING = Encoding.of(by_sides(SCHEMA), 32)
N_ROWS = 60


def world(
    seed: int,
    *,
    width: int = 2**26,
) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Random rows; the codes of every third are anywhere, the others near each other."""
    rng = np.random.default_rng(seed)
    X = np.stack(
        [rng.integers(0, n, N_ROWS) for n in ENCODING.n_codes.tolist()]
    ).astype(np.uint8)
    near = TARGET_STEPS // 3 + X[0].astype(np.int64) * width // 10
    far = rng.integers(0, TARGET_STEPS + 1, N_ROWS)
    y = np.where(
        np.arange(N_ROWS) % 3 == 0,
        far,
        near,
    )
    return X, y.astype(np.int32)


Tree = tuple[tuple[int, int, bool], NDArray[np.int32]]
"""A released split and the scores of its two leaves."""


def trees(seed: int, n_trees: int = 5) -> list[Tree]:
    rng = np.random.default_rng(seed)
    splits = [
        (0, 4, False),
        (1, 1, True),
        (0, 7, False),
    ]
    return [
        (
            splits[index % 3],
            rng.integers(
                -90_000,
                90_000,
                (2, 1),
                dtype=np.int32,
            ),
        )
        for index in range(n_trees)
    ]


def descend(
    rows: LocalResidualRows,
    split: tuple[int, int, bool],
    level: int,
) -> None:
    feature, threshold, equals = split
    n_nodes = 2**level
    rows.descend(
        feature=np.full(n_nodes, feature, dtype=np.int32),
        threshold=np.full(n_nodes, threshold, dtype=np.uint8),
        equals=np.full(n_nodes, equals, dtype=np.bool_),
    )


def held(
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    start: NDArray[np.int64],
    released: list[Tree],
) -> LocalResidualRows:
    rows = LocalResidualRows(
        np.ascontiguousarray(X), y, n_codes=ENCODING.n_codes, n_classes=2
    )
    rows.start(start)
    for split, scores in released:
        descend(rows, split, 0)
        rows.finish_tree(scores)
    return rows


STARTS = [
    (0, 1),
    (TARGET_STEPS, 2**14),
    (TARGET_STEPS // 3, 2**24),
    (5, TARGET_STEPS),
]


@pytest.mark.parametrize("middle_and_spread", STARTS)
def test_one_record_moves_one_node_by_256_units(
    middle_and_spread: tuple[int, int],
) -> None:
    """Whatever was released before, also after hostile scores."""
    start = np.array(middle_and_spread, dtype=np.int64)
    X, y = world(1)
    hostile = np.array(
        [[2**31 - 1], [-(2**31)]],
        dtype=np.int32,
    )
    for released in ([], trees(3), [((0, 4, False), hostile)] * 4):
        sums = []
        for kept in (
            np.arange(N_ROWS) >= 0,
            *(np.arange(N_ROWS) != i for i in range(12)),
        ):
            rows = held(X[:, kept], y[kept], start, released)
            mean = rows.mean_weights()
            descend(rows, (0, 3, False), 0)
            nodes = np.arange(2, dtype=np.int32)
            splitting, stopping = split_utilities(rows, ENCODING, nodes)
            utilities = np.column_stack((splitting, stopping))
            sums.append((utilities, rows.leaf_weights(), mean))
        whole, *others = sums
        for fewer in others:
            utilities, leaves, mean = (
                mine - theirs for mine, theirs in zip(whole, fewer, strict=True)
            )
            assert 0 <= utilities.min() <= utilities.max() <= UNIT
            assert np.any(utilities != 0, axis=1).sum() <= 1
            assert leaves.min() >= 0
            assert sorted(leaves.sum(axis=1).tolist()) == [0, UNIT]
            assert mean.min() >= 0
            assert mean.sum() == UNIT
    assert mean.shape == (1, 2)


@pytest.mark.parametrize("middle_and_spread", STARTS)
def test_the_integers_of_a_row_do_not_depend_on_other_rows(
    middle_and_spread: tuple[int, int],
) -> None:
    """Dropping, permuting and re-batching rows leaves every other row's integers
    identical, and sums over parts add up.
    """
    start = np.array(middle_and_spread, dtype=np.int64)
    X, y = world(2)
    released = trees(4)

    def integers(rows: LocalResidualRows) -> NDArray[np.int64]:
        of_leaves = rows._residuals(reweighted_rows._OF_LEAVES)
        of_mean = rows._residuals(reweighted_rows._OF_MEAN)
        return np.stack((rows._y, rows._weight, of_leaves, of_mean))

    whole = held(X, y, start, released)
    own = integers(whole)
    rng = np.random.default_rng(0)
    every = np.arange(N_ROWS)
    parts = np.array_split(rng.permutation(every), 7)
    for index in (every[1:], every[::-1], rng.permutation(every), *parts, every[:1]):
        some = held(X[:, index], y[index], start, released)
        assert np.array_equal(integers(some), own[:, index])
    divided = ReweightedRows(
        RowParts([held(X[:, part], y[part], start, released) for part in parts])
    )
    assert np.array_equal(divided.leaf_weights(), whole.leaf_weights())
    assert np.array_equal(divided.mean_weights(), whole.mean_weights())
    fresh = [
        LocalResidualRows(
            X[:, part],
            y[part],
            n_codes=ENCODING.n_codes,
            n_classes=2,
        )
        for part in (every, *parts)
    ]
    edges = number_targets.edges_of(SCHEMA.label)
    counted = ReweightedRows(RowParts(fresh[1:])).target_counts(edges)
    assert np.array_equal(counted, fresh[0].target_counts(edges))


def test_a_residual_takes_all_lengths() -> None:
    """The control: else the tests above would prove little."""
    X, y = world(2, width=2**24)
    start = np.array(
        [TARGET_STEPS // 3, 2**25],
        dtype=np.int64,
    )
    rows = held(X, y, start, [])
    weights = rows._weight
    assert weights.max() in (UNIT - 1, UNIT)
    assert len(np.unique(weights)) > 4
    assert set(rows._y.tolist()) == {0, 1}


# --- whole jobs -------------------------------------------------------------------------------------------------

N_IN_JOB = 150
OF_JOB = number_schema(
    *(
        {"name": name, "type": "numeric", "lower": -1, "upper": 1}
        for name in ("e", "f")
    ),
    lower=0,
    upper=60,
)


def job_plan(accountant: str, **parameters: object) -> Plan:
    delta = None if accountant == "pure" else DELTA
    terms = Terms(Fraction(4), accountant, delta)
    body = {"n_estimators": 3, **parameters}
    return forest_price.plan(PlanRequest("rpf", body, terms, N_IN_JOB), OF_JOB)


def job_rows(without: int | None = None) -> SanitisedRows:
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, (2, N_IN_JOB))
    y = rng.integers(0, TARGET_STEPS + 1, N_IN_JOB).astype(np.int32)
    kept = np.arange(N_IN_JOB) != without
    n_rows = int(kept.sum())
    columns = SanitisedColumns(tuple(X[:, kept]), n_rows)
    return SanitisedRows(
        columns,
        y[kept],
        np.zeros((n_rows, 16), dtype=np.uint8),
    )


def draws_of(
    plan: Plan, rows: TrainingRows, replayed: list[Draw] | None = None
) -> list[Draw]:
    recorder = Recorder(replayed)
    grow(plan, OF_JOB, rows, recorder, on_tree_done=lambda: None)  # type: ignore[arg-type]
    return recorder.draws


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_depth": 0},
        {"max_depth": 2},
        {"max_depth": 3, "splits": "node"},
        {"max_depth": 3, "at_once": 2, "pairs": "ordered"},
    ],
    ids=str,
)
def test_a_whole_job_moves_by_what_was_charged(
    accountant: str, parameters: dict[str, object], divide_rows: DivideRows
) -> None:
    """From the plan to the forest, with private bins, in parts: every draw of a job with
    and without a row, on the same releases.
    """
    divide_rows(part_rows=50)
    plan = job_plan(accountant, **parameters)
    whole = draws_of(plan, job_rows())
    shares = []
    for row in (0, 60, N_IN_JOB - 1):
        seen = draws_of(plan, job_rows(row), whole)
        shares.append(check(plan.event, whole, seen, accountant=accountant))
    assert 0 < max(shares) <= 1


def test_rows_on_other_machines_move_the_same_numbers_and_messages(
    divide_rows: DivideRows,
) -> None:
    divide_rows(part_rows=50)
    plan = job_plan("pure", max_depth=2)
    asked = code_request(plan, OF_JOB)
    assert asked is not None
    whole = draws_of(plan, job_rows())
    machines = [Machines(), Machines()]
    for each, without in zip(machines, (None, 7), strict=True):
        rows = each.with_rows(coded(job_rows(without), asked))
        seen = draws_of(plan, rows, whole)
        check(plan.event, whole, seen, accountant="pure")
        if without is None:
            assert is_equal(whole, seen)
    assert machines[0].sent == machines[1].sent
    assert machines[0].n_received == machines[1].n_received

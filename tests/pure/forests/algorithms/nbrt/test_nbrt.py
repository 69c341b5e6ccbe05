"""Boosted random trees from plan to prediction: rules, prices, artifacts,
probabilities.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from grovekeeper_forests.algorithms.nbrt.price import PricedDraws
from grovekeeper_forests.algorithms.nbrt.read import calibrated, probabilities
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.noisy_counts import VARIANCE
from grovekeeper_forests.contract.plan import Forest, Plan, PlanInvalid
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    ExponentialMechanism,
    RoundedGaussian,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.forest.read import ArtifactInvalid
from tests.support.stored_plans import read_priced

DELTA = Fraction(1, 10**6)
ADD_REMOVE = Adjacency.ADD_REMOVE_ONE


def schema_of(
    n_classes: int, *, n_features: int = 5, numeric: bool = False, upper: int = 9
) -> Schema:
    kind = "numeric" if numeric else "integer"
    features = [
        {"name": f"f{i}", "type": kind, "lower": 0, "upper": upper}
        for i in range(n_features)
    ]
    return Schema.from_json(
        {
            "features": features,
            "label": {"name": "y", "classes": [str(k) for k in range(n_classes)]},
        }
    )


def planned(
    schema: Schema,
    epsilon: str = "1",
    *,
    size: int = 1_000,
    accountant: str = "gdp",
    **asked: object,
) -> Plan:
    return plan(
        PlanRequest("nbrt", asked, Terms(Fraction(epsilon), accountant, DELTA), size),
        schema,
    )


def columns_of(schema: Schema, X: np.ndarray) -> SanitisedColumns:
    assert len(schema.features) == X.shape[1]
    return SanitisedColumns(
        tuple(np.ascontiguousarray(column, dtype=np.float64) for column in X.T), len(X)
    )


def grown(settled: Plan, schema: Schema, X: np.ndarray, y: np.ndarray) -> Forest:
    ids = np.zeros((len(y), 16), dtype=np.uint8)
    rows = SanitisedRows(columns_of(schema, X), y.astype(np.int32), ids)
    reports: list[None] = []
    forest = grow(
        settled,
        schema,
        rows,
        SystemRandomness(),
        on_tree_done=lambda: reports.append(None),
    )
    assert len(reports) == settled.n_trees
    return forest


# --- price --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ["gdp", "zcdp"])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "10"])
@pytest.mark.parametrize("numeric", [False, True])
def test_the_event_uses_up_the_amount_and_never_passes_it(
    numeric: bool, epsilon: str, accountant: str
) -> None:
    settled = planned(schema_of(3, numeric=numeric), epsilon, accountant=accountant)
    budget = Terms(Fraction(epsilon), accountant, DELTA, ADD_REMOVE).budget()
    loss = budget.loss(settled.event)

    assert Fraction(9999, 10000) * budget.limit < loss <= budget.limit
    parts = PricedDraws.of(settled.event)
    assert (parts.bins is not None) == numeric
    assert math.isqrt(parts.start) ** 2 == parts.start


def test_shares_are_those_of_the_rule() -> None:
    schema = schema_of(2, numeric=True)
    settled = planned(schema)
    budget = Terms(Fraction(1), "gdp", DELTA, ADD_REMOVE).budget()
    bins, start, trees, tally = (
        part.times * budget.loss(part.event) / budget.limit
        for part in settled.event.parts
    )

    assert float(bins) == pytest.approx(0.068, rel=1e-4)
    assert float(start) == pytest.approx(0.03 * 0.932, rel=1e-4)
    assert float(trees) == pytest.approx(0.95 * 0.932, rel=1e-4)
    assert float(tally) == pytest.approx(0.02 * 0.932, rel=1e-4)


@pytest.mark.parametrize("accountant", ["gdp", "zcdp"])
@pytest.mark.parametrize("numeric", [False, True])
def test_a_first_split_has_its_shares_and_is_one_of_the_trees(
    numeric: bool, accountant: str
) -> None:
    schema = schema_of(3, numeric=numeric)
    settled = planned(schema, start="split", accountant=accountant)
    budget = Terms(Fraction(1), accountant, DELTA, ADD_REMOVE).budget()
    events = [part.event for part in settled.event.parts]
    selection, sides, trees, tally = settled.event.parts[numeric:]
    shares = [
        float(part.times * budget.loss(part.event) / budget.limit)
        for part in (selection, sides, trees, tally)
    ]
    left = 0.932 if numeric else 1.0

    assert len(events) == 4 + numeric
    assert isinstance(selection.event, ExponentialMechanism)
    assert selection.event.max_candidates == sum(
        n - 1 for n in quantile_bins.widest_encoding(schema).n_codes
    )
    assert trees.times == 399
    assert shares == pytest.approx(
        [0.015 * left, 0.035 * left, 0.93 * left, 0.02 * left], rel=1e-3
    )
    assert (
        Fraction(9999, 10000) * budget.limit
        < budget.loss(settled.event)
        <= budget.limit
    )


@pytest.mark.parametrize(
    ("n_classes", "size", "asked", "expected"),
    [
        (2, 4_300, {}, "split"),  # rows times μ: 1,018
        (2, 4_200, {}, "classes"),  # 994
        (3, 100_000, {}, "classes"),
        (3, 1_000, {"start": "split"}, "split"),
        (2, 100_000, {"start": "classes"}, "classes"),
        (2, 100_000, {"max_depth": 0}, "classes"),
        (2, 100_000, {"start": "split", "max_depth": 0}, "classes"),
        (2, 100_000, {"n_estimators": 1}, "classes"),
    ],
)
def test_the_start_follows_classes_and_rows_times_mu(
    n_classes: int, size: int, asked: dict, expected: str
) -> None:
    settled = planned(schema_of(n_classes), size=size, **asked)
    assert settled.parameters["start"] == expected
    assert (PricedDraws.of(settled.event).split > 0) == (expected == "split")
    assert forest_price.read_plan(settled.to_json()) == settled
    assert any("start was set" in warning for warning in settled.warnings) == (
        asked.get("start", expected) != expected
    )


def test_a_single_decisive_rule_becomes_the_first_split() -> None:
    schema, rng = schema_of(2), np.random.default_rng(9)
    X = rng.integers(0, 10, (3_000, 5)).astype(float)
    y = (X[:, 3] > 6).astype(int)
    forest = grown(
        planned(schema, "4", size=3_000, n_estimators=2, start="split"), schema, X, y
    )
    arrays = forest.arrays
    assert arrays["feature"][0, 0] == 3
    assert int(arrays["right"][0, 0, 0]) == 2**64 - 2**7
    shares = Predictor(forest, schema).probabilities(columns_of(schema, X))
    assert np.array_equal(shares.argmax(axis=1), y)
    assert np.array_equal(
        released_forest.loads(
            released_forest.dumps(forest, {"schema": schema.to_json()})
        ).forest.arrays["scores"],
        arrays["scores"],
    )


def test_plans_of_one_start_are_no_plans_of_the_other() -> None:
    of_split, of_classes = (
        planned(schema_of(2), start=start).to_json() for start in ("split", "classes")
    )
    for broken in (
        {**of_split, "event": of_classes["event"]},
        {**of_classes, "event": of_split["event"]},
    ):
        with pytest.raises(PlanInvalid):
            read_priced(broken, schema_of(2))


@pytest.mark.parametrize("calibration", ["none", "clip"])
def test_without_a_measured_temperature_the_trees_get_its_share(
    calibration: str,
) -> None:
    settled = planned(schema_of(2), calibration=calibration)
    budget = Terms(Fraction(1), "gdp", DELTA, ADD_REMOVE).budget()
    start, trees = (
        part.times * budget.loss(part.event) / budget.limit
        for part in settled.event.parts
    )

    assert float(start) == pytest.approx(0.03, rel=1e-4)
    assert float(trees) == pytest.approx(0.97, rel=1e-4)


def test_bins_are_chosen_by_the_exponential_mechanism() -> None:
    event = planned(schema_of(2, numeric=True)).event
    selection = event.parts[0].event.parts[0].event.parts[0].event.parts[0].event
    assert isinstance(selection, ExponentialMechanism)


@pytest.mark.parametrize(
    ("size", "epsilon", "depth"),
    [
        (30, "0.1", 2),
        (1_000, "1", 3),
        (7_500, "1", 4),
        (30_000, "1", 5),
        (10**9, "10", 6),
    ],
)
def test_depth_follows_rows_times_mu(size: int, epsilon: str, depth: int) -> None:
    result = planned(schema_of(2), epsilon, size=size).parameters["max_depth"]
    mu = math.sqrt(Terms(Fraction(epsilon), "gdp", DELTA, ADD_REMOVE).budget().limit)
    assert (
        result
        == depth
        == min(max(round(0.5 * math.log2(max(size * mu, 1)) - 0.9), 2), 6)
    )


def test_a_budget_too_small_to_draw_with_is_refused() -> None:
    with pytest.raises(ParameterInvalid) as refused:
        planned(schema_of(2), "0.000001", n_estimators=1_024)
    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("epsilon",), "too-small")
    ]


def test_depth_zero_spends_everything_on_the_class_counts() -> None:
    schema = schema_of(3, numeric=True)
    settled = planned(schema, max_depth=0, n_estimators=3)
    (only,) = settled.event.parts
    budget = Terms(Fraction(1), "gdp", DELTA, ADD_REMOVE).budget()

    assert isinstance(only.event, RoundedGaussian)
    assert budget.loss(settled.event) > Fraction(999, 1000) * budget.limit
    X, y = np.zeros((300, 5)), np.repeat([0, 1, 2], [30, 90, 180])
    forest = grown(settled, schema, X, y)
    shares = Predictor(forest, schema).probabilities(columns_of(schema, X[:2]))
    # counts of 30, 90 and 180 with deviation 4
    assert shares[0] == pytest.approx([0.1, 0.3, 0.6], abs=0.15)
    assert np.array_equal(shares[0], shares[1])


def test_a_stored_plan_must_match_its_depth() -> None:
    stored = planned(schema_of(2)).to_json()
    flat = planned(schema_of(2), max_depth=0).to_json()
    assert forest_price.read_plan(stored).algorithm == "nbrt"
    for broken in (
        {**stored, "event": flat["event"]},
        {**flat, "event": stored["event"]},
    ):
        with pytest.raises(PlanInvalid):
            read_priced(broken, schema_of(2))


def test_events_of_other_forms_are_refused() -> None:
    settled = planned(schema_of(2))
    start, trees, tally = settled.event.parts
    wrong = [
        settled.event.__class__((start, trees)),
        settled.event.__class__(
            (
                tally.__class__(
                    1, ExponentialMechanism(ADD_REMOVE, Fraction(1), Fraction(1), 9)
                ),
                start,
            )
        ),
        settled.event.__class__(
            (
                tally.__class__(
                    1, ExponentialMechanism(ADD_REMOVE, Fraction(2), Fraction(1), 9)
                ),
                start,
                trees,
                tally,
            )
        ),
        settled.event.__class__((start, trees, tally, tally)),
        settled.event.__class__((start, trees, tally.__class__(2, tally.event))),
        settled.event.__class__((trees,)),
        settled.event.__class__((start, trees, trees, trees)),
        settled.event.__class__((start, start, trees)),
        start.event,
        settled.event.__class__(
            (
                start,
                trees.__class__(
                    400,
                    RoundedGaussian(
                        trees.event.adjacency, Fraction(1, 2), Fraction(VARIANCE), 1
                    ),
                ),
            )
        ),
        settled.event.__class__(
            (
                start,
                trees.__class__(
                    400,
                    RoundedGaussian(
                        trees.event.adjacency, Fraction(2**20), Fraction(4), 1
                    ),
                ),
            )
        ),
    ]
    for event in wrong:
        with pytest.raises(PlanInvalid):
            forest_price.require_priced(replace(settled, event=event), schema_of(2))


# --- from rows to probabilities -----------------------------------------------------------------------------------


def test_a_binary_table_is_learned_through_the_artifact() -> None:
    table = load_breast_cancer()
    X = (table.data - table.data.min(axis=0)) / (
        table.data.max(axis=0) - table.data.min(axis=0)
    )
    schema = schema_of(2, n_features=30, numeric=True, upper=1)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = order[:100], order[100:]
    forest = grown(
        planned(schema, "4", size=500), schema, X[train], table.target[train]
    )
    artifact = released_forest.loads(
        released_forest.dumps(forest, {"schema": schema.to_json()})
    )
    columns = columns_of(schema, X[test])
    shares = artifact.predictor.probabilities(columns)
    plain = artifact.predictor.probabilities(columns, read_out="logistic")
    labels = artifact.predictor.labels(shares)

    assert (labels == table.target[test]).mean() > 0.8
    assert shares.sum(axis=1) == pytest.approx(1)
    assert np.array_equal(shares.argmax(axis=1), plain.argmax(axis=1))
    assert np.array_equal(
        np.argsort(shares[:, 1], kind="stable"), np.argsort(plain[:, 1], kind="stable")
    )
    one_by_one = [
        Predictor(artifact.forest, schema).probabilities(
            columns_of(schema, X[row : row + 1])
        )
        for row in test[:20]
    ]
    assert np.array_equal(np.vstack(one_by_one), shares[:20])


def test_a_table_of_ten_classes_is_learned() -> None:
    table = load_digits()
    schema = schema_of(10, n_features=64, upper=16)
    order = np.random.default_rng(1).permutation(len(table.target))
    test, train = order[:300], order[300:]
    forest = grown(
        planned(schema, "8", size=1_500), schema, table.data[train], table.target[train]
    )
    shares = Predictor(forest, schema).probabilities(
        columns_of(schema, table.data[test])
    )

    assert (shares.argmax(axis=1) == table.target[test]).mean() > 0.75
    assert forest.arrays["scores"].shape == (400, 2**forest.depth, 10)


def test_growth_and_prediction_agree_on_every_integer() -> None:
    """Prediction adds the released integers tree by tree, as growth does."""
    rng = np.random.default_rng(4)
    schema = schema_of(3)
    X, y = rng.integers(0, 10, (200, 5)).astype(float), rng.integers(0, 3, 200)
    forest = grown(planned(schema, n_estimators=10), schema, X, y)
    shares = Predictor(forest, schema).probabilities(
        columns_of(schema, X), read_out="logistic"
    )
    arrays = forest.arrays
    # the reader subtracts a third of the start
    scores = np.tile(2 * arrays["start"] // 3, (200, 1))
    for tree in range(10):
        for i, row in enumerate(X.astype(int).tolist()):
            node = 0
            while node < arrays["feature"].shape[1]:
                code = row[arrays["feature"][tree, node]]
                node = (
                    2 * node
                    + 1
                    + (int(arrays["right"][tree, node, code // 64]) >> code % 64 & 1)
                )
            scores[i] += arrays["scores"][tree, node - arrays["feature"].shape[1]]
    assert np.array_equal(shares, probabilities(scores, "logistic"))


def test_class_proportions_alone_are_not_recalibrated() -> None:
    schema = schema_of(2)
    settled = planned(schema, "8", max_depth=0, n_estimators=1)
    forest = grown(settled, schema, np.zeros((1_000, 5)), np.repeat([0, 1], [300, 700]))
    shares = Predictor(forest, schema).probabilities(
        columns_of(schema, np.zeros((2, 5)))
    )
    assert shares[:, 1] == pytest.approx([0.7, 0.7], abs=0.02)


def test_calibration_for_the_clip_undoes_it_and_none_changes_nothing() -> None:
    schema = schema_of(2)
    X = np.random.default_rng(6).integers(0, 10, (300, 5)).astype(float)
    forest = grown(
        planned(schema, "4", n_estimators=8, calibration="none"),
        schema,
        X,
        (X[:, 0] > 4).astype(int),
    )
    of_clip = planned(schema, "4", n_estimators=8, calibration="clip")
    columns = columns_of(schema, X)
    default, plain, clipped = (
        Predictor(own, schema).probabilities(columns, read_out=read_out)
        for own, read_out in (
            (forest, None),
            (forest, "logistic"),
            (Forest(of_clip, forest.arrays), None),
        )
    )

    assert np.array_equal(default, plain)
    assert np.array_equal(clipped, calibrated(plain))
    assert not np.allclose(clipped, default)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_measured_temperature_scales_the_default_read_out_alone(
    n_classes: int,
) -> None:
    schema = schema_of(n_classes)
    X = np.random.default_rng(6).integers(0, 10, (300, 5)).astype(float)
    forest = grown(planned(schema, "4", n_estimators=8), schema, X, X[:, 0] % n_classes)
    columns = columns_of(schema, X)

    def read(temperature: int, read_out: str | None) -> np.ndarray:
        own = Forest(
            forest.plan,
            {**forest.arrays, "temperature": np.array([temperature], dtype=np.int64)},
        )
        return Predictor(own, schema).probabilities(columns, read_out=read_out)

    plain, cold, hot = read(2**16, None), read(2**15, None), read(2**17, None)
    assert np.array_equal(plain, read(2**15, "logistic"))
    assert np.array_equal(plain.argmax(axis=1), cold.argmax(axis=1))
    assert np.all(hot.max(axis=1) >= plain.max(axis=1))
    assert np.all(plain.max(axis=1) >= cold.max(axis=1))
    ratio = np.log(hot[:, 0] / hot[:, 1]) / np.log(cold[:, 0] / cold[:, 1])
    assert ratio == pytest.approx(4.0)


def test_the_temperature_of_noisy_labels_is_lower_than_that_of_clear_ones() -> None:
    schema, rng = schema_of(2), np.random.default_rng(7)
    X = rng.integers(0, 10, (4_000, 5)).astype(float)
    clear = (X[:, 0] > 4).astype(int)
    noisy = np.where(rng.random(4_000) < 0.35, 1 - clear, clear)
    settled = planned(schema, "10", size=4_000, n_estimators=40)
    of_clear, of_noisy = (
        int(grown(settled, schema, X, y).arrays["temperature"][0])
        for y in (clear, noisy)
    )
    assert of_clear > 2**16 > of_noisy


def test_calibration_is_the_resting_point_of_clipped_gradients() -> None:
    p = np.linspace(0.001, 0.999, 999)
    result = calibrated(np.stack([1 - p, p], axis=1))[:, 1]
    for own, share in zip(p, result, strict=True):
        pull, push = min(1 - own, 0.35), min(own, 0.35)
        assert share * pull == pytest.approx((1 - share) * push, abs=2e-6)
    assert np.all(np.diff(result) > 0)


def _broken(forest: Forest, **changes: np.ndarray) -> bytes:
    return released_forest.dumps(
        Forest(forest.plan, {**forest.arrays, **changes}), {"schema": SMALL.to_json()}
    )


SMALL = schema_of(2, n_features=2, numeric=True)


def test_artifacts_that_cannot_be_ours_are_refused() -> None:
    forest = grown(
        planned(SMALL, n_estimators=3, max_depth=2),
        SMALL,
        np.zeros((5, 2)),
        np.zeros(5),
    )
    arrays = forest.arrays
    assert released_forest.loads(_broken(forest)).forest.depth == 2
    high = arrays["scores"].copy()
    high[0, 0, 0] = 3 * 2**16 + 1
    lost = arrays["feature"].copy()
    lost[0, 0] = 2
    lowest = np.full_like(arrays["start"], np.iinfo(np.int64).min)
    cuts = arrays["cuts"].copy()
    cuts[0, 0] = 60_000
    for changes in (
        {"scores": high},
        {"feature": lost},
        {"start": lowest},
        {"cuts": cuts},
        {"right": arrays["right"][:, :, :3]},
        {"scores": arrays["scores"].astype(np.int64)},
        {"temperature": np.array([0], dtype=np.int64)},
        {"temperature": np.array([5 * 2**16], dtype=np.int64)},
        {"temperature": np.array([2**16] * 2, dtype=np.int64)},
    ):
        with pytest.raises(ArtifactInvalid):
            released_forest.loads(_broken(forest, **changes))


# --- hostile rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [0, 1, 2])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_hardly_any_rows_give_a_whole_model(n_classes: int, n_rows: int) -> None:
    schema = schema_of(n_classes, numeric=True)
    forest = grown(
        planned(schema, n_estimators=6),
        schema,
        np.full((n_rows, 5), 3.3),
        np.zeros(n_rows),
    )
    artifact = released_forest.loads(
        released_forest.dumps(forest, {"schema": schema.to_json()})
    )
    shares = Predictor(artifact.forest, schema).probabilities(
        columns_of(schema, np.zeros((3, 5)))
    )
    assert shares.shape == (3, n_classes)
    assert np.isfinite(shares).all()

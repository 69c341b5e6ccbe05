"""The reweighted forest of a label that is a number: its weights and scores against
exact rationals, plans, artifacts, ONNX, and what a forest learns.
"""

import math
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.rpf.price import (
    NumberScales,
    events_of,
    start_share,
)
from grovekeeper_forests.algorithms.rpf.read import UNREACHED, moved, steps_of_tree
from grovekeeper_forests.algorithms.rpf.reweighted_rows import LocalResidualRows
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.schema import TARGET_STEPS
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.forest import price, read
from grovekeeper_forests.releases.forest.importances import use_of
from grovekeeper_forests.releases.forest.onnx import model as onnx_model
from grovekeeper_forests.releases.forest.predictor import Predictor
from tests.pure.forests.algorithms.nbrt.test_numbers import (
    FEATURES,
    SCHEMA,
    columns_of,
    grown,
    made,
    planned,
)
from tests.support.schemas import number_schema, schema_of

DIGEST = "ab" * 32


def planned_rpf(epsilon: str = "1", **changes: object) -> Plan:
    return planned(epsilon, **{"algorithm": "rpf", "accountant": "pure", **changes})


# --- weights and scores -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spread",
    [2**14, 2**24, TARGET_STEPS // 2],
)
def test_weights_are_clipped_residuals(spread: int) -> None:
    """The side and weight of a row, and its units in a leaf and in the mean, against
    exact rationals.
    """
    rng = np.random.default_rng(spread)
    middle = TARGET_STEPS // 3
    y = np.clip(middle + rng.normal(0, spread, 300), 0, TARGET_STEPS).astype(np.int32)
    X = np.zeros((1, 300), dtype=np.uint8)
    rows = LocalResidualRows(
        X,
        y,
        n_codes=np.array([1], dtype=np.int32),
        n_classes=2,
    )
    rows.start(np.array([middle, spread], dtype=np.int64))
    score = -12_345
    rows.finish_tree(np.array([[score]], dtype=np.int32))
    of_leaf = of_mean = 0
    for code, side, weight in zip(
        y.tolist(), rows._y.tolist(), rows._weight.tolist(), strict=True
    ):
        residual = Fraction(code - middle, spread) - Fraction(score, 2**16)
        exact = min(256 * abs(residual) / Fraction(7, 20), 256)
        assert exact - 1.01 <= weight <= exact + Fraction(1, 100)
        assert side == (residual > 0) or weight == 0
        of_leaf += 128 + max(
            min(128 * residual / Fraction(5, 4), 128),
            -128,
        )
        of_mean += 128 + max(min(128 * residual / 3, 128), -128)
    for found, above in (
        (rows.leaf_weights(), of_leaf),
        (rows.mean_weights(), of_mean),
    ):
        assert found.sum() == 300 * 256
        assert abs(found[0, 1] - above) < 300


def test_scores_are_shrunken_means() -> None:
    counts = np.array(
        [[-9, 5], [3_000, 29_000], [10**6, 0], [7, 7]],
        dtype=np.int64,
    )
    selections = np.array(
        [0, 2, 1, UNREACHED],
        dtype=np.uint8,
    )
    scales = [
        Fraction(1, 500),
        Fraction(1, 800),
        Fraction(1, 2_000),
    ]
    first = steps_of_tree(counts, selections, scales=scales, is_first=True)
    later = steps_of_tree(counts, selections, scales=scales, is_first=False)
    assert first[3, 0] == later[3, 0] == 0
    for leaf, n_selections in enumerate((0, 2, 1)):
        below, above = (Fraction(int(each), 256) for each in counts[leaf])
        rows, total = max(below + above, 0), above - below
        noise = 20 / (256 * scales[n_selections]) ** 2
        exact = Fraction(5, 4) * total * rows / (rows**2 + noise + rows * 3 / 2)
        assert abs(exact) <= Fraction(5, 4)
        assert first[leaf, 0] == pytest.approx(
            float(exact * 2**16),
            abs=1,
        )
        assert later[leaf, 0] == pytest.approx(
            float(exact * 2**16) * 0.8,
            abs=1,
        )


def test_a_mean_moves_the_start() -> None:
    start = np.array(
        [TARGET_STEPS // 2, 2**20],
        dtype=np.int64,
    )
    scale = Fraction(1, 256)  # a noise of one row
    released = np.array(
        [[256 * 400, 256 * 600]],
        dtype=np.int64,
    )
    middle, spread = moved(start, released, scale).tolist()
    exact = 3 * 200 * 1_000 / (1_000**2 + 4 * 9 / 0.03)
    assert spread == 2**20
    assert middle - start[0] == pytest.approx(
        exact * 2**20,
        abs=2,
    )
    hostile = [
        [-(2**60), 2**60],
        [2**60, -(2**60)],
        [0, 2**62],
        [2**62, 0],
        [0, 0],
    ]
    for weights in hostile:
        wide = np.array([TARGET_STEPS // 2, TARGET_STEPS], dtype=np.int64)
        released = np.array([weights], dtype=np.int64)
        middle, _ = moved(wide, released, scale).tolist()
        assert 0 <= middle <= TARGET_STEPS


# --- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
@pytest.mark.parametrize("depth", [None, 0, 3])
@pytest.mark.parametrize("splits", ["level", "node"])
def test_a_plan_costs_its_amount_and_no_more(
    accountant: str, depth: int | None, splits: str
) -> None:
    parameters: dict[str, object] = {"splits": splits}
    if depth is not None:
        parameters["max_depth"] = depth
    plan = planned_rpf(accountant=accountant, **parameters)
    assert plan.terms.covers(plan.event)
    budget = plan.terms.budget()
    if accountant == "pure":
        assert budget.loss(plan.event) > Fraction(9999, 10_000) * budget.limit
    price.require_priced(plan, SCHEMA)
    scales = NumberScales.of(plan.event)
    assert min(scales) > 0
    bins, of_trees = events_of(plan.event)
    assert (bins is None) is (depth == 0)
    assert of_trees.last > 0
    parameters_of = catalogue.algorithm("rpf").parameters
    assert Plan.from_json(plan.to_json(), parameters_of) == plan


def test_shares_of_the_start_and_of_the_mean_follow_from_public_numbers() -> None:
    for n_trees, expected in ((1, 0.2), (2, 0.1), (16, 0.1)):
        plan = planned_rpf("1", max_depth=0, n_estimators=n_trees)
        *start, _, mean = (
            float(pure.loss(part.event, adjacency=Adjacency.ADD_REMOVE_ONE))
            for part in plan.event.parts  # type: ignore[union-attr]
        )
        assert start == pytest.approx([expected / 2] * 2, rel=1e-3)
        assert mean == pytest.approx(0.02, rel=1e-3)
        assert float(start_share(n_trees)) == expected


@pytest.mark.parametrize(
    "size",
    [None, 50, 500, 700, 5_000, 10**7],
)
def test_a_stored_plan_of_any_size_is_priced_again(size: int | None) -> None:
    """Without the size, which nothing stores."""
    for epsilon in ("0.05", "1", "4"):
        price.require_priced(planned_rpf(epsilon, size=size), SCHEMA)
        boosted = planned(epsilon, algorithm="nbrt", accountant="gdp", size=size)
        price.require_priced(boosted, SCHEMA)


def test_trees_and_depth_follow_from_size_and_budget() -> None:
    found = []
    for size in (100, 3_000, 10**6):
        parameters = planned_rpf(size=size).parameters
        found.append((parameters["n_estimators"], parameters["max_depth"]))
        assert parameters["pairs"] == "none"
        assert parameters["structure_share"] == "0.6"
        assert parameters["at_once"] == (1 if size == 100 else 2)
    assert found == [
        (1, 2),
        (3, 4),
        (16, 8),
    ]
    hopeless = planned_rpf("0.1", size=100)
    assert hopeless.parameters["max_depth"] == 0
    assert "a noisy average" in hopeless.warnings[-1]


def test_auto_chooses_the_reweighted_forest_where_the_account_has_no_delta() -> None:
    plan = planned_rpf(algorithm="auto")
    assert plan.algorithm == "rpf"
    assert plan.event == planned_rpf().event


def test_events_of_another_form_are_refused() -> None:
    classes = schema_of(*FEATURES, classes=["a", "b"])
    parts = planned_rpf().event.parts  # type: ignore[union-attr]
    for event in (planned_rpf(schema=classes).event, Sequential(tuple(parts[:-1]))):
        with pytest.raises(UnknownPrivacyEvent):
            NumberScales.of(event)


# --- forests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [1, 50])
def test_numbers_are_learnt_also_within_bounds_that_are_far_too_wide(
    widths: int,
) -> None:
    schema = number_schema(*FEATURES, lower=0, upper=60 * widths)
    X, y = made(6_000)
    plan = planned_rpf("4", algorithm="auto", schema=schema, size=5_000)
    forest = grown(plan, X[:5_000], y[:5_000], schema)
    numbers = Predictor(forest, schema).numbers(columns_of(X[5_000:]))
    errors = numbers - y[5_000:]
    assert 1 - float((errors**2).mean() / y[5_000:].var()) > 0.8


@pytest.mark.parametrize("splits", ["level", "node"])
def test_an_artifact_and_an_export_answer_the_same_numbers(splits: str) -> None:
    X, y = made(2_000)
    plan = planned_rpf("3", splits=splits)
    forest = grown(plan, X, y)
    data = read.dumps(forest, {"schema": SCHEMA.to_json()})
    assert len(data) <= read.planned_bytes(plan, SCHEMA) + 200
    artifact = read.loads(data)
    columns = columns_of(X)
    numbers = artifact.predictor.numbers(columns)
    assert numbers.tolist() == Predictor(forest, SCHEMA).numbers(columns).tolist()
    assert 0 <= numbers.min() < numbers.max() <= 60
    assert artifact.predictor.read_outs == ("number",)
    use = use_of(forest, SCHEMA)
    assert use.leaf_shares == ()
    assert sum(use.n_splits) > 0
    exported = onnx_model.dumps(artifact, digest=DIGEST)
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    inputs = {f"x{index}": X[:, index : index + 1] for index in range(3)}
    [found] = session.run(["number"], inputs)
    assert found.tolist() == numbers.tolist()


@pytest.mark.parametrize(
    "start",
    [
        (-1, 1),
        (TARGET_STEPS + 1, 1),
        (0, 0),
        (0, TARGET_STEPS + 1),
        (0,),
    ],
)
def test_an_artifact_with_an_impossible_start_is_refused(
    start: tuple[int, ...],
) -> None:
    plan = planned_rpf(max_depth=1)
    forest = grown(plan, *made(0))
    arrays = {
        **forest.arrays,
        "start": np.array(start, dtype=np.int64),
    }
    data = read.dumps(
        Forest(plan, arrays),
        {"schema": SCHEMA.to_json()},
    )
    with pytest.raises(read.ArtifactInvalid):
        read.loads(data)
    other = schema_of(*FEATURES, classes=["a", "b"])
    with pytest.raises(read.ArtifactInvalid):
        read.loads(read.dumps(forest, {"schema": other.to_json()}))


def test_a_forest_without_splits_is_a_noisy_mean() -> None:
    X, y = made(3_000)
    forest = grown(planned_rpf("20", max_depth=0), X, y)
    numbers = Predictor(forest, SCHEMA).numbers(columns_of(X[:3]))
    assert len(set(numbers.tolist())) == 1
    assert math.isclose(numbers[0], y.mean(), abs_tol=1)
    assert read.only_answer(forest, SCHEMA) is not None


@pytest.mark.parametrize("n_rows", [0, 1])
def test_no_rows_give_a_forest_of_the_planned_shape(n_rows: int) -> None:
    plan = planned_rpf()
    forest = grown(plan, *made(n_rows))
    artifact = read.loads(read.dumps(forest, {"schema": SCHEMA.to_json()}))
    numbers = artifact.predictor.numbers(columns_of(made(5)[0]))
    assert ((numbers >= 0) & (numbers <= 60)).all()

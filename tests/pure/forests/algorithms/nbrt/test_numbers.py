"""Boosting of a label that is a number: each function against exact rationals, plans,
artifacts, and what a forest learns.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.nbrt import targets
from grovekeeper_forests.algorithms.nbrt.boosted_rows import LocalNumberRows
from grovekeeper_forests.algorithms.nbrt.price import PricedDraws
from grovekeeper_forests.algorithms.nbrt.read import BoostedNumbers
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.bins import number_targets, quantile_bins
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    codes_of_numbers,
)
from grovekeeper_forests.data.schema import TARGET_STEPS, Label, Schema
from grovekeeper_forests.errors import AccountantMismatch, ParameterInvalid
from grovekeeper_forests.expected_accuracy import Comparison
from grovekeeper_forests.kernels import boosting
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.accountants import gdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    ExponentialMechanism,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.forest import draw, price, read
from grovekeeper_forests.releases.forest.importances import use_of
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest
from tests.support.schemas import number_schema, schema_of

DELTA = Fraction(1, 10**6)
LABEL = Label("days", bounds=(0.0, 60.0))
FEATURES = [
    {"name": f"x{i}", "type": "numeric", "lower": -1, "upper": 1} for i in range(3)
]
SCHEMA = number_schema(*FEATURES, lower=0, upper=60)
SCALES = Scales.of(2**40 // 400, n_trees=400, n_classes=0)


def planned(
    epsilon: str = "1",
    *,
    algorithm: str = "nbrt",
    accountant: str = "gdp",
    schema: Schema = SCHEMA,
    size: int | None = 3_000,
    **parameters: object,
) -> Plan:
    delta = None if accountant == "pure" else DELTA
    terms = Terms(Fraction(epsilon), accountant, delta)
    return price.plan(PlanRequest(algorithm, parameters, terms, size), schema)


def made(
    n_rows: int,
    *,
    seed: int = 0,
) -> tuple[NDArray[np.float64], Any]:
    """Rows whose number depends on two of three columns, from 15 to 45."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n_rows, 3))
    return X, 30 + 10 * np.sin(2 * X[:, 0]) + 5 * X[:, 1] * X[:, 0]


def columns_of(X: NDArray[np.float64]) -> SanitisedColumns:
    columns = tuple(np.ascontiguousarray(column) for column in X.T)
    return SanitisedColumns(columns, len(X))


def grown(
    plan: Plan, X: NDArray[np.float64], y: Any, schema: Schema = SCHEMA
) -> Forest:
    ids = np.zeros(
        (len(X), 16),
        dtype=np.uint8,
    )
    codes = codes_of_numbers(schema.label, y)
    rows = SanitisedRows(columns_of(X), codes, ids)
    return draw.grow(
        plan,
        schema,
        rows,
        SystemRandomness(),
        on_tree_done=lambda: None,
    )


# --- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spread",
    [1, 2**14, 12_345_678, TARGET_STEPS],
)
def test_gradients_are_clipped_residuals_rounded_toward_zero(spread: int) -> None:
    rng = np.random.default_rng(spread)
    y = rng.integers(0, TARGET_STEPS + 1, 500, dtype=np.int32)
    y[:250] = np.clip(
        TARGET_STEPS // 3 + rng.normal(0, spread / 4, 250), 0, TARGET_STEPS
    )
    scores = (rng.normal(0, 0.3, (500, 1)) * 2**16).astype(np.int64)
    start = np.array([TARGET_STEPS // 3, spread], dtype=np.int64)
    found = boosting.gradients_of_numbers(scores, y, start, SCALES)[:, 0].tolist()
    clip = Fraction(SCALES.clip, 2**24)
    n_inside = 0
    for code, score, gradient in zip(
        y.tolist(), scores[:, 0].tolist(), found, strict=True
    ):
        target = Fraction(abs(code - TARGET_STEPS // 3), spread) * 2**24
        whole = int(target) if code >= TARGET_STEPS // 3 else -int(target)
        residual = Fraction(whole, 2**24) - Fraction(score, 2**16)
        shortened = min(abs(residual), clip) * SCALES.length / clip
        exact = shortened if residual >= 0 else -shortened
        n_inside += abs(residual) < clip
        assert abs(gradient) <= abs(exact)
        assert abs(gradient - exact) < 2
        assert gradient**2 <= SCALES.squared_length
    assert spread < 2**20 or n_inside > 20


def test_hostile_scores_and_starts_stay_inside_the_norm() -> None:
    extremes = [
        0,
        1,
        -1,
        2**16,
        -(2**16),
        2**40,
        -(2**40),
        2**62,
        -(2**62),
    ]
    scores = np.array([*extremes, 2**63 - 1, -(2**63)], dtype=np.int64)[:, np.newaxis]
    for code in (0, 1, TARGET_STEPS // 2, TARGET_STEPS):
        y = np.full(len(scores), code, dtype=np.int32)
        for middle in (0, TARGET_STEPS):
            for spread in (1, 7, TARGET_STEPS):
                start = np.array([middle, spread], dtype=np.int64)
                found = boosting.gradients_of_numbers(scores, y, start, SCALES)
                squares = np.square(found.astype(object))
                assert squares.max() <= SCALES.squared_length
                # far above the number: the residual is negative
                assert (found[scores > 2**60] < 0).all()
                assert (found[scores < -(2**60)] > 0).all()


def test_a_contribution_that_would_be_too_long_is_dropped() -> None:
    tight = replace(SCALES, squared_length=SCALES.length**2 // 2)
    start = np.array([0, TARGET_STEPS], dtype=np.int64)
    y = np.array([TARGET_STEPS, TARGET_STEPS // 8], dtype=np.int32)
    scores = np.zeros((2, 1), dtype=np.int64)
    found = boosting.gradients_of_numbers(scores, y, start, tight)
    assert found[0] == 0
    assert found[1] > 0
    assert boosting.gradients_of_numbers(scores, y, start, SCALES)[0] > 0


@pytest.mark.parametrize(
    ("y", "start", "changes"),
    [
        (-1, (0, 1), {}),
        (TARGET_STEPS + 1, (0, 1), {}),
        (0, (0, 0), {}),
        (0, (-1, 1), {}),
        (0, (TARGET_STEPS + 1, 1), {}),
        (0, (0, 1), {"clip": 0}),
        (0, (0, 1), {"clip": 2**28 + 1}),
        (0, (0, 1), {"squared_length": 2**46 + 1}),
        (0, (0, 1), {"squared_length": 0}),
    ],
)
def test_numbers_outside_of_their_range_are_refused(
    y: int, start: tuple[int, int], changes: dict[str, int]
) -> None:
    with pytest.raises(ValueError, match="range"):
        boosting.gradients_of_numbers(
            np.zeros((1, 1), dtype=np.int64),
            np.array([y], dtype=np.int32),
            np.array(start, dtype=np.int64),
            replace(SCALES, **changes),
        )


def test_a_row_without_a_residual_counts() -> None:
    y = np.full(5, TARGET_STEPS // 4, dtype=np.int32)
    rows = LocalNumberRows(np.zeros((5, 1), dtype=np.uint8), y, n_classes=0)
    scales = targets.mean_scales(2**36)
    rows.start(np.array([TARGET_STEPS // 4, 2**20], dtype=np.int64), scales)
    assert rows.residual_sums(scales).tolist() == [0, 5 * scales.count]


# --- the start ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds",
    [
        (0, 60),
        (-5, 1e6),
        (-1e300, 1e300),
        (1, 1 + 1e-9),
        (-3e5, 0),
    ],
)
def test_the_edges_are_those_of_the_public_grid_as_codes(
    bounds: tuple[float, float],
) -> None:
    label = Label("y", bounds=bounds)
    edges = number_targets.edges_of(label)
    assert 1 <= len(edges) <= quantile_bins.MAX_CELLS
    assert (np.diff(edges) > 0).all()
    assert edges[0] >= 0
    assert edges[-1] < TARGET_STEPS
    grid = quantile_bins.grid_edges(label.column)
    codes = codes_of_numbers(label, grid)
    assert np.isin(edges, np.concatenate([codes - 1, codes])).all()


def test_utilities_are_those_of_plain_python() -> None:
    rng = np.random.default_rng(2)
    edges, distances = number_targets.edges_of(LABEL), number_targets.distances()
    reached = [TARGET_STEPS // 2**j for j in range(16, 0, -1)]
    assert number_targets.spreads().tolist() == [
        3 * distance // 2 for distance in reached
    ]
    scale = Fraction(1, 64)
    for n_rows in (0, 1, 9, 40):
        y = rng.integers(0, TARGET_STEPS + 1, n_rows, dtype=np.int32)
        codes, middle = y.tolist(), int(edges[len(edges) // 2])
        by_edge = number_targets.count_by_edge(edges, y)
        expected = [
            -abs(sum(c <= e for c in codes) - sum(c > e for c in codes))
            for e in edges.tolist()
        ]
        assert number_targets.middle_utilities(by_edge).tolist() == expected
        by_distance = number_targets.count_by_edge(distances, np.abs(y - middle))
        found = number_targets.spread_utilities(by_distance, scale).tolist()
        for place, distance in enumerate(reached):
            covered = sum(abs(c - middle) <= distance for c in codes)
            of_half = sum(abs(c - middle) <= distance // 2 for c in codes)
            miss = max(n_rows - 2 * covered, 2 * of_half - n_rows, 0)
            handicap = round(0.693 * 64) * abs(16 - place - 3)
            assert found[place] == -miss - handicap


def test_one_row_moves_utilities_against_each_other_by_their_sensitivity() -> None:
    rng = np.random.default_rng(3)
    edges, distances = number_targets.edges_of(LABEL), number_targets.distances()
    widest = [0, 0]
    for _ in range(200):
        n_rows = int(rng.integers(1, 12))
        middle = int(rng.choice(edges))
        y = np.clip(
            middle
            + rng.normal(0, 1, n_rows)
            * TARGET_STEPS
            / 2
            ** rng.integers(
                0,
                20,
            ),
            0,
            TARGET_STEPS,
        ).astype(np.int32)
        moved = []
        for codes in (y, y[1:]):
            by_distance = number_targets.count_by_edge(
                distances, np.abs(codes - middle)
            )
            moved.append(
                (
                    number_targets.middle_utilities(
                        number_targets.count_by_edge(edges, codes)
                    ),
                    number_targets.spread_utilities(by_distance, Fraction(1, 64)),
                )
            )
        for place, (more, fewer) in enumerate(zip(*moved, strict=True)):
            widest[place] = max(
                widest[place],
                int(np.ptp(more - fewer)),
            )
    assert widest == [
        number_targets.MIDDLE_SENSITIVITY,
        number_targets.SPREAD_SENSITIVITY,
    ]


def test_the_best_spread_is_about_the_deviation_of_normal_numbers() -> None:
    rng = np.random.default_rng(4)
    distances = number_targets.distances()
    for halvings in (2, 5, 9, 14):
        deviation = TARGET_STEPS / 2**halvings
        y = np.abs(rng.normal(0, deviation, 20_000))
        counts = number_targets.count_by_edge(distances, y.astype(np.int32))
        best = int(number_targets.spread_utilities(counts, Fraction(1, 2)).argmax())
        distance = int(distances[1 + best])
        assert (y <= distance).mean() >= 0.5 >= (y <= distance // 2).mean()
        assert 1 <= number_targets.spreads()[best] / deviation <= 2


def test_a_mean_moves_the_start_as_a_normal_prior_would_have_it() -> None:
    scales = targets.mean_scales(2**36)
    start = np.array(
        [TARGET_STEPS // 2, 2**20],
        dtype=np.int64,
    )
    rows, mean = 5_000, 0.4
    unit = 3 / scales.length  # spreads of one step of the sum
    released = np.array(
        [round(rows * mean / unit), rows * scales.count], dtype=np.int64
    )
    noise = unit * 2**24
    for prior in (targets.BEFORE_TREES, targets.AFTER_TREES):
        expected = rows * rows * mean / (rows**2 + (noise**2 + rows) / float(prior))
        middle, spread = targets.moved(start, released, scales, prior_variance=prior)
        assert spread == 2**20
        assert middle - start[0] == pytest.approx(
            expected * 2**20,
            abs=2,
        )
    for hostile in ([2**62, 1], [-(2**62), scales.count], [2**62, -(2**62)], [0, 0]):
        middle, _ = targets.moved(
            start,
            np.array(hostile, dtype=np.int64),
            scales,
            prior_variance=targets.BEFORE_TREES,
        )
        assert 0 <= middle <= TARGET_STEPS
    assert middle == start[0]  # nothing was counted


# --- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ["gdp", "zcdp"])
@pytest.mark.parametrize("depth", [None, 0, 2, 5])
@pytest.mark.parametrize("calibration", ["measured", "none"])
def test_a_plan_costs_its_amount_and_no_more(
    accountant: str, depth: int | None, calibration: str
) -> None:
    parameters = {"calibration": calibration}
    if depth is not None:
        parameters["max_depth"] = depth
    plan = planned(accountant=accountant, **parameters)
    assert plan.terms.covers(plan.event)
    budget = plan.terms.budget()
    assert budget.loss(plan.event) > Fraction(96, 100) * budget.limit or depth == 0
    parts = PricedDraws.of(plan.event)
    assert parts.middle > 0
    assert parts.spread > 0
    assert parts.split == 0
    assert (parts.tree > 0) is (depth != 0)
    assert (parts.tally > 0) is (depth != 0 and calibration == "measured")
    assert (parts.bins is None) is (depth == 0)
    price.require_priced(plan, SCHEMA)
    assert (
        Plan.from_json(plan.to_json(), catalogue.algorithm("nbrt").parameters) == plan
    )


def test_the_selections_of_shallow_trees_get_a_larger_share() -> None:
    shares = []
    for depth in (2, 3):
        plan = planned(max_depth=depth)
        parts = [each.event for each in plan.event.parts]
        selections = [each for each in parts if isinstance(each, ExponentialMechanism)]
        costs = [
            gdp.loss(each, adjacency=Adjacency.ADD_REMOVE_ONE) for each in selections
        ]
        assert costs[0] / sum(costs) == pytest.approx(
            0.6,
            abs=0.01,
        )
        shares.append(float(sum(costs) / plan.terms.budget().limit))
    assert shares == pytest.approx([0.0932, 0.0466], rel=0.02)


def test_the_depth_of_numbers_follows_from_size_and_budget() -> None:
    depths = [
        int(planned(size=size).parameters["max_depth"]) for size in (99, 3_000, 10**6)
    ]
    assert depths == [2, 4, 6]


def test_a_correction_for_two_classes_has_no_effect_and_a_warning_says_so() -> None:
    asked = planned(calibration="clip")
    [warning] = asked.warnings
    assert warning.startswith("calibration has no effect as clip")
    assert asked.event == planned(calibration="none").event


@pytest.mark.parametrize(
    ("slug", "accountant", "idle", "value"),
    [
        ("nbrt", "gdp", "start", "split"),
        ("nbrt", "zcdp", "start", "classes"),
        ("rpf", "pure", "calibration", "none"),
        ("rpf", "gdp", "calibration", "temperature"),
    ],
)
def test_a_parameter_of_classes_has_no_effect_and_a_warning_says_so(
    slug: str, accountant: str, idle: str, value: str
) -> None:
    asked = planned(algorithm=slug, accountant=accountant, **{idle: value})
    assert asked.warnings == (f"{idle} has no effect: the label is a number.",)
    usual = planned(algorithm=slug, accountant=accountant)
    assert usual.warnings == ()
    assert asked.event == usual.event


def test_events_of_another_form_are_refused() -> None:
    parts = planned().event.parts
    for other in ((*parts[:2], *parts[3:]), (parts[1], *parts[1:])):
        with pytest.raises(UnknownPrivacyEvent):
            PricedDraws.of(Sequential(tuple(other)))


def test_auto_chooses_boosting_for_numbers_where_the_account_has_a_delta() -> None:
    for accountant in ("gdp", "zcdp"):
        assert planned(algorithm="auto", accountant=accountant).algorithm == "nbrt"
    hopeless = planned("0.001", algorithm="auto", size=100)
    assert hopeless.parameters["max_depth"] == 0
    assert "a noisy average" in hopeless.warnings[-1]
    with pytest.raises(AccountantMismatch):
        planned(accountant="pure")


@pytest.mark.parametrize(
    "slug",
    ["mrf", "srt", "bms-rf", "sspe-1", "pte"],
)
def test_other_algorithms_refuse_numbers_and_name_those_that_do_not(slug: str) -> None:
    with pytest.raises(ParameterInvalid, match="algorithm: not-for-numbers") as refused:
        planned(algorithm=slug)
    [problem] = refused.value.problems
    assert problem.accepted == ("rpf", "nbrt")


def test_the_refusal_of_an_algorithm_names_only_those_that_the_account_can_pay_for():
    with pytest.raises(ParameterInvalid, match="algorithm: not-for-numbers") as refused:
        planned(algorithm="rdt-ta", accountant="pure")
    [problem] = refused.value.problems
    assert problem.accepted == ("rpf",)


def test_every_entry_says_whether_it_predicts_numbers() -> None:
    listed = {each["slug"]: each["predicts_numbers"] for each in catalogue.algorithms()}
    assert {slug for slug, predicts in listed.items() if predicts} == {
        "auto",
        "rpf",
        "nbrt",
    }
    for slug in listed.keys() - {"auto"}:
        assert catalogue.algorithm(slug).predicts_numbers is listed[slug]


def test_a_profile_pays_for_the_bins_and_not_for_the_start() -> None:
    reused = quantile_bins.ReusedProfile("pf_a", ((1,), (1,), (1,)), ())
    terms = Terms(Fraction(1), "gdp", DELTA)
    request = PlanRequest("nbrt", {}, terms, profile=reused)
    plan = price.plan(request, SCHEMA)
    price.require_priced(plan, SCHEMA)
    with_profile = PricedDraws.of(plan.event)
    alone = PricedDraws.of(price.plan(replace(request, profile=None), SCHEMA).event)
    assert with_profile.bins is None
    assert alone.bins is not None
    for name in ("start", "tree", "middle", "spread"):
        assert getattr(with_profile, name) > getattr(alone, name) > 0


def test_no_accuracy_of_classes_is_expected_of_numbers() -> None:
    comparison = Comparison("nbrt", "gdp", 3_000, SCHEMA)
    assert comparison.at(1.0) is None
    assert comparison.nearest(1.0) is None
    assert not comparison.curve()


# --- forests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [1, 50])
def test_numbers_are_learnt_also_within_bounds_that_are_far_too_wide(
    widths: int,
) -> None:
    schema = number_schema(*FEATURES, lower=0, upper=60 * widths)
    X, y = made(6_000)
    plan = planned("2", algorithm="auto", schema=schema, size=5_000)
    forest = grown(plan, X[:5_000], y[:5_000], schema)
    numbers = Predictor(forest, schema).numbers(columns_of(X[5_000:]))
    errors = numbers - y[5_000:]
    assert numbers.shape == (1_000,)
    assert 1 - float((errors**2).mean() / y[5_000:].var()) > 0.8


def test_an_artifact_holds_numbers_and_is_read_as_written() -> None:
    X, y = made(300)
    plan = planned(n_estimators=20, max_depth=2)
    forest = grown(plan, X, y)
    data = read.dumps(forest, {"schema": SCHEMA.to_json()})
    assert len(data) <= read.planned_bytes(plan, SCHEMA) + 200
    artifact = read.loads(data)
    predictor = artifact.predictor
    assert predictor.read_outs == ("number",)
    columns = columns_of(X)
    numbers = predictor.numbers(columns)
    assert numbers.tolist() == predictor.numbers(columns, read_out="number").tolist()
    assert numbers.tolist() == Predictor(forest, SCHEMA).numbers(columns).tolist()
    assert 0 <= numbers.min() < numbers.max() <= 60
    with pytest.raises(ParameterInvalid, match="read_out"):
        predictor.numbers(columns, read_out="calibrated")
    with pytest.raises(ValueError, match="no probabilities"):
        predictor.probabilities(columns)
    use = use_of(forest, SCHEMA)
    assert use.leaf_shares == ()
    assert use.importances is None
    assert sum(use.n_splits) > 0


@pytest.mark.parametrize(
    "start",
    [
        (-1, 1),
        (TARGET_STEPS + 1, 1),
        (0, 0),
        (0, TARGET_STEPS + 1),
        (0, 1, 1),
        (0,),
    ],
)
def test_an_artifact_with_an_impossible_start_is_refused(
    start: tuple[int, ...],
) -> None:
    plan = planned(n_estimators=2, max_depth=1)
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


def test_sums_become_numbers_inside_the_bounds() -> None:
    forest = grown(
        planned(n_estimators=2, max_depth=1),
        *made(5),
    )
    start = np.array(
        [TARGET_STEPS // 2, TARGET_STEPS // 16],
        dtype=np.int64,
    )
    grid = forest.plan.grid
    encoding = quantile_bins.encoding(SCHEMA, forest.arrays["cuts"], grid)
    arrays = {**forest.arrays, "start": start}
    reader = BoostedNumbers(encoding, arrays, SCHEMA.label)
    sums = np.array([0.0, 2**16, -(2**15), 2.0**40, -(2.0**40)])
    assert reader.numbers(sums).tolist() == [30.0, 33.75, 28.125, 60.0, 0.0]


def test_a_model_of_classes_has_no_numbers() -> None:
    schema = schema_of(*FEATURES, classes=["a", "b"])
    plan = planned(schema=schema, n_estimators=2, max_depth=1)
    X, _ = made(4)
    ids = np.zeros((4, 16), dtype=np.uint8)
    rows = SanitisedRows(
        columns_of(X),
        np.array([0, 1, 0, 1], dtype=np.int32),
        ids,
    )
    forest = draw.grow(
        plan, schema, rows, SystemRandomness(), on_tree_done=lambda: None
    )
    with pytest.raises(ValueError, match="has classes"):
        Predictor(forest, schema).numbers(columns_of(X))


def test_a_forest_of_one_number_says_so() -> None:
    flat = planned("0.001", algorithm="auto", size=100)
    words = read.only_answer_in_words(
        grown(flat, *made(50)),
        SCHEMA,
        100,
    )
    assert words is not None
    assert words["text"].startswith(
        f"The model answers {words['label']} whatever the row is"
    )
    assert "leaf has" not in words["text"]
    assert 0 <= float(words["label"]) <= 60
    forest = grown(planned("5", n_estimators=30), *made(2_000))
    assert read.only_answer(forest, SCHEMA) is None
    for code, bound in ((0, "0"), (TARGET_STEPS, "60")):
        arrays = dict(forest.arrays)
        arrays["start"] = np.array(
            [code, 1],
            dtype=np.int64,
        )
        scores = np.full_like(arrays["scores"], -1 if code == 0 else 1)
        beyond = Forest(forest.plan, {**arrays, "scores": scores})
        assert read.only_answer(beyond, SCHEMA) == bound


def test_a_row_that_reaches_every_leaf_alike_gives_the_start() -> None:
    X, y = made(3_000)
    plan = planned("20", max_depth=0)
    forest = grown(plan, X, y)
    assert forest.arrays["scores"].shape == (400, 1, 1)
    numbers = Predictor(forest, SCHEMA).numbers(columns_of(X[:3]))
    assert len(set(numbers.tolist())) == 1
    assert math.isclose(numbers[0], y.mean(), abs_tol=1)


@pytest.mark.parametrize("parameters", [{"calibration": "none"}, {"max_depth": 0}])
def test_a_forest_without_a_last_mean_is_grown_and_read(
    parameters: dict[str, object],
) -> None:
    plan = planned(n_estimators=3, **parameters)
    assert PricedDraws.of(plan.event).tally == 0
    forest = grown(plan, *made(50))
    assert forest.arrays["scores"].dtype == np.int32
    again = read.loads(read.dumps(forest, {"schema": SCHEMA.to_json()}))
    assert np.array_equal(again.forest.arrays["start"], forest.arrays["start"])

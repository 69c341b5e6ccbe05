"""A plan that reuses a profile pays for trees alone, and its artifact is complete
without the profile.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.algorithms.bms_rf.read import StackedFamily
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.contract.plan import Plan, PlanInvalid
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Budget, Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan, read_plan
from grovekeeper_forests.releases.profile import draw as profile_draw
from grovekeeper_forests.releases.profile import price as profile_price
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 10, "missing": True},
    {"name": "weight", "type": "numeric", "lower": 0, "upper": 100},
    classes=["a", "b"],
    label="y",
)
DELTA = Fraction(1, 10**6)
STEPS = ["mrf", "maxtree", "rdt-ta", "rdt-jagannathan", "srt", "spe"]
"""Algorithms with public bins of equal width, which cost no budget."""
CASES = [
    ("rpf", "pure", None),
    ("rpf", "gdp", DELTA),
    ("nbrt", "gdp", DELTA),
    ("nbrt", "zcdp", DELTA),
]


def rows_of(n_rows: int = 2_000) -> SanitisedRows:
    generator = np.random.default_rng(3)
    height = generator.uniform(0, 10, n_rows)
    columns = SanitisedColumns((height, generator.uniform(0, 100, n_rows)), n_rows)
    return SanitisedRows(
        columns, (height > 4).astype(np.int32), np.zeros((n_rows, 16), dtype=np.uint8)
    )


@pytest.fixture(scope="module")
def released() -> ReusedProfile:
    facts = public_facts(Terms(Fraction(5)), None, SCHEMA, Adjacency.ADD_REMOVE_ONE)
    return profile_draw.release(
        profile_price.plan({}, facts), SCHEMA, rows_of(), SystemRandomness()
    ).reused("pf_a")


def planned(
    slug: str,
    accountant: str,
    delta: Fraction | None,
    profile: ReusedProfile | None,
    **changes: object,
) -> Plan:
    parameters = {"n_estimators": 8, "max_depth": 2, **changes}
    return plan(
        PlanRequest(
            slug,
            parameters,
            Terms(Fraction(5), accountant, delta),
            2_000,
            profile=profile,
        ),
        SCHEMA,
    )


@pytest.mark.parametrize(("slug", "accountant", "delta"), CASES)
def test_all_of_the_price_goes_to_the_trees(
    slug: str, accountant: str, delta: Fraction | None, released: ReusedProfile
) -> None:
    alone, reusing = (
        planned(slug, accountant, delta, None),
        planned(slug, accountant, delta, released),
    )
    assert len(reusing.event.parts) < len(alone.event.parts)  # type: ignore[union-attr]  # both are sequences
    request = PlanRequest(slug, {}, Terms(Fraction(5), accountant, delta))
    budget: Budget = public_facts(
        request.terms, request.public_size, SCHEMA, Adjacency.ADD_REMOVE_ONE
    ).budget
    assert 0.999 * budget.limit < budget.loss(reusing.event) <= budget.limit
    assert read_plan(reusing.to_json()) == reusing
    assert "profile" not in alone.to_json(), "without one nothing changes"


@pytest.mark.parametrize(("slug", "accountant", "delta"), CASES)
def test_a_model_carries_what_it_used_and_predicts_by_it(
    slug: str, accountant: str, delta: Fraction | None, released: ReusedProfile
) -> None:
    job_plan = planned(slug, accountant, delta, released)
    forest = grow(
        job_plan, SCHEMA, rows_of(), SystemRandomness(), on_tree_done=lambda: None
    )
    assert np.array_equal(forest.arrays["cuts"], released.cut_array)
    artifact = released_forest.loads(
        released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
    )
    assert artifact.plan.profile == released
    requested = SanitisedColumns((np.array([1.0, 9.0]), np.array([50.0, 50.0])), 2)
    shares = Predictor(artifact.forest, SCHEMA).probabilities(requested)
    assert shares[0, 0] > shares[1, 0]


def answers_along(artifact: released_forest.Artifact) -> set[bytes]:
    """Predictions for rows along the first number."""
    requested = SanitisedColumns((np.linspace(0.1, 9.9, 50), np.full(50, 50.0)), 50)
    answers = Predictor(artifact.forest, SCHEMA).probabilities(requested)
    return {row.tobytes() for row in answers}


@pytest.mark.parametrize("slug", STEPS)
def test_bins_of_a_profile_stand_in_place_of_equal_steps(
    slug: str, released: ReusedProfile
) -> None:
    narrow = replace(released, cuts=((40,), ()))
    job_plan = planned(slug, "pure", None, narrow)
    assert job_plan.profile == narrow
    forest = grow(
        job_plan, SCHEMA, rows_of(300), SystemRandomness(), on_tree_done=lambda: None
    )
    artifact = released_forest.loads(
        released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
    )
    assert len(answers_along(artifact)) <= 2, "one cut of the only number that has any"


def test_medians_of_a_second_dataset_are_among_the_bins_of_a_profile(
    released: ReusedProfile,
) -> None:
    narrow = replace(released, cuts=((40,), ()))
    second = Terms(Fraction(5))
    parameters = {"n_estimators": 4, "max_depth": 2}
    request = PlanRequest(
        "sspe-1",
        parameters,
        Terms(Fraction(5)),
        2_000,
        profile=narrow,
        unlabelled=second,
        unlabelled_size=2_000,
    )
    made, alone = plan(request, SCHEMA), plan(replace(request, profile=None), SCHEMA)
    forest = grow(
        made,
        SCHEMA,
        rows_of(300),
        SystemRandomness(),
        on_tree_done=lambda: None,
        unlabelled=rows_of(200),
    )
    artifact = released_forest.loads(
        released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
    )

    assert made.profile == artifact.plan.profile == narrow
    assert made.event == alone.event, "counts are the same"
    assert made.unlabelled is not None
    assert alone.unlabelled is not None
    assert made.unlabelled.event != alone.unlabelled.event, (
        "medians have fewer candidates"
    )
    assert len(answers_along(artifact)) <= 2, "one cut of the only number that has any"


@pytest.mark.parametrize(
    "parameters", [{}, {"layer_assignment": "sharded"}, {"leaf": "label"}]
)
def test_the_first_of_stacked_layers_counts_in_the_bins_of_a_profile(
    released: ReusedProfile, parameters: dict[str, object]
) -> None:
    narrow = replace(released, cuts=((40,), ()))
    job_plan = planned("bms-rf", "pure", None, narrow, **parameters)
    forest = grow(
        job_plan, SCHEMA, rows_of(300), SystemRandomness(), on_tree_done=lambda: None
    )
    artifact = released_forest.loads(
        released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
    )
    first, second = (
        layer.encoding.edges
        for layer in StackedFamily().reader(forest, SCHEMA, "mv").layers
    )

    assert artifact.plan.profile == narrow
    assert [len(own) for own in first if own is not None] == [1, 0]
    assert all(own is not None and len(own) > 1 for own in second), (
        "votes have moved the rows"
    )
    alone = planned("bms-rf", "pure", None, narrow, **parameters, n_layers=1)
    forest = grow(
        alone, SCHEMA, rows_of(300), SystemRandomness(), on_tree_done=lambda: None
    )
    assert (
        len(
            answers_along(
                released_forest.loads(
                    released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
                )
            )
        )
        <= 2
    )


def test_cuts_of_another_schema_are_no_artifact(released: ReusedProfile) -> None:
    job_plan = planned("mrf", "pure", None, released)
    forest = grow(
        job_plan, SCHEMA, rows_of(50), SystemRandomness(), on_tree_done=lambda: None
    )
    for cuts in (((5,),), ((5, 4), ()), ((65_500,), ())):
        foreign = replace(
            forest, plan=replace(job_plan, profile=replace(released, cuts=cuts))
        )
        with pytest.raises(released_forest.ArtifactInvalid):
            released_forest.loads(
                released_forest.dumps(foreign, {"schema": SCHEMA.to_json()})
            )


def test_cuts_that_are_not_those_of_the_profile_are_no_artifact(
    released: ReusedProfile,
) -> None:
    job_plan = planned("rpf", "pure", None, released)
    forest = grow(
        job_plan, SCHEMA, rows_of(50), SystemRandomness(), on_tree_done=lambda: None
    )
    other = replace(released, cuts=((7,), released.cuts[1]))
    data = released_forest.dumps(
        replace(forest, plan=replace(job_plan, profile=other)),
        {"schema": SCHEMA.to_json()},
    )
    with pytest.raises(released_forest.ArtifactInvalid):
        released_forest.loads(data)


def test_class_counts_of_a_profile_are_where_boosting_begins(
    released: ReusedProfile,
) -> None:
    starts = []
    for prior in ((2**40, 0), (0, 2**40)):
        job_plan = planned("nbrt", "gdp", DELTA, replace(released, prior=prior))
        forest = grow(
            job_plan, SCHEMA, rows_of(10), SystemRandomness(), on_tree_done=lambda: None
        )
        starts.append(int(forest.arrays["start"][0]))
    assert starts[0] == -starts[1] < 0


def test_a_forest_without_splits_uses_no_profile(released: ReusedProfile) -> None:
    for slug, accountant, delta in CASES:
        job_plan = planned(slug, accountant, delta, released, max_depth=0)
        assert job_plan.profile is None
        assert (
            job_plan.event == planned(slug, accountant, delta, None, max_depth=0).event
        )
        assert any("without splits" in warning for warning in job_plan.warnings)
        shallow = planned(slug, accountant, delta, released, max_depth=1)
        assert (shallow.profile, shallow.warnings) == (released, ())


def test_an_algorithm_that_has_no_use_for_bins_refuses_a_profile(
    released: ReusedProfile,
) -> None:
    request = PlanRequest(
        "pte",
        {},
        Terms(Fraction(5), adjacency=Adjacency.LABEL),
        2_000,
        profile=released,
    )
    with pytest.raises(ParameterInvalid) as refused:
        plan(request, SCHEMA)
    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("profile",), "not-for-this-algorithm")
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"cuts": [[0]]},
        {"cuts": [[1] * 16]},
        {"cuts": [[70_000]]},
        {"prior": [1, 2]},
        {"id": 4},
        {"more": 1},
    ],
)
def test_a_plan_with_a_foreign_profile_is_refused(
    released: ReusedProfile, changes: dict[str, Any]
) -> None:
    value = planned("rpf", "pure", None, released).to_json()
    assert read_plan({**value, "profile": released.to_json()}).to_json() == value
    with pytest.raises(PlanInvalid):
        read_plan({**value, "profile": {**released.to_json(), **changes}})

"""Profiles: prices, releases, and artifacts that are read back."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins import noisy_counts, quantile_bins, releases
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    codes_of_numbers,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.forest.price import PlanRequest
from grovekeeper_forests.releases.profile import draw as profile_draw
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.profile.price import ProfileInvalid
from grovekeeper_forests.releases.profile.read import Profile
from tests.support.schemas import schema_of

NUMBERS = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 10, "missing": True},
    {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    classes=["a", "b", "c"],
    label="y",
)
FREE = schema_of(
    {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    classes=["a", "b"],
    label="y",
)
NUMBER = {"name": "days", "type": "integer", "lower": 0, "upper": 60}
OF_A_NUMBER = Schema.from_json(
    {"features": NUMBERS.to_json()["features"], "label": NUMBER}
)
DELTA = Fraction(1, 10**6)
ACCOUNTS = [("pure", None), ("zcdp", DELTA), ("gdp", DELTA)]


def facts(
    schema: Schema, accountant: str, delta: Fraction | None, epsilon: str = "1"
) -> PublicFacts:
    request = PlanRequest("profile", {}, Terms(Fraction(epsilon), accountant, delta))
    return public_facts(
        request.terms, request.public_size, schema, Adjacency.ADD_REMOVE_ONE
    )


def rows_of(n_rows: int) -> SanitisedRows:
    generator = np.random.default_rng(5)
    columns = (
        generator.uniform(0, 10, n_rows),
        generator.integers(0, 2, n_rows).astype(np.int32),
    )
    labels = np.arange(n_rows, dtype=np.int32) % 3
    return SanitisedRows(
        SanitisedColumns(columns, n_rows),
        labels,
        np.zeros((n_rows, 16), dtype=np.uint8),
    )


def released(
    accountant: str, delta: Fraction | None, n_rows: int = 3_000, **parameters: str
) -> Profile:
    plan = profile_price.plan(parameters, facts(NUMBERS, accountant, delta, "5"))
    return profile_draw.release(plan, NUMBERS, rows_of(n_rows), SystemRandomness())


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
@pytest.mark.parametrize("schema", [NUMBERS, FREE])
@pytest.mark.parametrize("size_share", ["0", "0.3"])
def test_the_event_uses_the_price_up_and_no_more(
    accountant: str, delta: Fraction | None, schema: Schema, size_share: str
) -> None:
    public = facts(schema, accountant, delta)
    spent = public.budget.loss(
        profile_price.plan({"size_share": size_share}, public).event
    )
    assert 0.999 * public.budget.limit < spent <= public.budget.limit


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
def test_released_numbers_are_near_the_rows(
    accountant: str, delta: Fraction | None
) -> None:
    profile = released(accountant, delta, size_share="0.2")
    assert profile.counts_in_rows == pytest.approx(
        [1_000.0] * 3, abs=20 * profile.count_noise_sd
    )
    assert profile.size_in_rows == pytest.approx(
        3_000.0, abs=20 * profile.size_noise_sd
    )
    assert profile.edges()["height"] == pytest.approx(
        [10 * step / 16 for step in range(1, 16)], abs=0.6
    )
    assert profile.size_noise_sd < 20


def test_without_a_share_the_size_is_the_sum_of_the_classes() -> None:
    profile = released("pure", None)
    assert profile.size is None
    assert profile.size_in_rows == sum(profile.counts_in_rows)
    assert profile.size_noise_sd == pytest.approx(profile.count_noise_sd * 3**0.5)


@pytest.mark.parametrize("n_rows", [0, 1])
def test_no_number_of_rows_is_an_error(n_rows: int) -> None:
    profile = released("gdp", DELTA, n_rows)
    assert profile.cuts.shape == (1, 15)
    assert len(profile.counts_in_rows) == 3


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
def test_a_profile_survives_its_json(accountant: str, delta: Fraction | None) -> None:
    profile = released(accountant, delta, bins="8", size_share="0.1")
    again = Profile.from_json(profile.to_json(), NUMBERS)
    assert again.to_json() == profile.to_json()
    assert np.array_equal(again.cuts, profile.cuts)
    assert len(profile.edges()["height"]) <= 7


def _changed(value: dict[str, Any], **changes: object) -> dict[str, Any]:
    return {**value, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"cuts": [[5, 4]]},
        {"cuts": [[1], [2]]},
        {"cuts": [[65_500]]},
        {"class_counts": ["1", "2"]},
        {"class_counts": [1, 2, 3]},
        {"size": "4"},
        {"plan": {}},
        {"extra": 1},
    ],
)
def test_foreign_profiles_are_refused(changes: dict[str, object]) -> None:
    profile = released("pure", None).to_json()
    with pytest.raises(ProfileInvalid):
        Profile.from_json(_changed(profile, **changes), NUMBERS)


@pytest.mark.parametrize(
    ("asked", "at"),
    [
        ({"class_share": "0.7", "size_share": "0.3"}, ("size_share",)),
        ({"bins": "32"}, ("bins",)),
        ({"class_share": "0"}, ("class_share",)),
        ({"class_share": "0.95"}, ("class_share",)),
        ({"size_share": "0.6"}, ("size_share",)),
        ({"size_share": "-0.1"}, ("size_share",)),
        ({"depth": 1}, ("parameters",)),
    ],
)
def test_broken_parameters_are_named(asked: dict[str, object], at: str) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        profile_price.plan(asked, facts(NUMBERS, "pure", None))
    assert [problem.place for problem in refused.value.problems] == [at]


@pytest.mark.parametrize(("n_bins", "levels"), [("4", 2), ("8", 3), ("16", 4)])
def test_bins_are_halved_as_often_as_their_number_says(
    n_bins: str, levels: int
) -> None:
    plan = profile_price.plan({"bins": n_bins}, facts(NUMBERS, "pure", None))
    bins = profile_price.parts_of(plan.event).bins
    assert bins is not None
    assert quantile_bins.medians_of(bins)[1] == levels


def test_too_small_a_share_is_refused_before_it_is_priced() -> None:
    with pytest.raises(ParameterInvalid):
        profile_price.plan({"class_share": "0.01"}, facts(FREE, "pure", None, "1e-12"))


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
def test_the_bound_of_the_noise_holds_as_often_as_it_says(
    accountant: str, delta: Fraction | None
) -> None:
    public = facts(FREE, accountant, delta)
    event = noisy_counts.priced(public.epsilon, public.budget, coordinates=20_000)
    noise = noisy_counts.in_rows(
        releases.release_counts(
            np.zeros(20_000, dtype=np.int64), event, SystemRandomness()
        ),
        event,
    )
    bound = noisy_counts.noise_bound(event, level=0.95)
    outside = float(np.mean(np.abs(noise) > bound))
    assert 0.01 < outside < 0.06
    assert float(noise.std()) == pytest.approx(noisy_counts.noise_sd(event), rel=0.05)


def test_a_profile_without_noise_to_speak_of_can_be_reused() -> None:
    planned = profile_price.plan({}, facts(FREE, "pure", None, "5000"))
    counts = np.array([0, 7, *[3] * (FREE.n_classes - 2)], dtype=np.int64)
    reused = Profile(planned, FREE, quantile_bins.no_cuts(FREE), counts, None).reused(
        "prof"
    )
    assert reused.prior[:2] == (0, 2**62)


def of_a_number(accountant: str, delta: Fraction | None, **asked: str) -> Profile:
    plan = profile_price.plan(asked, facts(OF_A_NUMBER, accountant, delta, "20"))
    # of 6,000 rows, 100 have each of the numbers 0 to 59
    rows = rows_of(6_000)
    days = np.arange(6_000) % 60
    rows = replace(rows, y=codes_of_numbers(OF_A_NUMBER.label, days.astype(np.float64)))
    return profile_draw.release(plan, OF_A_NUMBER, rows, SystemRandomness())


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
@pytest.mark.parametrize("size_share", ["0", "0.2"])
def test_a_profile_of_a_number_has_size_mean_and_quantiles(
    accountant: str, delta: Fraction | None, size_share: str
) -> None:
    profile = of_a_number(accountant, delta, size_share=size_share)
    assert profile.numbers is not None
    mean, *quantiles = (
        estimate for table in (0, 1) for estimate in profile.numbers.estimates(table)
    )
    assert mean.value == pytest.approx(29.5, abs=1.0)
    assert mean.low < mean.value < mean.high
    assert [each.value for each in quantiles] == pytest.approx(
        [2, 14, 29, 44, 56], abs=3
    )
    assert profile.counts_in_rows == []
    assert profile.size_noise_sd < 50
    assert profile.size_in_rows == pytest.approx(6_000, abs=20 * profile.size_noise_sd)
    assert (profile.size is None) is (size_share == "0")
    reused = profile.reused("pf_a")
    assert reused.prior == ()
    assert len(reused.cuts[0]) == 15


@pytest.mark.parametrize(("accountant", "delta"), ACCOUNTS)
def test_a_profile_of_a_number_uses_its_price_up_and_survives_its_json(
    accountant: str, delta: Fraction | None
) -> None:
    public = facts(OF_A_NUMBER, accountant, delta)
    spent = public.budget.loss(profile_price.plan({}, public).event)
    assert 0.999 * public.budget.limit < spent <= public.budget.limit
    profile = of_a_number(accountant, delta)
    again = Profile.from_json(profile.to_json(), OF_A_NUMBER)
    assert again.to_json() == profile.to_json()


def test_foreign_numbers_are_no_profile() -> None:
    profile = of_a_number("pure", None).to_json()
    of_classes = released("pure", None).to_json()
    tables = profile["numbers"]
    assert isinstance(tables, list)
    mean, [lowest, *others] = tables
    for stored, schema in [
        (_changed(profile, numbers=[mean]), OF_A_NUMBER),
        (_changed(profile, numbers=[mean, [["61"], *others]]), OF_A_NUMBER),
        (_changed(profile, numbers=[mean, [["01"], *others]]), OF_A_NUMBER),
        (_changed(profile, numbers=[mean, [[1], *others]]), OF_A_NUMBER),
        (_changed(profile, class_counts=["4"]), OF_A_NUMBER),
        (_changed(profile, plan=of_classes["plan"]), OF_A_NUMBER),
        (of_classes, OF_A_NUMBER),
        (profile, NUMBERS),
        (_changed(of_classes, numbers=tables), NUMBERS),
    ]:
        with pytest.raises(ProfileInvalid):
            Profile.from_json(stored, schema)
    assert Profile.from_json(profile, OF_A_NUMBER).to_json() == profile
    assert len(lowest) == 1


def test_bounds_without_a_mean_are_refused_at_the_label() -> None:
    wide = NUMBER | {"type": "number", "upper": 1e200}
    schema = Schema.from_json(OF_A_NUMBER.to_json() | {"label": wide})
    with pytest.raises(ParameterInvalid) as refused:
        profile_price.plan({}, facts(schema, "pure", None))
    [problem] = refused.value.problems
    expected = (("label",), "bounds-too-close-or-too-wide")
    assert (problem.place, problem.problem) == expected
    with pytest.raises(ParameterInvalid, match="epsilon: too-small"):
        profile_price.plan({}, facts(OF_A_NUMBER, "pure", None, "1e-12"))

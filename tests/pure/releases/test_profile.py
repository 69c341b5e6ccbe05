"""Profiles: prices, releases, and artifacts that are read back."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins import noisy_counts, quantile_bins, releases
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
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
        ({"depth": 1}, ("parameters",)),
    ],
)
def test_broken_parameters_are_named(asked: dict[str, object], at: str) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        profile_price.plan(asked, facts(NUMBERS, "pure", None))
    assert [problem.place for problem in refused.value.problems] == [at]


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

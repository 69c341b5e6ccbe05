"""Events round-trip through JSON; every form that is not exactly a known event is
refused.
"""

from fractions import Fraction
from typing import Any

import pytest

from grovekeeper_forests.privacy import events
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)

AR = Adjacency.ADD_REMOVE_ONE
LEAVES: tuple[Event, ...] = (
    PermuteAndFlip(AR, Fraction(512), Fraction(3, 2**32), 30),
    DiscreteLaplace(Adjacency.LABEL, Fraction(2), Fraction(1, 4), 8),
    ExponentialMechanism(AR, Fraction(4), Fraction(1, 8), 30),
    RoundedGaussian(AR, Fraction(5, 3), Fraction(2**48), 12),
)
each_leaf = pytest.mark.parametrize(
    "leaf", LEAVES, ids=lambda leaf: type(leaf).__name__
)


@each_leaf
def test_leaf_survives_json(leaf: Event) -> None:
    nested = Sequential((Part(2, leaf), Part(1, Parallel("nodes", (Part(4, leaf),)))))

    assert events.from_json(nested.to_json()) == nested


def test_json_forms_of_selections_and_normal_noise() -> None:
    assert LEAVES[2].to_json() == {
        "type": "exponential-mechanism/1",
        "adjacency": "add_remove",
        "range_sensitivity": "4",
        "inverse_scale": "1/8",
        "max_candidates": 30,
    }
    assert LEAVES[3].to_json() == {
        "type": "rounded-gaussian/1",
        "adjacency": "add_remove",
        "l2_sensitivity_squared": "5/3",
        "sigma_squared": "281474976710656",
        "coordinates": 12,
    }


def changed(leaf: Event, **fields: Any) -> dict[str, Any]:
    return {**leaf.to_json(), **fields}


@each_leaf
def test_field_too_many_or_too_few_is_refused(leaf: Event) -> None:
    form = leaf.to_json()
    for broken in (
        {**form, "note": 1},
        {name: form[name] for name in form if name != "adjacency"},
    ):
        with pytest.raises(UnknownPrivacyEvent):
            events.from_json(broken)


@each_leaf
def test_numbers_are_exact_text_in_lowest_terms(leaf: Event) -> None:
    number = next(
        name
        for name, value in leaf.to_json().items()
        if name != "adjacency" and name != "type"
    )
    for value in ("2/4", "-1", "0.5", "1e3", 1, 1.0, None, "1/0", ""):
        with pytest.raises(UnknownPrivacyEvent):
            events.from_json(changed(leaf, **{number: value}))


@each_leaf
def test_other_versions_are_unknown(leaf: Event) -> None:
    for slug in (
        str(leaf.to_json()["type"]).replace("/1", "/2"),
        "discrete-gaussian/1",
        "",
        1,
    ):
        with pytest.raises(UnknownPrivacyEvent):
            events.from_json(changed(leaf, type=slug))


def test_normal_noise_has_a_variance_above_zero() -> None:
    with pytest.raises(ValueError):
        RoundedGaussian(AR, Fraction(1), Fraction(0), 1)
    with pytest.raises(UnknownPrivacyEvent):
        events.from_json(changed(LEAVES[3], sigma_squared="0"))


@pytest.mark.parametrize("size", [0, -1, True, "3", 1.0])
def test_sizes_are_positive_integers(size: object) -> None:
    with pytest.raises(UnknownPrivacyEvent):
        events.from_json(changed(LEAVES[3], coordinates=size))

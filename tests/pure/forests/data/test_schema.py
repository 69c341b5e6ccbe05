"""Equality of schemas: the declarations that give every row an identical meaning."""

from typing import Any

import pytest

from grovekeeper_forests import limits
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid

AGE = {"name": "age", "type": "integer", "lower": 0, "upper": 120, "bounds": "natural"}
SEX = {
    "name": "sex",
    "type": "categorical",
    "categories": ["Female", "Male"],
    "ordered": False,
}
INCOME = {"name": "income", "classes": ["low", "high"]}


def schema(*features: dict[str, Any], label: dict[str, Any] = INCOME) -> Schema:
    return Schema.from_json({"features": features or (AGE, SEX), "label": label})


@pytest.mark.parametrize("note", [None, "documented", "rounded-from-data"])
def test_a_note_on_bounds_changes_nothing_that_is_read(note: str | None) -> None:
    other = schema({**AGE, "bounds": note}, SEX)
    assert other != schema()
    assert other.has_features_of(schema())
    assert other.reads_like(schema())


@pytest.mark.parametrize(
    "other",
    [
        schema(AGE),
        schema(SEX, AGE),
        schema({**AGE, "upper": 121}, SEX),
        schema({**AGE, "type": "numeric"}, SEX),
        schema({**AGE, "missing": True}, SEX),
        schema({**AGE, "name": "years"}, SEX),
        schema(AGE, {**SEX, "categories": ["Male", "Female"]}),
        schema(AGE, {**SEX, "ordered": True}),
    ],
)
def test_other_differences_of_a_feature_matter(other: Schema) -> None:
    assert not other.has_features_of(schema())
    assert not other.reads_like(schema())


def test_classes_count_where_labels_are_read_and_the_name_of_their_column_never_does() -> (
    None
):
    renamed, other = (
        schema(label={**INCOME, "name": "earns"}),
        schema(label={**INCOME, "classes": ["high", "low"]}),
    )
    assert renamed.reads_like(schema())
    assert other.has_features_of(schema())
    assert not other.reads_like(schema())


def test_points_name_the_classes_that_they_cut() -> None:
    cut = schema(label={"name": "los_days", "cuts": [3, 7.5]})
    stated = {
        "name": "los_days",
        "classes": ["below 3", "3 to below 7.5", "7.5 or more"],
        "cuts": [3, 7.5],
    }
    assert cut.label.to_json() == stated
    assert schema(label=stated) == cut
    assert schema().label.to_json() == INCOME


@pytest.mark.parametrize(
    ("label", "at", "problem"),
    [
        ({"cuts": [7, 3]}, "cuts", "not-ascending"),
        ({"cuts": [3, 3]}, "cuts", "not-ascending"),
        ({"cuts": [-0.0, 0.0]}, "cuts", "not-ascending"),
        ({"cuts": [3, float("nan")]}, "cuts", "not-finite"),
        ({"cuts": [float("-inf"), 3]}, "cuts", "not-finite"),
        ({"cuts": list(range(limits.MAX_CLASSES))}, "cuts", "too-many"),
        ({"cuts": [3], "classes": ["a", "b"]}, "classes", "not-those-of-the-cuts"),
        ({"cuts": []}, "classes", "too-few"),
        ({}, "classes", "too-few"),
    ],
)
def test_points_that_cut_no_numbers_are_refused(
    label: dict[str, Any], at: str, problem: str
) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        schema(label={"name": "los_days", **label})
    found = [(each.place[1:], each.problem) for each in refused.value.problems]
    assert found == [(("label", at), problem)]


@pytest.mark.parametrize("bounds", [{}, {"lower": 0, "upper": 1}])
def test_a_type_that_does_not_exist_is_refused(bounds: dict[str, int]) -> None:
    """No body can have one: an artifact that was damaged or made by a later version."""
    with pytest.raises(ParameterInvalid) as refused:
        schema(SEX, {"name": "age", "type": "numerIc", **bounds})
    (problem,) = refused.value.problems
    assert (problem.place[-2:], problem.problem) == ((1, "type"), "unknown")

"""The problems of a declaration come in one answer, so that its author mends it once."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.api.problems import invalid_request
from app.core.errors import InvalidRequest
from app.services.datasets import declaration_rules, declare
from app.wire.datasets import DatasetIn
from grovekeeper_forests import limits as forest_limits

FEATURES: list[dict[str, Any]] = [
    {"name": "age", "type": "integer", "lower": 0, "upper": 120},
    {"name": "sex", "type": "categorical", "categories": ["Female", "Male"]},
]


def _declaration(**changes: Any) -> dict[str, Any]:
    label = {"name": "income", "classes": ["low", "high"]}
    schema = {"features": FEATURES, "label": label}
    return {
        "name": "census",
        "schema": schema,
        "budget": {"accountant": "pure", "epsilon": "1"},
        **changes,
    }


def _misread(value: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as invalid:
        DatasetIn.model_validate(value)
    listed = invalid_request(
        invalid.value.errors(include_url=False, include_input=False), DatasetIn
    ).errors
    return [(error.at, error.problem) for error in listed]


def test_what_cannot_be_read_is_listed_for_every_part() -> None:
    features = [
        {"name": "a", "type": "numerc", "lower": "0"},
        FEATURES[0] | {"uper": 1},
        5,
        FEATURES[1],
    ]
    label = {"name": "income", "classes": "low"}
    value = _declaration(
        name="two words",
        schema={"features": features, "label": label},
        budget={"accountant": "pure", "epsilon": "1,5"},
        partitions=[{"name": "..", "kind": "hash"}, {"name": "b", "kind": "hush"}],
    )
    assert _misread(value) == [
        ("/name", "malformed"),
        ("/schema/features/0/type", "unknown-choice"),
        ("/schema/features/0/lower", "not-a-number"),
        ("/schema/features/1", "unknown-field"),
        ("/schema/features/2", "not-an-object"),
        ("/schema/label/classes", "not-a-list"),
        ("/budget/epsilon", "not-an-amount"),
        ("/partitions/0/name", "malformed"),
        ("/partitions/1/kind", "unknown-choice"),
    ]


def test_broken_rules_are_listed_for_every_part() -> None:
    features = [
        FEATURES[0] | {"lower": 121},
        FEATURES[1] | {"categories": []},
        FEATURES[1],
    ]
    value = _declaration(
        schema={"features": features, "label": {"name": "age", "classes": ["low"]}},
        budget={"accountant": "pure", "epsilon": "1e-10"},
        privacy_unit={"column": None, "max_rows": 2},
        partitions=[{"name": "shard", "kind": "hash"}],
        visibility="public",
    )
    with pytest.raises(InvalidRequest) as refused:
        declare._Checked.of(DatasetIn.model_validate(value))
    assert [(error.at, error.problem) for error in refused.value.errors] == [
        ("/schema/features/0/lower", "above-upper"),
        ("/schema/features/1/categories", "too-few"),
        ("/schema/features/2/name", "not-distinct"),
        ("/schema/label/name", "not-distinct"),
        ("/schema/label/classes", "too-few"),
        ("/privacy_unit/max_rows", "needs-a-unit-column"),
        ("/partitions/0/cells", "required"),
        ("/visibility", "every-dataset-is-private"),
        ("/budget/epsilon", "too-small"),
    ]


def test_a_hostile_list_is_read_up_to_a_hundred_problems() -> None:
    features = [
        {"name": index, "type": "numerc"} for index in range(forest_limits.MAX_FEATURES)
    ]
    label = {"name": "income", "classes": ["low", "high"]}
    assert (
        len(_misread(_declaration(schema={"features": features, "label": label})))
        == forest_limits.MAX_REPORTED_PROBLEMS
    )
    longer = {"features": [*features, FEATURES[0]], "label": label}
    assert _misread(_declaration(schema=longer)) == [("/schema/features", "too-many")]


def test_no_name_begins_with_a_byte_order_mark() -> None:
    features = [FEATURES[0] | {"name": "\ufeffage"}, FEATURES[1]]
    label = {"name": "income", "classes": ["low", "high"]}
    value = _declaration(schema={"features": features, "label": label})
    _, problems = declaration_rules.checked_columns(DatasetIn.model_validate(value))
    assert [(problem.at, problem.problem) for problem in problems] == [
        ("/schema/features/0/name", "not-visible")
    ]

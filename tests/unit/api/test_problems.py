"""Problems of fields list what a rule accepts, and nothing of the request."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.api.problems import invalid_request, problem_of
from app.wire.datasets import BudgetIn, DatasetIn, PrivacyUnitIn
from app.wire.spending import TrainIn

CANARY = "canary"


@pytest.mark.parametrize(
    ("kind", "body", "at", "accepted"),
    [
        (BudgetIn, {"accountant": CANARY, "epsilon": "1"}, "/accountant", ["pure", "zcdp", "gdp"]),
        (PrivacyUnitIn, {"column": "a", "max_rows": 0}, "/max_rows", ["at least 1"]),
        (TrainIn, {"dataset": "a", "algorithm": "b", "epsilon": "1", "name": ""}, "/name", ["at least 1"]),
        (TrainIn, {"dataset": "a", "algorithm": "b", "epsilon": "1", "name": CANARY * 99}, "/name", ["at most 128"]),
    ],
)
def test_choices_and_bounds_of_a_rule_are_listed(kind: Any, body: dict[str, Any], at: str, accepted: list[str]) -> None:
    with pytest.raises(ValidationError) as invalid:
        kind.model_validate(body)
    problem, _ = problem_of(invalid_request(invalid.value.errors()))
    (error,) = problem["errors"]
    assert (error["at"], error["accepted"]) == (at, accepted)
    assert CANARY not in str(problem)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (BudgetIn, {"accountant": "pure", "epsilonn": "1"}, ("", "epsilonn", "epsilon")),
        (BudgetIn, {"accountant": "pure", "Ada Lovelace": "1"}, ("", None, "epsilon")),
        (
            DatasetIn,
            {"schema": {"features": [{"name": "a", "type": "numeric", "lowest": 0}]}},
            ("/schema/features/0", "lowest", "lower"),
        ),
        (DatasetIn, {"schema": {"lable": {}}}, ("/schema", "lable", "label")),
        (
            TrainIn,
            {"unlabelled": {"dataset": "a", "epsilon": "1", "algorithm": CANARY}},
            ("/unlabelled", "algorithm", "scope"),
        ),
    ],
)
def test_an_unknown_field_is_named_with_the_fields_of_its_place(
    kind: Any, body: dict[str, Any], expected: tuple[str, str | None, str]
) -> None:
    with pytest.raises(ValidationError) as invalid:
        kind.model_validate(body)
    problem, _ = problem_of(invalid_request(invalid.value.errors(), kind))
    (error,) = (error for error in problem["errors"] if error["problem"] == "unknown-field")
    at, field, accepted = expected
    assert (error["at"], error.get("field")) == (at, field)
    assert accepted in error["accepted"]
    assert field not in error["accepted"]
    assert "Ada" not in str(problem)
    assert CANARY not in str(problem)

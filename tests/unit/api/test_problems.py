"""Problems of fields list what a rule accepts, and nothing of the request."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.api.problems import invalid_request, problem_of
from app.wire.datasets import BudgetIn, PrivacyUnitIn
from app.wire.training import TrainIn

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

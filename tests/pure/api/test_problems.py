"""Problems of fields list what a rule accepts, and nothing of the request."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from app.api import problems
from app.api.problems import invalid_request, problem_of
from app.wire.base import Request
from app.wire.datasets import BudgetIn, DatasetIn, PrivacyUnitIn
from app.wire.training import TrainIn
from grovekeeper_forests import amounts

CANARY = "canary"
_AMOUNT = r"^[0-9]{1,12}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?$"


@pytest.mark.parametrize(
    ("kind", "body", "at", "accepted"),
    [
        (
            BudgetIn,
            {"accountant": CANARY, "epsilon": "1"},
            "/accountant",
            ["pure", "zcdp", "gdp"],
        ),
        (PrivacyUnitIn, {"column": "a", "max_rows": 0}, "/max_rows", ["at least 1"]),
        (
            TrainIn,
            {"dataset": "a", "algorithm": "b", "epsilon": "1", "name": ""},
            "/name",
            ["at least 1"],
        ),
        (
            TrainIn,
            {"dataset": "a", "algorithm": "b", "epsilon": "1", "name": CANARY * 99},
            "/name",
            ["at most 128"],
        ),
        (
            BudgetIn,
            {"accountant": "pure", "epsilon": CANARY},
            "/epsilon",
            [amounts.NotAnAmount.accepted],
        ),
        (
            BudgetIn,
            {"accountant": "pure", "epsilon": Decimal("0.1234567890123456")},
            "/epsilon",
            ["at most 15 digits as a JSON number; send more digits as text"],
        ),
        (
            TrainIn,
            {"dataset": "a", "algorithm": "b", "epsilon": "1", "name": f"{CANARY}\n"},
            "/name",
            [
                "one line without control characters and without marks that turn the direction of the text"
            ],
        ),
    ],
)
def test_choices_and_bounds_of_a_rule_are_listed(
    kind: Any, body: dict[str, Any], at: str, accepted: list[str]
) -> None:
    with pytest.raises(ValidationError) as invalid:
        kind.model_validate(body)
    problem, _ = problem_of(invalid_request(invalid.value.errors()))
    (error,) = problem["errors"]
    assert (error["at"], error["accepted"]) == (at, accepted)
    assert CANARY not in str(problem)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (
            BudgetIn,
            {"accountant": "pure", "epsilonn": "1"},
            ("", "epsilonn", "epsilon"),
        ),
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
    (error,) = (
        error for error in problem["errors"] if error["problem"] == "unknown-field"
    )
    at, field, accepted = expected
    assert (error["at"], error.get("field")) == (at, field)
    assert accepted in error["accepted"]
    assert field not in error["accepted"]
    assert "Ada" not in str(problem)
    assert CANARY not in str(problem)


def test_every_pattern_of_a_request_is_stated_in_words() -> None:
    requests = [
        model
        for model in Request.__subclasses__()
        if model.__module__.startswith("app.wire.")
    ]
    patterns = {
        found for model in requests for found in _patterns(model.model_json_schema())
    }
    words = {problems._FORMS.get(pattern) for pattern in patterns - {_AMOUNT}}
    assert None not in words
    assert words


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for part in schema.values():
            yield from _patterns(part)
    if isinstance(schema, list):
        for part in schema:
            yield from _patterns(part)

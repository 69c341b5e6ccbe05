"""What an estimator counts of a fit that the service did not accept."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from grovekeeper_client.errors import ApiProblem, Unreachable
from grovekeeper_client.estimator import PrivateForestClassifier
from grovekeeper_client.service import Grovekeeper
from grovekeeper_client.spending import SpendingLimit

_URL = "https://service.invalid"


def _problem(status: int) -> ApiProblem:
    return ApiProblem(status, "a-problem", "a detail", {})


def _forest(failure: Exception) -> PrivateForestClassifier:
    """A forest with ε for one fit, whose service fails at each submission."""

    def train(*_: Any, **__: Any) -> None:
        raise failure

    dataset = SimpleNamespace(
        schema={"label": {"name": "income", "classes": ["a", "b"]}}, train=train
    )
    service = SimpleNamespace(dataset=lambda _: dataset)
    return PrivateForestClassifier("census", "0.5", service=cast(Grovekeeper, service))


@pytest.mark.parametrize(
    "failure", [_problem(500), _problem(503), Unreachable(_URL, "it broke off")]
)
def test_a_fit_that_may_have_been_accepted_stays_counted(failure: Exception) -> None:
    forest = _forest(failure)
    with pytest.raises(type(failure)):
        forest.fit()
    with pytest.raises(SpendingLimit):
        forest.fit()


@pytest.mark.parametrize("status", [403, 409, 422, 429])
def test_a_fit_that_was_refused_is_not_counted(status: int) -> None:
    forest = _forest(_problem(status))
    for _ in range(2):
        with pytest.raises(ApiProblem):
            forest.fit()

"""The commands of rules: what they send, and how they are used wrongly."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from grovekeeper_client.cli.problems import ExitCode
from tests.pure.cli.conftest import PLAN, RULES

Run = Callable[..., Result]
_SENT = ("largest_job", "approval_above", "frozen", "erase_rows_at")
PRESENT = {name: RULES[name] for name in _SENT} | {
    "quotas": [{"keys": ["key_a", "key_b"], "cap": "2"}]
}


def _body(service: Any) -> dict[str, Any]:
    (request,) = (sent for sent in service.requests if sent.method == "PUT")
    return dict(json.loads(request.content))


@pytest.mark.parametrize(
    ("typed", "changed"),
    [
        (["--largest-job", "0.4"], {"largest_job": "0.4"}),
        (["--unfreeze"], {"frozen": False}),
        (
            ["--freeze", "--approval-above", "1"],
            {"frozen": True, "approval_above": "1"},
        ),
        (
            ["--quota", "key_a=1", "--quota", "key_a,key_c=2"],
            {
                "quotas": [
                    {"keys": ["key_a"], "cap": "1"},
                    {"keys": ["key_a", "key_c"], "cap": "2"},
                ]
            },
        ),
        (
            [
                "--without",
                "quotas",
                "--without",
                "largest-job",
                "--without",
                "erase-rows-at",
            ],
            {"quotas": [], "largest_job": None, "erase_rows_at": None},
        ),
    ],
)
def test_rules_that_are_not_named_stay(
    run: Run, service: Any, typed: list[str], changed: dict[str, Any]
) -> None:
    assert run("rules", "set", "census", *typed).exit_code == 0
    assert _body(service) == PRESENT | changed


def test_a_confirmation_sends_exactly_the_proposal(run: Run, service: Any) -> None:
    assert run("rules", "confirm", "census", "--yes").exit_code == 0
    assert _body(service) == PRESENT | {"largest_job": None}


@pytest.mark.parametrize(
    "typed",
    [
        [],
        ["--quota", "key_a"],
        ["--quota", "=1"],
        ["--without", "frozen"],
        ["--without", "budget"],
    ],
)
def test_wrong_rules_are_wrong_use(run: Run, service: Any, typed: list[str]) -> None:
    assert run("rules", "set", "census", *typed).exit_code == ExitCode.WRONG_USE
    assert not [request for request in service.requests if request.method == "PUT"]


def test_without_a_proposal_nothing_is_confirmed(run: Run, service: Any) -> None:
    service.answers["GET", "/datasets/census/rules"] = (200, RULES | {"proposal": None})
    assert run("rules", "confirm", "census", "--yes").exit_code == ExitCode.WRONG_USE


@pytest.mark.parametrize("problem", ["quota-exceeded", "needs-approval", "frozen"])
def test_a_refusal_by_rules_ends_with_3(run: Run, service: Any, problem: str) -> None:
    service.answers["POST", "/train"] = (
        409,
        {"type": problem, "detail": "x", "largest_that_fits": "0.2"},
    )
    result = run("train", "census", "-a", "mrf", "-e", "0.1")
    assert result.exit_code == ExitCode.REFUSED
    assert "refused: x" in result.stderr


def test_a_quote_says_that_the_job_needs_an_approval(run: Run, service: Any) -> None:
    service.answers["POST", "/plans"] = (200, PLAN | {"needs_approval": True})
    assert (
        "approval of another owner of census"
        in run("plan", "census", "-a", "mrf", "-e", "0.1").stdout
    )
    too_much = PLAN | {"needs_approval": True, "fits": False}
    service.answers["POST", "/plans"] = (200, too_much)
    shown = run("plan", "census", "-a", "mrf", "-e", "0.1").stdout
    assert "this job does not fit" in shown
    assert "approval" not in shown

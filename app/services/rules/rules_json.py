"""Converts the rules of a dataset between steps and the exact decimals of requests, answers and acts."""

from datetime import datetime
from fractions import Fraction
from typing import Any

from app.core import clock, limits
from app.core.errors import InvalidRequest
from app.ledger.rules import Quota, Rules
from app.privacy import accountants
from app.privacy.accountants import amount_text
from app.privacy.accountants.accountant import steps_down
from app.wire.rules import RulesIn


def rules_of(body: RulesIn, accountant: str) -> Rules:
    """Converts a request to rules in whole steps, rounded down.

    Raises:
        InvalidRequest: an amount is less than one step, or above every cap.
    """
    quotas = [
        Quota(frozenset(quota.keys), _steps(quota.cap, accountant, at=f"/quotas/{number}/cap"))
        for number, quota in enumerate(body.quotas)
    ]
    return Rules(
        largest_job=_optional_steps(body.largest_job, accountant, at="/largest_job"),
        approval_above=_optional_steps(body.approval_above, accountant, at="/approval_above"),
        quotas=tuple(sorted(set(quotas), key=lambda quota: (sorted(quota.keys), quota.cap))),
        is_frozen=body.frozen,
        erase_rows_at=body.erase_rows_at,
    )


def json_of(rules: Rules, accountant: str) -> dict[str, Any]:
    """The rules as answers and acts show them. Equal rules have equal forms."""
    return {
        "largest_job": _optional_text(accountant, rules.largest_job),
        "approval_above": _optional_text(accountant, rules.approval_above),
        "quotas": [{"keys": sorted(quota.keys), "cap": amount_text(accountant, quota.cap)} for quota in rules.quotas],
        "frozen": rules.is_frozen,
        "erase_rows_at": _time(rules.erase_rows_at),
    }


def _steps(amount: Fraction, accountant: str, *, at: str) -> int:
    steps = steps_down(amount, accountants.by_name(accountant).PLACES)
    if steps == 0:
        raise InvalidRequest.at(at, "too-small")
    if steps > limits.MAX_STEPS:
        raise InvalidRequest.at(at, "too-large")
    return steps


def _optional_steps(amount: Fraction | None, accountant: str, *, at: str) -> int | None:
    return None if amount is None else _steps(amount, accountant, at=at)


def _optional_text(accountant: str, steps: int | None) -> str | None:
    return None if steps is None else amount_text(accountant, steps)


def _time(at: datetime | None) -> str | None:
    return None if at is None else clock.to_text(at)

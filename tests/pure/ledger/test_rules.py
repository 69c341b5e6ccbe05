"""Tests that every change of rules that admits more is a loosening, over random rules,
spending and requests.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.ledger.admission import AskedAmount
from app.ledger.rules import Allowance, Quota, Rules, Usage, loosens, room_beside

pytestmark = pytest.mark.property

KEYS = ("a", "b", "c")
START = datetime(2026, 1, 1, tzinfo=UTC)
amounts = st.integers(1, 8)
times = st.integers(0, 3).map(lambda hours: START + timedelta(hours=hours))
quotas = st.builds(Quota, st.frozensets(st.sampled_from(KEYS), min_size=1), amounts)
rules = st.builds(
    Rules,
    st.none() | amounts,
    st.none() | amounts,
    st.lists(quotas, max_size=3).map(tuple),
    st.booleans(),
    st.none() | times,
)
usages = st.builds(
    Usage,
    st.fixed_dictionaries({key: st.integers(0, 8) for key in KEYS}),
    st.integers(0, 8),
)

REFUSED, WAITS, ADMITTED = range(3)


def _outcome(rules: Rules, key: str, usage: Usage, amount: int, at: datetime) -> int:
    """The answer to a request, straight from the meaning of each rule."""
    is_erased = rules.erase_rows_at is not None and rules.erase_rows_at <= at
    is_too_large = rules.largest_job is not None and amount > rules.largest_job
    is_over_a_quota = any(
        sum(usage.by_key[other] for other in quota.keys) + amount > quota.cap
        for quota in rules.quotas
        if key in quota.keys
    )
    if rules.is_frozen or is_erased or is_too_large or is_over_a_quota:
        return REFUSED
    waits = (
        rules.approval_above is not None
        and usage.since_approval + amount > rules.approval_above
    )
    return WAITS if waits else ADMITTED


@given(
    before=rules,
    after=rules,
    key=st.sampled_from(KEYS),
    usage=usages,
    amount=amounts,
    at=times,
)
@example(
    before=Rules(quotas=(Quota(frozenset("ab"), 3),)),
    after=Rules(quotas=(Quota(frozenset("a"), 1), Quota(frozenset("b"), 1))),
    key="a",
    usage=Usage({"a": 0, "b": 3, "c": 0}, 0),
    amount=1,
    at=START,
)
def test_a_change_that_admits_more_is_a_loosening(
    before: Rules, after: Rules, key: str, usage: Usage, amount: int, at: datetime
) -> None:
    if _outcome(after, key, usage, amount, at) > _outcome(
        before, key, usage, amount, at
    ):
        assert loosens(before, after)


@given(first=rules, second=rules, third=rules)
def test_tightenings_one_after_another_loosen_nothing(
    first: Rules, second: Rules, third: Rules
) -> None:
    """Otherwise one owner could loosen rules in steps, for instance while the dataset
    is frozen.
    """
    assert not loosens(first, first)
    if not loosens(first, second) and not loosens(second, third):
        assert not loosens(first, third)


@given(before=rules, quota=quotas)
def test_a_stricter_rule_alone_is_no_loosening(before: Rules, quota: Quota) -> None:
    lowered = tuple(replace(each, cap=max(each.cap - 1, 1)) for each in before.quotas)
    for after in (
        replace(before, is_frozen=True),
        replace(before, largest_job=1),
        replace(before, approval_above=1),
        replace(before, erase_rows_at=START),
        replace(before, quotas=(*before.quotas, quota)),
        replace(before, quotas=lowered),
    ):
        assert not loosens(before, after)


@given(rules=rules, key=st.sampled_from(KEYS), usage=usages, amount=amounts)
def test_an_allowance_admits_what_each_rule_admits(
    rules: Rules, key: str, usage: Usage, amount: int
) -> None:
    allowance = rules.allowance(key, usage, at=START)
    expected = _outcome(rules, key, usage, amount, START)
    is_within = allowance.room is None or amount <= allowance.room
    is_at_once = (
        allowance.room_without_approval is None
        or amount <= allowance.room_without_approval
    )
    assert (ADMITTED if is_at_once else WAITS) * is_within == expected
    assert rules.keys_beside(key) >= {key}


@given(
    room=st.integers(0, 20),
    parts=st.lists(st.tuples(st.sampled_from(["ds_1", "ds_2"]), amounts), min_size=1),
)
def test_parts_of_a_job_on_one_account_add_up(
    room: int, parts: list[tuple[str, int]]
) -> None:
    requests = [AskedAmount(account_id, amount, {}) for account_id, amount in parts]
    allowances = {
        "ds_1": Allowance(
            is_frozen=False,
            is_due=False,
            room=room,
            limited_by="quota",
            room_without_approval=None,
        )
    }
    for position, request in enumerate(requests):
        ruled = room_beside(allowances, requests, position)
        if request.account_id == "ds_2":
            assert ruled is None
            continue
        total = sum(amount for account_id, amount in parts if account_id == "ds_1")
        assert ruled is not None
        assert (request.amount <= ruled) == (total <= room)

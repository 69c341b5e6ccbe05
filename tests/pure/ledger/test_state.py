"""The fold of the entries, without a database: every field after every kind of entry,
and every refusal.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from app.core.errors import BalanceMismatch
from app.ledger import reservations
from app.ledger import state as states
from app.ledger.accounts import account_row
from app.ledger.state import CellDelta, Source, State, facts_of
from app.ledger.tables import AccountRow, Entry, EntryKind
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support.population_accounts import PURE, ZCDP
from tests.support.set_limits import SetLimit

CUT = Partitions.from_json(
    [
        {"name": "site", "kind": "hash", "cells": 2},
        {"name": "shard", "kind": "hash", "cells": 4},
        {"name": "upload", "kind": "epoch", "how": "each"},
    ]
)
ACCOUNT = account_row(
    dataclasses.replace(ZCDP, id="ds_a", partitions=CUT, delta_set_aside="0.00000025")
)
POPULATION = AccountRow(id="pop_a", name="people", accountant="zcdp", delta="0.000001")
FIRST, SECOND = Scope({"shard": [0]}), Scope({"shard": [1, 2], "site": [1]})
SPENT = 10**11
"""Steps of δ, 10⁻⁷."""


def entry(
    after: State, kind: str, amount: int = 0, scope: Any = WHOLE, **changes: Any
) -> Entry:
    """The next entry of an account."""
    fields: dict[str, Any] = {
        "sequence": after.sequence + 1, "kind": EntryKind(kind), "amount": amount, "scope": dict(scope), "event": None,
        "job_id": "jb_a", "actor": "key_a", "at": "2026-01-01T00:00:00Z", "previous_hash": after.hash, "places": 12,
    }  # fmt: skip
    if isinstance(scope, Scope):
        fields["scope"] = scope.to_json()
    return Entry(**fields | changes).sealed()


def opened(row: AccountRow = ACCOUNT, cap: int = 100) -> State:
    before = State(row.id)
    return before.advanced(
        [entry(before, "open", cap, job_id=None, details=facts_of(row))]
    )


def step(
    before: State, kind: str, amount: int = 0, scope: Any = WHOLE, **changes: Any
) -> State:
    """The state after one more entry; the state before is as it was."""
    copied = dataclasses.replace(before)
    kept = {
        name: value.copy()
        for name, value in vars(before).items()
        if isinstance(value, dict)
    }
    after = before.advanced([entry(before, kind, amount, scope, **changes)])
    assert {
        name: value for name, value in vars(before).items() if isinstance(value, dict)
    } == kept
    assert (before.sequence, before.hash, before.cap, before.uploads) == (
        copied.sequence, copied.hash, copied.cap, copied.uploads,
    )  # fmt: skip
    assert after.sequence == before.sequence + 1
    return after


def spent() -> State:
    """After three reservations on two scopes, of which one was charged and one given
    back.
    """
    after = step(opened(), "reserve", 5, FIRST)
    after = step(after, "reserve", 7, SECOND, job_id="jb_b", actor="key_b")
    after = step(after, "reserve", 5, SECOND, job_id="jb_c")
    after = step(after, "charge", 5, FIRST, details={"delta": "0.0000001"})
    return step(after, "void", 7, SECOND, job_id="jb_b")


def test_every_step_of_a_reservation_moves_its_own_amounts() -> None:
    state = opened()
    assert (state.cap, state.highest_cap, state.facts, state.totals) == (
        100,
        100,
        facts_of(ACCOUNT),
        {},
    )
    state = step(state, "reserve", 5, FIRST)
    assert state.totals == {FIRST.digest: (0, 5)}
    assert state.reservations == Counter({("jb_a", FIRST.digest, 5): 1})
    assert (state.sources, state.scopes_size) == (
        {FIRST.digest: Source(2, "key_a", 1)},
        2,
    )
    state = spent()
    assert state.totals == {FIRST.digest: (5, 0), SECOND.digest: (0, 5)}
    assert state.scopes == {FIRST.digest: FIRST, SECOND.digest: SECOND}
    assert dict(state.reservations) == {("jb_c", SECOND.digest, 5): 1}
    assert state.sources == {
        FIRST.digest: Source(2, "key_a", 1),
        SECOND.digest: Source(4, "key_a", 3),
    }
    assert (state.scopes_size, state.deltas) == (2 + 4, {FIRST.digest: SPENT})
    assert state.widened == {("shard", 0): 5, ("shard", 1): 5, ("shard", 2): 5}
    assert (state.bound, state.budget.bound, state.budget.whole.load) == (5, 5, 5)
    assert (state.budget.cap, state.budget.highest_cap) == (100, 100)
    assert (
        state.tightest_delta(WHOLE).charged
        == state.tightest_delta(FIRST).charged
        == SPENT
    )
    assert state.tightest_delta(Scope({"shard": [1, 2]})) == CellDelta(
        {"site": 0, "shard": 1}, 0, True
    )
    state = step(state, "reserve", 3, FIRST)
    state = step(state, "charge", 3, FIRST, details={"delta": "0.0000001"})
    assert (state.totals[FIRST.digest], state.deltas) == (
        (8, 0),
        {FIRST.digest: 2 * SPENT},
    )
    state = step(state, "expire", 5, SECOND, job_id="jb_c")
    assert (state.scopes, state.scopes_size, dict(state.reservations)) == (
        {FIRST.digest: FIRST},
        2,
        {},
    )
    assert state.sources.keys() == state.totals.keys() == {FIRST.digest}


def test_the_bound_adds_the_largest_amounts_of_each_partition_up() -> None:
    state = step(
        step(opened(), "reserve", 5, FIRST),
        "reserve",
        7,
        Scope({"shard": [1]}),
        job_id="jb_b",
    )
    assert state.bound == 7
    state = step(state, "reserve", 4, Scope({"site": [1]}), job_id="jb_c")
    assert state.bound == 11
    state = step(state, "reserve", 2, WHOLE, job_id="jb_d")
    assert (state.bound, state.widened["", ""]) == (13, 2)
    state = step(state, "reserve", 1, Scope({"shard": [2]}), job_id="jb_e")
    assert state.bound == 13
    state = step(
        state, "reserve", 1, Scope({"shard": [1, 2, 3], "site": [1]}), job_id="jb_f"
    )
    assert (state.bound, state.widened["site", 1]) == (14, 5), (
        "a smaller share of the sites than of the shards"
    )
    assert state.widened.keys() == {
        ("shard", 0),
        ("shard", 1),
        ("shard", 2),
        ("site", 1),
        ("", ""),
    }


def test_a_state_advances_by_several_entries_at_once() -> None:
    before = opened()
    entries = [entry(before, "reserve", 5)]
    entries.append(entry(before.advanced(entries), "reserve", 3))
    assert before.advanced(entries).totals == {WHOLE.digest: (0, 8)}


def test_losses_of_delta_on_two_scopes_stay_apart() -> None:
    state, third = opened(), Scope({"shard": [3]})
    for scope, delta in (
        (FIRST, "0.00000001"),
        (third, "0.00000003"),
        (third, "0.00000004"),
    ):
        state = step(
            step(state, "reserve", 1, scope),
            "charge",
            1,
            scope,
            details={"at": "0", "delta": delta},
        )
    assert state.deltas == {FIRST.digest: 10**10, third.digest: 7 * 10**10}
    assert state.tightest_delta(WHOLE).charged == 7 * 10**10
    assert [total["delta"] for total in sorted(state.to_json()["totals"], key=lambda total: total["entry"])] == [
        "0.00000001", "0.00000007",
    ]  # fmt: skip


def test_a_state_numbers_its_scopes_once_and_forgets_those_that_were_given_back() -> (
    None
):
    """Whoever reserves and cancels without end takes no more room than twice that of
    what is there.
    """
    state = step(opened(), "reserve", 5, FIRST)
    first = state._numbered(CUT)
    for number in range(1, 6):
        cancelled = Scope({"upload": [f"up_{number}"]})
        state = step(state, "reserve", 1, cancelled, job_id="jb_b")
        assert (state._numbered(CUT) is first) is (number < 5)
        state = step(state, "void", 1, cancelled, job_id="jb_b")
    assert first.size > 2 * state.scopes_size
    assert state._numbering is not None
    assert state._numbering.missing({FIRST.digest, cancelled.digest}) == set()
    large = dataclasses.replace(state, _numbering=first)
    assert large._numbered(CUT) is first, "nothing is missing"


def test_equal_reservations_of_a_job_end_one_by_one() -> None:
    state = step(step(opened(), "reserve", 5, FIRST), "reserve", 5, FIRST)
    for left in (1, 0):
        state = step(state, "charge", 5, FIRST)
        assert state.reservations.total() == left
    with pytest.raises(BalanceMismatch):
        step(state, "charge", 5, FIRST)


def test_the_highest_cap_counts_from_the_first_amount_on_and_where_an_account_is_closed() -> (
    None
):
    unused = step(step(opened(), "cap", 300), "cap", 90)
    assert (unused.cap, unused.highest_cap) == (90, 90)
    closed = step(unused, "cap", 0)
    assert (closed.cap, closed.highest_cap) == (0, 90)
    used = step(unused, "reserve", 1)
    for cap, highest in ((50, 90), (120, 120), (60, 120)):
        used = step(used, "cap", cap)
        assert (used.cap, used.highest_cap) == (cap, highest)
        assert (used.budget.cap, used.budget.highest_cap) == (cap, highest)
    held = step(opened(POPULATION), "join", 0, details=member("ds_1"))
    assert step(held, "cap", 90).highest_cap == 90, "of members without a load"
    held = step(held, "load", 1, details=member("ds_1"))
    assert step(held, "cap", 90).highest_cap == 100


@pytest.mark.parametrize(
    ("highest", "expected"), [("0.0000000003", 300), ("0.0000000001", 100)]
)
def test_an_opening_load_is_charged_on_the_whole_dataset(
    highest: str, expected: int
) -> None:
    details = {
        "continues": {"dataset": "ds_0", "highest_cap": highest, "delta": "0.0000001"}
    }
    state = step(opened(), "load", 40, details=details, job_id=None)
    assert (state.totals, state.deltas) == (
        {WHOLE.digest: (40, 0)},
        {WHOLE.digest: SPENT},
    )
    assert (state.cap, state.highest_cap, state.sources) == (
        100,
        expected,
        {WHOLE.digest: Source(2, "key_a", 0)},
    )
    del details["continues"]["delta"]
    assert step(opened(), "load", 40, details=details).deltas == {}
    assert step(opened(), "load", 0, details=details).totals == {}
    with pytest.raises(BalanceMismatch):
        step(step(opened(), "cap", 90), "load", 40, details=details)


@pytest.mark.parametrize(
    ("cap", "load"),
    [
        pytest.param(100, 40, id="the cap is above the highest before"),
        pytest.param(30, 31, id="the load is above the highest before"),
    ],
)
def test_an_opening_load_and_the_cap_are_within_the_highest_cap_before(
    cap: int, load: int
) -> None:
    details = {"continues": {"dataset": "ds_0", "highest_cap": "0.00000000003"}}
    with pytest.raises(BalanceMismatch):
        step(opened(cap=cap), "load", load, details=details)


def member(name: str, **more: str) -> dict[str, Any]:
    return {"member": {"highest_cap": "0.00000000003", "dataset": name, **more}}


def test_a_population_has_the_load_of_each_member() -> None:
    state = step(opened(POPULATION), "join", 0, details=member("ds_1"))
    assert (state.loads, state.highest_cap) == ({"ds_1": 0}, 100)
    state = step(state, "join", 7, details=member("ds_2"))
    assert (state.loads, state.highest_cap) == ({"ds_1": 0, "ds_2": 7}, 130), (
        "it was spent before it joined"
    )
    state = step(state, "load", 9, details=member("ds_1"))
    state = step(state, "join", 9, details=member("ds_3", continues="ds_1"))
    assert (state.loads, state.highest_cap) == ({"ds_1": 0, "ds_2": 7, "ds_3": 9}, 130)
    moved = step(state, "join", 7, details=member("ds_4", continues="ds_2"))
    assert moved.loads == {"ds_1": 0, "ds_2": 0, "ds_3": 9, "ds_4": 7}
    with pytest.raises(BalanceMismatch):
        step(state, "join", 8, details=member("ds_4", continues="ds_2"))
    with pytest.raises(BalanceMismatch):
        step(state, "join", 0, details=member("ds_1"))
    with pytest.raises(BalanceMismatch):
        step(state, "load", 0, details=member("ds_5"))
    pure = opened(AccountRow(id="pop_a", name="people", accountant="pure", delta=None))
    assert step(pure, "join", 7, details=member("ds_1")).highest_cap == 100


OTHERS: dict[str, tuple[str, int, Any, dict[str, Any]]] = {
    "sequence": ("reserve", 1, WHOLE, {"sequence": 8}),
    "hash before": ("reserve", 1, WHOLE, {"previous_hash": "0" * 64}),
    "a second opening": ("open", 100, WHOLE, {"details": facts_of(ACCOUNT)}),
    "job": ("charge", 5, SECOND, {"job_id": "jb_b"}),
    "scope": ("charge", 5, FIRST, {"job_id": "jb_c"}),
    "amount": ("charge", 4, SECOND, {"job_id": "jb_c"}),
    "more uploads than were named": ("reserve", 1, {"upload": 1}, {}),
    "an upload that is named twice": (
        "reserve",
        1,
        {"upload": 2},
        {"details": {"uploads": ["up_a", "up_a"]}},
    ),
    "a state": (
        "state",
        0,
        WHOLE,
        {"details": {"state": {**spent().to_json(), "cap": "0.000000001"}}},
    ),
    "a state that is not there": ("state", 0, WHOLE, {}),
    "cells beside more uploads": ("reserve", 1, {"shard": [1], "upload": 1}, {}),
}


@pytest.mark.parametrize("which", OTHERS)
def test_an_entry_that_cannot_follow_is_refused(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind, amount, scope, changes = OTHERS[which]
    with pytest.raises(BalanceMismatch) as refused:
        spent().advanced([entry(spent(), kind, amount, scope, **changes)])
    assert (refused.value.account_id, refused.value.part) == ("ds_a", "chain")
    [record] = caplog.records
    assert (vars(record)["account_id"], vars(record)["problem"]) == ("ds_a", "chain")


def test_the_first_entry_opens_the_account() -> None:
    with pytest.raises(BalanceMismatch):
        State("ds_a").advanced([entry(State("ds_a"), "reserve", 1)])


def with_uploads(names: Sequence[str]) -> State:
    details = {"attested_by": "key_a", "uploads": names}
    after = step(
        spent(), "reserve", 2, {"upload": len(names)}, job_id="jb_u", details=details
    )
    return step(after, "reserve", 10, {"upload": len(names)}, job_id="jb_u")


@pytest.mark.parametrize(
    "state", [spent(), with_uploads(["up_b", "up_a", "up_c"])], ids=["cells", "uploads"]
)
def test_a_stated_state_is_that_of_all_entries(state: State) -> None:
    fields = (
        "cap",
        "highest_cap",
        "facts",
        "totals",
        "scopes",
        "sources",
        "uploads",
        "deltas",
        "reservations",
    )
    form = json.loads(json.dumps(state.to_json()))
    stated = entry(
        state, "state", details={"a": {"form": 1}, "state": form}, job_id=None
    )
    named = {
        2: (FIRST.to_json(), "key_a"),
        4: (SECOND.to_json(), "key_a"),
        8: ({"upload": 3}, "key_a"),
    }
    again = State.stated_by(ACCOUNT, stated, named)
    fold = state.advanced([stated])
    for name in (*fields, "widened", "scopes_size", "sequence", "hash"):
        assert getattr(again, name) == getattr(fold, name), name
    assert states.named_by(stated) == [
        total["entry"] for total in state.to_json()["totals"]
    ]
    for sequence in named.keys() & {*states.named_by(stated)}:
        for wrong in (
            named | {sequence: (WHOLE.to_json(), "key_a")},
            {k: v for k, v in named.items() if k != sequence},
        ):
            with pytest.raises(BalanceMismatch):
                State.stated_by(ACCOUNT, stated, wrong)
    other = account_row(dataclasses.replace(PURE, id="ds_a", partitions=CUT))
    with pytest.raises(BalanceMismatch):
        State.stated_by(other, stated, named)


def test_a_stated_population_is_that_of_all_entries() -> None:
    state = step(
        step(opened(POPULATION), "join", 7, details=member("ds_2")),
        "join",
        5,
        details=member("ds_1"),
    )
    stated = entry(state, "state", details={"state": state.to_json()}, job_id=None)
    again = State.stated_by(POPULATION, stated, {})
    assert (again.loads, again.cap, again.highest_cap, again.facts) == (
        {"ds_2": 7, "ds_1": 5}, 100, 160, facts_of(POPULATION),
    )  # fmt: skip
    assert (again.totals, again.hash, states.named_by(stated)) == ({}, stated.hash, [])
    with pytest.raises(BalanceMismatch):
        State.stated_by(
            AccountRow(id="pop_a", name="", accountant="pure", delta=None), stated, {}
        )
    assert not states.is_of_first_form(state.to_json())


def test_a_state_of_the_first_form_is_one_of_a_dataset_without_a_number() -> None:
    form = spent().to_json()
    assert form["form"] == 2, "as ledgers have it"
    assert not states.is_of_first_form(form)
    assert not states.is_of_first_form(None)
    first_form = {name: value for name, value in form.items() if name != "form"}
    assert states.is_of_first_form(first_form)
    # which the verifier compares
    step(spent(), "state", details={"state": first_form | {"cap": "0"}})


def test_open_reservations_stand_in_one_order() -> None:
    state = opened()
    for amount in (5, 10):
        state = step(state, "reserve", amount, FIRST)
    text = [each["amount"] for each in state.to_json()["reservations"]]
    assert text == ["0.00000000001", "0.000000000005"], (
        "of the texts of their parts, as every entry before has it"
    )


def test_facts_are_those_of_the_row() -> None:
    assert facts_of(POPULATION) == {
        "population": "pop_a",
        "accountant": "zcdp",
        "delta": "0.000001",
    }
    assert facts_of(ACCOUNT) == {
        "dataset": "ds_a", "accountant": "zcdp", "delta": "0.000001", "adjacency": "add_remove",
        "privacy_unit": ZCDP.privacy_unit, "partitions": CUT.to_json(), "delta_set_aside": "0.00000025",
    }  # fmt: skip
    assert "delta_set_aside" not in facts_of(account_row(ZCDP))


def test_an_account_without_uploads_states_the_cells_of_scopes() -> None:
    state = opened(account_row(PURE))
    assert state.as_stated(FIRST, names=True) == (FIRST.to_json(), [])


def test_a_range_of_uploads_begins_with_all_that_were_named(
    set_limit: SetLimit,
) -> None:
    set_limit("MIN_RANGE_UPLOADS", 2)
    state = with_uploads(["up_b", "up_a"])
    state = step(state, "charge", 2, {"upload": 2}, job_id="jb_u")
    state = step(state, "charge", 10, {"upload": 2}, job_id="jb_u")
    first, all_of_them = (
        Scope({"upload": ["up_a"]}),
        Scope({"upload": ["up_a", "up_b"], "shard": [1]}),
    )
    assert state.as_stated(first, names=True) == ({"upload": ["up_a"]}, [])
    assert state.as_stated(all_of_them, names=False) == (
        {"shard": [1], "upload": 2},
        [],
    )
    more = Scope({"upload": ["up_a", "up_b", "up_z", "up_c"]})
    assert state.as_stated(more, names=True) == ({"upload": 4}, ["up_c", "up_z"])
    assert state.as_stated(more, names=False) == (more.to_json(), [])
    other = Scope({"upload": ["up_a", "up_z"]})
    assert state.as_stated(other, names=True) == (other.to_json(), [])
    assert state.as_stated(FIRST, names=True) == (FIRST.to_json(), [])
    assert state.totals[Scope({"upload": ["up_a", "up_b"]}).digest] == (12, 0)
    assert state.sources[Scope({"upload": ["up_a", "up_b"]}).digest].n_listed == 0


@pytest.mark.parametrize(
    ("limit", "key", "admitted"),
    [
        (11, "key_a", False),
        (12, "key_a", True),
        (7, "key_x", False),
        (8, "key_x", True),
    ],
)
def test_a_key_lists_no_more_cells_than_it_leaves(
    set_limit: SetLimit, limit: int, key: str, admitted: bool
) -> None:
    """Four cells stand in the entries of ``key_a``; two scopes of one cell each are
    new, and one is there.
    """
    set_limit("MAX_LISTED_CELLS", limit)
    assert (
        spent().admits_cells(key, [FIRST, Scope({"shard": [3]}), Scope({"site": [0]})])
        is admitted
    )
    assert spent().admits_cells(key, [FIRST, SECOND])


def test_a_refusal_for_want_of_delta_says_what_is_left() -> None:
    refused = reservations._delta_exceeded(
        ACCOUNT, CellDelta({"site": 1}, SPENT, False), 2 * SPENT
    )
    assert (refused.cap, refused.charged, refused.remaining) == (
        "0.00000025",
        "0.0000001",
        "0.00000015",
    )
    assert (refused.requested, refused.reserved, refused.what_fits()) == (
        "0.0000002",
        "0",
        "0",
    )
    assert (refused.tightest_cell, refused.exact, refused.unit) == (
        {"site": 1},
        False,
        "delta",
    )

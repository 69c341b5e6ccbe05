"""The room of a member of a population: which of the two caps limits a request, and the
load that the population then counts.
"""

import pytest

from app.ledger.admission import (
    AccountState,
    AskedAmount,
    Budgets,
    CellBalance,
    MemberTotal,
    Population,
)
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope

PARTITIONS = Partitions((HashPartition("shard", 3),))
SCOPES = [Scope({"shard": [cell]}) for cell in range(3)]


def _account(cap: int) -> AccountState:
    return AccountState(cap, cap, PARTITIONS, Numbering(["shard"]), {})


def _budgets(*, cap: int, shared: int, first: int = 0, second: int = 0) -> Budgets:
    """Two members, which carry so much in their first cell."""
    accounts, members = {}, {}
    for account_id, load in (("ds_a", first), ("ds_b", second)):
        accounts[account_id] = _account(cap).with_reservation(SCOPES[0], load)
        members[account_id] = MemberTotal(load, load, is_exact=True)
    return Budgets(accounts, [Population("pop_a", "people", shared, members)])


@pytest.mark.parametrize(
    ("cap", "shared", "room", "limited_by"),
    [
        (10, 9, 9, "population"),
        (10, 10, 10, "cap"),
        (10, 11, 10, "cap"),
    ],
)
def test_the_population_limits_where_it_leaves_less_than_the_account(
    cap: int, shared: int, room: int, limited_by: str
) -> None:
    request = AskedAmount("ds_a", 1, WHOLE)
    found = _budgets(cap=cap, shared=shared).room(request)
    assert (found.amount, found.limited_by) == (room, limited_by)


def test_a_scope_whose_bound_is_above_what_the_population_counts_has_no_negative_room() -> (
    None
):
    """Where cells overlap in many ways, the bound of a scope may be above the load that
    the population's entries state.
    """
    budgets = _budgets(cap=50, shared=10, first=5)
    bound = CellBalance({"shard": 0}, 20, 0, is_exact=False)
    room = budgets.room_at("ds_a", bound)
    assert (room.amount, room.limited_by) == (0, "population")


@pytest.mark.parametrize(("first", "second"), [(0, 8), (8, 0), (2, 8), (8, 2)])
def test_a_reservation_elsewhere_leaves_the_load_of_the_same_member(
    first: int, second: int
) -> None:
    before = _budgets(cap=50, shared=50, first=first, second=second)
    for account_id, load in (("ds_a", first), ("ds_b", second)):
        request = AskedAmount(account_id, 1, SCOPES[1])
        after, whole = before.with_reservation(request, before.room(request))
        [population] = after.populations
        expected = {**before.populations[0].loads, account_id: max(load, 1)}
        assert population.loads == expected
        assert whole is not None
        assert whole.load == max(load, 1)

"""The balance of every cell of every partition, or of one."""

import pytest

from app.ledger.admission import AccountState
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Scope

PARTITIONS = Partitions((HashPartition("a", 2), HashPartition("b", 3)))


@pytest.fixture
def state() -> AccountState:
    """Three charged and one reserved in the first cell of one partition, five charged
    in the last cell of the other.
    """
    scopes = Numbering(["a", "b"])
    totals = {}
    for scope, amounts in ((Scope({"a": [0]}), (3, 1)), (Scope({"b": [2]}), (5, 0))):
        scopes.add(scope.digest, scope)
        totals[scope.digest] = amounts
    return AccountState(10, 10, PARTITIONS, scopes, totals)


CELLS = {"a": [(8, 1), (5, 0)], "b": [(3, 1), (3, 1), (8, 1)]}


@pytest.mark.parametrize("only", [None, "a", "b"])
def test_each_cell_has_its_charges_and_reservations(
    state: AccountState, only: str | None
) -> None:
    tightest, cells = state.by_cell(Scope({}), only=only)
    assert (tightest.charged, tightest.reserved) == (8, 1)
    assert dict(tightest.cell) == {"a": 0, "b": 2}
    assert {
        name: [(balance.charged, balance.reserved) for balance in balances]
        for name, balances in cells.items()
    } == {name: CELLS[name] for name in CELLS if only in (None, name)}


def test_a_scope_shows_its_own_cells_alone(state: AccountState) -> None:
    tightest, cells = state.by_cell(Scope({"b": [0, 1]}))
    assert (tightest.charged, tightest.reserved) == (3, 1)
    assert [balance.load for balance in cells["a"]] == [4, 0]
    assert [balance.load for balance in cells["b"]] == [4, 4]

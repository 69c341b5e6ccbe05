"""The tightest cell of an account, among joint cells of equal load, names declared
categories where it can.
"""

from collections.abc import Mapping
from typing import TypeAlias

from app.ledger.admission import AccountState
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import ColumnPartition, Partitions
from grovekeeper_forests.privacy.scope import Cell, Scope

PARTITIONS = Partitions(
    (
        ColumnPartition("region", "region", True, ("north", "south"), has_missing=True),
        ColumnPartition("sex", "sex", True, ("female", "male"), has_missing=True),
    )
)


Cells: TypeAlias = Mapping[str, tuple[Cell, ...]]


def tightest(scope: Cells, *charges: tuple[Cells, int]) -> tuple[dict[str, Cell], int]:
    scopes = Numbering(["region", "sex"])
    for charged, _ in charges:
        scopes.add(Scope(charged).digest, Scope(charged))
    totals = {Scope(charged).digest: (amount, 0) for charged, amount in charges}
    found = AccountState(100, 100, PARTITIONS, scopes, totals).tightest(Scope(scope))
    return dict(found.cell), found.load


def test_a_tie_is_named_by_declared_categories() -> None:
    assert tightest({}) == ({"region": "north", "sex": "female"}, 0)
    everywhere: Scope = {}
    assert tightest({}, (everywhere, 3)) == ({"region": "north", "sex": "female"}, 3)


def test_a_larger_load_at_other_is_named_and_the_rest_is_declared() -> None:
    assert tightest({}, ({"region": ("OTHER",)}, 3)) == (
        {"region": "OTHER", "sex": "female"},
        3,
    )
    assert tightest({}, ({"sex": ("MISSING", "male")}, 3)) == (
        {"region": "north", "sex": "male"},
        3,
    )


def test_a_scope_without_a_declared_category_keeps_its_cell() -> None:
    assert tightest({"region": ("OTHER",)}) == ({"region": "OTHER", "sex": "female"}, 0)

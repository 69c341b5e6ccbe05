"""Tests random charges of δ over several partitions against brute force over joint
cells, and verifies the export.
"""

import itertools
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import BudgetExceeded
from app.ledger import accounts, reservations, statements, tables
from app.ledger import reservations as ledger
from app.services.installation import Installation
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from grovekeeper_verifier.dataset_replay import verify
from tests.support.crash_scene import open_installation
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.property

REGIONS = ["EU", "MISSING", "OTHER", "US"]
BY_REGION = ColumnPartition(
    "region", "region", is_feature=False, categories=("EU", "US"), has_missing=True
)
PARTITIONS = Partitions((BY_REGION, HashPartition("shard", 3)))
CELLS = list(itertools.product(REGIONS, range(3)))
ASIDE = 60
_serial = count()


@dataclass(frozen=True)
class Charge:
    """A charge of δ in steps, on a box; ``None``: every cell of the partition."""

    delta: int
    regions: frozenset[str] | None
    shards: frozenset[int] | None

    @property
    def scope(self) -> Scope:
        """The box, cells in canonical order."""
        listed = {"region": self.regions, "shard": self.shards}
        return Scope(
            {name: cells for name, cells in listed.items() if cells is not None}
        )

    def covers(self, region: str, shard: int) -> bool:
        """Whether a joint cell lies in the box."""
        return region in (self.regions or REGIONS) and shard in (
            self.shards or range(3)
        )


charges = st.builds(
    Charge,
    st.integers(1, 40),
    st.none() | st.frozensets(st.sampled_from(REGIONS), min_size=1),
    st.none() | st.frozensets(st.integers(0, 2), min_size=1),
)


def _opened(installation: Installation) -> str:
    account_id = f"ds_{next(_serial)}"
    new_account = accounts.NewAccount(
        id=account_id,
        name="census",
        accountant="zcdp",
        adjacency="add_remove",
        cap=10**12,
        delta="0.000001",
        privacy_unit={"column": None, "max_rows": 1},
        partitions=PARTITIONS,
        delta_set_aside=accountants.delta_text(ASIDE),
    )
    with installation.database.write() as session:
        accounts.open_account(session, new_account, actor="key_owner")
    return account_id


def _charged(installation: Installation, account_id: str, charge: Charge) -> bool:
    delta = accountants.delta_text(charge.delta)
    details = {
        "attested_by": "key_ann",
        "description": "a test",
        "per": "row",
        "declared": {"adjacency": "add_remove", "epsilon": "0.000001", "delta": delta},
    }
    new_reservation = ledger.NewReservation(
        account_id, 1, charge.scope, None, None, details=details
    )
    try:
        with installation.database.write() as session:
            reservations.charge_external(
                session, new_reservation, delta=charge.delta, actor="key_ann"
            )
    except BudgetExceeded as refused:
        return refused.unit != "delta"
    return True


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=st.lists(charges, min_size=3, max_size=14))
def test_no_joint_cell_exceeds_the_delta_that_is_set_aside(
    sqlite_database_url: str, tmp_path: Path, program: list[Charge]
) -> None:
    installation = open_installation(sqlite_database_url, tmp_path / "home")
    try:
        account_id, admitted = _opened(installation), list[Charge]()

        def load(cell: tuple[str, int]) -> int:
            return sum(charge.delta for charge in admitted if charge.covers(*cell))

        for charge in program:
            fits = all(
                load(cell) + charge.delta <= ASIDE
                for cell in CELLS
                if charge.covers(*cell)
            )
            assert _charged(installation, account_id, charge) is fits
            if fits:
                admitted.append(charge)
            with installation.database.read() as session:
                balance = statements.delta_balance(session, account_id, WHOLE)
            assert balance is not None
            assert balance.charged == max(map(load, CELLS))
        with installation.database.read() as session:
            header, _ = statements.export_header(session, account_id)
            entries = tables.entries(session, account_id, after=0, limit=1_000)
        lines = [
            rfc8785.dumps(line) + b"\n"
            for line in (header, *(entry.to_json() for entry in entries))
        ]
        assert verify(lines).kinds.get("charge", 0) == len(admitted)
    finally:
        installation.close()


def test_a_bound_on_delta_never_exceeds_the_delta_that_is_set_aside(
    sqlite_database_url: str, tmp_path: Path, set_limit: SetLimit
) -> None:
    """The boxes are disjoint, but the bound adds them, because each is widened to
    another partition.
    """
    installation = open_installation(sqlite_database_url, tmp_path / "home")
    account_id = _opened(installation)
    assert _charged(
        installation, account_id, Charge(40, frozenset({"EU"}), frozenset({0}))
    )
    assert _charged(
        installation, account_id, Charge(40, frozenset({"OTHER", "US"}), frozenset({1}))
    )
    balances = []
    for work in (forest_limits.MAX_COMPOSITION_WORK, 1):
        set_limit("MAX_COMPOSITION_WORK", work)
        with installation.database.read() as session:
            balances.append(statements.delta_balance(session, account_id, WHOLE))
    installation.close()
    assert [balance and balance.charged for balance in balances] == [40, ASIDE]

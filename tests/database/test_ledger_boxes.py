"""Totals of accounts with several partitions, on both databases: amounts per distinct
box, and upper bounds.
"""

import pytest
from sqlalchemy.orm import Session

from app.core.errors import BudgetExceeded
from app.ledger import kept_states, statements, tables
from app.ledger import reservations as ledger
from app.services.installation import Installation
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Scope
from tests.support import reserving, settling
from tests.support.crash_scene import EVENT, open_account
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

ACCOUNT = "ds_account"
PARTITIONS = Partitions(
    (
        HashPartition("shard", 4),
        ColumnPartition("region", "land", False, ("EU", "US"), has_missing=True),
        EpochPartition("month", "one file per month"),
    )
)


@pytest.fixture
def installation(installation: Installation) -> Installation:
    open_account(installation, ACCOUNT, cap=100, partitions=PARTITIONS)
    return installation


def _reserve(
    installation: Installation, job_id: str, amount: int, **scope: tuple[int | str, ...]
) -> str:
    new_reservation = ledger.NewReservation(
        ACCOUNT, amount, Scope(scope), EVENT, job_id
    )
    with installation.database.write() as session:
        return reserving.reserve(session, [new_reservation], actor="key_analyst")[0]


def _boxes(installation: Installation) -> list[tuple[Scope, int, int]]:
    with installation.database.read() as session:
        now = kept_states.state_of(session, tables.account(session, ACCOUNT))
        scopes = {
            digest: {name: list(cells) for name, cells in scope.items()}
            for digest, scope in now.scopes.items()
        }
        return sorted(
            ((scopes[digest], *amounts) for digest, amounts in now.totals.items()),
            key=repr,
        )


def _balance(
    installation: Installation, **scope: tuple[int | str, ...]
) -> statements.Balance:
    with installation.database.read() as session:
        return statements.balance(session, ACCOUNT, Scope(scope))


def test_jobs_on_the_same_box_share_their_amounts_and_an_empty_box_goes(
    installation: Installation,
) -> None:
    first = _reserve(installation, "jb_1", 5, shard=(0, 1))
    second = _reserve(installation, "jb_2", 7, shard=(0, 1))
    third = _reserve(installation, "jb_3", 11, region=("EU",))
    assert _boxes(installation) == [
        ({"region": ["EU"]}, 0, 11),
        ({"shard": [0, 1]}, 0, 12),
    ]
    with installation.database.write() as session:
        ledger.charge(session, first, actor="worker")
        settling.void(session, third, actor="worker")
    assert _boxes(installation) == [({"shard": [0, 1]}, 5, 7)]
    with installation.database.write() as session:
        settling.expire(session, second, actor="worker")
    assert _boxes(installation) == [({"shard": [0, 1]}, 5, 0)]


def test_a_box_of_several_partitions_is_stored_whole(
    installation: Installation,
) -> None:
    box = {"region": ["EU"], "shard": [0, 1]}
    held = _reserve(installation, "jb_1", 5, shard=(0, 1), region=("EU",))
    with installation.database.read() as session:
        stated = tables.entries(session, ACCOUNT, after=1, limit=9)[0].scope
        assert (tables.reservation(session, held).scope, stated) == (box, box)
    assert _boxes(installation) == [(box, 0, 5)]


def test_a_refused_reservation_leaves_no_box(installation: Installation) -> None:
    _reserve(installation, "jb_1", 100, shard=(0,))
    before = _boxes(installation)
    with pytest.raises(BudgetExceeded) as refused:
        _reserve(installation, "jb_2", 1, region=("US",))
    assert _boxes(installation) == before
    assert (refused.value.tightest_cell, refused.value.exact) == (
        {"region": "US", "shard": 0},
        True,
    )
    _reserve(installation, "jb_3", 100, shard=(1,), region=("US",))


def test_a_box_of_every_hash_cell_is_kept(installation: Installation) -> None:
    """A text of 4 KiB is too long for a key, so the row is found by its digest."""
    wide = Partitions((HashPartition("shard", forest_limits.MAX_HASH_CELLS),))
    open_account(installation, "ds_wide", cap=100, partitions=wide)
    cells = tuple(range(forest_limits.MAX_HASH_CELLS))
    with installation.database.write() as session:
        for number in range(2):
            new_reservation = ledger.NewReservation(
                "ds_wide", 50, Scope({"shard": cells}), EVENT, f"jb_{number}"
            )
            reserving.reserve(session, [new_reservation], actor="key_analyst")
        assert statements.balance(session, "ds_wide").remaining == 0


def test_a_bound_is_reported_refuses_soundly_and_keeps_its_sum(
    installation: Installation, set_limit: SetLimit
) -> None:
    """The first and the third box are disjoint. The bound cannot tell, and adds their
    loads.
    """
    _reserve(installation, "jb_1", 30, shard=(0,), region=("EU",))
    _reserve(installation, "jb_2", 30, shard=(0, 1), region=("EU", "US"))
    _reserve(installation, "jb_3", 30, shard=(0,), region=("MISSING", "OTHER"))
    exact = _balance(installation)
    assert (exact.charged + exact.reserved, exact.is_exact) == (60, True)
    set_limit("MAX_COMPOSITION_WORK", 1)
    installation.database.kept.clear()
    bounded = _balance(installation)
    assert (bounded.charged + bounded.reserved, bounded.is_exact) == (90, False)
    assert bounded.cap == bounded.charged + bounded.reserved + bounded.remaining
    with pytest.raises(BudgetExceeded) as refused:
        _reserve(installation, "jb_4", 11)
    assert (refused.value.exact, refused.value.largest_that_fits) == (
        False,
        "0.00000001",
    )
    inside = _balance(installation, region=("MISSING",), shard=(3,))
    assert (inside.reserved, inside.is_exact) == (0, True), (
        "a smaller question may be exact"
    )
    _reserve(installation, "jb_5", 100, region=("MISSING",), shard=(3,))
    full = _balance(installation)
    assert full.charged + full.reserved == full.cap, (
        "a bound never says more than any admission allowed"
    )


def test_scopes_of_cancelled_jobs_leave_the_process(installation: Installation) -> None:
    """A caller may reserve and cancel without end, and look at the balance between."""
    open_account(
        installation,
        "ds_wide",
        cap=100,
        partitions=Partitions((HashPartition("shard", 64),)),
    )

    def reserve(session: Session, job_id: str, *cells: int) -> str:
        new_reservation = ledger.NewReservation(
            "ds_wide", 3, Scope({"shard": cells}), EVENT, job_id
        )
        return reserving.reserve(session, [new_reservation], actor="key_analyst")[0]

    def shown() -> tuple[object, object, int]:
        with installation.database.read() as session:
            state = kept_states.state_of(session, tables.account(session, "ds_wide"))
            details = (
                statements.detail(session, "ds_wide"),
                statements.balance(session, "ds_wide", Scope({"shard": (7,)})),
            )
            return *details, state.budget.scopes.size

    with installation.database.write() as session:
        reserve(session, "jb_kept", *range(8))
    alone = shown()[2]
    sizes = []
    for number in range(20):
        with installation.database.write() as session:
            cancelled = reserve(session, f"jb_{number}", number, *range(30, 50))
        sizes.append(shown()[2])
        with installation.database.write() as session:
            reserve(session, f"jb_rolled_back_{number}", number, *range(20, 60))
            statements.balance(session, "ds_wide")
            session.rollback()
        with installation.database.write() as session:
            settling.void(session, cancelled, actor="worker")
        sizes.append(shown()[2])
    assert max(sizes) <= 4 * (alone + 22)
    before = shown()
    installation.database.kept.clear()
    after = shown()
    assert after[:2] == before[:2], "a process that begins now shows the same"
    assert after[2] == alone


def test_a_charge_without_an_upload_covers_the_uploads_to_come(
    installation: Installation,
) -> None:
    """The rows that an external mechanism reads are unknown, so its box is not limited
    to the present uploads.
    """
    _reserve(installation, "jb_1", 40)
    _reserve(installation, "jb_2", 30, month=("ep_1",))
    assert _balance(installation, month=("ep_1",)).remaining == 30
    assert _balance(installation, month=("ep_2",)).remaining == 60
    assert _balance(installation).tightest_cell == {
        "month": "ep_1",
        "region": "EU",
        "shard": 0,
    }


def test_the_largest_amounts_overflow_in_no_bound(
    installation: Installation, set_limit: SetLimit
) -> None:
    """Each amount fits into 64 bits; the sum that a bound forms over disjoint cells may
    not.
    """
    cut = Partitions((HashPartition("a", 64), HashPartition("b", 11)))
    open_account(installation, "ds_large", cap=10**18, partitions=cut)

    def reserve(session: Session, amount: int, scope: Scope) -> None:
        new_reservation = ledger.NewReservation(
            "ds_large", amount, Scope(scope), EVENT, f"jb_{len(_jobs)}"
        )
        reserving.reserve(session, [new_reservation], actor="key_analyst")
        _jobs.append(new_reservation)

    _jobs: list[ledger.NewReservation] = []
    with installation.database.write() as session:
        for cell in range(11):
            reserve(session, 9 * 10**17, {"a": (0,), "b": (cell,)})
        exact = statements.balance(session, "ds_large")
        assert (exact.reserved, exact.remaining, exact.is_exact) == (
            9 * 10**17,
            10**17,
            True,
        )
        set_limit("MAX_COMPOSITION_WORK", 0)
        session.info.clear()  # forgets the tightest cell that was found
        bounded = statements.balance(session, "ds_large")
        assert (bounded.charged + bounded.reserved, bounded.is_exact) == (10**18, False)
        assert bounded.room == 0
        with pytest.raises(BudgetExceeded):
            reserve(session, 2 * 10**17, {})

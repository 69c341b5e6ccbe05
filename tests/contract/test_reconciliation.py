"""An account whose stored balance differs from its entries admits nothing, on both databases; other accounts go on."""

import dataclasses
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Executable, delete, func, insert, literal_column, select, update

from app.core import limits
from app.core.errors import BalanceMismatch, BudgetExceeded, Unavailable
from app.ledger import caps, external, reconciliation, scope_cache
from app.ledger import service as ledger
from app.ledger.scope_digest import digest_of
from app.ledger.tables import AccountRow, BoxRow, EntryRow, MemberRow, ReservationRow
from app.services.installation import Installation
from app.services.ledger.balance_checks import check_balances
from tests.support import people
from tests.support import population_accounts as members
from tests.support.crash_scene import EVENT, Scene, open_installation
from tests.support.databases import MigratedDatabase
from tests.support.sweeping import expired_at

ASIDE = "0.00000025"
_serial = count()


@pytest.fixture
def accounts(installation: Installation) -> Installation:
    """Two members of a population, which spend 40 of 100, and a ``zcdp`` account that sets δ aside."""
    with installation.database.write() as session:
        members.opened(session, "ds_a", "ds_b")
        members.account(session, "ds_c", members.ZCDP, delta_set_aside=ASIDE)
        for name, job in (("ds_a", "jb_a"), ("ds_b", "jb_b")):
            members.reserve(session, name, 20, job, 0, 1)
            ledger.charge_job(session, job, actor="worker")
        members.reserve(session, "ds_a", 10, "jb_open", 2)
        details = {"attested_by": "key_a", "description": "a mean", "per": "row"}
        part = ledger.NewReservation("ds_c", 7, {}, EVENT, None, details=details)
        external.charge(session, part, delta=10**11, actor="key_a")
    return installation


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what this process read before."""

    def forget() -> None:
        monkeypatch.setattr(reconciliation, "_verified", {})
        monkeypatch.setattr(scope_cache, "_by_names", {})

    return forget


def _on(table: type[Any], account_id: str, kind: Any = update, **values: Any) -> Executable:
    statement = kind(table).where(table.account_id == account_id)
    return statement.values(**values) if values else statement


def _box(account_id: str, **values: Any) -> Executable:
    amounts = {"charged": 0, "reserved": 0, "delta_charged": 0}
    scope = {"shard": [1]}
    return insert(BoxRow).values(account_id=account_id, box=digest_of(scope), scope=scope, **(amounts | values))


def _account(account_id: str, **values: Any) -> Executable:
    return update(AccountRow).where(AccountRow.id == account_id).values(**values)


CHANGES = {
    "boxes deleted": ("ds_a", _on(BoxRow, "ds_a", delete)),
    "box lowered": ("ds_a", _on(BoxRow, "ds_a", charged=0)),
    "box raised": ("ds_a", _on(BoxRow, "ds_a", reserved=11)),
    "box added": ("ds_a", _box("ds_a", reserved=1)),
    "cap raised": ("ds_a", _account("ds_a", cap=200, highest_cap=200)),
    "highest cap raised": ("ds_a", _account("ds_a", highest_cap=101)),
    "privacy unit changed": ("ds_a", _account("ds_a", privacy_unit={"column": None, "max_rows": 2})),
    "head changed": ("ds_a", _account("ds_a", last_hash="0" * 64)),
    "head shortened": ("ds_a", _account("ds_a", last_sequence=2)),
    "cells changed": ("ds_a", _account("ds_a", partitions=[])),
    "member of a population lowered": ("ds_a", _on(MemberRow, "ds_b", load=0, reserved=0)),
    "member of a population removed": ("ds_a", _on(MemberRow, "ds_b", delete)),
    "own membership removed": ("ds_a", _on(MemberRow, "ds_a", delete)),
    "cap of the population raised": ("ds_a", _account("pop_a", cap=200, highest_cap=200)),
    "delta deleted": ("ds_c", _on(BoxRow, "ds_c", delta_charged=0)),
    "delta set aside raised": ("ds_c", _account("ds_c", delta_set_aside="0.0000005")),
}


def _reserved(installation: Installation, account_id: str, amount: int = 1) -> None:
    with installation.database.write() as session:
        members.reserve(session, account_id, amount, f"jb_{next(_serial)}")


def test_a_difference_in_one_database_refuses_nothing_in_a_copy_of_it(
    accounts: Installation, migrated_database: MigratedDatabase, tmp_path: Path
) -> None:
    """One process may open both, and accounts have the same ids."""
    home = tmp_path / "other"
    home.mkdir()
    with migrated_database("sqlite", home) as url, closing(open_installation(url, home)) as other:
        with other.database.write() as session:
            members.account(session, "ds_a", members.PURE)
        with accounts.database.write() as session:
            session.execute(_box("ds_a", reserved=1))
        assert check_balances(accounts) == ["ds_a"]
        with pytest.raises(BalanceMismatch):
            _reserved(accounts, "ds_a")
        _reserved(other, "ds_a")


@pytest.mark.parametrize("is_first", [False, True])
def test_an_account_with_a_changed_balance_admits_nothing(
    accounts: Installation, restart: Callable[[], None], is_first: bool
) -> None:
    assert check_balances(accounts) == []
    for change, (account_id, statement) in CHANGES.items():
        if is_first:
            restart()
        with accounts.database.write() as session:
            before = session.execute(select(func.count()).select_from(EntryRow)).scalar_one()
            session.execute(statement)
            with pytest.raises(BalanceMismatch):
                members.reserve(session, account_id, 1, "jb_refused")
                pytest.fail(change)
            assert session.execute(select(func.count()).select_from(EntryRow)).scalar_one() == before, change
            members.reserve(session, "ds_c" if account_id == "ds_a" else "ds_a", 1, "jb_healthy")
            session.rollback()
    _reserved(accounts, "ds_a")


def test_a_refusal_logs_the_account_and_no_amount(accounts: Installation, caplog: pytest.LogCaptureFixture) -> None:
    with accounts.database.write() as session:
        session.execute(_account("ds_a", cap=77123, highest_cap=77123))
    with pytest.raises(BalanceMismatch) as refusal:
        _reserved(accounts, "ds_a")
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert vars(record)["account_id"] == "ds_a"
    assert "77123" not in f"{vars(record)} {refusal.value}"
    assert "ds_a" not in str(refusal.value)


def test_the_account_admits_again_when_its_rows_are_restored(accounts: Installation) -> None:
    with accounts.database.write() as session:
        session.execute(_account("ds_a", cap=99))
    with pytest.raises(BalanceMismatch):
        _reserved(accounts, "ds_a")
    with accounts.database.write() as session:
        session.execute(_account("ds_a", cap=100))
    _reserved(accounts, "ds_a")
    with pytest.raises(BudgetExceeded):
        _reserved(accounts, "ds_a", 60)


def test_amounts_in_other_scopes_admit_no_more_than_the_entries_and_are_found_at_the_next_comparison(
    accounts: Installation,
) -> None:
    """An admission compares sums of amounts, and is decided on the amounts of the entries."""
    amounts = {0: 70, 1: 20}

    def store(reserved: dict[int, int]) -> None:
        with accounts.database.write() as session:
            for shard, amount in reserved.items():
                box = digest_of({"shard": [shard]})
                session.execute(_on(BoxRow, "ds_x", reserved=amount).where(BoxRow.box == box))

    with accounts.database.write() as session:
        members.account(session, "ds_x")
        for shard, amount in amounts.items():
            members.reserve(session, "ds_x", amount, f"jb_{shard}", shard)
    store({0: 20, 1: 70})
    with accounts.database.write() as session, pytest.raises(BudgetExceeded):
        members.reserve(session, "ds_x", 31, "jb_too_much", 0)
    with pytest.raises(BalanceMismatch), accounts.database.write() as session:
        caps.change(session, "ds_x", 95, reason="a test", actor="key_owner")
    assert check_balances(accounts) == ["ds_x"]
    with pytest.raises(BalanceMismatch):
        _reserved(accounts, "ds_x")
    store(amounts)
    assert check_balances(accounts) == []
    _reserved(accounts, "ds_x")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # PostgreSQL stores no text as an integer
@pytest.mark.parametrize("text", ["x", "20,0"])
def test_an_amount_stored_as_text_is_a_difference(accounts: Installation, text: str) -> None:
    with accounts.database.write() as session:
        session.execute(update(BoxRow).where(BoxRow.account_id == "ds_a").values(charged=literal_column(f"'{text}'")))
    assert check_balances(accounts) == ["ds_a"]
    with pytest.raises(BalanceMismatch):
        _reserved(accounts, "ds_a")


def test_a_changed_balance_changes_no_cap_and_no_population(accounts: Installation) -> None:
    with accounts.database.write() as session:
        members.account(session, "ds_late")
        members.reserve(session, "ds_late", 30, "jb_late")
        session.execute(_on(BoxRow, "ds_late", reserved=1))
    with pytest.raises(BalanceMismatch), accounts.database.write() as session:
        members.join(session, "ds_late")
    with pytest.raises(BalanceMismatch), accounts.database.write() as session:
        caps.change(session, "ds_late", 50, reason="a test", actor="key_owner")


def test_a_member_with_a_changed_balance_gives_nothing_back_to_its_population(accounts: Installation) -> None:
    """Its load in the population's chain would fall with the changed balance, and other members would be admitted."""
    with accounts.database.write() as session:
        session.execute(_on(BoxRow, "ds_a", charged=0).where(BoxRow.charged > 0))
    with pytest.raises(BalanceMismatch), accounts.database.write() as session:
        ledger.void_jobs(session, ["jb_open"], actor="key_a")


def test_a_comparison_names_every_account_that_differs(accounts: Installation) -> None:
    with accounts.database.write() as session:
        session.execute(_on(BoxRow, "ds_c", delta_charged=0))
        session.execute(_on(ReservationRow, "ds_b", state="reserved"))
    assert check_balances(accounts) == ["ds_b", "ds_c"]
    with pytest.raises(BalanceMismatch):
        _reserved(accounts, "ds_b")
    _reserved(accounts, "ds_a")
    with accounts.database.write() as session:
        session.execute(_on(ReservationRow, "ds_b", state="charged"))
    assert check_balances(accounts) == ["ds_c"]
    _reserved(accounts, "ds_b")


def test_an_admission_reads_only_entries_after_the_verified_one(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = reconciliation.Replay.take
    monkeypatch.setattr(
        reconciliation.Replay, "take", lambda replay, entry: (taken.append(entry.sequence), take(replay, entry))[1]
    )
    with installation.database.write() as session:
        members.account(session, "ds_a")
    for _ in range(4):
        _reserved(installation, "ds_a")
    assert taken == [1, 2, 3, 4], "the entry that an admission writes is verified before the next admission"
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            _reserved(installation, "ds_a", 100)
    assert taken == [1, 2, 3, 4, 5]
    assert check_balances(installation) == []
    assert taken == [1, 2, 3, 4, 5], "no entry is verified twice"


def test_a_long_account_is_verified_in_steps_and_delays_no_other(
    installation: Installation, restart: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with installation.database.write() as session:
        members.account(session, "ds_a")
        members.account(session, "ds_b")
        for number in range(9):
            members.reserve(session, "ds_a", 1, f"jb_x{number}")
    restart()
    monkeypatch.setattr(limits, "MAX_ENTRIES_VERIFIED_AT_ONCE", 4)
    for _ in range(2):
        with pytest.raises(Unavailable) as refusal:
            _reserved(installation, "ds_a")
        assert not isinstance(refusal.value, BalanceMismatch)
        _reserved(installation, "ds_b")
    _reserved(installation, "ds_a")
    restart()
    assert check_balances(installation) == []
    _reserved(installation, "ds_a")


def test_the_expiry_of_other_jobs_goes_on(scene: Scene) -> None:
    other = dataclasses.replace(scene, dataset_id=people.declared(scene.installation)["id"])
    other.upload()
    with scene.installation.database.write() as session:
        members.opened(session, cap=10**10)
        members.join(session, scene.dataset_id)
    stuck, waiting = scene.submit_job(key="first"), other.submit_job(key="second")
    with scene.installation.database.write() as session:
        session.execute(_on(BoxRow, scene.dataset_id, charged=1))
    deadline = other.job(waiting).submitted_at + timedelta(seconds=limits.MAX_QUEUE_S + 1)
    assert expired_at(scene.installation, deadline) == 1
    assert scene.end(stuck) == ("queued", None, ["reserve"])
    assert other.end(waiting) == ("failed", "expired", ["reserve", "expire"])

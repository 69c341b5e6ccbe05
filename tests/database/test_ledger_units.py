"""Accounts in ρ and μ² on both databases: amounts, refusals, and the highest cap that
the guarantee must cover.
"""

from fractions import Fraction

import pytest

from app.core.errors import BudgetExceeded
from app.ledger import accounts, statements, tables
from app.ledger import reservations as ledger
from app.services.installation import Installation
from grovekeeper_forests import amounts
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import SplitDelta
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support import reserving
from tests.support.crash_scene import EVENT

pytestmark = pytest.mark.contract

ACCOUNT = "ds_account"
DELTA = Fraction(1, 10**6)
UNITS = {"zcdp": "rho", "gdp": "mu_squared"}
CAPS = {name: accountants.by_name(name).cap(Fraction(1), DELTA) for name in UNITS}

approximate = pytest.mark.parametrize("accountant", ["zcdp", "gdp"])


def opened(
    installation: Installation, accountant: str, *, cap: int | None = None
) -> None:
    new_account = accounts.NewAccount(
        id=ACCOUNT,
        name="census",
        accountant=accountant,
        adjacency="add_remove",
        cap=CAPS[accountant] if cap is None else cap,
        delta="0.000001",
        privacy_unit={"column": None, "max_rows": 1},
        partitions=Partitions((HashPartition("shard", 2),)),
    )
    with installation.database.write() as session:
        accounts.open_account(session, new_account, actor="key_owner")


def reserved(
    installation: Installation,
    job_id: str,
    amount: int,
    *,
    delta: Fraction | None = DELTA,
) -> str:
    new_reservation = ledger.NewReservation(
        ACCOUNT, amount, WHOLE, EVENT, job_id, delta
    )
    with installation.database.write() as session:
        return reserving.reserve(session, [new_reservation], actor="key_analyst")[0]


def charged(installation: Installation, job_id: str, amount: int) -> None:
    reservation_id = reserved(installation, job_id, amount)
    with installation.database.write() as session:
        ledger.charge(session, reservation_id, actor="worker")


def cap_set(installation: Installation, amount: int) -> None:
    with installation.database.write() as session:
        accounts.change_cap(
            session, ACCOUNT, amount, reason="a test", actor="key_owner"
        )


@approximate
def test_balances_and_entries_are_shown_in_steps_of_a_trillionth(
    installation: Installation, accountant: str
) -> None:
    opened(installation, accountant)
    charged(installation, "jb_1", 1)
    with installation.database.read() as session:
        balance = statements.balance(session, ACCOUNT)
        entries = tables.entries(session, ACCOUNT, after=0, limit=9)
        header, _ = statements.export_header(session, ACCOUNT)

    assert (balance.unit, balance.text(balance.charged)) == (
        UNITS[accountant],
        "0.000000000001",
    )
    assert [entry.to_json()["amount"] for entry in entries[1:]] == [
        "0.000000000001"
    ] * 2
    assert (
        entries[0].to_json()["amount"]
        == header["cap"]
        == amounts.from_steps(CAPS[accountant], 12)
    )
    assert all(entry.sealed().hash == entry.hash for entry in entries), (
        "the stored text is the one that was hashed"
    )


@approximate
def test_refusal_says_the_epsilon_that_fits_at_the_jobs_delta(
    installation: Installation, accountant: str
) -> None:
    opened(installation, accountant)
    unit = accountants.by_name(accountant)
    charged(installation, "jb_1", unit.price(Fraction(1, 2), DELTA))
    left = CAPS[accountant] - unit.price(Fraction(1, 2), DELTA)
    for delta in (DELTA, Fraction(1, 10**9), None):
        with pytest.raises(BudgetExceeded) as refused:
            reserved(installation, "jb_2", left + 1, delta=delta)
        fits = Fraction(refused.value.largest_that_fits)
        assert (
            unit.price(fits, delta or DELTA)
            <= left
            < unit.price(fits + Fraction(1, 10**9), delta or DELTA)
        )
        assert refused.value.requested == amounts.from_steps(left + 1, 12)
        assert refused.value.unit == UNITS[accountant]
    assert reserved(installation, "jb_3", left)


@approximate
def test_the_highest_cap_ignores_only_caps_from_before_the_first_reservation(
    installation: Installation, accountant: str
) -> None:
    def highest() -> int:
        with installation.database.read() as session:
            limit = statements.highest_cap(session, ACCOUNT)
        assert (limit.amount.accountant, limit.delta) == (accountant, SplitDelta(DELTA))
        return limit.amount.steps

    opened(installation, accountant, cap=900)
    assert highest() == 900
    cap_set(installation, 700)
    assert highest() == 700, "nothing was released under the cap of 900"
    reserved(installation, "jb_0", 5)
    charged(installation, "jb_1", 10)
    assert highest() == 700
    cap_set(installation, 300)
    assert highest() == 700, "lowering a cap after seeing outputs improves no statement"
    cap_set(installation, 800)
    cap_set(installation, 100)
    charged(installation, "jb_2", 10)
    assert highest() == 800


@approximate
def test_the_guarantee_covers_reservations_under_a_higher_cap(
    installation: Installation, accountant: str
) -> None:
    """A reservation under cap 900 is charged after the cap fell to 300: a guarantee of
    300 would be false.
    """
    opened(installation, accountant, cap=900)
    reservation_id = reserved(installation, "jb_0", 800)
    cap_set(installation, 300)
    with installation.database.write() as session:
        ledger.charge(session, reservation_id, actor="worker")
        assert (
            statements.printable(session, ACCOUNT).amount.steps
            == statements.highest_cap(session, ACCOUNT).amount.steps
            == 900
        )


@approximate
def test_the_largest_fitting_epsilon_is_computed_without_locks(
    installation: Installation, accountant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The computation takes up to 40 ms; under the lock, every other user of the
    account would wait.
    """
    opened(installation, accountant, cap=CAPS[accountant])
    asked, real = [], accountants.largest_that_fits

    def remembering(
        name: str, room: int, delta: Fraction | None, *, least: int
    ) -> Fraction:
        asked.append((room, delta))
        return real(name, room, delta, least=least)

    monkeypatch.setattr(accountants, "largest_that_fits", remembering)
    with pytest.raises(BudgetExceeded) as refused:
        reserved(installation, "jb_1", CAPS[accountant] + 1)
    assert asked == []
    assert [refused.value.largest_that_fits for _ in range(2)] == ["1", "1"]
    assert asked == [(CAPS[accountant], DELTA)], "once"

"""Tests concurrent processes on members of two populations, on both databases: no sum
exceeds its cap.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest

from app.core import stamps
from app.core.errors import BudgetExceeded
from app.ledger import populations, statements
from app.ledger import reservations as ledger
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import PopulationSummary, verify
from tests.database.races.conftest import Race
from tests.support import reserving, settling
from tests.support.crash_scene import EVENT, OWNER, open_account, open_installation
from tests.support.evidence import export, verified
from tests.support.waiting import wait_for

CAPS = {"pp_a": 150, "pp_b": 90}
MEMBERS = {"ds_1": "pp_a", "ds_2": "pp_b", "ds_3": "pp_b", "ds_4": "pp_a"}
"""In the order of ids, populations alternate, so jobs on two accounts would deadlock if
they locked part by part.
"""


@pytest.fixture
def installation(database_url: str, tmp_path: Path):
    installation = open_installation(database_url, tmp_path / "home")
    with installation.database.write() as session:
        for name, cap in CAPS.items():
            new_population = populations.NewPopulation(
                name, name, "pure", cap, None, OWNER.key_id
            )
            populations.open_population(session, new_population, at=stamps.now())
    for account in MEMBERS:
        open_account(installation, account, cap=120, partitions=Partitions(()))
    with installation.database.write() as session:
        for account, name in MEMBERS.items():
            populations.join(
                session, name, account, actor=OWNER.key_id, at=stamps.now()
            )
    yield installation
    installation.close()


def test_no_population_exceeds_its_cap_and_accounts_are_filled(
    race: Race, installation: Installation, n_processes: int
) -> None:
    results = race(
        installation, "reserve_members", accounts=list(MEMBERS), rounds=5, largest=12
    )
    assert sum(map(bool, results)) > n_processes // 2, (
        "most processes took part in the race"
    )
    loads: Counter[str] = Counter()
    for result in results:
        for _, amount, accounts, end in result:
            loads.update({account: amount for account in accounts if end != "void"})
    for name, cap in CAPS.items():
        together = sum(
            loads[account]
            for account, population in MEMBERS.items()
            if population == name
        )
        assert together <= cap
        with installation.database.read() as session:
            totals = populations.of_population(session, name)
            assert totals.loads == {account: loads[account] for account in totals.loads}
            assert totals.together == together
    with installation.database.read() as session:
        rooms = {
            account: statements.balance(session, account).room for account in MEMBERS
        }
    assert all(loads[account] <= 120 for account in MEMBERS)
    for name in CAPS:
        _verified(installation, name)
    assert min(rooms.values()) == 0, "processes reserved until nothing fitted"


def test_no_admission_exceeds_the_cap_in_force_while_caps_change(
    race: Race, installation: Installation
) -> None:
    results = race(
        installation,
        "reserve_members",
        accounts=list(MEMBERS),
        rounds=6,
        largest=6,
        caps=CAPS,
    )
    admitted = Counter(
        account
        for result in results
        for _, _, accounts, _ in result
        for account in accounts
    )
    for name, cap in CAPS.items():
        summary = _verified(installation, name)
        assert summary.kinds["cap"] > 8, "caps changed during the race"
        assert summary.highest_cap <= cap
        n_reserved = sum(
            comparison.ledger.kinds.get("reserve", 0)
            for comparison in summary.compared.values()
        )
        assert n_reserved == sum(admitted[account] for account in summary.members) > 8


def test_exports_that_are_made_during_writes_agree(
    race: Race, installation: Installation, n_processes: int
) -> None:
    """The population's export comes first, so its members' exports may have later
    entries, but lack none.
    """
    n_later, people = 0, _taken_of_all(installation, CAPS)
    with ThreadPoolExecutor(1) as pool:
        racing = pool.submit(
            race,
            installation,
            "reserve_members",
            accounts=list(MEMBERS),
            rounds=6,
            largest=6,
            caps=CAPS,
        )
        while not racing.done():
            before = _taken_of_all(installation, MEMBERS)
            wait_for(
                "a member has a later entry, or the race ends",
                lambda before=before: (
                    racing.done() or _taken_of_all(installation, MEMBERS) != before
                ),
            )
            for name, cap in CAPS.items():
                ledgers = [
                    MemberLedger(_taken(installation, account), (), file=account)
                    for account, population in MEMBERS.items()
                    if population == name
                ]
                summary = verify(people[name], ledgers)
                assert summary.together <= cap
                n_later += sum(member.n_later for member in summary.compared.values())
            people = _taken_of_all(installation, CAPS)
        assert sum(map(bool, racing.result())) > n_processes // 2
    assert n_later > 0, "members wrote entries after the export of their population"


def _taken_of_all(
    installation: Installation, accounts: Iterable[str]
) -> dict[str, list[bytes]]:
    return {account: _taken(installation, account) for account in accounts}


def _taken(installation: Installation, account: str) -> list[bytes]:
    with installation.database.read() as session:
        return list(export(session, account))


def _verified(installation: Installation, population: str) -> PopulationSummary:
    """Verifies a population with every load compared exactly with the member's entries."""
    with installation.database.read() as session:
        summary = verified(session, population)
    assert {
        account: (comparison.n_later, comparison.n_bounds)
        for account, comparison in summary.compared.items()
    } == {account: (0, 0) for account, name in MEMBERS.items() if name == population}
    return summary


def _assert_waits_for_reservation(
    installation: Installation, work: Callable[[], None]
) -> None:
    """Asserts that work on member ds_4 waits for the commit of a reservation on member
    ds_1, and then ends well.
    """
    has_ended = Event()

    def run() -> None:
        work()
        has_ended.set()

    second = Thread(target=run)
    with installation.database.write() as session:
        reserving.reserve(
            session,
            [ledger.NewReservation("ds_1", 100, WHOLE, EVENT, "jb_1")],
            actor="key_a",
        )
        second.start()
        second.join(1.0)
        assert second.is_alive()
    second.join()
    assert has_ended.is_set()


def test_a_reservation_waits_for_and_counts_a_reservation_on_another_member(
    installation: Installation,
) -> None:
    """Without the population's lock, both would read the earlier sum."""

    def reserve_over_the_cap() -> None:
        with pytest.raises(BudgetExceeded), installation.database.write() as session:
            reserving.reserve(
                session,
                [ledger.NewReservation("ds_4", 100, WHOLE, EVENT, "jb_2")],
                actor="key_a",
            )

    _assert_waits_for_reservation(installation, reserve_over_the_cap)


@pytest.mark.parametrize("end", [settling.void, settling.expire])
def test_the_end_of_a_reservation_waits_for_a_reservation_on_another_member(
    installation: Installation, end: Callable[..., None]
) -> None:
    """Without the population's lock, both would write an entry with the same number."""
    with installation.database.write() as session:
        reservation = ledger.NewReservation("ds_4", 50, WHOLE, EVENT, "jb_0")
        reservation_id = reserving.reserve(session, [reservation], actor="key_a")[0]

    def settle() -> None:
        with installation.database.write() as session:
            end(session, reservation_id, actor="key_b")

    _assert_waits_for_reservation(installation, settle)
    assert _verified(installation, "pp_a").together == 100

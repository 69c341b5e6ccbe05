"""Sixteen processes reserve on members of two populations at once, on both databases: no sum passes its cap."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest

from app.core import clock
from app.core.errors import BudgetExceeded
from app.ledger import population_totals, populations
from app.ledger import service as ledger
from app.privacy.composition import Partitions
from app.services.installation import Installation
from app.verifier.member_comparison import MemberLedger
from app.verifier.population_replay import PopulationSummary, verify
from tests.concurrency.test_races import race
from tests.support.crash_scene import EVENT, OWNER, open_account, open_installation
from tests.support.evidence import export, verified

CAPS = {"pp_a": 150, "pp_b": 90}
MEMBERS = {"ds_1": "pp_a", "ds_2": "pp_b", "ds_3": "pp_b", "ds_4": "pp_a"}
"""In order of ids the populations cross, so jobs on two accounts would wait in a circle if they locked as they go."""


@pytest.fixture
def installation(database_url: str, tmp_path: Path):
    found = open_installation(database_url, tmp_path / "home")
    with found.database.write() as session:
        for name, cap in CAPS.items():
            new = populations.NewPopulation(name, name, "pure", cap, None, OWNER.key_id)
            populations.open_population(session, new, at=clock.now())
    for account in MEMBERS:
        open_account(found, account, cap=120, partitions=Partitions(()))
    with found.database.write() as session:
        for account, name in MEMBERS.items():
            populations.join(session, name, account, actor=OWNER.key_id, at=clock.now())
    yield found
    found.close()


def test_no_population_passes_its_cap_and_each_fills_up(installation: Installation) -> None:
    results = race(installation, "unused", "reserve_members", accounts=list(MEMBERS), rounds=5, largest=12)
    assert sum(map(bool, results)) > 8, "a race that most processes never ran shows nothing"
    held: Counter[str] = Counter()
    for result in results:
        for _, amount, accounts, end in result:
            held.update({account: amount for account in accounts if end != "void"})
    for name, cap in CAPS.items():
        together = sum(held[account] for account, population in MEMBERS.items() if population == name)
        assert together <= cap
        with installation.database.read() as session:
            found = population_totals.of_population(session, name)
            assert found.loads == {account: held[account] for account in found.loads}
            assert found.together == together
    with installation.database.read() as session:
        rooms = {account: ledger.balance(session, account).room for account in MEMBERS}
    assert all(held[account] <= 120 for account in MEMBERS)
    for name in CAPS:
        _verified(installation, name)
    assert min(rooms.values()) == 0, "everybody went on until nothing fitted there"


def test_no_admission_passes_the_cap_of_its_moment_while_caps_move(installation: Installation) -> None:
    results = race(installation, "unused", "reserve_members", accounts=list(MEMBERS), rounds=6, largest=6, caps=CAPS)
    admitted = Counter(account for result in results for _, _, accounts, _ in result for account in accounts)
    for name, cap in CAPS.items():
        found = _verified(installation, name)
        assert found.kinds["cap"] > 8, "a race in which no cap moved shows nothing"
        assert found.highest_cap <= cap
        n_held = sum(each.ledger.kinds.get("reserve", 0) for each in found.compared.values())
        assert n_held == sum(admitted[account] for account in found.members) > 8


def test_exports_that_are_taken_while_others_write_agree(installation: Installation) -> None:
    """The population's first, then its members': what they did since is later, and nothing looks left out."""
    n_looks = 0
    with ThreadPoolExecutor(1) as pool:
        racing = pool.submit(
            race, installation, "unused", "reserve_members", accounts=list(MEMBERS), rounds=6, largest=6, caps=CAPS
        )
        while not racing.done():
            for name in CAPS:
                people = _taken(installation, name)
                own = [account for account, population in MEMBERS.items() if population == name]
                ledgers = [MemberLedger(_taken(installation, account), (), file=account) for account in own]
                assert verify(people, ledgers).together <= CAPS[name]
                n_looks += 1
        assert sum(map(bool, racing.result())) > 8
    assert n_looks > 4


def _taken(installation: Installation, account: str) -> list[bytes]:
    with installation.database.read() as session:
        return list(export(session, account))


def _verified(installation: Installation, population: str) -> PopulationSummary:
    """The verifier's own look at every step, each load against the member's own entries."""
    with installation.database.read() as session:
        found = verified(session, population)
    assert all((each.n_later, each.n_bounds, each.n_too_complex) == (0, 0, 0) for each in found.compared.values())
    return found


def test_who_reserves_on_another_member_waits_and_then_counts_what_was_reserved(installation: Installation) -> None:
    """Without the population's lock both would look at the sum of before."""
    refused = Event()

    def late() -> None:
        with pytest.raises(BudgetExceeded), installation.database.write() as session:
            ledger.reserve(session, [ledger.NewReservation("ds_4", 100, {}, EVENT, "jb_2")], actor="key_a")
        refused.set()

    second = Thread(target=late)
    with installation.database.write() as session:
        ledger.reserve(session, [ledger.NewReservation("ds_1", 100, {}, EVENT, "jb_1")], actor="key_a")
        second.start()
        second.join(1.0)
        assert second.is_alive()
    second.join()
    assert refused.is_set()


@pytest.mark.parametrize("end", [ledger.void, ledger.expire])
def test_who_gives_back_on_another_member_waits_and_then_goes_on_in_the_chain(
    installation: Installation, end: Callable[..., None]
) -> None:
    """Without the population's lock both would write the same next entry."""
    with installation.database.write() as session:
        held = ledger.reserve(session, [ledger.NewReservation("ds_4", 50, {}, EVENT, "jb_0")], actor="key_a")[0]
    given_back = Event()

    def late() -> None:
        with installation.database.write() as session:
            end(session, held, actor="key_b")
        given_back.set()

    second = Thread(target=late)
    with installation.database.write() as session:
        ledger.reserve(session, [ledger.NewReservation("ds_1", 100, {}, EVENT, "jb_1")], actor="key_a")
        second.start()
        second.join(1.0)
        assert second.is_alive()
    second.join()
    assert given_back.is_set()
    assert _verified(installation, "pp_a").together == 100

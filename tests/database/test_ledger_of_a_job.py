"""Jobs with reservations on several accounts: all reservations are settled together, on
both databases.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import update

from app.core import stamps
from app.core.errors import (
    BalanceMismatch,
    BudgetExceeded,
    ErasureDue,
    Frozen,
    NeedsApproval,
    NotFound,
    QuotaExceeded,
    ReservationSettled,
    TooManyCells,
    TooManyRequests,
)
from app.ledger import chain, populations, rules, statements, tables
from app.ledger import reservations as ledger
from app.ledger.rules import Rules
from app.services.installation import Installation
from grovekeeper_forests import amounts
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support import reserving
from tests.support.crash_scene import (
    EVENT,
    OWNER,
    Scene,
    open_account,
    open_installation,
)
from tests.support.databases import on_one_database
from tests.support.population_accounts import said
from tests.support.ruled import set_rules
from tests.support.set_limits import SetLimit
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

FIRST, SECOND, THIRD = ACCOUNTS = ("ds_a", "ds_b", "ds_c")
CAP = 100


@pytest.fixture
def installation(installation: Installation) -> Installation:
    return _with_accounts(installation)


@pytest.fixture
def on_postgresql(
    postgresql_database_url: str, tmp_path: Path
) -> Iterator[Installation]:
    empty = open_installation(postgresql_database_url, tmp_path / "home")
    yield _with_accounts(empty)
    empty.close()


def _with_accounts(installation: Installation) -> Installation:
    for account_id in ACCOUNTS:
        open_account(installation, account_id, cap=CAP)
    return installation


def _reservations(job_id: str, amounts: dict[str, int]) -> list[ledger.NewReservation]:
    return [
        ledger.NewReservation(
            account_id=account_id,
            amount=amount,
            scope=WHOLE,
            event=EVENT,
            job_id=job_id,
        )
        for account_id, amount in amounts.items()
    ]


def _reserve(
    installation: Installation, job_id: str, amounts: dict[str, int]
) -> list[str]:
    with installation.database.write() as session:
        return reserving.reserve(
            session, _reservations(job_id, amounts), actor="key_analyst"
        )


def _kinds(installation: Installation, account_id: str) -> list[str]:
    with installation.database.read() as session:
        return [
            entry.kind.value
            for entry in tables.entries(session, account_id, after=1, limit=100)
        ]


def test_reservations_come_back_in_the_order_that_they_were_asked_in(
    installation: Installation,
) -> None:
    made = _reserve(installation, "jb_1", {SECOND: 30, FIRST: 20})
    with installation.database.read() as session:
        rows = [tables.reservation(session, reservation_id) for reservation_id in made]
    assert [(row.account_id, row.amount, row.state) for row in rows] == [
        (SECOND, 30, "reserved"),
        (FIRST, 20, "reserved"),
    ]
    assert _kinds(installation, THIRD) == []


def test_one_account_that_refuses_is_named_and_the_other_keeps_nothing(
    installation: Installation,
) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        _reserve(installation, "jb_1", {FIRST: 20, SECOND: CAP + 1})
    assert refused.value.dataset == SECOND
    assert _kinds(installation, FIRST) == _kinds(installation, SECOND) == []


@on_one_database
@pytest.mark.parametrize("ruled", [0, 1])
def test_the_account_whose_rules_ask_for_an_approval_is_named_with_its_own_part(
    scene: Scene, ruled: int
) -> None:
    pair = Pair.beside(scene)
    scenes, tenths = (pair.first, pair.second), [2, 2]
    tenths[ruled] = 6
    set_rules(scenes[ruled], approval_above="0.5")
    parts = [
        ledger.NewReservation(each.dataset_id, tenth * 10**8, WHOLE, EVENT, "jb_1")
        for each, tenth in zip(scenes, tenths, strict=True)
    ]
    with scene.installation.database.write() as session:
        assert ledger.judge(session, parts, actor=OWNER.key_id).excess == {
            scenes[ruled].dataset_id: 10**8
        }


@on_one_database
@pytest.mark.parametrize(("spent", "fits"), [("1", "0.5"), ("2.7", "0.3")])
@pytest.mark.parametrize("ruled", [0, 1])
def test_the_rules_of_each_account_of_a_job_refuse_its_own_part(
    scene: Scene, ruled: int, spent: str, fits: str
) -> None:
    """In order of the accounts' ids; the other account has wider rules of its own, and
    a larger part.

    What fits is also what is left of that account, where this is less.
    """
    pair = Pair.beside(scene)
    scenes = sorted((pair.first, pair.second), key=lambda each: each.dataset_id)
    tenths = [9, 9]
    tenths[ruled] = 6
    scenes[ruled].charge_external(key="k", epsilon=spent)
    for place, each in enumerate(scenes):
        set_rules(each, largest_job="0.5" if place == ruled else "1")
    parts = [
        ledger.NewReservation(each.dataset_id, tenth * 10**8, WHOLE, EVENT, "jb_1")
        for each, tenth in zip(scenes, tenths, strict=True)
    ]
    with (
        scene.installation.database.write() as session,
        pytest.raises(QuotaExceeded) as refused,
    ):
        reserving.reserve(session, parts, actor=OWNER.key_id)
    assert (refused.value.dataset, refused.value.requested) == (
        scenes[ruled].dataset_id,
        "0.6",
    )
    assert refused.value.what_fits() == fits
    assert pair.kinds_of("jb_1") == ([], [])


RULED: dict[str, tuple[Rules, type[Exception] | None]] = {
    "frozen": (Rules(is_frozen=True), Frozen),
    "due": (
        Rules(erase_rows_at=stamps.from_text("2020-01-01T00:00:00.000000Z")),
        ErasureDue,
    ),
    "too much": (Rules(largest_job=9), QuotaExceeded),
    "the last step": (Rules(largest_job=10), None),
}


@on_one_database
@pytest.mark.parametrize("which", RULED)
def test_a_rule_of_both_accounts_refuses_the_first_by_its_id(
    installation: Installation, which: str
) -> None:
    """And not the first part."""
    in_force, error = RULED[which]
    with installation.database.write() as session:
        for account_id in (FIRST, SECOND):
            rules.put(session, account_id, in_force, actor=OWNER.key_id)
    parts = _reservations("jb_1", {SECOND: 10, FIRST: 10})
    with installation.database.write() as session:
        if error is None:
            reserving.reserve(session, parts, actor="key_analyst")
        else:
            with pytest.raises(error) as refused:
                reserving.reserve(session, parts, actor="key_analyst")
            assert vars(refused.value)["dataset"] == FIRST


@on_one_database
def test_what_fits_is_said_in_the_terms_of_the_request(
    installation: Installation,
) -> None:
    """Of what is left, by the request's own conversion, or at its own δ."""
    _reserve(installation, "jb_1", {FIRST: 40})
    [part] = _reservations("jb_2", {FIRST: 61})
    own = replace(part, largest_within=lambda steps: Fraction(steps, 4))
    with installation.database.write() as session:
        for asked, fits in ((part, "0.00000006"), (own, "15")):
            with pytest.raises(BudgetExceeded) as refused:
                reserving.reserve(session, [asked], actor="key_analyst")
            assert refused.value.what_fits() == fits
        open_with = populations.NewPopulation(
            "pop_z", "z", "zcdp", 10**10, "0.000001", OWNER.key_id
        )
        populations.open_population(session, open_with, at=stamps.now())
        row = tables.account(session, "pop_z")
        for delta in (None, Fraction(1, 10**9)):
            largest = ledger._refused(row, replace(part, delta=delta), 10**9)[
                "what_fits"
            ]()
            at = Fraction(1, 10**6) if delta is None else delta
            assert largest == amounts.to_text(
                accountants.largest_that_fits("zcdp", 10**9, delta=at)
            )


@on_one_database
def test_what_fits_without_an_approval_is_nothing_where_the_key_is_above_already(
    scene: Scene,
) -> None:
    parts = [
        ledger.NewReservation(scene.dataset_id, 6 * 10**8, WHOLE, EVENT, f"jb_{n}")
        for n in range(2)
    ]
    with scene.installation.database.write() as session:
        reserving.reserve(session, parts[:1], actor=OWNER.key_id)
    set_rules(scene, approval_above="0.5")
    with (
        scene.installation.database.write() as session,
        pytest.raises(NeedsApproval) as refused,
    ):
        ledger.charge_external(
            session, replace(parts[1], job_id=None), actor=OWNER.key_id
        )
    assert refused.value.what_fits() == "0"


def test_accounts_are_read_anew_under_their_locks(installation: Installation) -> None:
    """What the transaction read of a row before it had the lock is not believed."""
    with installation.database.write() as session:
        earlier = tables.account(session, FIRST)
        session.execute(
            update(tables.AccountRow)
            .where(tables.AccountRow.id == FIRST)
            .values(last_hash="0" * 64),
            execution_options={"synchronize_session": False},
        )
        with pytest.raises(BalanceMismatch):
            reserving.reserve(
                session, _reservations("jb_1", {FIRST: 1}), actor="key_analyst"
            )
        assert earlier.last_hash == "0" * 64
        session.rollback()


@on_one_database
@pytest.mark.parametrize("tight", [FIRST, SECOND])
def test_every_population_of_a_job_refuses_by_its_own_cap(
    installation: Installation, tight: str
) -> None:
    both = {FIRST: "pop_a", SECOND: "pop_b"}
    with installation.database.write() as session:
        for name, population in both.items():
            cap = 10 if name == tight else CAP
            made = populations.NewPopulation(
                population, f"of {name}", "pure", cap, None, OWNER.key_id
            )
            populations.open_population(session, made, at=stamps.now())
            populations.join(
                session, population, name, actor=OWNER.key_id, at=stamps.now()
            )
    with pytest.raises(BudgetExceeded) as refused:
        _reserve(installation, "jb_1", {FIRST: 11, SECOND: 11})
    assert (refused.value.dataset, refused.value.population) == (tight, f"of {tight}")
    assert _kinds(installation, FIRST) == _kinds(installation, SECOND) == []

    _reserve(installation, "jb_2", {FIRST: 9, SECOND: 10})
    with installation.database.read() as session:
        loads = {
            name: said(session, population)[-1] for name, population in both.items()
        }
    assert loads == {FIRST: ("load", 9), SECOND: ("load", 10)}


@on_one_database
def test_no_part_of_a_job_is_of_nothing_or_gives_back(
    installation: Installation,
) -> None:
    for amount in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            _reserve(installation, "jb_1", {FIRST: 5, SECOND: amount})
    assert _kinds(installation, FIRST) == _kinds(installation, SECOND) == []


@on_one_database
def test_each_account_of_a_job_holds_few_reservations_and_lists_few_cells(
    installation: Installation, set_limit: SetLimit
) -> None:
    """Parts count on their own account: one more on each of two accounts is one more,
    not two.
    """
    set_limit("MAX_OPEN_RESERVATIONS", 1)
    _reserve(installation, "jb_1", {SECOND: 1, THIRD: 1})
    with pytest.raises(TooManyRequests):
        _reserve(installation, "jb_2", {FIRST: 1, SECOND: 1})
    assert _kinds(installation, FIRST) == []

    set_limit("MAX_OPEN_RESERVATIONS", 9)
    set_limit("MAX_LISTED_CELLS", 1)
    parts = _reservations("jb_3", {FIRST: 1, SECOND: 1})
    parts[1] = replace(parts[1], scope=Scope({"shard": (0, 1)}))
    with (
        installation.database.write() as session,
        pytest.raises(TooManyCells) as refused,
    ):
        reserving.reserve(session, parts, actor="key_analyst")
    assert refused.value.dataset == SECOND


def _charge(installation: Installation, job_id: str) -> None:
    with installation.database.write() as session:
        ledger.charge_job(session, job_id, actor="worker")


def _void(installation: Installation, *job_ids: str) -> None:
    with installation.database.write() as session:
        ledger.void_jobs(session, job_ids, actor="key_analyst")


def _expire(installation: Installation, job_id: str) -> None:
    with installation.database.write() as session:
        ledger.expire_job(session, job_id, actor="sweeper")


@pytest.mark.parametrize(
    ("end", "kind"), [(_charge, "charge"), (_void, "void"), (_expire, "expire")]
)
def test_all_reservations_of_a_job_come_to_one_end_once(
    installation: Installation, end: object, kind: str
) -> None:
    assert callable(end)
    _reserve(installation, "jb_1", {SECOND: 30, FIRST: 20})
    _reserve(installation, "jb_2", {SECOND: 40})
    end(installation, "jb_1")
    assert _kinds(installation, FIRST) == ["reserve", kind]
    assert _kinds(installation, SECOND) == ["reserve", "reserve", kind]
    for again in (_charge, _void, _expire):
        with pytest.raises(ReservationSettled):
            again(installation, "jb_1")
    with installation.database.read() as session:
        balance = statements.balance(session, SECOND)
    assert (balance.charged, balance.reserved) == (30 if kind == "charge" else 0, 40)


@on_one_database
@pytest.mark.parametrize(
    ("end", "locks_populations"), [(_charge, False), (_void, True), (_expire, True)]
)
def test_the_accounts_of_a_job_are_locked_together_before_the_first_entry_of_its_end(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[..., None],
    locks_populations: bool,
) -> None:
    """As above: PostgreSQL shows the order of the locks in ``test_lock_order.py``."""
    accounts, members, append, steps = (
        tables.locked_accounts,
        populations.locked_rows,
        chain.append,
        list[object](),
    )
    monkeypatch.setattr(
        tables,
        "locked_accounts",
        lambda session, ids: (steps.append({*ids}), accounts(session, ids))[1],
    )
    monkeypatch.setattr(
        populations,
        "locked_rows",
        lambda session, ids: (
            steps.append(("of", *sorted(ids))),
            members(session, ids),
        )[1],
    )
    monkeypatch.setattr(
        chain, "append", lambda *it: (steps.append("entry"), append(*it))[1]
    )
    _reserve(installation, "jb_1", {SECOND: 30, FIRST: 20})
    end(installation, "jb_1")
    first_entry = steps.index("entry")
    before = steps[:first_entry]
    assert before[:2] == (
        [{FIRST, SECOND}, ("of", FIRST, SECOND)]
        if locks_populations
        else [{FIRST, SECOND}]
    )


@on_one_database
@pytest.mark.parametrize(
    ("end", "kind"), [(_charge, "charge"), (_void, "void"), (_expire, "expire")]
)
def test_both_parts_of_a_job_on_one_account_come_to_its_end(
    installation: Installation, end: Callable[..., None], kind: str
) -> None:
    first, second = (_reservations("jb_1", {FIRST: amount})[0] for amount in (20, 21))
    parts = [
        replace(first, scope=Scope({"shard": (0,)})),
        replace(second, scope=Scope({"shard": (1,)})),
    ]
    with installation.database.write() as session:
        reserving.reserve(session, parts, actor="key_analyst")
    end(installation, "jb_1")
    with installation.database.read() as session:
        ends = [
            entry
            for entry in tables.entries(session, FIRST, after=1, limit=9)
            if entry.kind.value == kind
        ]
    assert [(entry.amount, entry.scope) for entry in ends] == [
        (20, {"shard": [0]}),
        (21, {"shard": [1]}),
    ]


def test_a_job_with_one_ended_reservation_is_settled_on_no_account(
    installation: Installation,
) -> None:
    first, _ = _reserve(installation, "jb_1", {FIRST: 20, SECOND: 30})
    with installation.database.write() as session:
        ledger.charge(session, first, actor="worker")
    with pytest.raises(ReservationSettled):
        _charge(installation, "jb_1")
    assert _kinds(installation, SECOND) == ["reserve"]


def test_a_job_without_a_reservation_cannot_be_charged_and_gives_nothing_back(
    installation: Installation,
) -> None:
    assert _reserve(installation, "jb_free", {}) == []
    with pytest.raises(NotFound):
        _charge(installation, "jb_free")
    _expire(installation, "jb_free")
    _reserve(installation, "jb_1", {FIRST: 1})
    _void(installation, "jb_1", "jb_free")
    assert _kinds(installation, FIRST) == ["reserve", "void"]


def test_jobs_on_the_same_accounts_in_opposite_orders_never_deadlock(
    on_postgresql: Installation,
) -> None:
    """One transaction voids jobs on A and C and on A and B while another one charges a
    job on C and B.
    """
    n_rounds = 25
    for index in range(n_rounds):
        _reserve(on_postgresql, f"jb_{index}_ac", {THIRD: 1, FIRST: 1})
        _reserve(on_postgresql, f"jb_{index}_ab", {SECOND: 1, FIRST: 1})
        _reserve(on_postgresql, f"jb_{index}_bc", {THIRD: 1, SECOND: 1})
    together = threading.Barrier(2)

    def void_both(index: int) -> None:
        together.wait(timeout=60)
        _void(on_postgresql, f"jb_{index}_ac", f"jb_{index}_ab")

    def charge(index: int) -> None:
        together.wait(timeout=60)
        _charge(on_postgresql, f"jb_{index}_bc")

    with ThreadPoolExecutor(2) as pool:
        for index in range(n_rounds):
            for done in (pool.submit(void_both, index), pool.submit(charge, index)):
                done.result(timeout=60)
    assert _kinds(on_postgresql, SECOND).count("charge") == n_rounds
    assert _kinds(on_postgresql, FIRST).count("void") == 2 * n_rounds

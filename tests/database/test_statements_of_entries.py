"""Compares what statements read of entries and states with plain sums over all entries,
on both databases.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.core.errors import QuotaExceeded
from app.ledger import accounts, kept_states, populations, rules, statements, tables
from app.ledger import reservations as ledger
from app.ledger.statements import Balance, DeltaBalance, EntryFilter, Spent
from app.ledger.tables import Entry, EntryKind
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support import reserving, settling
from tests.support.crash_scene import EVENT, OWNER, open_account
from tests.support.population_accounts import account, join, opened, reserve
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

PARTITIONS = Partitions(
    (
        HashPartition("shard", 3),
        ColumnPartition("region", "land", False, ("EU", "US"), has_missing=False),
    )
)
CELLS: list[dict[str, int | str]] = [
    {"shard": shard, "region": region}
    for shard, region in itertools.product(range(3), ("EU", "US"))
]
STEPS: list[tuple[str, str, int, dict[str, tuple[int | str, ...]], str | None]] = [
    ("jb_1", "key_a", 5, {"shard": (0, 1)}, "triage"),
    ("jb_2", "key_b", 7, {"region": ("US",)}, "Triage"),
    ("jb_3", "key_a", 3, {}, None),
    ("jb_4", "key_b", 2, {"shard": (2,), "region": ("EU",)}, "triage"),
    ("jb_5", "key_a", 4, {"shard": (0, 1)}, 'a "quote", \\ and é'),
    ("jb_6", "key_c", 1, {"shard": (1,)}, "triage"),
]


def _write(session: Session, account_id: str, actors: dict[str, str]) -> None:
    """Entries of every kind; the ends of jobs are caused by a worker and others."""
    held = {}
    for job, actor, amount, scope, purpose in STEPS:
        details = None if purpose is None else {"purpose": purpose}
        new = ledger.NewReservation(
            account_id, amount, Scope(scope), EVENT, f"{job}{actors['suffix']}", details=details
        )  # fmt: skip
        (held[job],) = reserving.reserve(session, [new], actor=actors[actor])
    settling.void(session, held["jb_2"], actor=actors["key_a"])
    ledger.charge(session, held["jb_1"], actor="worker")
    settling.expire(session, held["jb_4"], actor="sweeper")
    ledger.charge(session, held["jb_5"], actor="worker")
    ledger.charge(session, held["jb_6"], actor="worker")
    accounts.change_cap(session, account_id, 90, reason="less", actor=actors["key_c"])


NAMES = {name: name for name in ("key_a", "key_b", "key_c")}
OTHERS = {"key_a": "key_b", "key_b": "key_a", "key_c": "key_d"}


@pytest.fixture
def session(installation: Installation) -> Iterator[Session]:
    for account_id in ("ds_account", "ds_other"):
        open_account(installation, account_id, cap=100, partitions=PARTITIONS)
    with installation.database.write() as opened_session:
        _write(opened_session, "ds_other", OTHERS | {"suffix": "_other"})
        _write(opened_session, "ds_account", NAMES | {"suffix": ""})
        yield opened_session


def _entries(session: Session, account_id: str = "ds_account") -> list[Entry]:
    return tables.entries(session, account_id, after=0, limit=1_000)


def _purpose(entry: Entry) -> Any:
    return (entry.details or {}).get("purpose")


def _is_chosen(entry: Entry, chosen: EntryFilter, entries: list[Entry]) -> bool:
    submissions = [
        other for other in entries if other.kind is EntryKind.RESERVE and other.job_id
    ]
    of_actor = {other.job_id for other in submissions if other.actor == chosen.actor}
    of_purpose = {
        other.job_id for other in submissions if _purpose(other) == chosen.purpose
    }
    return (
        (chosen.kinds is None or entry.kind in chosen.kinds)
        and chosen.job_id in (None, entry.job_id)
        and (
            chosen.actor in (None, entry.actor)
            or (entry.job_id is not None and entry.job_id in of_actor)
        )
        and (chosen.purpose is None or entry.job_id in of_purpose)
    )


KINDS = [
    None,
    [EntryKind.CHARGE],
    [EntryKind.OPEN, EntryKind.RESERVE, EntryKind.CHARGE],
    [],
]
KEYS = ["key_a", "key_b", "key_c", "worker", "sweeper", "key_d"]
ACTORS = [None, *KEYS]
PURPOSES = [None, "triage", "Triage", 'a "quote", \\ and é', "tri"]


@pytest.mark.parametrize("kinds", KINDS)
def test_a_filter_chooses_the_entries_that_fulfil_all_of_it(
    session: Session, kinds: list[EntryKind] | None
) -> None:
    entries = _entries(session)
    n_found = 0
    for job, actor, purpose in itertools.product((None, "jb_1", "jb_2"), ACTORS, PURPOSES):  # fmt: skip
        chosen = EntryFilter(kinds, job, actor, purpose)
        expected = [
            entry.sequence for entry in entries if _is_chosen(entry, chosen, entries)
        ]
        oldest = statements.oldest_entries(
            session, "ds_account", after=2, limit=4, chosen=chosen
        )
        newest = statements.newest_entries(
            session, "ds_account", before=None, limit=99, chosen=chosen
        )
        assert [entry.sequence for entry in newest] == expected[::-1], chosen
        assert [entry.sequence for entry in oldest] == [
            sequence for sequence in expected if sequence > 2
        ][:4]
        n_found += len(expected)
    assert bool(n_found) is (kinds != [])


def test_whoever_caused_an_entry_of_an_account_is_known(session: Session) -> None:
    entries = _entries(session)
    actors = sorted(entry.actor for entry in entries)
    assert sorted(session.scalars(statements.actors_of("ds_account"))) == actors
    for actor in (*KEYS, OWNER.key_id):
        expected = actor in actors
        assert statements.has_entry_of(session, "ds_account", actor) == expected
    assert statements.has_entry_of(session, "ds_other", "key_d")


EFFECTS = {
    EntryKind.RESERVE: (0, 1),
    EntryKind.CHARGE: (1, -1),
    EntryKind.VOID: (0, -1),
    EntryKind.EXPIRE: (0, -1),
}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_cell_has_spent_the_sum_of_the_entries_that_cover_it(
    session: Session, cell: dict[str, int | str]
) -> None:
    before = Spent(0, 0)
    for entry in _entries(session):
        charged, reserved = EFFECTS.get(entry.kind, (0, 0))
        is_covered = all(
            cell[name] in cells for name, cells in (entry.scope or {}).items()
        )
        after = Spent(
            before.charged + charged * entry.amount * is_covered,
            before.reserved + reserved * entry.amount * is_covered,
        )
        found = statements.spent_after(session, "ds_account", cell, entry.sequence)
        assert found == after
        assert (found.before(entry) == before) is (
            is_covered or not (charged or reserved)
        )
        before = after


def test_a_balance_is_that_of_the_cell_with_the_most(session: Session) -> None:
    last = _entries(session)[-1].sequence
    spent = {
        str(cell): statements.spent_after(session, "ds_account", cell, last)
        for cell in CELLS
    }
    for cell in CELLS:
        scope = Scope({name: (value,) for name, value in cell.items()})
        balance = statements.balance(session, "ds_account", scope)
        assert Spent(balance.charged, balance.reserved) == spent[str(cell)]
        assert (balance.cap, balance.room) == (90, 90 - balance.load)
        assert dict(balance.tightest_cell) == cell
        assert statements.detail(session, "ds_account", scope).balance == balance
    whole = statements.balance(session, "ds_account")
    assert whole.load == max(each.charged + each.reserved for each in spent.values())
    assert statements.detail(session, "ds_account").balance == whole
    several = statements.balances(session, ["ds_account", "ds_other"])
    assert several["ds_account"] == whole
    assert several["ds_other"] == statements.balance(session, "ds_other")
    for_key = statements.balances_for(session, ["ds_account", "ds_other"], "key_a")
    assert for_key == several


def test_some_charges_are_added_up_by_cell_without_the_others(session: Session) -> None:
    scopes = {
        digest: dict(scope)
        for digest, scope in kept_states.state_of(
            session, tables.account(session, "ds_account")
        ).scopes.items()
    }
    charged = {digest: 10 + number for number, digest in enumerate(sorted(scopes))}
    found = statements.charged_by_cell(session, "ds_account", charged, WHOLE)
    assert found.keys() == {"shard", "region"}
    regions = [cell.cell["region"] for cell in found["region"]]
    joint = [
        {"shard": shard, "region": region} for shard in range(3) for region in regions
    ]
    assert len(found["shard"]) == 3
    assert {"EU", "US"} < set(regions)
    for name, cells in found.items():
        for cell in cells:
            inside = [each for each in joint if each[name] == cell.cell[name]]
            expected = max(
                sum(
                    amount
                    for digest, amount in charged.items()
                    if all(each[part] in listed for part, listed in scopes[digest].items())
                )
                for each in inside
            )  # fmt: skip
            assert (cell.charged, cell.reserved) == (expected, 0)


def test_a_further_limit_lowers_the_room_and_never_raises_it(session: Session) -> None:
    balance = statements.balance(session, "ds_account")
    assert balance.room > 1
    for room in (balance.room, balance.room + 1, None):
        assert balance.within(room, "quota") == balance
    assert balance.within(0, None) == balance
    lower = balance.within(balance.room - 1, "quota")
    assert (lower.room, lower.limited_by) == (balance.room - 1, "quota")
    assert lower.within(lower.room, "frozen").limited_by == "quota"
    assert balance.unless_erased(is_erased=False) == balance
    erased = balance.unless_erased(is_erased=True)
    assert (erased.room, erased.limited_by) == (0, "erased")


def test_what_is_left_of_delta_is_what_was_set_aside_without_the_charges() -> None:
    assert DeltaBalance(set_aside=7, charged=3).remaining == 4


def test_an_account_that_is_not_open_yet_has_the_balance_that_it_will_have(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", cap=60)
        reserve(session, "ds_1", 25, "jb_1")
        account(session, "ds_2")
        row = tables.account(session, "ds_2")
        row_of_population = populations.find(session, "pop_a")
        population = populations.with_new_member(session, row_of_population, row)
        assert statements.balance_of_new(row, 100, None) == statements.balance(
            session, "ds_2"
        )
        expected = statements.balance_of_new(row, 100, population)
        join(session, "ds_2")
        assert statements.balance(session, "ds_2") == expected
        assert (expected.cap, expected.room) == (100, 35)


def test_the_parts_of_a_job_leave_each_other_what_they_do_not_take(
    session: Session,
) -> None:
    parts = [
        ledger.NewReservation("ds_other", 6, Scope({"shard": (0,)}), EVENT, "jb_9"),
        ledger.NewReservation("ds_account", 8, Scope({"shard": (0,)}), EVENT, "jb_9"),
        ledger.NewReservation("ds_account", 9, Scope({"shard": (0, 1)}), EVENT, "jb_9"),
    ]
    alone = [
        statements.balances_of_job(session, [part], "key_a")[0].room for part in parts
    ]
    together = statements.balances_of_job(session, parts, "key_a")
    assert [balance.account_id for balance in together] == [
        part.account_id for part in parts
    ]
    assert [balance.room for balance in together] == [
        alone[0],
        alone[1] - 9,
        min(alone[2], alone[1] - 8),
    ]


def test_the_loads_of_members_before_an_entry_are_those_that_entries_state(
    installation: Installation, set_limit: SetLimit
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_4")
        first = reserve(session, "ds_1", 10, "jb_1")
        reserve(session, "ds_4", 20, "jb_2")
        ledger.charge(session, first, actor="worker")
        settling.void(session, reserve(session, "ds_4", 7, "jb_3"), actor="key_a")
        account(session, "ds_2")
        held = reserve(session, "ds_2", 4, "jb_4")
        ledger.charge(session, held, actor="worker")
        join(session, "ds_2")
        account(session, "ds_3", cap=50)
        assert accounts.continue_account(
            session, "ds_3", "ds_1", population_id="pop_a", actor=OWNER.key_id
        )
        join(session, "ds_3")
        reserve(session, "ds_3", 3, "jb_5")
        account(session, "dsX1")
        join(session, "dsX1")
        reserve(session, "dsX1", 2, "jb_6")
        account(session, "ds_5")
        assert accounts.continue_account(
            session, "ds_5", "ds_2", population_id="pop_a", actor=OWNER.key_id
        )
        join(session, "ds_5")
        account(session, "ds_6")
        join(session, "ds_6")
        accounts.change_cap(session, "pop_a", 99, reason="ds_4", actor=OWNER.key_id)
        loads = dict[str, int]()
        entries = _entries(session, "pop_a")
        for entry in entries:
            found = statements.loads_before(session, "pop_a", entry.sequence)
            assert found == loads
            if entry.kind in (EntryKind.JOIN, EntryKind.LOAD):
                loads[statements.member_of(entry)] = entry.amount
            if erased := statements.continued_member(entry):
                loads[erased] = 0
        assert loads == {
            "ds_1": 0, "ds_2": 0, "ds_3": 13, "ds_4": 20, "ds_5": 4, "ds_6": 0, "dsX1": 2,
        }  # fmt: skip
        end = entries[-1].sequence + 1
        set_limit("MAX_SUMMED_MEMBERS", 7)
        assert statements.loads_before(session, "pop_a", end) == loads
        set_limit("MAX_SUMMED_MEMBERS", 6)
        assert statements.loads_before(session, "pop_a", end) is None


def test_the_parts_on_one_account_list_their_cells_together(
    session: Session, set_limit: SetLimit
) -> None:
    def fits(*parts: tuple[str, tuple[int, ...]]) -> list[bool]:
        asked = [
            ledger.NewReservation(name, 1, Scope({"shard": shards}), EVENT, "jb_9")
            for name, shards in parts
        ]
        found = statements.balances_of_job(session, asked, "key_new")
        return [balance.limited_by != "listed_cells" for balance in found]

    first, second = ("ds_account", (0,)), ("ds_account", (1, 2))
    set_limit("MAX_LISTED_CELLS", 0)
    limit = 0
    while fits(second) != [True]:
        limit += 1
        set_limit("MAX_LISTED_CELLS", limit)
    assert limit > 4
    assert fits(first) == [True]
    assert fits(first, second) == [False, False]
    assert fits(("ds_other", (0,)), second) == [True, True]


def test_the_rules_of_one_account_limit_no_other(session: Session) -> None:
    strict = rules.Rules(largest_job=1)
    rules.put(session, "ds_other", strict, actor="key_a")
    balances = statements.balances_for(session, ["ds_account", "ds_other"], "key_a")
    assert balances["ds_account"].limited_by == "cap"
    assert (balances["ds_other"].room, balances["ds_other"].limited_by) == (
        1,
        "largest_job",
    )
    parts = [
        ledger.NewReservation(name, 2, WHOLE, EVENT, "jb_9")
        for name in ("ds_account", "ds_other")
    ]
    reserving.reserve(session, parts[:1], actor="key_a")
    with pytest.raises(QuotaExceeded):
        reserving.reserve(session, parts, actor="key_a")


def test_what_pays_for_no_job_of_a_unit_is_named_as_nothing(session: Session) -> None:
    unit = {"column": "patient", "max_rows": 1_000, "form": "text"}
    for cap in (999, 1_000):
        account(session, f"ds_{cap}", privacy_unit=unit, cap=cap)
    largest = [
        statements.balance(session, name).largest_that_fits
        for name in ("ds_999", "ds_1000")
    ]
    assert largest == ["0", "0.000001"]


@pytest.mark.parametrize(("room", "fits"), [(2, "0"), (3, "0.000000003")])
def test_no_amount_below_the_smallest_price_of_a_job_fits(room: int, fits: str) -> None:
    facts = {"account_id": "ds_a", "name": "a", "accountant": "pure", "delta": None}
    balance = Balance(
        **facts,  # type: ignore[arg-type]
        cap=9,
        charged=9 - room,
        reserved=0,
        room=room,
        tightest_cell={},
        is_exact=True,
        limited_by="cap",
        least_price=3,
    )
    assert balance.largest_that_fits == fits

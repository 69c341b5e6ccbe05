"""One cap over several accounts, on both databases: admission, refusals, late joins,
and incompatible members.
"""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

import pytest
from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import (
    BudgetExceeded,
    InvalidRequest,
    NameTaken,
    NotFound,
    PopulationMismatch,
)
from app.ledger import accounts, populations, statements, tables
from app.ledger import reservations as ledger
from app.ledger.admission import MemberTotal, Population
from app.ledger.populations import NewPopulation
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support import reserving, settling
from tests.support.crash_scene import EVENT, OWNER
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

SHARDS = [{"name": "shard", "kind": "hash", "cells": 2}]
PURE = accounts.NewAccount(
    id="ds_a", name="census", accountant="pure", adjacency="add_remove", cap=100, delta=None,
    privacy_unit={"column": None, "max_rows": 1}, partitions=Partitions.from_json(SHARDS),
)  # fmt: skip
ZCDP = dataclasses.replace(PURE, accountant="zcdp", delta="0.000001")


@pytest.fixture
def session(installation: Installation) -> Iterator[Session]:
    with installation.database.write() as opened_session:
        yield opened_session


def opened(
    session: Session, like: accounts.NewAccount = PURE, *, cap: int = 100
) -> str:
    new_population = NewPopulation(
        "pp_a", "patients", like.accountant, cap, like.delta, OWNER.key_id
    )
    return populations.open_population(session, new_population, at=stamps.now()).id


def account(
    session: Session, number: int, like: accounts.NewAccount = PURE, **changes: object
) -> str:
    new_account = dataclasses.replace(like, id=f"ds_{number}", **changes)  # type: ignore[arg-type]
    accounts.open_account(session, new_account, actor=OWNER.key_id)
    return new_account.id


def member(
    session: Session, number: int, like: accounts.NewAccount = PURE, **changes: object
) -> str:
    result = account(session, number, like, **changes)
    populations.join(session, "pp_a", result, actor=OWNER.key_id, at=stamps.now())
    return result


def reserve(
    session: Session, account_id: str, amount: int, job: str, *shards: int
) -> str:
    scope = {"shard": shards} if shards else {}
    return reserving.reserve(
        session,
        [ledger.NewReservation(account_id, amount, Scope(scope), EVENT, job)],
        actor="key_a",
    )[0]


def population(session: Session, account_id: str) -> Population:
    population_id = populations.id_of(session, account_id)
    assert population_id is not None
    return populations.of_population(session, population_id)


def printable(session: Session) -> int:
    return statements.printable_of(
        populations.of_population(session, "pp_a"),
        statements.highest_cap(session, "pp_a"),
    ).amount.steps


def test_members_share_one_cap_and_the_refusal_says_so(session: Session) -> None:
    opened(session)
    one, two = member(session, 1), member(session, 2)
    ledger.charge(session, reserve(session, one, 70, "jb_1"), actor="worker")
    reserve(session, two, 20, "jb_2")

    assert statements.balance(session, two).room == 10
    with pytest.raises(BudgetExceeded) as refused:
        reserve(session, two, 11, "jb_3")
    reported = refused.value
    assert reported.population == "patients"
    assert (reported.cap, reported.charged, reported.reserved, reported.remaining) == (
        "0.0000001", "0.00000007", "0.00000002", "0.00000001",
    )  # fmt: skip
    assert reported.largest_that_fits == "0.00000001"
    assert "left for population patients of dataset census" in str(reported)
    reserve(session, two, 10, "jb_4")
    assert (
        statements.balance(session, one).room
        == statements.balance(session, two).room
        == 0
    )


def test_the_accounts_own_cap_is_named_where_it_leaves_less(session: Session) -> None:
    opened(session, cap=100)
    small = member(session, 1, cap=30)
    with pytest.raises(BudgetExceeded) as refused:
        reserve(session, small, 31, "jb_1")
    assert (refused.value.population, refused.value.cap) == (None, "0.00000003")


def test_a_given_back_amount_fits_again(session: Session) -> None:
    opened(session)
    one, two = member(session, 1), member(session, 2)
    reservation_id = [
        reserve(session, one, 60, "jb_1"),
        reserve(session, two, 40, "jb_2"),
    ]
    settling.void(session, reservation_id[0], actor="key_a")
    settling.expire(session, reservation_id[1], actor="sweeper")

    assert reserve(session, two, 100, "jb_3")


def test_disjoint_cells_of_one_member_cost_a_person_their_maximum(
    session: Session,
) -> None:
    opened(session)
    one, two = member(session, 1), member(session, 2)
    reserve(session, two, 40, "jb_0")
    for shard in (0, 1):
        reserve(session, one, 60, f"jb_{shard + 1}", shard)

    assert population(session, one).reserved == 100
    with pytest.raises(BudgetExceeded):
        reserve(session, one, 1, "jb_3", 0)
    with pytest.raises(BudgetExceeded):
        reserve(session, two, 1, "jb_4", 1)


def test_an_account_without_a_population_is_bound_by_nobody(session: Session) -> None:
    opened(session)
    member(session, 1)
    alone = account(session, 2)
    reserve(session, "ds_1", 100, "jb_1")
    assert reserve(session, alone, 100, "jb_2")
    assert populations.id_of(session, alone) is None


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"accountant": "zcdp", "delta": "0.000001"}, ("accountant", "delta")),
        (
            {"accountant": "zcdp", "delta": "0.000001", "delta_set_aside": "0.0000001"},
            ("accountant", "delta", "delta_set_aside"),
        ),
        ({"adjacency": "label"}, ("adjacency",)),
        ({"privacy_unit": {"column": "patient", "max_rows": 1}}, ("privacy_unit",)),
    ],
)
def test_a_dataset_whose_loss_cannot_be_added_cannot_join(
    session: Session, changes: dict[str, object], differs: tuple[str, ...]
) -> None:
    opened(session)
    member(session, 1)
    with pytest.raises(PopulationMismatch) as refused:
        member(session, 2, **changes)
    assert tuple(refused.value.differs) == differs
    assert populations.id_of(session, "ds_2") is None


def test_units_of_one_column_join_whatever_their_bound(session: Session) -> None:
    """A charge is for a whole unit, so the bounds on rows per unit may differ."""
    opened(session)
    for number, max_rows in enumerate((2, 5)):
        member(
            session, number, privacy_unit={"column": "patient", "max_rows": max_rows}
        )
    stored = populations.find(session, "patients")
    assert stored is not None
    assert stored.unit_column == "patient"
    with pytest.raises(PopulationMismatch):
        member(session, 3, privacy_unit={"column": "person", "max_rows": 2})


FORMS_THAT_DIFFER = [
    ("text", "integer"),
    ("integer", "text"),
    (None, "text"),
    ("text", None),
]


@pytest.mark.parametrize(("first", "second"), FORMS_THAT_DIFFER)
def test_members_spell_a_person_in_one_form(
    session: Session, first: str | None, second: str | None
) -> None:
    units = [
        {"column": "patient", "max_rows": 1} | ({"form": form} if form else {})
        for form in (first, second)
    ]
    opened(session)
    member(session, 1, privacy_unit=units[0])
    member(session, 2, privacy_unit=units[0])
    with pytest.raises(PopulationMismatch) as refused:
        member(session, 3, privacy_unit=units[1])
    assert refused.value.differs == ("privacy_unit",)


def test_the_form_is_that_of_members_of_the_same_population(session: Session) -> None:
    units = {
        form: {"column": "patient", "max_rows": 1, "form": form}
        for form in ("integer", "text")
    }
    other = NewPopulation("pp_0", "others", "pure", 100, None, OWNER.key_id)
    populations.open_population(session, other, at=stamps.now())
    populations.join(
        session,
        "pp_0",
        account(session, 0, privacy_unit=units["integer"]),
        actor=OWNER.key_id,
        at=stamps.now(),
    )
    opened(session)
    names = [member(session, number, privacy_unit=units["text"]) for number in (1, 2)]
    assert populations.ids_of(session, names) == dict.fromkeys(names, "pp_a")


def test_a_list_of_populations_is_in_order_of_their_ids(session: Session) -> None:
    for name in ("pp_c", "pp_a", "pp_b"):
        populations.open_population(
            session,
            NewPopulation(name, name, "pure", 1, None, OWNER.key_id),
            at=stamps.now(),
        )
    listed = populations.page(session, declared_by=None, after=None, limit=9)
    assert [row.id for row in listed] == ["pp_a", "pp_b", "pp_c"]
    listed = populations.page(session, declared_by=OWNER.key_id, after="pp_a", limit=1)
    assert [row.id for row in listed] == ["pp_b"]


def test_a_dataset_cannot_move_to_another_population(session: Session) -> None:
    opened(session)
    one = member(session, 1)
    populations.join(session, "pp_a", one, actor=OWNER.key_id, at=stamps.now())
    other = NewPopulation("pp_b", "others", "pure", 100, None, OWNER.key_id)
    populations.open_population(session, other, at=stamps.now())
    with pytest.raises(PopulationMismatch) as refused:
        populations.join(session, "pp_b", one, actor=OWNER.key_id, at=stamps.now())
    assert refused.value.differs == ("population",)
    assert list(population(session, one).members) == [one]


@pytest.mark.parametrize("which", ["row is gone", "state was kept before"])
def test_a_member_joins_no_other_population_by_row_or_by_entries(
    installation: Installation, which: str
) -> None:
    with installation.database.write() as session:
        opened(session)
        one = account(session, 1)
        other = NewPopulation("pp_b", "others", "pure", 100, None, OWNER.key_id)
        populations.open_population(session, other, at=stamps.now())
    with installation.database.write() as session:
        populations.join(session, "pp_a", one, actor=OWNER.key_id, at=stamps.now())
    if which == "row is gone":
        installation.database.kept.clear()
        with installation.database.write() as session:
            session.execute(delete(tables.MemberRow))
    with (
        installation.database.write() as session,
        pytest.raises(PopulationMismatch) as refused,
    ):
        populations.join(session, "pp_b", one, actor=OWNER.key_id, at=stamps.now())
    assert refused.value.differs == ("population",)


def test_several_populations_are_found_locked_and_summed_together(
    session: Session,
) -> None:
    opened(session)
    one, two, alone = member(session, 1), member(session, 2), account(session, 3)
    other = NewPopulation("pp_b", "others", "pure", 100, None, OWNER.key_id)
    populations.open_population(session, other, at=stamps.now())
    third = account(session, 4)
    populations.join(session, "pp_b", third, actor=OWNER.key_id, at=stamps.now())
    for number, name in enumerate((one, two, third)):
        reserve(session, name, 10 + number, f"jb_{number}")
        ledger.charge(
            session, reserve(session, name, 20, f"jb_charged_{number}"), actor="worker"
        )

    named = [alone, third, two, one]
    assert populations.ids_of(session, named) == {
        one: "pp_a",
        two: "pp_a",
        third: "pp_b",
    }
    assert populations.id_of(session, alone) is None
    assert populations.locked_rows(session, named).keys() == {"pp_a", "pp_b"}
    both = populations.of_ids(session, ["pp_b", "pp_a"])
    assert {name: each.loads for name, each in both.items()} == {
        "pp_a": {one: 30, two: 31},
        "pp_b": {third: 32},
    }
    now = populations.detailed(session, both.values())
    assert {name: each.reserved for each in now.values() for name, each in each.members.items()} == {
        one: 10, two: 11, third: 12,
    }  # fmt: skip
    # The states of the members may be newer than that of the population.
    earlier = dataclasses.replace(both["pp_a"], members={one: MemberTotal(3, 0, True)})
    assert populations.detailed(session, iter([earlier]))["pp_a"].members == {
        one: MemberTotal(3, 3, True)
    }


def test_a_population_has_the_budget_of_its_first_member_and_no_id_as_a_name(
    session: Session,
) -> None:
    one = account(session, 1, ZCDP, cap=70)
    row = populations.open_with_budget_of(
        session, one, name="patients", by=OWNER.key_id, at=stamps.now()
    )
    assert (row.name, row.declared_by) == ("patients", OWNER.key_id)
    opened_account = tables.account(session, row.id)
    assert (stamps.is_id(row.id), opened_account.name, opened_account.accountant) == (
        True,
        "patients",
        "zcdp",
    )
    assert (opened_account.delta, populations.of_population(session, row.id).cap) == (
        ZCDP.delta,
        70,
    )
    with pytest.raises(InvalidRequest):
        populations.open_with_budget_of(
            session, one, name=row.id, by=OWNER.key_id, at=stamps.now()
        )


@pytest.mark.parametrize("names", [("pp_b", "others"), ("others", "pp_a")])
def test_a_population_is_found_by_its_id_before_the_name_of_another(
    session: Session, names: tuple[str, str]
) -> None:
    """Wherever the row stands, though no such name is given any more."""
    for own, name in zip(("pp_a", "pp_b"), names, strict=True):
        populations.open_population(
            session,
            NewPopulation(own, name, "pure", 1, None, OWNER.key_id),
            at=stamps.now(),
        )
    found = [
        populations.find(session, reference)
        for reference in ("pp_a", "pp_b", "others", "nobody", "\0")
    ]
    other = names.index("others")
    assert [row and row.id for row in found] == [
        "pp_a",
        "pp_b",
        ("pp_a", "pp_b")[other],
        None,
        None,
    ]
    by_id = [
        populations.with_id(session, reference)
        for reference in ("pp_a", "others", "\0")
    ]
    assert [row and row.id for row in by_id] == ["pp_a", None, None]


def test_what_would_join_is_compared_and_counts_without_spend(session: Session) -> None:
    """Before its account is open: what ``join`` refuses is refused, and the others keep
    their loads.
    """
    opened(session, cap=70)
    opened_beside = NewPopulation("pp_b", "others", "pure", 100, None, OWNER.key_id)
    populations.open_population(session, opened_beside, at=stamps.now())
    reserve(session, member(session, 1), 10, "jb_1")
    row = populations.find(session, "pp_a")
    new = accounts.account_row(dataclasses.replace(PURE, id="ds_2"))
    aside = accounts.account_row(
        dataclasses.replace(ZCDP, id="ds_2", delta_set_aside="0.00000025")
    )
    would = populations.with_new_member(session, row, new)
    assert would is not None
    assert (would.id, would.cap, would.members) == (
        "pp_a", 70, {"ds_1": MemberTotal(10, 0, True), "ds_2": MemberTotal(0, 0, True)},
    )  # fmt: skip
    assert populations.with_new_member(session, None, new) is None, (
        "it would be opened with the account's budget"
    )
    for population_row, refused_account, differs in (
        (None, aside, ("delta_set_aside",)),
        (row, aside, ("accountant", "delta", "delta_set_aside")),
        (
            row,
            accounts.account_row(dataclasses.replace(PURE, adjacency="replace_one")),
            ("adjacency",),
        ),
    ):
        with pytest.raises(PopulationMismatch) as refused:
            populations.with_new_member(session, population_row, refused_account)
        assert refused.value.differs == differs


def test_a_population_is_visible_to_who_opened_it_and_to_administrators(
    session: Session,
) -> None:
    opened(session)
    row = populations.find(session, "pp_a")
    assert populations.require_visible(row, key_id=OWNER.key_id, sees_all=False) is row
    assert populations.require_visible(row, key_id="key_other", sees_all=True) is row
    for hidden, sees_all in ((row, False), (None, True), (None, False)):
        with pytest.raises(NotFound):
            populations.require_visible(hidden, key_id="key_other", sees_all=sees_all)


def test_a_population_is_read_anew(session: Session) -> None:
    """Another process may have changed the row since the transaction read it first."""
    opened(session)
    kept = session.get_one(populations.PopulationRow, "pp_a")
    for name, read in {
        "find": lambda: populations.find(session, "pp_a"),
        "with_id": lambda: populations.with_id(session, "pp_a"),
    }.items():
        changed = update(populations.PopulationRow).values(unit_column=name)
        session.execute(changed.execution_options(synchronize_session=False))
        assert read() is kept
        assert kept.unit_column == name
    member(session, 1)
    changed = update(populations.PopulationRow).values(adjacency="replace_one")
    session.execute(changed.execution_options(synchronize_session=False))
    with pytest.raises(PopulationMismatch) as refused:
        member(session, 2)
    assert refused.value.differs == ("adjacency",)


def test_a_name_is_taken_once(session: Session) -> None:
    opened(session)
    with pytest.raises(NameTaken):
        opened(session)


def test_late_join_states_what_was_spent_and_admits_nothing_while_over(
    session: Session,
) -> None:
    opened(session)
    one, late = member(session, 1), account(session, 2)
    first = reserve(session, one, 60, "jb_1")
    ledger.charge(session, reserve(session, late, 80, "jb_2"), actor="worker")
    populations.join(session, "pp_a", late, actor=OWNER.key_id, at=stamps.now())

    assert printable(session) == 140
    for account_id in (one, late):
        assert statements.balance(session, account_id).room == 0
        with pytest.raises(BudgetExceeded) as refused:
            reserve(session, account_id, 1, "jb_3")
        assert (refused.value.population, refused.value.remaining) == ("patients", "0")
    settling.void(session, first, actor="key_a")
    assert reserve(session, one, 20, "jb_4")
    assert printable(session) == 100, (
        "sums of ε are valid at any time, and nothing but the cap is more now"
    )


def test_no_cell_admits_a_job_while_the_sum_exceeds_the_cap(session: Session) -> None:
    opened(session)
    reserve(session, member(session, 1), 60, "jb_1")
    late = account(session, 2)
    reservation_id = reserve(session, late, 80, "jb_2", 0)
    populations.join(session, "pp_a", late, actor=OWNER.key_id, at=stamps.now())

    assert statements.balance(session, late, Scope({"shard": (1,)})).room == 0
    with pytest.raises(BudgetExceeded):
        reserve(session, late, 1, "jb_3", 1)
    settling.void(session, reservation_id, actor="key_a")
    assert reserve(session, late, 40, "jb_4", 1)


def test_late_join_with_a_delta_states_caps_because_a_sum_of_spends_is_no_theorem(
    session: Session,
) -> None:
    opened(session, ZCDP)
    member(session, 1, ZCDP)
    late = account(session, 2, ZCDP, cap=70)
    ledger.charge(session, reserve(session, late, 5, "jb_1"), actor="worker")
    populations.join(session, "pp_a", late, actor=OWNER.key_id, at=stamps.now())
    member(session, 3, ZCDP, cap=90)

    assert printable(session) == 170


def test_jobs_on_two_members_take_from_one_cap(session: Session) -> None:
    opened(session)
    one, two = member(session, 1), member(session, 2)
    reservations = [
        ledger.NewReservation(each, 51, WHOLE, EVENT, "jb_1") for each in (two, one)
    ]
    with pytest.raises(BudgetExceeded) as refused, session.begin_nested():
        reserving.reserve(session, reservations, actor="key_a")
    assert refused.value.population == "patients"
    reservations = [dataclasses.replace(each, amount=50) for each in reservations]
    reserving.reserve(session, reservations, actor="key_a")
    assert population(session, one).reserved == 100


def test_a_share_of_delta_counts_with_the_delta_that_was_asked(
    session: Session,
) -> None:
    """The remaining ε is stated at the δ of the request, for a dataset and for a
    population.
    """
    opened(session, ZCDP, cap=10**9)
    one = member(session, 1, ZCDP, cap=10**12)
    new_reservation = ledger.NewReservation(
        one, 10**10, WHOLE, EVENT, "jb_1", delta=Fraction(1, 10**3)
    )
    with pytest.raises(BudgetExceeded) as refused:
        reserving.reserve(session, [new_reservation], actor="key_a")
    assert refused.value.population == "patients"
    assert Fraction(refused.value.largest_that_fits) > 0


@pytest.mark.parametrize("refused_for", ["own", "population"])
def test_a_refusal_says_of_the_sum_that_it_names_whether_it_is_exact(
    session: Session, set_limit: SetLimit, refused_for: str
) -> None:
    """A refusal says whether the load of the sum that refused, the account's or the
    population's, is exact.
    """
    opened(session, cap=60 if refused_for == "population" else 1000)
    cut = Partitions.from_json(
        [{"name": name, "kind": "hash", "cells": 4} for name in ("a", "b")]
    )
    simple, entangled = member(session, 1), member(session, 2, partitions=cut)
    set_limit("MAX_COMPOSITION_WORK", 0)
    for number in range(2):
        box = {"a": (number,), "b": (number, 3)}
        new_reservation = ledger.NewReservation(
            entangled, 20, Scope(box), EVENT, f"jb_{number}"
        )
        reserving.reserve(session, [new_reservation], actor="key_a")
    for account_id in (simple, entangled):
        with pytest.raises(BudgetExceeded) as refused:
            reserving.reserve(
                session,
                [ledger.NewReservation(account_id, 101, WHOLE, EVENT, "jb_x")],
                actor="key_a",
            )
        assert (refused.value.population is None) == (refused_for == "own")
        assert refused.value.exact is (refused_for == "own" and account_id == simple)

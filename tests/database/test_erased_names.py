"""A budget survives its dataset: declarations that take up the name of an erased
dataset, on both databases.
"""

import json
from typing import Any

import pytest

from app.access import grants
from app.access.grants import Principal, Role
from app.access.idempotency import IdempotentRequest
from app.core import limits, stamps
from app.core.errors import (
    AccountDiffers,
    BudgetExceeded,
    InvalidRequest,
    NameTaken,
    NotFound,
    SameSubmitter,
    Unavailable,
)
from app.ledger import accounts, control, kept_states, reservations, statements
from app.ledger.tables import EntryKind
from app.services.datasets.declare import check_declaration, register_dataset
from app.services.datasets.erase import delete_dataset, mark_deleted
from app.services.datasets.show import show_dataset
from app.services.installation import Installation
from app.services.ledger.balances import change_cap, list_balances, show_balance
from app.services.ledger.external import charge_external
from app.services.ledger.history import EVERY_ENTRY, search_entries
from app.services.ledger.spent import show_spent
from app.services.pagination import PageRequest
from app.services.populations import show_population
from app.wire.datasets import DatasetIn, DatasetOut
from app.wire.ledger import CapIn
from app.wire.reservations import ExternalIn
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_verifier import dataset_replay
from grovekeeper_verifier.dataset_replay import Summary
from grovekeeper_verifier.export_lines import NotVerified
from tests.support import evidence, reserving
from tests.support.crash_scene import ADMIN, EVENT, OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.export_writers import chained
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

DECLARATION: dict[str, Any] = {
    "name": "clinic",
    "schema": {
        "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 120}],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "budget": {"accountant": "pure", "epsilon": "3"},
    "partitions": [{"name": "shard", "kind": "hash", "cells": 3}],
}
ZCDP = {"budget": {"accountant": "zcdp", "epsilon": "3", "delta": "1e-6"}}
SET_ASIDE = {"budget": {**ZCDP["budget"], "delta_set_aside": "5e-7"}}
LESS_THAN_A_STEP = {"budget": {**ZCDP["budget"], "delta_set_aside": "1e-20"}}


def _declared(
    installation: Installation, by: Principal = OWNER, **changes: object
) -> DatasetOut:
    declaration = DatasetIn.model_validate(DECLARATION | changes)
    return DatasetOut.model_validate_json(
        register_dataset(installation, by, declaration, request=None).body
    )


def _spend(
    installation: Installation, dataset: str, epsilon: str, **fields: object
) -> None:
    """Charges for an external mechanism of an ε, in all cells unless a scope is given."""
    declared = {"adjacency": "add_remove", "epsilon": epsilon}
    body = ExternalIn.model_validate(
        {"description": "a mean", "per": "row", "declared": declared} | fields
    )
    key = json.dumps([dataset, epsilon, str(fields), stamps.to_text(stamps.now())])
    charge_external(
        installation,
        OWNER,
        dataset,
        body,
        request=IdempotentRequest(OWNER.key_id, "POST", key, b"." * 32),
    )


def _erased(
    installation: Installation, epsilon: str = "1", **changes: object
) -> DatasetOut:
    dataset = _declared(installation, **changes)
    _spend(installation, dataset.id, epsilon)
    delete_dataset(installation, OWNER, dataset.id)
    return dataset


def _second_owner(installation: Installation, dataset: str) -> Principal:
    with installation.database.write() as session:
        grants.put(
            session,
            dataset_id=dataset,
            key_id=STRANGER.key_id,
            role=Role.OWNER,
            by="key_owner",
        )
    return STRANGER


def _verified(installation: Installation, dataset: str, *erased: str) -> Summary:
    """Verifies the export of a dataset beside those of the erased datasets whose
    accounts it continues.
    """
    with installation.database.read() as session:
        readings = [
            dataset_replay.read(list(evidence.export(session, each)), (), file=each)
            for each in erased
        ]
        return dataset_replay.verify(
            list(evidence.export(session, dataset)), (), readings
        )


def test_a_dataset_that_is_erased_and_declared_again_has_what_it_had_left(
    installation: Installation,
) -> None:
    erased = _erased(installation, "1")
    again = _declared(installation)
    assert (again.account.charged, again.account.remaining, again.continues) == (
        "1",
        "2",
        erased.id,
    )
    assert [
        warning
        for warning in again.warnings
        if erased.id in warning and "1 of the cap of 3 is spent" in warning
    ]
    with pytest.raises(BudgetExceeded):
        _spend(installation, again.id, "2.1")
    _spend(installation, again.id, "2")
    summary = _verified(installation, again.id, erased.id)
    assert (summary.kinds, summary.opening_load) == (
        {"open": 1, "load": 1, "reserve": 1, "charge": 1},
        10**9,
    )
    assert summary.compared is not None
    with installation.database.write() as session:
        assert kept_states.is_intact(session, again.id)
        [act] = [
            act
            for act in control.details_of(session, EntryKind.DATASET_DECLARED)
            if act["dataset"] == again.id
        ]
    assert act == {"dataset": again.id, "continues": erased.id}


def test_what_the_erased_dataset_had_spent_is_a_part_of_what_was_spent(
    installation: Installation,
) -> None:
    _erased(installation, "1")
    again = _declared(installation).id
    _spend(installation, again, "0.5", scope={"shard": [1]})
    by_key = show_spent(installation, OWNER, again, by="key", actor=None)
    assert (by_key.charged, by_key.carried, by_key.spent) == ("0.5", "1", "1.5")
    assert [(it.charged, it.share) for it in by_key.groups] == [("0.5", 1 / 3)]
    by_cell = show_spent(installation, OWNER, again, by="cell", actor=None)
    shares = {it.group: (it.charged, it.share) for it in by_cell.groups}
    assert shares["shard=1"] == ("1.5", 1.0)
    assert shares["shard=0"] == ("1", 2 / 3)


def test_a_check_says_that_an_account_goes_on(installation: Installation) -> None:
    erased = _erased(installation, "1")
    checked = check_declaration(
        installation, OWNER, DatasetIn.model_validate(DECLARATION)
    )
    assert (checked.continues, checked.account.remaining) == (erased.id, "2")
    assert any("1 of the cap of 3 is spent" in warning for warning in checked.warnings)
    assert show_dataset(installation, OWNER, "clinic").id == erased.id, (
        "a check stores nothing"
    )


def test_loads_accumulate_over_several_erasures(installation: Installation) -> None:
    first = _erased(installation, "1")
    second = _declared(installation)
    _spend(installation, second.id, "0.5")
    delete_dataset(installation, OWNER, second.id)
    third = _declared(installation, budget={"accountant": "pure", "epsilon": "1.25"})
    assert (third.account.charged, third.account.remaining) == ("1.5", "0")
    with pytest.raises(BudgetExceeded):
        _spend(installation, third.id, "0.001")
    summary = _verified(installation, third.id, first.id, second.id)
    assert summary.compared is not None
    assert summary.compared.compared is not None
    assert (
        "ε ≤ 3"
        not in show_balance(installation, OWNER, third.id, scope={}).guarantee["text"]
    )
    assert (
        show_balance(installation, OWNER, third.id, scope={}).guarantee["add_remove"][
            "epsilon"
        ]
        == "1.5"
    )


def test_the_tightest_cell_of_the_erased_dataset_counts_in_every_cell(
    installation: Installation,
) -> None:
    erased = _declared(installation)
    _spend(installation, erased.id, "1", scope={"shard": [0]})
    _spend(installation, erased.id, "0.5", scope={"shard": [1]})
    delete_dataset(installation, OWNER, erased.id)
    again = _declared(
        installation, partitions=[{"name": "part", "kind": "hash", "cells": 2}]
    )
    cells = show_balance(installation, OWNER, again.id, scope={}).partitions[0].cells
    assert [cell.charged for cell in cells] == ["1", "1"]
    assert _verified(installation, again.id, erased.id).opening_load == 10**9


def test_a_name_without_spend_is_taken_up_without_a_word(
    installation: Installation,
) -> None:
    erased = _declared(installation)
    delete_dataset(installation, OWNER, erased.id)
    again = _declared(installation, **ZCDP)
    assert (again.continues, again.warnings, again.account.charged) == (None, [], "0")
    listed = list_balances(installation, OWNER, PageRequest()).datasets
    assert {item.dataset: item.deleted_at is not None for item in listed} == {
        erased.id: True,
        again.id: False,
    }


def test_reservations_that_were_given_back_leave_no_load(
    installation: Installation,
) -> None:
    scene = Scene.declared(installation)
    scene.submit(key="k", epsilon="1")
    delete_dataset(installation, OWNER, scene.dataset_id)
    with installation.database.read() as session:
        assert statements.balance(session, scene.dataset_id).load == 0
    assert Scene.declared(installation).verified().opening_load == 0


def test_a_declaration_waits_for_the_queued_jobs_of_the_erased_dataset(
    installation: Installation,
) -> None:
    """A reservation that is given back a moment later is no spend, and is not counted
    as one for good.
    """
    scene = Scene.declared(installation)
    scene.submit(key="k", epsilon="1")
    with installation.database.write() as session:
        mark_deleted(
            session,
            scene.dataset_id,
            actor=OWNER.key_id,
        )
    with pytest.raises(Unavailable):
        _declared(installation, name="census")
    delete_dataset(installation, OWNER, scene.dataset_id)
    assert _declared(installation, name="census").account.charged == "0"


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        (ZCDP, ["accountant", "delta"]),
        ({"protects": "label"}, ["adjacency"]),
        ({"privacy_unit": {"column": "person", "max_rows": 1}}, ["privacy_unit"]),
        ({"budget": {"accountant": "pure", "epsilon": "3.1"}}, ["cap"]),
    ],
)
@on_one_database
def test_an_account_goes_on_as_it_is_or_not_at_all(
    installation: Installation, changes: dict[str, object], differs: list[str]
) -> None:
    erased = _erased(installation)
    with pytest.raises(AccountDiffers) as refused:
        _declared(installation, **changes)
    assert (list(refused.value.differs), refused.value.dataset) == (differs, erased.id)
    assert _declared(installation).account.remaining == "2", "the refusal took nothing"


@on_one_database
def test_a_cap_that_was_lowered_is_not_raised_by_a_new_declaration(
    installation: Installation,
) -> None:
    """A raise needs a reason, and is an act."""
    dataset = _declared(installation)
    _spend(installation, dataset.id, "1")
    lowered = CapIn.model_validate({"cap": "2.5", "reason": "less"})
    change_cap(installation, OWNER, dataset.id, lowered, request=None)
    delete_dataset(installation, OWNER, dataset.id)
    with pytest.raises(AccountDiffers) as refused:
        _declared(installation)
    assert list(refused.value.differs) == ["cap"]
    budget = {"accountant": "pure", "epsilon": "2.5"}
    assert _declared(installation, budget=budget).account.remaining == "1.5"


@on_one_database
def test_another_owner_learns_that_the_name_is_taken_and_no_more(
    installation: Installation,
) -> None:
    living = _declared(installation, name="living")
    erased = _erased(installation)
    refusals = []
    for call in (
        check_declaration,
        lambda *values: register_dataset(*values, request=None),
    ):
        for changes in ({"name": "living"}, {}, ZCDP, {"other_people": "they are"}):
            with pytest.raises(NameTaken) as refused:
                call(
                    installation,
                    STRANGER,
                    DatasetIn.model_validate(DECLARATION | changes),
                )
            refusals.append(str(refused.value))
    assert len(set(refusals)) == 1
    assert not any(secret in refusals[0] for secret in (living.id, erased.id, "erased"))
    for reference in (erased.id, "clinic"):
        with pytest.raises(NotFound):
            show_dataset(installation, STRANGER, reference)


def test_a_second_owner_or_an_admin_states_that_the_rows_are_about_other_people(
    installation: Installation,
) -> None:
    erased = _erased(installation)
    with pytest.raises(SameSubmitter):
        _declared(installation, other_people="it is so")
    stated = _declared(
        installation,
        _second_owner(installation, erased.id),
        other_people="the 2027 cohort",
        **ZCDP,
    )
    assert (stated.continues, stated.account.charged) == (None, "0")
    with installation.database.read() as session:
        act = control.details_of(session, EntryKind.DATASET_DECLARED)[-1]
    assert act == {
        "dataset": stated.id,
        "erased": erased.id,
        "other_people": "the 2027 cohort",
    }
    delete_dataset(installation, STRANGER, stated.id)
    assert (
        _declared(installation, ADMIN, other_people="the 2028 cohort").account.remaining
        == "3"
    )


@pytest.mark.parametrize("ended_by", ["nothing", "a job that was given back"])
def test_a_dataset_that_spent_nothing_hides_no_earlier_account(
    installation: Installation, ended_by: str
) -> None:
    erased = _erased(installation, "3")
    second = _second_owner(installation, erased.id)
    stated = _declared(installation, second, other_people="the 2027 cohort")
    if ended_by != "nothing":
        with installation.database.write() as session:
            parts = [
                reservations.NewReservation(stated.id, 5, WHOLE, EVENT, "jb_alone")
            ]
            reserving.reserve(session, parts, actor=second.key_id)
        with installation.database.write() as session:
            reservations.void_jobs(session, ["jb_alone"], actor=second.key_id)
    delete_dataset(installation, second, stated.id)
    checked = check_declaration(
        installation, OWNER, DatasetIn.model_validate(DECLARATION)
    )
    assert (checked.continues, checked.account.remaining) == (erased.id, "0")
    with pytest.raises(SameSubmitter):
        _declared(installation, other_people="it is so")
    again = _declared(installation)
    assert (again.continues, again.account.remaining) == (erased.id, "0")
    _verified(installation, again.id, erased.id)


@on_one_database
def test_there_must_be_an_erased_dataset_to_tell_the_rows_apart_from(
    installation: Installation,
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _declared(installation, ADMIN, other_people="nobody was here before")
    assert [(problem.at, problem.problem) for problem in refused.value.errors] == [
        ("/other_people", "no-erased-dataset")
    ]


@pytest.mark.parametrize(
    "changes",
    [ZCDP, SET_ASIDE, LESS_THAN_A_STEP],
    ids=["delta", "set aside", "almost nothing"],
)
def test_with_a_delta_the_highest_cap_of_both_accounts_is_what_is_stated(
    installation: Installation, changes: dict[str, Any]
) -> None:
    erased = _declared(installation, **changes)
    _spend(installation, erased.id, "0.1")
    if changes is SET_ASIDE:
        _spend(
            installation, erased.id, "0.1",
            declared={"adjacency": "add_remove", "epsilon": "0.1", "delta": "3e-7"},
        )  # fmt: skip
    delete_dataset(installation, OWNER, erased.id)
    lower = {"budget": {**changes["budget"], "epsilon": "1"}}
    again = _declared(installation, **lower)
    with installation.database.read() as session:
        before, now = (
            statements.highest_cap(session, each) for each in (erased.id, again.id)
        )
        assert before == now, (
            "not the lower cap: outputs were released under the higher"
        )
    stated = show_balance(installation, OWNER, again.id, scope={})
    assert (
        stated.guarantee["add_remove"]["epsilon"]
        == show_balance(installation, OWNER, erased.id, scope={}).guarantee[
            "add_remove"
        ]["epsilon"]
    )
    if changes is SET_ASIDE:
        assert stated.delta_set_aside.charged == "0.0000003"
        with pytest.raises(BudgetExceeded):
            _spend(
                installation, again.id, "0.1",
                declared={"adjacency": "add_remove", "epsilon": "0.1", "delta": "3e-7"},
            )  # fmt: skip
    lowered = CapIn.model_validate({"cap": "0.9", "reason": "less"})
    change_cap(installation, OWNER, again.id, lowered, request=None)
    summary = _verified(installation, again.id, erased.id)
    with installation.database.write() as session:
        assert (
            summary.highest_cap
            == statements.highest_cap(session, again.id).amount.steps
            == before.amount.steps
        )
        assert kept_states.is_intact(session, again.id)


@on_one_database
def test_with_a_delta_a_cap_that_was_lowered_before_the_erasure_stays_stated(
    installation: Installation,
) -> None:
    """Outputs were released under the higher cap."""
    erased = _declared(installation, **ZCDP)
    _spend(installation, erased.id, "0.1")
    lowered = CapIn.model_validate({"cap": "0.5", "reason": "less"})
    change_cap(installation, OWNER, erased.id, lowered, request=None)
    delete_dataset(installation, OWNER, erased.id)
    again = _declared(installation, budget={**ZCDP["budget"], "epsilon": "0.5"})
    with installation.database.read() as session:
        before, now = (
            statements.highest_cap(session, each) for each in (erased.id, again.id)
        )
    assert before == now
    _verified(installation, again.id, erased.id)


def test_a_member_of_a_population_is_counted_once(installation: Installation) -> None:
    _declared(installation, name="other", population="people")
    erased = _declared(installation, population="people")
    _spend(installation, erased.id, "1")
    delete_dataset(installation, OWNER, erased.id)
    for population in (None, "strangers"):
        with pytest.raises(AccountDiffers) as refused:
            _declared(installation, population=population)
        assert list(refused.value.differs) == ["population"]
    again = _declared(installation, population="people")
    _spend(installation, again.id, "0.5")
    shown = show_population(installation, OWNER, "people")
    assert (shown.charged, shown.remaining) == ("1.5", "1.5")
    assert {member.dataset: member.charged for member in shown.members}[
        erased.id
    ] == "0"
    with pytest.raises(BudgetExceeded):
        _spend(installation, "other", "1.6")
    _spend(installation, "other", "1.5")
    with installation.database.write() as session:
        assert evidence.verified(session, shown.id).together == 3 * 10**9
        for account in (shown.id, again.id, erased.id):
            assert kept_states.is_intact(session, account)
    delete_dataset(installation, OWNER, again.id)
    third = _declared(installation, population="people")
    assert (
        third.account.charged,
        show_population(installation, OWNER, "people").charged,
    ) == ("1.5", "3")
    with installation.database.read() as session:
        assert evidence.verified(session, shown.id).together == 3 * 10**9


@pytest.mark.parametrize("changes", [{}, ZCDP], ids=["pure", "delta"])
def test_an_account_with_an_opening_load_joins_a_population_with_it(
    installation: Installation, changes: dict[str, Any]
) -> None:
    _declared(installation, name="other", population="people", **changes)
    _erased(installation, "0.1", **changes)
    again = _declared(installation, population="people", **changes)
    shown = show_population(installation, OWNER, "people")
    assert shown.charged == again.account.charged
    with installation.database.read() as session:
        summary = evidence.verified(session, shown.id)
        assert (
            summary.highest_cap
            == statements.highest_cap(session, shown.id).amount.steps
        )
        assert (summary.highest_cap > summary.cap) is bool(changes), (
            "a late join raises what is stated"
        )


def test_a_member_that_continues_raises_no_highest_cap(
    installation: Installation, set_limit: SetLimit
) -> None:
    """So it joins where there is no room for one more cap."""
    erased = _declared(installation, population="people", **ZCDP)
    _spend(installation, erased.id, "0.1")
    delete_dataset(installation, OWNER, erased.id)
    with installation.database.read() as session:
        people = show_population(installation, OWNER, "people").id
        set_limit("MAX_STEPS", statements.highest_cap(session, people).amount.steps)
    _declared(installation, population="people", **ZCDP)
    with installation.database.read() as session:
        summary = evidence.verified(
            session, show_population(installation, OWNER, "people").id
        )
        assert summary.highest_cap == summary.cap


def test_a_repeated_declaration_takes_the_name_up_once(
    installation: Installation,
) -> None:
    _erased(installation)
    request = IdempotentRequest(OWNER.key_id, "POST /datasets", "again", b"." * 32)
    declaration = DatasetIn.model_validate(DECLARATION)
    answers = {
        register_dataset(installation, OWNER, declaration, request=request).body
        for _ in range(2)
    }
    assert len(answers) == 1


@on_one_database
def test_the_history_of_the_list_shows_what_was_spent_before(
    installation: Installation,
) -> None:
    _erased(installation, "1")
    again = _declared(installation)
    _spend(installation, again.id, "0.5")
    listed = search_entries(
        installation, OWNER, again.id, EVERY_ENTRY, PageRequest()
    ).entries
    assert [(each.entry.kind, each.charged) for each in listed] == [
        ("charge", "1.5"), ("reserve", "1"), ("load", "1"), ("open", "0"),
    ]  # fmt: skip


@on_one_database
def test_a_forged_opening_load_is_rejected_beside_the_erased_datasets_export(
    installation: Installation,
) -> None:
    erased = _erased(installation, "1")
    again = _declared(installation)
    with installation.database.read() as session:
        before = list(evidence.export(session, erased.id))
        lines = [json.loads(line) for line in evidence.export(session, again.id)]
    for amount in ("0.5", "1.5"):
        forged = [lines[0], *chained([lines[1], {**lines[2], "amount": amount}])]
        encoded = [json.dumps(line).encode() + b"\n" for line in forged]
        with pytest.raises(NotVerified) as failure:
            dataset_replay.verify(
                encoded, (), [dataset_replay.read(before, (), file="before")]
            )
        assert failure.value.line == 3


@on_one_database
def test_the_same_columns_under_another_name_are_a_warning_to_their_owner(
    installation: Installation,
) -> None:
    erased = _erased(installation)
    for warnings in (
        check_declaration(
            installation,
            OWNER,
            DatasetIn.model_validate(DECLARATION | {"name": "clinic2"}),
        ).warnings,
        _declared(installation, name="clinic2").warnings,
    ):
        assert [
            warning
            for warning in warnings
            if f"clinic ({erased.id}, erased)" in warning
        ]
    assert show_dataset(installation, OWNER, "clinic2").warnings == [], (
        "others see the dataset, too"
    )
    assert _declared(installation, STRANGER, name="clinic3").warnings == []
    for number in range(limits.MAX_SHOWN_SAME_COLUMNS):
        (warning,) = _declared(installation, name=f"more{number}").warnings
    assert " and 1 more. If the rows" in warning
    together = _declared(
        installation, name="one", population="people", schema=_columns("x")
    )
    assert together.warnings == []
    assert (
        _declared(
            installation, name="two", population="people", schema=_columns("x")
        ).warnings
        == []
    )


def _columns(feature: str) -> dict[str, Any]:
    return {
        **DECLARATION["schema"],
        "features": [{**DECLARATION["schema"]["features"][0], "name": feature}],
    }


def test_the_cap_of_an_account_with_an_opening_load_counts_as_used(
    installation: Installation,
) -> None:
    _erased(installation, "0.1", **ZCDP)
    again = _declared(installation, **ZCDP)
    with installation.database.write() as session:
        highest = statements.highest_cap(session, again.id)
        accounts.change_cap(session, again.id, 1, reason="less", actor=OWNER.key_id)
        assert statements.highest_cap(session, again.id) == highest

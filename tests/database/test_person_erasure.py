"""Erasing a person from the members of a population tells nobody but an owner whether
the person was there.
"""

import secrets
from typing import Any

import pytest

from app.access.grants import Principal, Role
from app.core.errors import (
    DatasetDeleted,
    InvalidRequest,
    NotFound,
    RoleMissing,
    TooLarge,
)
from app.ledger import control, tables
from app.ledger.tables import Entry, EntryKind
from app.services.datasets import unit_erasure
from app.services.datasets.erase import delete_dataset
from app.services.installation import Installation
from app.services.ledger import audit
from app.services.ledger.heads import open_log
from app.wire.populations import PersonErasureIn, PersonErasureOut
from grovekeeper_verifier import control_export
from tests.support import people
from tests.support.crash_scene import ADMIN, OWNER, STRANGER
from tests.support.databases import on_one_database
from tests.support.set_limits import SetLimit

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

AUDITOR = Principal("key_auditor", frozenset({Role.AUDITOR}))
UPLOADS = ([("ann", 1), ("ben", 2), ("ann", 3)], [("ben", 4)], [])
"""The rows of each member: ann is in the first alone, and the last has no upload."""


@pytest.fixture
def population() -> str:
    return f"patients-{secrets.token_hex(6)}"


@pytest.fixture
def members(installation: Installation, population: str) -> list[str]:
    return [member(installation, population, rows) for rows in UPLOADS]


def member(
    installation: Installation, population: str, rows: list[tuple[str, int]]
) -> str:
    dataset = people.declared(
        installation, privacy_unit=people.per_patient(3), population=population
    )["id"]
    if rows:
        people.upload(installation, dataset, people.visits(rows))
    return str(dataset)


def erase(
    installation: Installation,
    population: str,
    unit: str,
    *,
    principal: Principal = OWNER,
    **choice: Any,
) -> PersonErasureOut:
    body = PersonErasureIn(unit=unit, **choice)
    return unit_erasure.erase_person(installation, principal, population, body)


def ages(installation: Installation, dataset: str) -> list[int]:
    stored = people.stored_rows(installation, dataset)
    return [age for upload in stored for _, age in upload]


def acts(installation: Installation) -> list[Entry]:
    with installation.database.read() as session:
        entries = tables.entries(session, control.CHAIN, after=0, limit=1_000)
    return [entry for entry in entries if entry.kind is EntryKind.UNIT_ERASED]


def test_the_rows_go_from_every_member_and_each_member_gets_an_act(
    installation: Installation, population: str, members: list[str]
) -> None:
    receipt = erase(installation, population, " ann", reference="request 118")

    assert [ages(installation, dataset) for dataset in members] == [[2], [4], []]
    erased = {it.dataset: it.erased for it in receipt.members}
    assert erased == dict(zip(members, (2, 0, 0), strict=True))
    assert receipt.reference == "request 118"
    recorded = acts(installation)
    assert [(act.sequence, act.at) for act in recorded] == [
        (it.act, it.at) for it in receipt.members
    ]
    assert {act.details["dataset"] for act in recorded} == set(members)
    assert {act.details["reference"] for act in recorded} == {"request 118"}
    lines = audit.export_acts(installation, ADMIN)
    summary = control_export.verify(line.encode() for line in _lines(lines))
    assert summary.kinds["unit-erased"] == len(members)


def _lines(export: Any) -> list[str]:
    chunks = [chunk if isinstance(chunk, str) else chunk.decode() for chunk in export]
    return "".join(chunks).splitlines(keepends=True)


def test_a_restore_of_an_older_backup_erases_the_person_from_each_member_again(
    installation: Installation, population: str, members: list[str]
) -> None:
    erase(installation, population, "ann")
    for dataset, n_uploads in zip(members, (1, 1, 0), strict=True):
        key = people.data_key(installation, dataset)
        (unit,) = open_log(installation).units(dataset, key=key)
        assert unit.row_id == people.id_of(installation, dataset, "ann")
        assert unit.last_upload == n_uploads


def test_a_caller_who_owns_no_member_learns_nothing_about_the_person(
    installation: Installation, population: str, members: list[str]
) -> None:
    """The acts, which auditors read, and the answer are the same for a person who is
    there and for one who is not, but for ids and times.
    """
    people.own_another(installation, ADMIN)
    of_nobody = erase(installation, population, "nobody", principal=ADMIN)
    of_ann = erase(installation, population, "ann", principal=ADMIN)

    first, second = [
        [it.model_dump(exclude={"act", "at"}) for it in receipt.members]
        for receipt in (of_nobody, of_ann)
    ]
    assert first == second
    assert {it.erased for it in of_ann.members} == {None}
    recorded = acts(installation)
    half = len(members)
    assert [_public(act) for act in recorded[:half]] == [
        _public(act) for act in recorded[half:]
    ]
    assert ages(installation, members[0]) == [2]


def _public(act: Entry) -> tuple[Any, ...]:
    facts = act.details or {}
    return act.actor, sorted(facts), facts["dataset"], len(facts["record"])


def test_only_the_chosen_members_are_read(
    installation: Installation, population: str, members: list[str]
) -> None:
    receipt = erase(installation, population, "ben", datasets=[members[1]])
    assert [it.dataset for it in receipt.members] == [members[1]]
    assert ages(installation, members[1]) == []
    assert ages(installation, members[0]) == [1, 2, 3]


def test_an_erased_member_is_left_out_and_refused_by_name(
    installation: Installation, population: str, members: list[str]
) -> None:
    delete_dataset(installation, OWNER, members[1])
    with pytest.raises(DatasetDeleted):
        erase(installation, population, "ann", datasets=members)
    assert ages(installation, members[0]) == [1, 2, 3], "nothing was erased"
    receipt = erase(installation, population, "ann")
    assert {it.dataset for it in receipt.members} == {members[0], members[2]}


def test_a_wrong_choice_erases_nothing(
    installation: Installation, population: str, members: list[str]
) -> None:
    other = people.declared(installation, privacy_unit=people.per_patient(3))["id"]
    with pytest.raises(InvalidRequest) as refused:
        erase(installation, population, "ann", datasets=[members[0], other])
    assert [(it.at, it.problem) for it in refused.value.errors] == [
        ("/datasets/1", "not-a-member")
    ]
    with pytest.raises(InvalidRequest):
        erase(installation, population, " \u200b")
    assert ages(installation, members[0]) == [1, 2, 3]
    assert acts(installation) == []


@on_one_database
def test_nobody_erases_from_datasets_of_others(
    installation: Installation, population: str, members: list[str]
) -> None:
    with pytest.raises(RoleMissing):
        erase(installation, population, "ann", principal=AUDITOR)
    with pytest.raises(RoleMissing):
        erase(installation, population, "ann", principal=AUDITOR, datasets=[members[0]])
    with pytest.raises(NotFound):
        erase(installation, population, "ann", principal=STRANGER)
    assert ages(installation, members[0]) == [1, 2, 3]


@on_one_database
def test_a_population_without_units_or_members_is_refused(
    installation: Installation, population: str
) -> None:
    (dataset,) = [people.declared(installation, population=population)["id"]]
    with pytest.raises(InvalidRequest) as refused:
        erase(installation, population, "ann")
    assert refused.value.errors[0].problem == "no-unit-column"
    delete_dataset(installation, OWNER, dataset)
    with pytest.raises(InvalidRequest) as refused:
        erase(installation, population, "ann")
    assert refused.value.errors[0].problem == "no-members"


@on_one_database
def test_one_request_erases_from_so_many_members(
    installation: Installation,
    population: str,
    members: list[str],
    set_limit: SetLimit,
) -> None:
    set_limit("MAX_ERASED_MEMBERS", len(members) - 1)
    with pytest.raises(TooLarge):
        erase(installation, population, "ann")
    assert ages(installation, members[0]) == [1, 2, 3]

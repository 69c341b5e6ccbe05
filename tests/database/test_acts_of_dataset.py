"""The acts about a dataset, which its owners read beside the auditors."""

import pytest

from app.access.grants import Principal, Role
from app.core.errors import NotFound, RoleMissing
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services.installation import Installation
from app.services.ledger import audit
from app.services.ledger.audit import ActSearch
from app.services.pagination import PageRequest
from tests.support import people
from tests.support.crash_scene import ADMIN, OWNER, STRANGER
from tests.support.databases import on_one_database

pytestmark = pytest.mark.contract

AUDITOR = Principal("key_auditor", frozenset({Role.AUDITOR}))


@pytest.fixture
def datasets(installation: Installation) -> tuple[str, str]:
    """One dataset of the owner, and one of somebody else."""
    theirs = people.declared(installation)["id"]
    hidden = people.declared(installation, principal=STRANGER)["id"]
    return theirs, hidden


def kinds(installation: Installation, principal: Principal, dataset: str) -> list[str]:
    page = PageRequest()
    listed = audit.list_acts(installation, principal, page, dataset=dataset)
    found = audit.search_acts(installation, principal, ActSearch(dataset=dataset), page)
    assert found.acts == list(reversed(listed.acts))
    return [act.kind for act in listed.acts]


def test_an_owner_lists_the_acts_about_the_dataset_and_no_others(
    installation: Installation, datasets: tuple[str, str]
) -> None:
    theirs, hidden = datasets
    record_decision(installation, [theirs], reason="a pilot")
    shown = ["dataset-declared", "job-approved"]
    assert kinds(installation, OWNER, theirs) == shown
    assert kinds(installation, ADMIN, theirs) == shown
    assert kinds(installation, AUDITOR, theirs) == shown
    with pytest.raises(NotFound):
        kinds(installation, OWNER, hidden)
    with pytest.raises(RoleMissing):
        audit.list_acts(installation, OWNER, PageRequest())


@on_one_database
def test_a_decision_that_names_another_dataset_is_shown_to_those_who_read_both(
    installation: Installation, datasets: tuple[str, str]
) -> None:
    theirs, hidden = datasets
    record_decision(installation, [theirs, hidden], reason="two hospitals")
    assert kinds(installation, OWNER, theirs) == ["dataset-declared"]
    assert kinds(installation, STRANGER, hidden) == ["dataset-declared"]
    assert kinds(installation, AUDITOR, theirs) == ["dataset-declared", "job-approved"]


def record_decision(
    installation: Installation, datasets: list[str], *, reason: str
) -> None:
    with installation.database.write() as session:
        control.record(
            session,
            EntryKind.JOB_APPROVED,
            actor=OWNER.key_id,
            job="jb_1",
            datasets=datasets,
            reason=reason,
        )

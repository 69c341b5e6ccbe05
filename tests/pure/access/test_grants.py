"""Tests the access policy: the roles of a key, globally and on a dataset."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.access import grants
from app.access.grants import Principal, Role
from app.access.tables import KeyRow
from app.core.errors import RoleMissing, Unauthenticated
from tests.support.clocks import database_tells

ACTS: dict[Role | None, set[Role]] = {
    None: set(),
    Role.PREDICTOR: {Role.PREDICTOR},
    Role.ANALYST: {Role.ANALYST, Role.PREDICTOR},
    Role.ATTESTER: {Role.ATTESTER, Role.ANALYST, Role.PREDICTOR},
    Role.OWNER: {Role.OWNER, Role.ATTESTER, Role.ANALYST, Role.PREDICTOR},
    Role.AUDITOR: {Role.AUDITOR},
}


@pytest.mark.parametrize("granted", ACTS)
def test_a_granted_role_includes_its_lower_roles_and_no_others(
    granted: Role | None,
) -> None:
    assert Principal("key_a").acts_as(granted) == ACTS[granted]


@pytest.mark.parametrize(
    "role", [Role.OWNER, Role.ATTESTER, Role.ANALYST, Role.PREDICTOR]
)
def test_other_global_roles_give_no_role_on_a_dataset(role: Role) -> None:
    assert Principal("key_a", frozenset({role})).acts_as(None) == set()


def test_a_global_auditor_and_an_admin_have_roles_on_every_dataset() -> None:
    assert Principal("key_a", frozenset({Role.AUDITOR})).acts_as(None) == {Role.AUDITOR}
    assert Principal("key_a", frozenset({Role.AUDITOR})).acts_as(Role.PREDICTOR) == {
        Role.AUDITOR,
        Role.PREDICTOR,
    }
    assert Principal("key_a", frozenset({Role.ADMIN})).acts_as(None) == set(Role)


@pytest.mark.parametrize("role", Role)
def test_a_global_call_needs_its_role_or_admin(role: Role) -> None:
    principal = Principal("key_a", frozenset({role}))
    if role in (Role.OWNER, Role.ADMIN):
        principal.require(Role.OWNER)
    else:
        with pytest.raises(RoleMissing) as caught:
            principal.require(Role.OWNER)
        assert caught.value.needed == ["owner"]


def test_only_seeing_a_dataset_is_open_to_every_granted_role() -> None:
    seeing = {Role.OWNER, Role.ANALYST, Role.PREDICTOR, Role.AUDITOR}
    assert seeing == grants.SEE_DATASET
    for needed in (
        grants.MANAGE_DATASET, grants.TRAIN, grants.SEE_MODEL, grants.TAKE_MODEL, grants.PREDICT, grants.SEE_BALANCE,
        grants.SEE_LEDGER,
    ):  # fmt: skip
        assert needed < seeing


def test_a_key_ends_at_its_end() -> None:
    end = datetime(2026, 12, 1, tzinfo=UTC)
    row = KeyRow(id="key_a", name="etl", roles=[], expires_at=end)
    session: Any = None
    before = end - timedelta(microseconds=1)
    with database_tells(before):
        assert grants.authority(session, row).key_id == "key_a"
    for at in (end, end + timedelta(days=1)):
        with database_tells(at), pytest.raises(Unauthenticated):
            grants.authority(session, row)

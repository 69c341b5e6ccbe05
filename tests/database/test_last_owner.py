"""The last owner of a dataset keeps the role, on both databases."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from app.access import grants, keys
from app.access.grants import Principal, Role
from app.core import stamps
from app.core.errors import LastOwner, NotFound
from app.services.installation import Installation
from app.services.keys import (
    put_grant,
    remove_grant,
    revoke_key,
    show_grant,
    show_revocation,
)
from grovekeeper_forests.errors import GrovekeeperError
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene

pytestmark = pytest.mark.contract


@pytest.fixture
def shared(scene: Scene) -> Scene:
    """A dataset of two owners."""
    put_grant(
        scene.installation, OWNER, scene.dataset_id, STRANGER.key_id, role="owner"
    )
    return scene


def _owners(installation: Installation, dataset: str) -> set[str]:
    with installation.database.read() as session:
        listed = grants.page(session, dataset, after=None, limit=100)
        return {
            grant.key_id
            for grant, key in listed
            if grant.role == Role.OWNER and key.revoked_at is None
        }


@pytest.mark.parametrize("by", [OWNER, ADMIN], ids=["herself", "an admin"])
def test_the_last_owner_is_not_removed(scene: Scene, by: Principal) -> None:
    installation, dataset = scene.installation, scene.dataset_id
    assert show_grant(installation, by, dataset, OWNER.key_id)[1]
    with pytest.raises(LastOwner):
        remove_grant(installation, by, dataset, OWNER.key_id)
    with pytest.raises(LastOwner):
        put_grant(installation, by, dataset, OWNER.key_id, role="analyst")
    put_grant(installation, by, dataset, OWNER.key_id, role="owner")
    assert _owners(installation, dataset) == {OWNER.key_id}
    put_grant(installation, by, dataset, STRANGER.key_id, role="owner")
    remove_grant(installation, by, dataset, OWNER.key_id)
    assert _owners(installation, dataset) == {STRANGER.key_id}


def test_a_key_that_does_not_work_is_no_owner(shared: Scene) -> None:
    installation, dataset = shared.installation, shared.dataset_id
    with installation.database.write() as session:
        keys.find(session, STRANGER.key_id).expires_at = stamps.now() - timedelta(
            seconds=1
        )
    with pytest.raises(LastOwner):
        remove_grant(installation, OWNER, dataset, OWNER.key_id)
    remove_grant(installation, OWNER, dataset, STRANGER.key_id)
    assert _owners(installation, dataset) == {OWNER.key_id}


def test_a_key_is_revoked_whoever_it_leaves_without_an_owner(shared: Scene) -> None:
    installation = shared.installation
    assert show_revocation(installation, ADMIN, OWNER.key_id)[1] == {}
    revoke_key(installation, ADMIN, STRANGER.key_id)
    assert show_revocation(installation, ADMIN, OWNER.key_id)[1] == {
        shared.dataset_id: "census"
    }
    revoke_key(installation, ADMIN, OWNER.key_id)
    assert _owners(installation, shared.dataset_id) == set()
    put_grant(installation, ADMIN, shared.dataset_id, ADMIN.key_id, role="owner")
    assert _owners(installation, shared.dataset_id) == {ADMIN.key_id}


@pytest.mark.parametrize("crosswise", [True, False], ids=["one another", "themselves"])
def test_two_owners_who_remove_at_the_same_time_leave_one(
    shared: Scene, crosswise: bool
) -> None:
    installation, dataset = shared.installation, shared.dataset_id
    for _ in range(5):
        start = Barrier(2)

        def remove(caller: Principal, key_id: str, start: Barrier = start) -> bool:
            start.wait(60)
            try:
                remove_grant(installation, caller, dataset, key_id)
            except (LastOwner, NotFound):
                return False
            return True

        pairs = (
            [(OWNER, STRANGER), (STRANGER, OWNER)]
            if crosswise
            else [(OWNER, OWNER), (STRANGER, STRANGER)]
        )
        with ThreadPoolExecutor(2) as pool:
            removed = [pool.submit(remove, caller, key.key_id) for caller, key in pairs]
            assert sorted(future.result(60) for future in removed) == [False, True]
        assert len(_owners(installation, dataset)) == 1
        for key in (OWNER, STRANGER):
            put_grant(installation, ADMIN, dataset, key.key_id, role="owner")


def test_only_owners_and_admins_see_what_a_revocation_does(scene: Scene) -> None:
    for call in (
        lambda: show_grant(
            scene.installation, STRANGER, scene.dataset_id, OWNER.key_id
        ),
        lambda: show_revocation(scene.installation, OWNER, OWNER.key_id),
        lambda: show_grant(scene.installation, OWNER, scene.dataset_id, "key_nobody"),
    ):
        with pytest.raises(GrovekeeperError):
            call()

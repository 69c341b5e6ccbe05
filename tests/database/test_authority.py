"""Authority counts at the time of the effect: revocations and effects of one key happen
one after the other.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from time import monotonic

import pytest

from app.core.errors import NotFound, RoleMissing, Unauthenticated
from app.jobs.states import EndReason, JobState
from app.services.authorization import write_as
from app.services.jobs.task import JobTask
from app.services.keys import put_grant, remove_grant, revoke_key, rotate_key
from app.wire.keys import RotationIn
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene
from tests.support.job_kinds import claimed, must_not_run, run_here
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

KEY = OWNER.key_id


def _revoke(scene: Scene) -> None:
    revoke_key(scene.installation, ADMIN, KEY)


def _rotate(scene: Scene) -> None:
    rotate_key(scene.installation, ADMIN, KEY, RotationIn())


def _remove(scene: Scene) -> None:
    # the last owner stays
    put_grant(scene.installation, ADMIN, scene.dataset_id, ADMIN.key_id, role="owner")
    remove_grant(scene.installation, ADMIN, scene.dataset_id, KEY)


@pytest.mark.parametrize("take_away", [_revoke, _remove])
def test_a_job_whose_submitter_lost_its_authority_before_the_charge_is_void(
    scene: Scene, take_away: Callable[[Scene], None]
) -> None:
    job_id = scene.submit_job(key="k")
    take_away(scene)
    run_here(scene.installation, claimed(scene.installation), must_not_run)
    row = scene.job(job_id)
    assert (row.state, row.reason, row.charged_at) == (
        JobState.FAILED,
        EndReason.REVOKED,
        None,
    )
    assert scene.kinds_of(job_id) == ["reserve", "void"]


def test_a_job_of_two_datasets_needs_both_grants_at_its_charge(scene: Scene) -> None:
    pair = Pair.beside(scene)
    job_id = pair.submit(key="k")
    put_grant(
        scene.installation, ADMIN, pair.second.dataset_id, ADMIN.key_id, role="owner"
    )
    remove_grant(scene.installation, ADMIN, pair.second.dataset_id, KEY)
    run_here(scene.installation, claimed(scene.installation), must_not_run)
    assert scene.job(job_id).reason == EndReason.REVOKED
    assert pair.kinds_of(job_id) == (["reserve", "void"], ["reserve", "void"])


def test_a_job_of_a_key_that_was_revoked_after_the_charge_ends_as_any_other(
    scene: Scene,
) -> None:
    """The rows were read on an authority that held then, and the charge stays in every
    case.
    """
    job_id = scene.submit_job(key="k")

    def revoke_and_end(task: JobTask, _kept: object) -> None:
        _revoke(scene)
        task.output_path.write_bytes(b"nothing")

    run_here(scene.installation, claimed(scene.installation), revoke_and_end)
    assert (scene.job(job_id).reason, scene.kinds_of(job_id)) == (
        EndReason.FAILED,
        ["reserve", "charge"],
    )


@pytest.mark.parametrize("take_away", [_revoke, _rotate, _remove])
def test_a_revocation_is_answered_after_the_running_effects_and_before_any_other(
    scene: Scene, take_away: Callable[[Scene], None]
) -> None:
    """When the revocation returns, the effect that had begun is committed."""
    committed, begun = Event(), Event()

    def revoked() -> bool:
        begun.set()
        take_away(scene)
        return committed.is_set()

    with ThreadPoolExecutor(1) as pool:
        with write_as(scene.installation, OWNER):
            revocation = pool.submit(revoked)
            assert begun.wait(60)
            with pytest.raises(TimeoutError):
                revocation.result(0.3)
            committed.set()
        assert revocation.result(60)


def test_who_may_not_change_a_key_or_its_grants_does_not_wait_for_it(
    scene: Scene,
) -> None:
    """Otherwise anybody could delay the requests of a key."""
    with write_as(scene.installation, OWNER):
        with pytest.raises(NotFound):
            remove_grant(scene.installation, STRANGER, scene.dataset_id, KEY)
        with pytest.raises(NotFound):
            put_grant(
                scene.installation, STRANGER, scene.dataset_id, KEY, role="predictor"
            )
        with pytest.raises(RoleMissing):
            revoke_key(scene.installation, STRANGER, KEY)
        with pytest.raises(RoleMissing):
            rotate_key(scene.installation, STRANGER, KEY, RotationIn())


def test_a_busy_key_is_revoked_within_the_time_of_its_running_transactions(
    postgresql_scene: Scene,
) -> None:
    """With row locks, transactions that overlap all the time would keep a revocation
    waiting for ever.
    """
    scene = postgresql_scene
    with ThreadPoolExecutor(5) as pool:
        started, until = Barrier(5), monotonic() + 120

        def act_until_revoked() -> None:
            started.wait(60)
            while monotonic() < until:
                with write_as(scene.installation, OWNER):
                    Event().wait(0.02)

        busy = [pool.submit(act_until_revoked) for _ in range(4)]
        started.wait(60)
        revoke_key(scene.installation, ADMIN, KEY)
        for acted in busy:
            with pytest.raises(Unauthenticated):
                acted.result(60)


def test_keys_that_change_each_other_at_once_do_not_deadlock(
    postgresql_scene: Scene,
) -> None:
    scene = postgresql_scene
    with ThreadPoolExecutor(2) as pool:
        put_grant(
            scene.installation, ADMIN, scene.dataset_id, STRANGER.key_id, role="owner"
        )

        def grant_many(principal: object, other: str) -> None:
            for _ in range(30):
                put_grant(
                    scene.installation, principal, scene.dataset_id, other, role="owner"
                )  # type: ignore[arg-type]

        both = [
            pool.submit(grant_many, STRANGER, KEY),
            pool.submit(grant_many, OWNER, STRANGER.key_id),
        ]
        assert [each.result(60) for each in both] == [None, None]

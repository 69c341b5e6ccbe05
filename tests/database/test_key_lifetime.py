"""Keys expire and rotate: neither an expired key nor an earlier secret has an effect,
and the key's id stays.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from app.access import keys
from app.access.grants import Principal
from app.core import limits, stamps
from app.core.errors import InvalidRequest, LeaseLost, NotFound, Unauthenticated
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.states import EndReason, JobState
from app.ledger import control, tables
from app.services.authorization import authenticate, confirm, write_as
from app.services.execution import finished
from app.services.execution.charge import charge_claimed
from app.services.execution.sweep import settle_overdue, tidy_jobs
from app.services.jobs import show_jobs
from app.services.keys import create_key, end_sessions, revoke_key, rotate_key
from app.wire.keys import KeyIn, RotationIn
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import (
    claimed,
    must_not_run,
    run_here,
    submitted_and_claimed,
)

pytestmark = pytest.mark.contract


def _made(scene: Scene, **changes: object) -> tuple[str, Principal]:
    """The text of a key with a time of expiry, and its caller."""
    body = KeyIn.model_validate({"name": "ada", "roles": ["owner"], **changes})
    text = create_key(scene.installation, ADMIN, body).key
    return text, authenticate(scene.installation, f"Bearer {text}")


def _in(**time: float) -> str:
    return stamps.to_text(stamps.now() + timedelta(**time))


def _expire(scene: Scene, key_id: str) -> None:
    """Lets the time of expiry of a key be now."""
    with scene.installation.database.write() as session:
        keys.find(session, key_id).expires_at = transaction_time(session)


def _rotate(scene: Scene, key_id: str) -> str:
    return rotate_key(scene.installation, ADMIN, key_id, RotationIn()).key


def _refusals(scene: Scene, text: str, caller: Principal) -> list[Callable[[], object]]:
    """Every way in which a request that began before can go on."""

    def act() -> None:
        with write_as(scene.installation, caller):
            raise AssertionError("the request would have an effect")

    return [
        lambda: authenticate(scene.installation, f"Bearer {text}"),
        lambda: confirm(scene.installation, caller),
        act,
    ]


@pytest.mark.parametrize("end", [_expire, _rotate])
def test_a_key_has_no_effect_after_its_end_and_the_error_says_no_more_than_for_an_unknown_key(
    scene: Scene, end: Callable[[Scene, str], object]
) -> None:
    text, caller = _made(scene, expires_at=_in(days=1))
    with write_as(scene.installation, caller) as (_, present):
        assert present == caller
    end(scene, caller.key_id)
    with pytest.raises(Unauthenticated) as unknown:
        authenticate(scene.installation, f"Bearer key_unknown.{'s' * 43}")
    for refusal in _refusals(scene, text, caller):
        with pytest.raises(Unauthenticated) as refused:
            refusal()
        assert str(refused.value) == str(unknown.value)


@on_one_database
@pytest.mark.parametrize("end", [_expire, _rotate])
def test_an_event_stream_ends_with_the_key_that_opened_it(
    scene: Scene, end: Callable[[Scene, str], object]
) -> None:
    job_id = scene.submit_job(key="k")
    followed = (OWNER, job_id)
    assert show_jobs.look_at(scene.installation, [followed]).keys() == {followed}
    end(scene, OWNER.key_id)
    assert show_jobs.look_at(scene.installation, [followed]) == {}


def test_a_job_is_void_if_the_key_of_its_submitter_expires_before_the_charge(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="k")
    _expire(scene, OWNER.key_id)
    run_here(scene.installation, claimed(scene.installation), must_not_run)
    assert scene.end(job_id) == (
        JobState.FAILED,
        EndReason.KEY_EXPIRED,
        ["reserve", "void"],
    )
    assert show_jobs.show_job(scene.installation, ADMIN, job_id).reason == "key-expired"


@pytest.mark.parametrize("end", ["revoked", "key-expired"])
def test_a_job_that_nobody_claims_ends_with_the_key_of_its_submitter(
    scene: Scene, end: str
) -> None:
    """Its reservation holds no budget for the day that the queue may take."""
    job_id = scene.submit_job(key="k", epsilon="3")
    assert settle_overdue(scene.installation) == 0
    if end == "revoked":
        revoke_key(scene.installation, ADMIN, OWNER.key_id)
    else:
        _expire(scene, OWNER.key_id)
    assert settle_overdue(scene.installation) == 1
    assert scene.end(job_id) == ("failed", end, ["reserve", "void"])
    assert scene.verified().tightest.load == 0
    assert settle_overdue(scene.installation) == 0


def test_a_claimed_job_of_an_ended_key_ends_before_its_charge(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the store does not answer, in which no job without a charge has a
    note.
    """

    def unanswered(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(finished, "read", unanswered)
    job_id, claim = submitted_and_claimed(scene)
    folder = scene.installation.job_folder(job_id)
    folder.mkdir(parents=True)
    revoke_key(scene.installation, ADMIN, OWNER.key_id)
    assert settle_overdue(scene.installation) == 1
    tidy_jobs(scene.installation)
    assert folder.is_dir(), "its worker looks for the end of its lease soon"
    assert scene.end(job_id) == ("failed", "revoked", ["reserve", "void"])
    with scene.installation.database.write() as session, pytest.raises(LeaseLost):
        queue.leased(session, claim)


def test_a_job_of_a_key_that_was_revoked_and_has_expired_names_the_revocation(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="k")
    revoke_key(scene.installation, ADMIN, OWNER.key_id)
    _expire(scene, OWNER.key_id)
    run_here(scene.installation, claimed(scene.installation), must_not_run)
    assert scene.end(job_id) == (
        JobState.FAILED,
        EndReason.REVOKED,
        ["reserve", "void"],
    )


def test_a_job_runs_although_the_key_of_its_submitter_was_rotated(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    _rotate(scene, OWNER.key_id)
    charge_claimed(scene.installation, claimed(scene.installation))
    assert scene.kinds_of(job_id) == ["reserve", "charge"]


def test_a_request_that_is_repeated_with_the_rotated_secret_spends_once(
    scene: Scene,
) -> None:
    first = scene.submit(key="k")
    rotated = _rotate(scene, OWNER.key_id)
    n_before = len(scene.entries())
    again = scene.submit(
        key="k", by=authenticate(scene.installation, f"Bearer {rotated}")
    )
    assert (again, len(scene.entries())) == (first, n_before)


def test_a_rotation_keeps_id_name_roles_and_expiry_and_another_secret_opens_the_key(
    scene: Scene,
) -> None:
    text, caller = _made(scene, expires_at=_in(days=1))
    rotated = _rotate(scene, caller.key_id)
    present = authenticate(scene.installation, f"Bearer {rotated}")
    assert (present.key_id, present.roles) == (caller.key_id, caller.roles)
    assert rotated != text
    with scene.installation.database.read() as session:
        row = keys.find(session, caller.key_id)
        last = tables.entries(session, control.CHAIN, after=0, limit=1_000)[-1]
    assert row.expires_at is not None
    assert row.rotated_at == present.rotated_at
    details = {"key": caller.key_id, "expires_at": stamps.to_text(row.expires_at)}
    assert (last.kind, last.actor, last.details) == (
        "key-rotated",
        ADMIN.key_id,
        details,
    )


def test_a_rotation_can_let_an_expired_key_live_on_and_keeps_nothing_expired(
    scene: Scene,
) -> None:
    _, caller = _made(scene, expires_at=_in(days=1))
    _expire(scene, caller.key_id)
    with pytest.raises(InvalidRequest):
        _rotate(scene, caller.key_id)
    later = RotationIn.model_validate({"expires_at": _in(days=2)})
    renewed = rotate_key(scene.installation, ADMIN, caller.key_id, later)
    assert (
        authenticate(scene.installation, f"Bearer {renewed.key}").key_id
        == caller.key_id
    )


def test_each_sign_out_ends_the_sessions_since_the_last(scene: Scene) -> None:
    text, caller = _made(scene, expires_at=_in(days=1))
    counts = []
    for _ in range(3):
        present = authenticate(scene.installation, f"Bearer {text}")
        counts.append(present.sign_outs)
        end_sessions(scene.installation, caller)
    assert counts == sorted(set(counts)), "a session names the number at its start"


def test_a_revoked_key_is_not_rotated(scene: Scene) -> None:
    _, caller = _made(scene)
    revoke_key(scene.installation, ADMIN, caller.key_id)
    with pytest.raises(NotFound):
        _rotate(scene, caller.key_id)


@on_one_database
@pytest.mark.parametrize(
    ("time", "problem"),
    [
        ({"seconds": -1}, "too-early"),
        ({"days": limits.MAX_KEY_LIFETIME_DAYS, "hours": 1}, "too-late"),
    ],
)
def test_a_key_expires_in_the_future_and_within_the_limit(
    scene: Scene, time: dict[str, int], problem: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _made(scene, expires_at=_in(**time))
    assert [(error.at, error.problem) for error in refused.value.errors] == [
        ("/expires_at", problem)
    ]
    _made(scene, expires_at=_in(days=limits.MAX_KEY_LIFETIME_DAYS - 1))


def test_an_expired_admin_key_is_no_living_admin(scene: Scene) -> None:
    database = scene.installation.database
    with database.read() as session:
        assert keys.living_admin_exists(session)
    _expire(scene, ADMIN.key_id)
    with database.read() as session:
        assert not keys.living_admin_exists(session)


def test_a_followed_job_that_was_removed_keeps_no_other_job_from_its_followers(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="k")
    followed = [(OWNER, "jb_removed"), (OWNER, job_id)]
    assert show_jobs.look_at(scene.installation, followed).keys() == {followed[1]}

"""What needs a caller, on both databases: each sees what is hers to decide or to know,
and nothing else.
"""

from datetime import timedelta

import pytest
from sqlalchemy import update

from app.access.grants import Principal, Role
from app.access.tables import KeyRow
from app.core import limits, stamps
from app.jobs import queue
from app.jobs.states import PutBack
from app.jobs.tables import JobRow
from app.ledger import statements, verifications
from app.services.attention import show_attention
from app.wire.attention import AttentionOut
from tests.support.crash_scene import (
    ADMIN,
    OWNER,
    STRANGER,
    Scene,
    open_account,
)
from tests.support.job_kinds import claimed
from tests.support.ruled import SECOND, grant, set_rules
from tests.support.sweeping import expired_at

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

AUDITOR = Principal(STRANGER.key_id, frozenset({Role.AUDITOR}))


def _seen(scene: Scene, by: Principal) -> AttentionOut:
    return show_attention(scene.installation, by)


def test_a_key_without_a_grant_sees_nothing(scene: Scene) -> None:
    scene.submit_job(key="a")
    seen = _seen(scene, STRANGER)
    assert (seen.recent, seen.budgets, seen.approvals) == ([], [], [])
    assert (seen.jobs.queued, seen.jobs.waiting, seen.jobs.running) == (0, 0, 0)


def test_a_waiting_job_needs_another_owner_and_not_its_submitter(scene: Scene) -> None:
    grant(scene, "owner")
    set_rules(scene, approval_above="0.5")
    job_id = scene.submit_job(key="a", epsilon="0.75", by=SECOND)
    for decides in (OWNER, ADMIN):
        seen = _seen(scene, decides)
        assert [job.job for job in seen.approvals] == [job_id]
        assert seen.jobs.waiting == 1
    assert _seen(scene, SECOND).approvals == []
    assert [job.id for job in _seen(scene, SECOND).recent] == [job_id]


def test_proposed_rules_need_an_owner_who_did_not_propose_them(scene: Scene) -> None:
    grant(scene, "owner")
    set_rules(scene, largest_job="0.5")
    set_rules(scene, largest_job="1")
    (proposal,) = _seen(scene, SECOND).proposals
    assert (proposal.dataset, proposal.by) == (scene.dataset_id, OWNER.key_id)
    assert len(_seen(scene, ADMIN).proposals) == 1
    assert _seen(scene, OWNER).proposals == []
    grant(scene, "analyst")
    assert _seen(scene, SECOND).proposals == [], "an analyst decides about no rules"


def test_failed_jobs_are_listed_for_some_days(scene: Scene) -> None:
    job_id = scene.submit_job(key="a")
    assert _seen(scene, OWNER).failed == []

    def changed(**values: object) -> AttentionOut:
        with scene.installation.database.write() as session:
            session.execute(update(JobRow).where(JobRow.id == job_id).values(**values))
        return _seen(scene, OWNER)

    seen = changed(state="failed")
    assert [job.id for job in seen.failed] == [job_id]
    assert [job.id for job in _seen(scene, AUDITOR).failed] == [job_id]
    days = timedelta(days=limits.FAILED_DAYS, seconds=1)
    assert changed(submitted_at=stamps.now() - days).failed == []
    assert _seen(scene, OWNER).recent == [], "more than a day ago"


def test_an_administrator_sees_every_key_that_ends_soon_and_others_their_own(
    scene: Scene,
) -> None:
    soon = stamps.now() + timedelta(days=limits.KEY_ENDS_SOON_DAYS - 1)
    late = stamps.now() + timedelta(days=limits.KEY_ENDS_SOON_DAYS + 1)

    def ending(at: object, **values: object) -> None:
        with scene.installation.database.write() as session:
            session.execute(
                update(KeyRow)
                .where(KeyRow.id == SECOND.key_id)
                .values(expires_at=at, **values)
            )

    ending(soon)
    for sees in (ADMIN, SECOND):
        assert [key.id for key in _seen(scene, sees).keys] == [SECOND.key_id]
    assert _seen(scene, OWNER).keys == []
    ending(late)
    assert _seen(scene, ADMIN).keys == []
    ending(stamps.now() - timedelta(seconds=60))
    assert _seen(scene, ADMIN).keys == [], "it has ended"
    ending(soon, revoked_at=stamps.now())
    assert _seen(scene, ADMIN).keys == []


def test_budgets_say_what_fits_for_the_caller(scene: Scene) -> None:
    grant(scene, "predictor")
    set_rules(scene, largest_job="0.25")
    (own,), (other,) = (_seen(scene, by).budgets for by in (OWNER, SECOND))
    assert (own.dataset, own.role, own.may_submit) == (
        scene.dataset_id,
        "owner",
        True,
    )
    assert (own.largest_that_fits, own.limited_by) == ("0.25", "largest_job")
    assert (other.role, other.may_submit) == ("predictor", False)
    assert own.has_rows


def test_a_job_that_its_worker_put_back_is_listed_until_a_worker_takes_it(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="a")
    assert _seen(scene, OWNER).held == []
    claim = claimed(scene.installation)
    with scene.installation.database.write() as session:
        queue.put_back(queue.leased(session, claim), PutBack.NO_ROOM)
    seen = _seen(scene, OWNER)
    assert [(job.id, job.held_by) for job in seen.held] == [(job_id, "no-room")]
    assert seen.jobs.queued == 1
    assert _seen(scene, STRANGER).held == []
    expired_at(scene.installation, stamps.now() + timedelta(hours=1))
    claimed(scene.installation)
    assert _seen(scene, OWNER).held == []


def test_ledgers_to_verify_are_listed_for_those_who_state_verifications(
    scene: Scene,
) -> None:
    """Failures first, then those with the most entries that no verification covers."""
    scene.submit_job(key="a")
    installation, account = scene.installation, scene.dataset_id
    [found] = _seen(scene, AUDITOR).ledgers
    [budget] = _seen(scene, OWNER).budgets
    assert (found.account, found.account_name) == (account, budget.dataset_name)
    assert (found.entries, found.verification) == (_size(scene, account), None)
    assert found.not_covered == found.entries
    assert _counts(_seen(scene, AUDITOR)) == (1, 1)
    assert _counts(_seen(scene, OWNER)) == (0, 0)
    assert len(_seen(scene, ADMIN).ledgers) == 1
    assert _seen(scene, OWNER).ledgers == _seen(scene, STRANGER).ledgers == []
    assert _seen(scene, SECOND).ledgers == []
    grant(scene, "auditor")
    assert [ledger.account for ledger in _seen(scene, SECOND).ledgers] == [account]

    def state(by: str, entries: int | None) -> AttentionOut:
        stated = {
            "name": by,
            "verdict": "VERIFIED" if entries else verifications.FAILED,
            "entries": entries,
            "checkpoint": None,
            "stated_at": stamps.now(),
        }
        with installation.database.write() as session:
            verifications.put(session, account, stated_by=by, stated=stated)
        return _seen(scene, AUDITOR)

    size = _size(scene, account)
    [own] = state(verifications.SERVICE, size).ledgers
    assert own.verification is not None
    assert own.verification.entries_since == 0
    assert own.not_covered == size, "its own word covers nothing"
    [partly] = state("key_a", size - 1).ledgers
    assert partly.not_covered == 1
    assert partly.verification is not None
    assert partly.verification.entries_since == 1
    covered = state("key_b", size)
    assert covered.ledgers == [], "one of them covers all entries"
    assert _counts(covered) == (1, 0)
    [failed] = state("key_c", None).ledgers
    assert failed.verification is not None
    assert failed.verification.verdict == verifications.FAILED

    other = "ds_other"
    open_account(installation, other, cap=10)
    assert [ledger.account for ledger in _seen(scene, AUDITOR).ledgers] == [
        account,
        other,
    ]
    assert [ledger.account for ledger in _seen(scene, SECOND).ledgers] == [account]
    newer = state("key_c", size)
    assert [ledger.account for ledger in newer.ledgers] == [other]
    assert _counts(newer) == (2, 1)
    assert _counts(_seen(scene, SECOND)) == (1, 0)


def _counts(found: AttentionOut) -> tuple[int, int]:
    return found.ledger_counts.accounts, found.ledger_counts.to_verify


def _size(scene: Scene, account: str) -> int:
    with scene.installation.database.read() as session:
        return statements.size(session, account)

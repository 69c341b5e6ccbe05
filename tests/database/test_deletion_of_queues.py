"""A deletion is one short transaction however many jobs wait; the jobs end afterwards,
a few per transaction.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.core.errors import BalanceMismatch, DatasetDeleted
from app.jobs.states import JobState
from app.jobs.tables import JobRow
from app.ledger import reservations as ledger
from app.services.datasets import erase as deletion
from app.services.datasets.erase import delete_dataset, erase_due
from app.services.execution import charge, run_job
from tests.support.crash_scene import OWNER, Scene, open_reservations
from tests.support.job_kinds import (
    claimed,
    perform_here,
    run_here,
    submitted_and_claimed,
)
from tests.support.set_limits import SetLimit
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

N_TOGETHER, N_BY_A_SWEEP = 4, 20
N_JOBS = 2 * N_BY_A_SWEEP + 7


@pytest.fixture(autouse=True)
def _small_batches(set_limit: SetLimit) -> None:
    """A fifth of the production limits, so that a queue of a fifth has as many batches."""
    set_limit("JOBS_ENDED_TOGETHER", N_TOGETHER)
    set_limit("MAX_JOBS_ENDED_BY_A_SWEEP", N_BY_A_SWEEP)


class _Killed(BaseException):
    """The process dies."""


def _fill(scene: Scene, n_jobs: int = N_JOBS) -> None:
    for number in range(n_jobs):
        scene.submit(key=f"queued {number}", epsilon="0.001")


def _states(scene: Scene) -> Counter[str]:
    with scene.installation.database.read() as session:
        return Counter(row.state for row in session.query(JobRow))


def _assert_books_agree(scene: Scene) -> None:
    """What is reserved is the price of the jobs that have not ended."""
    held = _open(scene)
    with scene.installation.database.read() as session:
        unfinished = {
            row.id
            for row in session.query(JobRow)
            if row.state in ("queued", "waiting", "running")
        }
    assert held <= unfinished, "an ended job holds no reservation"
    assert scene.verified().tightest.load == len(held) * 1_000_000


def _open(scene: Scene) -> set[str]:
    return open_reservations(scene.entries())


@contextmanager
def _statements(scene: Scene) -> Iterator[list[int]]:
    """Counts the statements of every committed transaction that writes."""
    counts, current = list[int](), list[bool]()
    engine = scene.installation.database.engine

    def execute(*arguments: object) -> None:
        current.append(
            str(arguments[2])
            .lstrip()
            .upper()
            .startswith(("INSERT", "UPDATE", "DELETE"))
        )

    def commit(_: object) -> None:
        if any(current):
            counts.append(len(current))
        current.clear()

    event.listen(engine, "before_cursor_execute", execute)
    event.listen(engine, "commit", commit)
    event.listen(engine, "rollback", lambda _: current.clear())
    yield counts
    event.remove(engine, "before_cursor_execute", execute)
    event.remove(engine, "commit", commit)


def _deleted_with(scene: Scene, n_jobs: int) -> list[int]:
    _fill(scene, n_jobs)
    with _statements(scene) as counts:
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
    return counts


def test_no_transaction_of_a_deletion_grows_with_the_queue(scene: Scene) -> None:
    counts = _deleted_with(scene, N_JOBS)
    assert counts[0] < 30, "the tombstone"
    assert max(counts) < 30 * N_TOGETHER
    with scene.installation.database.read() as session:
        entries = [entry for entry in scene.entries() if entry.kind == "void"]
        assert session.query(JobRow).filter(JobRow.state == "cancelled").count() == len(
            entries
        )
    assert len(entries) == N_BY_A_SWEEP, (
        "the request ends some jobs, and the sweeper the others"
    )
    _assert_books_agree(scene)


def test_the_sweeper_ends_what_a_killed_deletion_left_and_nothing_is_claimed_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(scene)

    def die(*_: object, **__: object) -> None:
        raise _Killed

    with monkeypatch.context() as patched, pytest.raises(_Killed):
        patched.setattr(deletion, "erase_remains", die)
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert _states(scene) == {"queued": N_JOBS}
    _assert_books_agree(scene)
    assert run_job.claim_next(scene.installation) is None, (
        "no job of a deleted dataset is claimed"
    )
    with pytest.raises(DatasetDeleted):
        scene.submit(key="late")
    before = N_JOBS
    while before:
        with monkeypatch.context() as patched:
            _die_after(patched, n_batches=1)
            with suppress(_Killed):
                erase_due(scene.installation)
        _assert_books_agree(scene)
        assert 0 < before - _states(scene)["queued"] <= N_TOGETHER
        before = _states(scene)["queued"]
    assert _states(scene) == {"cancelled": N_JOBS}
    assert scene.verified().tightest.load == 0


def _die_after(patched: pytest.MonkeyPatch, *, n_batches: int) -> None:
    """Kills the process in its second transaction that ends jobs, before the commit."""
    void, calls = ledger.void_jobs, Counter[str]()

    def counted(session: Session, job_ids: list[str], *, actor: str) -> None:
        void(session, job_ids, actor=actor)
        calls["void"] += 1
        if calls["void"] > n_batches:
            raise _Killed

    patched.setattr(ledger, "void_jobs", counted)


def test_a_job_that_was_claimed_before_the_deletion_is_not_charged_after_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim = submitted_and_claimed(scene)
    charged, charged_claim = submitted_and_claimed(scene, key="charged")
    charge.charge_claimed(scene.installation, charged_claim)
    with monkeypatch.context() as patched:
        patched.setattr(deletion, "end_jobs", lambda *_, **__: None)
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert scene.end(charged) == (
        "cancelled",
        "dataset-erased",
        ["reserve", "charge"],
    ), "a running job ends at once"
    assert scene.job(job_id).state == "running"
    run_here(scene.installation, claim, perform_here)
    assert scene.end(job_id) == ("cancelled", "dataset-erased", ["reserve", "void"])


def test_a_balance_that_differs_from_its_entries_keeps_no_other_job_and_no_row(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are erased all the same; jobs whose reservations cannot be given back
    wait, unclaimed.
    """
    pair = Pair.beside(scene)
    kept = {pair.submit(key=f"both {number}") for number in range(3)}
    _fill(scene, N_TOGETHER)
    void = ledger.void_jobs

    def doubting(session: Session, job_ids: list[str], *, actor: str) -> None:
        if kept & set(job_ids):
            raise BalanceMismatch(pair.second.dataset_id, "totals")
        void(session, job_ids, actor=actor)

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "void_jobs", doubting)
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
        assert not list((scene.installation.home / "rows" / scene.dataset_id).glob("*"))
        erase_due(scene.installation)
        assert kept <= {
            job_id
            for job_id in _open(scene)
            if scene.job(job_id).state == JobState.QUEUED
        }
        assert run_job.claim_next(scene.installation) is None
    erase_due(scene.installation)
    assert not _open(scene)
    with scene.installation.database.read() as session:
        assert {row.state for row in session.query(JobRow)} == {"cancelled"}


def test_jobs_of_other_datasets_go_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair.beside(scene)
    _fill(scene, 3)
    other = pair.second.submit_job(key="other")
    with monkeypatch.context() as patched:
        patched.setattr(deletion, "end_jobs", lambda *_, **__: None)
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert claimed(scene.installation).job_id == other
    assert run_job.claim_next(scene.installation) is None

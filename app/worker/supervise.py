"""Starts the child of one job and watches it until it ends: progress, cancellation,
public times.

All work runs on the main thread. Linux sends a child its parent-death signal when the
*thread* that started it ends, so a child of a short-lived helper thread would be
killed.

A job is charged when its child has loaded its code. A child needs a second of processor
time for that, far longer than a small job takes. So when a job has ended, the worker
starts the child of the next job, which loads its code and waits for its task. A waiting
child has read no task and holds no key and no row; it runs one job and ends. It is
stopped when no job came for :data:`WAIT_S`, so that a worker that is idle takes no
memory for it.

A child loads the files as they are then, which an upgrade may have replaced since the
worker began. A worker and a child of two versions do not understand each other, so a
worker compares before each charge, and ends at a difference.

Changes of private jobs appear at public times, if a setting has an interval (ADR 0030).
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial

from app.core import limits, stamps
from app.core.dask_cluster import DaskCluster
from app.core.memory import LARGE_PAGES
from app.core.processes import TERMINAL_SIGNALS, Stop, code_digest, scrubbed_environment
from app.core.sealed_files import SealBroken, SealedFile
from app.jobs.states import PREPARING, EndReason, PutBack
from app.services.execution.lease import CannotRun, Lease, Stopped
from app.services.execution.run_job import CodeChanged, CodeNotLoaded, JobFailed
from app.services.jobs.task import JobTask, Needs
from grovekeeper_forests.threads import begun

WAIT_S = 600.0
"""Longest time that a child waits for a job."""

LOADED = b"."
"""What a child writes when it has loaded its code, and when it could use what a job
needs.
"""

_log = logging.getLogger(__name__)
_POLL_S = 0.1


def public_time_after(at: float, interval_s: int) -> float:
    """The public time at which a change appears.

    Args:
        at: PRIVATE; the time of the change, in seconds since 1970 in UTC.
        interval_s: public; seconds between two public times, or 0.

    Returns:
        The first multiple of the interval after the time; the time itself without an
        interval.
    """
    return at if interval_s == 0 else (at // interval_s + 1) * interval_s


def now() -> float:
    """The current time in seconds since 1970 in UTC."""
    return stamps.now().timestamp()


def still_at(public: float, interval_s: int) -> float:
    """The public time at which a wait for one ends: the next one of the clock, if the
    clock was set back meanwhile.

    A wait for the time of the clock before would take as long as the clock was set
    back.
    """
    return min(public, public_time_after(now(), interval_s))


def wait_for_public_time(interval_s: int, *, stopping: threading.Event) -> None:
    """Waits until a public time, or until the process is to stop. A wait that ends too
    early goes on.
    """
    until = public_time_after(now(), interval_s)
    while not stopping.is_set() and now() < until:
        until = still_at(until, interval_s)
        stopping.wait(max(until - now(), 0))


def new_child() -> "subprocess.Popen[bytes]":
    """Starts a process that loads what jobs use.

    Raises:
        CodeNotLoaded: no process can be started.
    """
    # Standard error is the worker's until the child gets its task, and discarded from
    # then on. A child inherits the mask, from its first instruction on: Ctrl-C in a
    # terminal, and a service manager that signals every process of a service, reach the
    # worker alone, which finishes the job or kills the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "app.worker.child", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={**scrubbed_environment(), **LARGE_PAGES},
            close_fds=True,
        )
    except OSError:  # a limit of processes, or of memory
        _log.exception("the process of a job cannot be started")
        raise CodeNotLoaded from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(eq=False)
class Children:
    """The children of one worker process: one that runs a job, and at most one that
    waits for the next.

    Attributes:
        start: starts a child.
        code: digest of the code that the worker loaded; ``None`` if none is compared.
    """

    start: "Callable[[], subprocess.Popen[bytes]]" = new_child
    code: str | None = None
    _waiting: "subprocess.Popen[bytes] | None" = None
    _waits_since: float = 0.0
    _has_loaded: bool = False
    _has_started: bool = False

    def load(self, require_wanted: Callable[[], None]) -> None:
        """Waits until a child has loaded what jobs use. No job is charged before.

        Args:
            require_wanted: called again and again meanwhile; what it raises ends the
                wait.

        Raises:
            CodeChanged: the child loaded other code than this process, or cannot load
                it, or may soon.
            CodeNotLoaded: the child ended, or took longer than
                :data:`limits.CHILD_LOAD_S`. Its log says why.
        """
        if self._waiting is None or self._waiting.poll() is not None:
            self.stop()
            self._begin()
        if not self._has_loaded:
            self._has_loaded = self._answers(require_wanted)
        if not self._has_loaded:
            _log.error(
                "a process ended, was killed or took too long before it had loaded the code of jobs"
            )
        # the digest of the worker is from before it loaded anything
        if self.code not in (None, code_digest()):
            raise CodeChanged
        if not self._has_loaded:
            raise CodeNotLoaded

    def look(self, needs: Needs, require_wanted: Callable[[], None]) -> None:
        """Waits until the child that has loaded could use what a job needs, as the job
        will.

        Raises:
            CannotRun: it could not, and its log says why, or it took too long.
        """
        assert self._waiting is not None
        assert self._waiting.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self._waiting.stdin.write(f"look {needs.to_text()}\n".encode())
                self._waiting.stdin.flush()
            is_usable = self._answers(require_wanted)
        except BaseException:
            self.stop()  # the answer would be taken for that of the next job
            raise
        if not is_usable:
            _log.error(
                "a job waits, uncharged: its process cannot use the folder, the room, the models or the rows"
            )
            raise CannotRun(PutBack.CANNOT_LOAD)

    def _answers(self, require_wanted: Callable[[], None]) -> bool:
        """Whether the child that waits answers with its byte; if not, it is stopped."""
        child = self._waiting
        until = time.monotonic() + limits.CHILD_LOAD_S
        assert child is not None
        assert child.stdout is not None
        with selectors.PollSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not selector.select(_POLL_S):
                require_wanted()
                if time.monotonic() > until:
                    self.stop()
                    return False
        if os.read(child.stdout.fileno(), 1) == LOADED:
            return True
        self.stop()
        return False

    def take(self) -> "subprocess.Popen[bytes]":
        """The child that has loaded, for one job."""
        # Taken out at once: a child that has read rows never gets a further job.
        child, self._waiting = self._waiting, None
        assert child is not None
        self._has_started = True
        return child

    def _begin(self) -> None:
        self._waiting = self.start()
        self._waits_since = time.monotonic()
        self._has_loaded = False

    def prepare(self) -> None:
        """Starts the child of the next job, after a job; a worker that ran no job has
        none.
        """
        if self._has_started and self._waiting is None:
            with contextlib.suppress(CodeNotLoaded):  # the next job finds out
                self._begin()

    def stop_if_idle(self) -> None:
        """Stops a child that waited for too long; the next one is started after the
        next job.
        """
        if self._waiting is not None and time.monotonic() - self._waits_since > WAIT_S:
            self._has_started = False
            self.stop()

    def stop(self) -> None:
        """Stops the child that waits, if there is one."""
        if self._waiting is not None:
            end_child(self._waiting)
            self._waiting = None


def end_child(child: "subprocess.Popen[bytes]") -> None:
    """Kills a child that has not ended, closes its pipes and waits for its end."""
    if child.poll() is None:
        child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    child.wait()


def _reach(
    cluster: DaskCluster, files: tuple[str, ...], require_wanted: Callable[[], None]
) -> None:
    """Waits until a process with the code and the certificate of a job's child has seen
    the workers of a cluster.

    Each worker has to say that it is of this version and can read the files. The
    libraries of a cluster take memory and threads, so they are not loaded here.
    """
    process = _begin_to_look(cluster)
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(files).encode())
        until = time.monotonic() + limits.CLUSTER_LOOK_S
        while process.poll() is None and time.monotonic() < until:
            require_wanted()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
    finally:
        end_child(process)
    if process.returncode != 0:
        _log.error(
            "a job waits, uncharged: the Dask cluster cannot be reached or has no worker, or one cannot read the rows"
        )
        raise CannotRun(PutBack.CANNOT_LOAD, "the Dask cluster cannot be used")


def _begin_to_look(cluster: DaskCluster) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "app.worker.dask_process",
                "look",
                json.dumps({"cluster": cluster.to_json()}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=scrubbed_environment(),
        )
    except OSError:  # a limit of processes, or of memory
        sentence = "this machine starts no further process"
        raise CannotRun(PutBack.CANNOT_LOAD, sentence) from None


CHILDREN = Children()
"""The children of this process, which runs one worker."""


class Supervisor:
    """One job's child process, from its start to its end."""

    def __init__(self, *, interval_s: int, stop: Stop) -> None:
        """Prepares to run one job.

        Args:
            interval_s: public; seconds between two public times, or 0.
            stop: the signals to this process.
        """
        self._stop = stop
        self._told_of_stop = False
        self._trees_done = PREPARING
        self._interval_s = interval_s
        self._shown_trees = 0
        self._next_shown_at = public_time_after(now(), self._interval_s)

    def load(self, lease: Lease, needs: Needs) -> None:
        """Waits until the child of the job has loaded its code, shown as preparing, and
        looks at what the job needs.

        Raises:
            CodeNotLoaded: this machine cannot run jobs now.
            CannotRun: the child cannot use what the job needs; the cluster cannot be
                reached or has no worker, or one cannot read the rows.
            LeaseLost: the job was cancelled, or another worker has it.
            Stopped: this process was asked to stop.
        """

        def require_wanted() -> None:
            if self._stop.begun.is_set():
                raise Stopped
            lease.require()

        def show_preparation() -> None:
            # here, so that a child that has loaded already is no preparation
            lease.trees_done = PREPARING
            require_wanted()

        CHILDREN.load(show_preparation)
        CHILDREN.look(needs, require_wanted)
        if needs.cluster is not None:
            _reach(needs.cluster, needs.files, require_wanted)

    def run(self, task: JobTask, lease: Lease) -> None:
        """Runs the child to its end and waits for the next public time; its output is
        then in the task's folder.

        Args:
            task: of the child.
            lease: the lease of the job, which stores its progress.

        Raises:
            JobFailed: the child did not succeed, or this process was asked to stop now
                and killed the child.
        """
        child = CHILDREN.take()
        try:
            assert child.stdin is not None
            # The pipe stays open: the child ends when it closes, so it dies with this
            # process.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(task.to_text().encode("utf-8") + b"\n")
                child.stdin.flush()
            self._watch(child, lease, n_trees=task.n_trees)
        finally:
            end_child(child)
        damaged: list[str] = []
        if child.returncode != 0:
            damaged = self._damaged_uploads(task, lease)
        # before the end is told to anybody: success and failure show at public times
        self._hold_until_public_time(lease)
        for upload in damaged:
            _log.error(
                "a paid job failed, and a file of its rows is damaged; restore the file from a backup",
                extra={"upload_id": upload},
            )
        if child.returncode != 0:
            raise JobFailed

    def _watch(
        self, child: "subprocess.Popen[bytes]", lease: Lease, *, n_trees: int
    ) -> None:
        assert child.stdout is not None
        started_at = time.monotonic()
        # without a descriptor of its own, which may be missing after the charge
        with selectors.PollSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                self._heed_signals()
                if selector.select(self._pause_s()):
                    bytes_of_trees = os.read(child.stdout.fileno(), 4096)
                    if not bytes_of_trees:
                        break
                    # the first byte leads from ``PREPARING`` to 0
                    n_done = self._trees_done + len(bytes_of_trees)
                    self._trees_done = min(n_done, n_trees)
                self._report(lease)
                if time.monotonic() - started_at > limits.CHILD_TIMEOUT_S:
                    return  # the caller kills the child, whose job fails
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=limits.CHILD_EXIT_S)

    def _heed_signals(self) -> None:
        """Raises ``JobFailed`` if this process is to stop now; says once that it stops
        after this job.
        """
        if self._stop.now.is_set():
            raise JobFailed(EndReason.LOST)
        if self._stop.begun.is_set() and not self._told_of_stop:
            self._told_of_stop = True
            _log.warning(
                "finishing the running job; a second signal (Ctrl-C) stops now and loses what the job spent"
            )

    def _damaged_uploads(self, task: JobTask, lease: Lease) -> list[str]:
        """Looks at a job's files of rows. Progress goes on to show at public times, as
        if the child still ran: how long the look takes depends on the rows.
        """
        outcome = begun(partial(_damaged_files, task), name="files")
        while wait([outcome], timeout=_POLL_S).not_done:
            self._report(lease)
            self._heed_signals()
        return outcome.result()

    def _hold_until_public_time(self, lease: Lease) -> None:
        """Holds the lease until the next public time, so that the end of the child
        shows then, however it ended.

        Raises:
            JobFailed: this process was asked to stop now. Whether the child had ended
                does not show.
        """
        if self._interval_s == 0:
            return
        until = public_time_after(now(), self._interval_s)
        while now() < until:
            self._report(lease)
            self._heed_signals()
            until = still_at(until, self._interval_s)
            self._stop.now.wait(max(min(_POLL_S, until - now()), 0))

    def _pause_s(self) -> float:
        """Seconds until the next look at the child: at a public time, or soon."""
        left_s = self._next_shown_at - now()
        if 0 < left_s < _POLL_S:
            return left_s
        return _POLL_S

    def _trees_to_show(self) -> int:
        """The number of finished trees at the last public time."""
        self._next_shown_at = still_at(self._next_shown_at, self._interval_s)
        if now() >= self._next_shown_at:
            self._shown_trees = self._trees_done
            self._next_shown_at = public_time_after(now(), self._interval_s)
        return self._shown_trees

    def _report(self, lease: Lease) -> None:
        lease.trees_done = self._trees_to_show()
        lease.require()


def _damaged_files(task: JobTask) -> list[str]:
    """The uploads among a job's rows whose files are damaged, which nobody could see
    before the charge of a job with public times: the tags of the files decide, and no
    row is interpreted.
    """
    damaged = []
    files = [(path, part.data_key) for part in task.parts for path in part.row_files]
    for path, key in files:
        try:
            SealedFile.at(path, key).authenticate()
        except SealBroken:
            damaged.append(path.stem)
        except OSError:  # erased meanwhile, or the disk
            continue
    return damaged

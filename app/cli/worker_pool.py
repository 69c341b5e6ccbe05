"""Manages a pool of worker processes: starts them, restarts dead ones, lets them
finish, and ends them at once.

As a program (``python -m app.cli.worker_pool``), the module is a worker that ends with
the process that started it.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.core import processes
from app.core.errors import InstallationError
from app.core.memory import without_collection
from app.core.settings import Settings

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
HEALTHY_AFTER_S = 60.0
WORKER_COMMAND = tuple(processes.module_command("app.cli.worker_pool"))


@dataclass
class _Slot:
    """The place of one worker, with the earliest time of its next start."""

    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    start_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S


class WorkerPool:
    """A fixed number of worker processes.

    Each worker runs in its own session, so that Ctrl-C in a terminal reaches only the
    supervisor, which then ends the workers. The stdin of each worker is a pipe from the
    supervisor: it carries the secrets as one line of JSON, and its end asks the worker
    to finish its job and to end, whether the supervisor closed it or was killed.

    Args:
        environ: the complete environment of the workers.
        secrets: settings by name that are in no environment.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        n_workers: int,
        *,
        environ: Mapping[str, str],
        secrets: Mapping[str, str],
        command: Sequence[str] = WORKER_COMMAND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = [_Slot() for _ in range(n_workers)]
        self._environ = processes.module_environment(environ)
        self._secrets_line = json.dumps(dict(secrets)).encode() + b"\n"
        self._command = list(command)
        self._clock = clock

    def tend(self) -> None:
        """Starts missing workers. A worker that dies early is restarted after a pause
        that doubles each time.
        """
        now = self._clock()
        for slot in self._slots:
            if slot.process is not None and slot.process.poll() is not None:
                self._bury(slot, now)
            if slot.process is None and now >= slot.start_at:
                slot.process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    env=self._environ,
                    start_new_session=True,
                )
                slot.started_at = now
                self._hand_over_secrets(slot.process)

    def drain(self) -> None:
        """Asks every worker to finish its job and to end; :meth:`tend` must not be
        called any more.
        """
        for process in self._processes():
            _close_stdin(process)

    @property
    def lives(self) -> bool:
        """Whether a worker runs."""
        return any(process.poll() is None for process in self._processes())

    def stop(self, *, grace_s: float) -> None:
        """Asks every worker to end now, waits, and kills the rest together with their
        children.
        """
        living = self._processes()
        for process in living:
            # two signals mean now, and two that differ both arrive
            for number in (signal.SIGTERM, signal.SIGINT):
                _signal_group(process, number, whole_group=False)
        deadline = time.monotonic() + grace_s
        for process in living:
            try:
                process.wait(timeout=max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                logger.warning(
                    "a worker did not end in time and was killed",
                    extra={"process_id": process.pid},
                )
            _signal_group(process, signal.SIGKILL, whole_group=True)
            process.wait()
            _close_stdin(process)
        for slot in self._slots:
            slot.process = None

    def _processes(self) -> "list[subprocess.Popen[bytes]]":
        return [slot.process for slot in self._slots if slot.process is not None]

    def _hand_over_secrets(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        # a worker that has ended already is started again
        with suppress(BrokenPipeError):
            process.stdin.write(self._secrets_line)
            process.stdin.flush()

    def _bury(self, slot: _Slot, now: float) -> None:
        assert slot.process is not None, "only a process that was started can have died"
        if now - slot.started_at >= HEALTHY_AFTER_S:
            slot.pause_s = FIRST_PAUSE_S
        logger.warning(
            "a worker ended and will be started again",
            extra={
                "process_id": slot.process.pid,
                "exit_code": slot.process.returncode,
            },
        )
        _signal_group(slot.process, signal.SIGKILL, whole_group=True)
        _close_stdin(slot.process)
        slot.process = None
        slot.start_at = now + slot.pause_s
        slot.pause_s = min(slot.pause_s * 2, MAX_PAUSE_S)


def _signal_group(
    process: "subprocess.Popen[bytes]", number: signal.Signals, *, whole_group: bool
) -> None:
    """Signals a worker's process group, which outlives its leader."""
    # the group is empty; macOS reports that as a refusal
    with suppress(ProcessLookupError, PermissionError):
        if whole_group:
            os.killpg(process.pid, number)
        elif process.poll() is None:
            process.send_signal(number)


def _close_stdin(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()


def main() -> int:
    """Runs a worker of this installation until a signal, or the end of stdin, stops it.

    ``serve`` holds the other end of this process's stdin. The first line has the secret
    settings. When ``serve`` closes its end, or ends, even by ``kill -9``, the worker
    finishes its job and ends. The end of stdin is no signal, so it never counts as the
    second one beside a signal that a service manager sends to every process of the
    service.
    """
    code = processes.code_digest()
    with without_collection():
        from app.worker.main import run

    secrets_line = _first_line()
    threading.Thread(
        target=_follow_supervisor, name="follow-supervisor", daemon=True
    ).start()
    try:
        return run(
            Settings.from_environment(os.environ, **json.loads(secrets_line)), code=code
        )
    except InstallationError as error:
        print(error, file=sys.stderr)
        return 1


def _first_line() -> bytes:
    """The first line of stdin, read without a buffer that would keep what follows.
    Empty JSON if stdin has ended.
    """
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 4096)
        if not part:
            return b"{}"
        line += part
    return line


def _follow_supervisor() -> None:
    """Reads the file descriptor itself, because a thread inside ``sys.stdin`` would
    abort the interpreter's exit.
    """
    is_open = True
    while is_open:
        is_open = os.read(0, 4096) != b""
    os.kill(os.getpid(), signal.SIGHUP)


if __name__ == "__main__":
    sys.exit(main())

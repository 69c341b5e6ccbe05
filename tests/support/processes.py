"""Starts and stops processes that never outlive their test."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

_STOP_TIMEOUT_S = 120
_READY_TIMEOUT_S = 300
"""Much longer than needed, because processors are shared and kernels may have to be
compiled first.
"""


@contextmanager
def running(
    command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], log: Path
) -> Iterator["subprocess.Popen[str]"]:
    """Runs a command in a new process group, which is killed at the end; standard error
    goes to ``log``.
    """
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _kill_group(process)


def stop(process: "subprocess.Popen[str]") -> int:
    """Sends SIGTERM and returns the exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=_STOP_TIMEOUT_S)


def wait_until_ok(url: str, *, process: "subprocess.Popen[str]") -> None:
    """Waits until an address answers with status 200.

    Raises:
        TimeoutError: the answer did not come in time, or the process ended.
    """
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.1)
    raise TimeoutError(f"{url} did not answer; exit code {process.poll()}")


def fetched(url: str, key: str | None = None) -> httpx.Response:
    """The answer of a process, for which a busy machine may take its time."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.get(url, headers=headers, timeout=_READY_TIMEOUT_S, trust_env=False)


def _kill_group(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()

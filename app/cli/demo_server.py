"""Runs the demo's server as a process: starts it, waits until it is ready, and ends it with its child processes."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.cli import own_process
from app.cli.command import ADMIN_KEY_FILE
from app.core.errors import InstallationError
from app.core.settings import PREFIX, Settings

_READY = "Grovekeeper is ready at "
_TELL_AFTER_S = 2.0
"""A server without a running job has ended after this time."""
_NOT_OURS = ("DATABASE_URL", "DATABASE_URL_FILE", "MIGRATION_URL", "MIGRATION_URL_FILE", "HOST")


@dataclass(frozen=True)
class DemoServer:
    """A running service.

    Attributes:
        url: its address.
        key: its admin key.
        key_file: the file of the key; ``None`` if the operator set the key.
        process: the server's process.
    """

    url: str
    key: str
    key_file: Path | None
    process: "subprocess.Popen[str]"


@contextmanager
def running(home: Path, settings: Settings, *, port: int | None) -> Iterator[DemoServer]:
    """Runs ``grovekeeper serve`` on a home as another process, which is ended on exit.

    The demo always uses loopback and the embedded database of its home, whatever the environment says.

    Raises:
        InstallationError: the server did not start, or its admin key is unknown.
    """
    environ = {name: value for name, value in os.environ.items() if name not in {PREFIX + it for it in _NOT_OURS}}
    chosen = str(_free_or_zero(settings.port) if port is None else port)
    options = ("--home", str(home), "--host", "127.0.0.1", "--port", chosen)
    log = home / "demo.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            own_process.command("app.cli", "serve", *options),
            stdout=subprocess.PIPE,
            stderr=errors,
            env=own_process.environment(environ),
            text=True,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends the server
        )
    try:
        url = _ready_url(process, log)
        key_file = None if settings.admin_key else home / ADMIN_KEY_FILE
        yield DemoServer(url, settings.admin_key or _key(key_file), key_file, process)
    finally:
        _stop(process)


def _ready_url(process: "subprocess.Popen[str]", log: Path) -> str:
    assert process.stdout is not None, "stdout is a pipe"
    for line in process.stdout:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    raise InstallationError(f"the server did not start: {lines[-1] if lines else 'it said nothing'}")


def _key(file: Path | None) -> str:
    if file is None or not file.is_file():
        raise InstallationError(
            "this home holds an installation whose admin key is not here; set GROVEKEEPER_ADMIN_KEY"
        )
    return file.read_text(encoding="utf-8").strip()


def _stop(process: "subprocess.Popen[str]") -> None:
    """Ends the server, which finishes its running job; a signal that arrives from here on stops it now."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.send_signal(signal.SIGINT))
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=_TELL_AFTER_S)
    except subprocess.TimeoutExpired:
        print("finishing the running job; press Ctrl-C again to stop now", file=sys.stderr, flush=True)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _free_or_zero(port: int) -> int:
    """The default port if it is free, else 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port

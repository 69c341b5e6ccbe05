"""``serve`` and ``demo`` as processes of their own: readiness, the first API key,
signals, and a clean exit.
"""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil
import pytest

from app.cli import demo
from app.core import processes
from app.db import revisions
from grovekeeper_client.client import Client
from tests.support.checked_exports import verdict
from tests.support.forked_program import ForkedProgram
from tests.support.forked_program import start as fork
from tests.support.ports import free_port
from tests.support.processes import fetched
from tests.support.raw_requests import wait_until_read
from tests.support.waiting import PATIENCE_S, wait_for

READY = "Grovekeeper is ready at "
Start = Callable[..., ForkedProgram]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user's environment, with a home folder that does not exist yet."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GROVEKEEPER_")
    }
    return processes.module_environment(
        clean | {"GROVEKEEPER_HOME": str(tmp_path / "home")}
    )


@pytest.fixture
def start(environ: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts ``grovekeeper …``; processes that still run after the test are killed."""
    started: list[ForkedProgram] = []

    def run(*arguments: str, **variables: str) -> ForkedProgram:
        process = fork(
            "app.cli.main",
            *arguments,
            folder=tmp_path,
            environ=environ | variables,
            log=tmp_path / "log",
            piped=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.end()


def _ready_url(process: ForkedProgram) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(READY), line
    assert line.endswith("\n")
    return line.removeprefix(READY).strip()


def _descendants(process: ForkedProgram, *, at_least: int) -> list[psutil.Process]:
    def descendants() -> list[psutil.Process] | None:
        below = psutil.Process(process.pid).children(recursive=True)
        return below if len(below) >= at_least else None

    return wait_for(f"the service has {at_least} processes", descendants)


def _wait_until_gone(processes: list[psutil.Process]) -> None:
    wait_for(
        "all processes of the service end",
        lambda: all(
            not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            for process in processes
        ),
    )


_ON_A_SMALL_DISK = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=32m small "$1" && shift && exec "$@"',
    "sh",
)
"""Runs a command for which a folder, the first argument, is a disk of 32 MiB; other
processes see no change.
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(
        [*_ON_A_SMALL_DISK, tempfile.gettempdir(), "true"], capture_output=True
    ).returncode
    != 0,
    reason="this system lets nobody mount a disk",
)
@pytest.mark.parametrize("command", ["serve", "api"])
def test_on_a_small_disk_the_service_takes_no_request_and_says_why(
    environ: dict[str, str], tmp_path: Path, command: str
) -> None:
    home = Path(environ["GROVEKEEPER_HOME"])
    home.mkdir()
    program = [sys.executable, "-m", "app.cli", command, "--port", "0"]
    done = subprocess.run(
        [*_ON_A_SMALL_DISK, str(home), *program],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (1, ""), "it never said that it answers"
    assert re.search(
        rf"\b(3[01]|2\d) MiB are free on the disk of {re.escape(str(home))}, .* needs 64 MiB",
        done.stderr,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_is_ready_when_it_reports_ready_and_stops_on_a_signal(
    start: Start, tmp_path: Path, number: int
) -> None:
    process = start("serve", "--port", "0", "--workers", "2")
    url = _ready_url(process)
    assert fetched(f"{url}/readyz").status_code == 200
    file = tmp_path / "home" / "admin.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert fetched(f"{url}/ledger", file.read_text().strip()).json() == {
        "datasets": [],
        "next": None,
    }
    workers = _descendants(process, at_least=2)
    process.send_signal(number)
    assert process.wait() == 0
    _wait_until_gone(workers)
    assert process.stdout is not None
    assert process.stdout.read() == "", "after the ready line nothing stands on stdout"
    assert file.read_text().strip() not in (tmp_path / "log").read_text(), (
        "a log is no place for a key"
    )


def test_a_service_without_datasets_maps_no_compiler_and_no_library_for_files_of_rows(
    environ: dict[str, str],
) -> None:
    """Neither a periodic task nor the search for jobs loads what only requests and jobs
    need.
    """
    command = processes.module_command(
        "app.cli", "serve", "--port", "0", "--workers", "1"
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environ, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(READY)
            [worker] = psutil.Process(process.pid).children()
            # its first search has opened the database
            wait_for(
                "the worker opens the database",
                lambda: _maps(worker, "grovekeeper.sqlite3-shm"),
            )
            for running in (psutil.Process(process.pid), worker):
                assert _maps(running, "cryptography")
                assert not any(
                    _maps(running, library)
                    for library in ("llvmlite", "pyarrow", "flint")
                )
        finally:
            process.terminate()


def _maps(process: psutil.Process, library: str) -> bool:
    return any(f"/{library}" in mapped.path for mapped in process.memory_maps())


def test_serve_keeps_its_key_over_a_restart(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "home" / "admin.key"
    keys = []
    for _ in range(2):
        process = start("serve", "--port", "0", "--workers", "0")
        url = _ready_url(process)
        keys.append(file.read_text())
        assert fetched(f"{url}/keys", keys[0].strip()).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert keys[0] == keys[1]


def test_workers_do_not_outlive_a_killed_supervisor(start: Start) -> None:
    process = start("serve", "--port", "0")
    _ready_url(process)
    workers = _descendants(process, at_least=1)
    process.kill()
    _wait_until_gone(workers)


def test_a_killed_worker_is_replaced(start: Start) -> None:
    process = start("serve", "--port", "0")
    url = _ready_url(process)
    (worker,) = _descendants(process, at_least=1)
    worker.kill()
    wait_for(
        "another worker starts",
        lambda: any(
            child.pid != worker.pid for child in psutil.Process(process.pid).children()
        ),
    )
    assert fetched(f"{url}/readyz").status_code == 200


def test_a_generated_key_is_refused_on_the_network(
    start: Start, tmp_path: Path
) -> None:
    refused = start("serve", "--port", "0", "--host", "0.0.0.0")
    assert refused.wait() == 1
    assert "GROVEKEEPER_ADMIN_KEY" in (tmp_path / "log").read_text()
    assert not (tmp_path / "home" / "admin.key").exists()
    key = "key_chosen." + "c" * 43
    process = start(
        "serve",
        "--port",
        "0",
        "--host",
        "0.0.0.0",
        "--workers",
        "0",
        GROVEKEEPER_ADMIN_KEY=key,
    )
    url = _ready_url(process).replace("0.0.0.0", "127.0.0.1")
    assert fetched(f"{url}/keys", key).status_code == 200
    assert not (tmp_path / "home" / "admin.key").exists()


def test_a_key_generated_on_loopback_is_refused_on_the_network_later(
    start: Start, tmp_path: Path
) -> None:
    process = start("serve", "--port", "0", "--workers", "0")
    _ready_url(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    assert start("serve", "--port", "0", "--host", "0.0.0.0").wait() == 1


def test_a_restore_from_an_older_backup_refuses_to_start(
    start: Start, tmp_path: Path
) -> None:
    home = tmp_path / "home"

    def served(name: str) -> None:
        process = start("serve", "--port", "0", "--workers", "0")
        url = _ready_url(process)
        with Client(url, (home / "admin.key").read_text().strip()) as client:
            client.declare_dataset(
                {
                    "name": name,
                    "schema": {
                        "features": [
                            {"name": "age", "type": "integer", "lower": 0, "upper": 120}
                        ],
                        "label": {"name": "y", "classes": ["a", "b"]},
                    },
                    "budget": {"accountant": "pure", "epsilon": "1"},
                }
            )
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0

    served("first")
    assert stat.S_IMODE((home / "signing.key").stat().st_mode) == 0o600
    assert len(list((home / "checkpoints").glob("*.checkpoint"))) == 2
    database = home / "grovekeeper.sqlite3"
    with (
        sqlite3.connect(database) as copied,
        sqlite3.connect(tmp_path / "backup") as backup,
    ):
        copied.backup(backup)
    served("second")
    assert len(list((home / "checkpoints").glob("*.checkpoint"))) == 3, (
        "a stop in good order writes every head"
    )
    for file in home.glob("grovekeeper.sqlite3*"):
        file.unlink()
    (tmp_path / "backup").rename(database)
    for command in (["serve", "--port", "0"], ["api", "--port", "0"], ["worker"]):
        assert start(*command).wait() == 1, command
    log = (tmp_path / "log").read_text()
    assert (
        log.count("the database was restored from an older backup, or was changed") == 3
    )
    for head in (home / "checkpoints").iterdir():
        head.rename(tmp_path / head.name)  # the operator's deliberate act
    (home / "signing.key").unlink()
    assert start("serve", "--port", "0").wait() == 1
    assert "signing.key is missing" in (tmp_path / "log").read_text()
    assert start("db", "new-signer").wait() == 0
    served("third")


def test_a_request_that_never_ends_does_not_hold_the_service(
    start: Start, tmp_path: Path
) -> None:
    process = start("serve", "--port", "0", "--workers", "0")
    port = int(_ready_url(process).rsplit(":", 1)[1])
    key = (tmp_path / "home" / "admin.key").read_text().strip()
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(
            f"POST /datasets HTTP/1.1\r\nHost: grove.test\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
        )
        wait_until_read(slow)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_a_port_that_is_taken_ends_with_1(start: Start, tmp_path: Path) -> None:
    process = start("serve", "--port", "0", "--workers", "0")
    port = _ready_url(process).rsplit(":", 1)[1]
    assert (
        start("serve", "--port", port, GROVEKEEPER_HOME=str(tmp_path / "other")).wait()
        == 1
    )
    assert f"port {port}" in (tmp_path / "log").read_text()
    assert not (tmp_path / "other" / "admin.key").exists(), (
        "nothing is made for a server that cannot listen"
    )


@pytest.mark.parametrize(
    "broken", ["home is a file", "database is garbage", "database is away"]
)
def test_an_installation_error_is_printed_as_one_sentence(
    start: Start, tmp_path: Path, broken: str
) -> None:
    variables = {}
    if broken == "home is a file":
        (tmp_path / "home").write_text("")
    elif broken == "database is garbage":
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "grovekeeper.sqlite3").write_text("garbage" * 1_000)
    else:
        variables = {
            "GROVEKEEPER_DATABASE_URL": "postgresql://grove:password@127.0.0.1:1/grove"
        }
    for command in (["serve", "--port", "0"], ["db", "upgrade"]):
        assert start(*command, **variables).wait() == 1
    log = (tmp_path / "log").read_text()
    assert log.count("not done: ") == 2
    assert "Traceback" not in log
    assert "password" not in log


def test_the_api_alone_is_unready_until_the_upgrade(
    start: Start, tmp_path: Path
) -> None:
    assert start("db", "status", "--json").wait() == 1
    assert start("keys", "create-admin").wait() == 1, "there is no table of keys yet"
    port = free_port()
    process = start("api", "--port", str(port))
    assert _readiness(port) == 503
    key = "key_chosen." + "c" * 43
    assert start("db", "upgrade", GROVEKEEPER_ADMIN_KEY=key).wait() == 0
    assert start("db", "status").wait() == 0
    assert _readiness(port) == 200
    facts = f"(version {version('grovekeeper')}, revision {revisions.head_revision()}, home {tmp_path / 'home'})\n"
    assert process.stdout is not None
    assert (
        process.stdout.readline()
        == f"The API answers at http://127.0.0.1:{port} {facts}"
    )
    worker = start("worker")
    assert worker.stdout is not None
    assert worker.stdout.readline() == f"The worker is ready {facts}"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert worker.stdout.read() == ""
    started = start("keys", "create-admin", "--json")
    assert started.stdout is not None
    for admin in (key, json.loads(started.stdout.read())["key"]):
        assert fetched(f"http://127.0.0.1:{port}/keys", admin).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def _readiness(port: int) -> int:
    def status() -> int | None:
        try:
            return fetched(f"http://127.0.0.1:{port}/readyz").status_code
        except httpx.ConnectError:
            return None

    return wait_for("the API listens", status)


@pytest.mark.long
def test_the_demo_runs_to_its_end_and_leaves_nothing(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    process = start(
        "demo",
        "--exit",
        "--json",
        "--port",
        "0",
        GROVEKEEPER_HOME="",
        TMPDIR=str(tmp_path / "temporary"),
    )
    assert process.stdout is not None
    reported = json.loads(process.stdout.read())
    assert process.wait() == 0
    assert reported["price"]["amount"] == "1"
    assert reported["ledger"]["charged"] == "1.0104"
    assert (reported["refusal"]["type"], reported["refusal"]["largest_that_fits"]) == (
        "budget-exceeded",
        "1.9896",
    )
    assert reported["verified"] is True
    assert reported["held_out"]["rows"] == 3_256
    assert (
        reported["held_out"]["accuracy"] > reported["held_out"]["majority_class"] + 0.03
    )
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_demo_serves_until_it_is_interrupted_and_leaves_nothing(
    start: Start, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = start("demo", "--port", "0", GROVEKEEPER_HOME="", TMPDIR=str(temporary))
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Open the dashboard" in line:
            break
    url = (
        next(line for line in lines if line.startswith(READY))
        .removeprefix(READY)
        .strip()
    )
    home = Path(
        next(line for line in lines if line.startswith("Home: "))
        .removeprefix("Home: ")
        .strip()
    )
    assert home.is_relative_to(temporary)
    key = (home / "admin.key").read_text().strip()
    with httpx.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=PATIENCE_S,
        trust_env=False,
    ) as http:
        answer = http.get("/ledger/adult").json()
        exported = http.get("/ledger/adult/export").content
    assert (answer["cap"], answer["charged"]) == ("3", "1.0104")
    judged = verdict(exported.splitlines())
    assert judged == (None, 1_010_400_000), "as the proofs admit"
    text = " ".join("".join(lines).split())
    assert "Price 1 ε, no more and no less" in text
    assert re.search(r"refused \(\d+ budget-exceeded\)", text)
    assert "each count is within ± 288 rows" in text
    assert "largest ε that fits: 1.9896" in text
    accuracy, baseline = map(
        float, re.findall(r"(?:were never uploaded|the larger class): (\d+\.\d)%", text)
    )
    assert "Accuracy on the 3,256 rows" in text
    assert accuracy > baseline + 3
    assert any(
        f"dashboard at {url} and sign in with the key in" in line for line in lines
    )
    assert any(line.startswith("Now your own data") for line in lines)
    below = _descendants(process, at_least=2)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    _wait_until_gone(below)
    assert list(temporary.iterdir()) == []


@contextmanager
def _running_job(
    process: ForkedProgram, folder: Path, *, n_trees: int
) -> Iterator[tuple[Client, str]]:
    """A client of a service whose worker runs a job, of which nothing but the charge is
    certainly over.
    """
    url = _ready_url(process)
    with Client(url, (folder / "home" / "admin.key").read_text().strip()) as client:
        dataset = demo.load_dataset(folder / "rows.csv.gz")
        client.declare_dataset(
            {
                "name": "adult",
                "schema": dataset.schema,
                "budget": {"accountant": "pure", "epsilon": "9"},
            }
        )
        client.upload_rows("adult", folder / "rows.csv.gz")
        slow = {
            "algorithm": "mrf",
            "epsilon": "4",
            "parameters": {"n_estimators": n_trees, "max_depth": 12},
        }
        job_id = client.train({"dataset": "adult", **slow})["job_id"]
        wait_for("the job is charged", lambda: client.job(job_id)["charged"])
        yield client, job_id


@contextmanager
def _held(process: ForkedProgram) -> Iterator[None]:
    """Holds the running job, so that it is running however fast it is or however busy
    the machine.
    """
    [worker] = psutil.Process(process.pid).children()
    [child] = worker.children()
    child.suspend()
    try:
        yield
    finally:
        child.resume()


@pytest.mark.parametrize(
    ("number", "everyone"), [(signal.SIGTERM, True), (signal.SIGINT, False)]
)
def test_one_signal_lets_the_running_job_end_while_the_api_answers(
    start: Start, tmp_path: Path, number: signal.Signals, everyone: bool
) -> None:
    """A terminal, or a service manager, may send the signal to every process of the
    service.
    """
    process = start("serve", "--port", "0")
    with (
        _running_job(process, tmp_path, n_trees=12) as (client, job_id),
        _held(process),
    ):
        below = _descendants(process, at_least=2)
        process.send_signal(number)
        for other in below if everyone else []:
            other.send_signal(number)
        _wait_until_one_job_is_left(tmp_path / "log")
        assert client.job(job_id)["state"] == "running"
    assert process.wait() == 0
    _wait_until_gone(below)
    assert _ends(tmp_path) == [("succeeded", None)]


def test_a_second_signal_ends_the_child_within_seconds_and_its_charge_stays(
    start: Start, tmp_path: Path
) -> None:
    process = start("serve", "--port", "0")
    with _running_job(process, tmp_path, n_trees=1_000):
        below = _descendants(process, at_least=2)
        process.send_signal(signal.SIGINT)
        # two signals that wait are one
        _wait_until_one_job_is_left(tmp_path / "log")
        process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    _wait_until_gone(below)
    assert _ends(tmp_path) == [("failed", "lost")]


def _wait_until_one_job_is_left(log: Path) -> None:
    wait_for(
        "the worker says that it finishes its job",
        lambda: "finishing the running job" in log.read_text(),
    )


def _ends(folder: Path) -> list[tuple[str, str | None]]:
    """State and reason of every job in the database of an installation."""
    with sqlite3.connect(folder / "home" / "grovekeeper.sqlite3") as database:
        return database.execute("SELECT state, reason FROM jobs").fetchall()

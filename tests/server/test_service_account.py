"""The service under an account that may write to its home alone, like system users of
Debian and of OpenShift.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import app
from app.core import processes
from grovekeeper_client.client import Client
from tests.support.ports import free_port
from tests.support.processes import fetched, running, stop, wait_until_ok
from tests.support.server import csv_rows, declaration

_GIVE_UP_S = 600  # for a busy machine
ROWS = {"rows": [{"age": 41, "height": 1.7, "sex": "Male"}]}

# Root may write everywhere. Without these capabilities, the permissions of files count
# for root, too.
_AS_OTHERS = (
    ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    if os.geteuid() == 0
    else []
)
pytestmark = pytest.mark.skipif(
    bool(_AS_OTHERS) and shutil.which("setpriv") is None,
    reason="root may write everywhere, and setpriv is not installed",
)


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of an account whose home folder cannot be made, and whose program
    is read-only.
    """
    program, closed = tmp_path / "program", tmp_path / "closed"
    repository = Path(app.__file__).parents[1]
    # what Numba compiled: this account compiles it again
    without_loops = shutil.ignore_patterns("*.nbc", "*.nbi")
    for name in ("app", "clients", "packages", "migrations"):
        shutil.copytree(repository / name, program / name, ignore=without_loops)
    closed.mkdir()
    folders = [closed, *(Path(folder) for folder, _, _ in os.walk(program))]
    for folder in folders:
        folder.chmod(0o555)
    (tmp_path / "temporary").mkdir()
    yield {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(
            map(
                str,
                (
                    program,
                    program / "packages" / "forests",
                    program / "clients" / "python",
                ),
            )
        ),
        "PYTHONSAFEPATH": "1",
        "HOME": str(closed / "nonexistent"),
        "TMPDIR": str(tmp_path / "temporary"),
        "GROVEKEEPER_HOME": str(tmp_path / "home"),
    }
    for folder in folders:
        folder.chmod(0o755)


@contextmanager
def served(environ: dict[str, str], folder: Path) -> Iterator[tuple[Client, str]]:
    """A client with the admin key of a running service with one worker, and the
    address.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *_AS_OTHERS,
        sys.executable,
        "-m",
        "app.cli",
        "serve",
        "--port",
        str(port),
    ]
    with running(command, cwd=folder, environ=environ, log=folder / "log") as process:
        wait_until_ok(f"{url}/readyz", process=process)
        with Client(url, (folder / "home" / "admin.key").read_text().strip()) as client:
            yield client, url
        stop(process)


def submitted(client: Client, folder: Path) -> tuple[str, str]:
    """A dataset with rows, and a job on it."""
    name = client.declare_dataset(declaration())["name"]
    (folder / "rows.csv").write_text(csv_rows(200))
    client.upload_rows(name, folder / "rows.csv")
    return name, client.train(
        {"dataset": name, "algorithm": "rdt-ta", "epsilon": "0.1"}
    )["job_id"]


def test_an_account_without_a_home_trains_and_predicts(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with served(environ, tmp_path) as (client, _):
        _, job_id = submitted(client, tmp_path)
        job = client.wait_for_job(job_id)
        assert job["state"] == "succeeded"
        assert client.predict(job["model_id"], ROWS)["labels"]
    assert "ERROR" not in (tmp_path / "log").read_text()
    assert list((tmp_path / "temporary").iterdir()) == [], (
        "the compiled code is gone with the service"
    )


def test_a_machine_that_cannot_load_the_code_of_jobs_charges_none(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """The operator named a folder that cannot be written; the API, which serves no
    predictions, stays ready.
    """
    environ["NUMBA_CACHE_DIR"] = str(tmp_path / "closed")
    with served(environ, tmp_path) as (client, url):
        name, job_id = submitted(client, tmp_path)
        _until_logged(
            tmp_path / "log", "this worker cannot load the code of jobs and takes none"
        )
        assert client.job(job_id)["state"] == "queued"
        balance = client.balance(name)
        assert (balance["charged"], balance["reserved"]) == ("0", "0.1")
        assert fetched(f"{url}/readyz").status_code == 200
    assert "the code of jobs cannot be loaded" in (tmp_path / "log").read_text(), (
        "the child says where it failed"
    )


@pytest.mark.covering("command", "folder")
@pytest.mark.parametrize("command", ["serve", "api", "worker"])
@pytest.mark.parametrize(
    "folder",
    ["", "artifacts", "artifacts/0f", "rows", "rows/ds_a", "jobs", "checkpoints"],
)
def test_a_folder_that_cannot_be_written_is_named_before_any_request_or_job(
    environ: dict[str, str], tmp_path: Path, command: str, folder: str
) -> None:
    closed = tmp_path / "home" / folder
    closed.mkdir(parents=True)
    closed.chmod(0o500)
    done = subprocess.run(
        [*_AS_OTHERS, sys.executable, "-m", "app.cli", command, *_PORT[command]],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_GIVE_UP_S,
    )
    closed.chmod(0o700)
    assert (done.returncode, done.stdout) == (1, ""), "it never said that it answers"
    assert f"{closed} cannot be written by this account: Permission denied" in (
        done.stderr
    )
    [line] = [json.loads(it) for it in done.stderr.splitlines() if it.startswith("{")]
    assert (line["folder"], line["error"]["code"]) == (str(closed), "EACCES")
    assert "Traceback" not in done.stderr


_PORT = {"serve": ["--port", "0"], "api": ["--port", "0"], "worker": []}


def test_a_folder_that_is_closed_later_costs_nothing_until_it_is_open_again(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["GROVEKEEPER_LEASE_TTL_S"] = "5"
    # of a disk that is mounted there, and the system's
    (tmp_path / "home" / "rows" / "lost+found").mkdir(0o500, parents=True)
    with served(environ, tmp_path) as (client, url):
        name, first = submitted(client, tmp_path)
        assert client.wait_for_job(first)["state"] == "succeeded"
        charged = client.balance(name)["charged"]
        closed = tmp_path / "home" / "artifacts"
        for inner in closed.iterdir():
            inner.chmod(0o500)
        answer = fetched(f"{url}/readyz")
        assert answer.json()["type"] == "not-writable", (
            "a digest decides where files go"
        )
        closed.chmod(0o500)
        answer = fetched(f"{url}/readyz")
        assert (answer.status_code, answer.json()["type"]) == (503, "not-writable")
        assert int(answer.headers["Retry-After"]) > 1
        assert str(tmp_path) not in answer.text, "nobody needs a key to read this"
        job_id = client.train(
            {"dataset": name, "algorithm": "rdt-ta", "epsilon": "0.1"}
        )["job_id"]
        _until_logged(tmp_path / "log", "a job waits, uncharged")
        job = client.job(job_id)
        assert (job["state"], job["held_by"]) == ("queued", "no-room")
        assert client.balance(name)["charged"] == charged
        lines = map(json.loads, (tmp_path / "log").read_text().splitlines())
        for line in lines:
            if "cannot be written" in line["message"]:
                assert line["error"]["code"] == "EACCES"
                assert line["folder"].startswith(str(closed))
        for folder in (closed, *closed.iterdir()):
            folder.chmod(0o700)
        assert fetched(f"{url}/readyz").status_code == 200
        assert client.wait_for_job(job_id)["state"] == "succeeded"


def _until_logged(log: Path, text: str) -> None:
    deadline = time.monotonic() + _GIVE_UP_S
    while text not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_account_without_an_entry_and_a_home_needs_a_named_home(
    tmp_path: Path,
) -> None:
    program = "import pwd; pwd.getpwuid = {}.__getitem__; from app.cli.main import main; main()"
    environ = processes.module_environment({"PATH": os.environ["PATH"]})
    named = environ | {"GROVEKEEPER_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", program, "db", "upgrade"]
    done = subprocess.run(
        command, cwd=tmp_path, env=named, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    refused = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert refused.returncode != 0
    assert "GROVEKEEPER_HOME" in refused.stderr
    assert "Traceback" not in refused.stderr

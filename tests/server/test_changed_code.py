"""A program whose files are replaced while its service runs, as ``git pull`` and ``pip
install --upgrade`` do.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

import app
from grovekeeper_client.client import Client
from tests.support.ports import free_port
from tests.support.processes import running, stop, wait_until_ok
from tests.support.server import csv_rows, declaration

LATER = """

_to_text, _from_text = JobTask.to_text, JobTask.from_text


def _of_later(text: str) -> str:
    value = json.loads(text)
    del value["later"]
    return json.dumps(value)


JobTask.to_text = lambda self: json.dumps({**json.loads(_to_text(self)), "later": 1})
JobTask.from_text = staticmethod(lambda text: _from_text(_of_later(text)))
"""
"""What a later version does: a task has one member more, which its child requires."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A copy of the program, with the code that was compiled for it, whose times are
    those of the files.
    """
    repository, copy = Path(app.__file__).parents[1], tmp_path / "program"
    for name in ("app", "clients", "packages", "migrations"):
        shutil.copytree(repository / name, copy / name)
    return copy


def test_code_that_is_replaced_under_a_running_service_costs_no_job(
    program: Path, tmp_path: Path
) -> None:
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "app.cli",
        "serve",
        "--port",
        url.rpartition(":")[2],
    ]
    with running(
        command, cwd=tmp_path, environ=_environ(program, tmp_path), log=log
    ) as process:
        wait_until_ok(f"{url}/readyz", process=process)
        with Client(
            url, (tmp_path / "home" / "admin.key").read_text().strip()
        ) as client:
            name = client.declare_dataset(declaration())["name"]
            (tmp_path / "rows.csv").write_text(csv_rows(200))
            client.upload_rows(name, tmp_path / "rows.csv")
            states = [_trained(client, name)]
            with (program / "app" / "services" / "jobs" / "task.py").open("a") as task:
                task.write(LATER)
            states += [_trained(client, name) for _ in range(3)]
            balance = client.balance(name)
        assert stop(process) == 0
    assert states == ["succeeded"] * 4, "the worker of the later version takes over"
    assert (balance["charged"], balance["reserved"]) == ("0.4", "0")
    assert (
        log.read_text().count("the files of this program or its libraries changed") == 1
    )


def _environ(program: Path, folder: Path) -> dict[str, str]:
    folders = (
        program,
        program / "packages" / "forests",
        program / "clients" / "python",
    )
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONSAFEPATH": "1",
        "GROVEKEEPER_HOME": str(folder / "home"),
    }


def _trained(client: Client, name: str) -> str:
    job = client.train({"dataset": name, "algorithm": "rdt-ta", "epsilon": "0.1"})
    return str(client.wait_for_job(job["job_id"])["state"])

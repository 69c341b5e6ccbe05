"""Serves, trains, predicts and revokes without what only Linux has: the README promises
macOS, too.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.core import processes
from grovekeeper_client.client import Client
from grovekeeper_client.errors import ApiProblem
from tests.support.ports import free_port
from tests.support.processes import fetched, running, stop, wait_until_ok
from tests.support.server import csv_rows, declaration

_ON_LINUX_ALONE = {
    "time": ["CLOCK_BOOTTIME"],
    "os": [
        "sched_getaffinity", "sched_setaffinity", "O_TMPFILE", "O_DIRECT", "O_NOATIME", "O_PATH", "memfd_create",
        "pipe2", "posix_fallocate", "posix_fadvise", "pidfd_open", "eventfd", "copy_file_range", "splice", "getrandom",
        "fdatasync",
    ],
    "fcntl": ["F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_OFD_SETLK"],
    "select": ["epoll"],
    "signal": ["SIGRTMIN", "SIGSTKFLT", "SIGPWR", "sigtimedwait", "sigwaitinfo"],
    "socket": ["SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_USER_TIMEOUT", "SO_PEERCRED"],
    "resource": ["prlimit"],
}  # fmt: skip
_PROGRAM = f"""
import importlib
for module, names in {_ON_LINUX_ALONE!r}.items():
    for name in names:
        vars(importlib.import_module(module)).pop(name, None)
from app.cli.main import main
main()
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of an API, beside a worker."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GROVEKEEPER_")
    }
    environ = processes.module_environment(
        clean | {"GROVEKEEPER_HOME": str(tmp_path / "home")}
    )
    port = free_port()
    with ExitStack() as stack:
        for arguments in (
            ("serve", "--workers", "0", "--port", str(port)),
            ("worker",),
        ):
            command = [sys.executable, "-c", _PROGRAM, *arguments]
            process = stack.enter_context(
                running(
                    command, cwd=tmp_path, environ=environ, log=tmp_path / arguments[0]
                )
            )
            wait_until_ok(f"http://127.0.0.1:{port}/readyz", process=process)
            stack.callback(lambda process=process: stop(process))
        yield f"http://127.0.0.1:{port}"


def test_everything_is_served_without_what_only_linux_has(
    url: str, tmp_path: Path
) -> None:
    with Client(url, (tmp_path / "home" / "admin.key").read_text().strip()) as admin:
        name = admin.declare_dataset(declaration())["name"]
        (tmp_path / "rows.csv").write_text(csv_rows(200))
        admin.upload_rows(name, tmp_path / "rows.csv")
        job = admin.wait_for_job(
            admin.train({"dataset": name, "algorithm": "rdt-ta", "epsilon": "0.1"})[
                "job_id"
            ]
        )
        assert job["state"] == "succeeded"
        rows = {"rows": [{"age": 41, "height": 1.7, "sex": "Male"}]}
        made = admin.create_key("analyst", ["admin"])
        with Client(url, made["key"]) as caller:
            for _ in range(20):
                assert caller.predict(job["model_id"], rows)["labels"]
            admin.revoke_key(made["id"])
            with pytest.raises(ApiProblem) as refused:
                caller.predict(job["model_id"], rows)
        assert refused.value.status == 401
    assert fetched(f"{url}/readyz").status_code == 200

"""Measures the start of the service and its memory at rest, as ratios to a bare FastAPI
application.

Run ``python -m benchmarks.startup``. The reference has as many routes as the API and
the dashboard, none of which does anything, and is served by uvicorn. Both sides start
alternately, each in a process of its own, until ``/readyz`` answers; the service starts
on a home that was prepared before and has no dataset, with one worker. Printed are
medians of processor times until then, and of resident memory some seconds later, with
its part that is no file: processes share the pages of files. ``--help`` is compared
with an interpreter that imports typer. Linux only.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

_PAIRS = 3
_SETTLED_AFTER_S = 4.0
_BARE = """
import socket, sys, uvicorn
from fastapi import FastAPI
bare = FastAPI()
for index in range(int(sys.argv[1])):
    bare.get(f"/route{index}")(lambda: None)
bare.get("/readyz")(lambda: None)
with socket.create_server(("127.0.0.1", 0)) as listener:
    print('{"ready": "http://127.0.0.1:%d"}' % listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(bare, log_config=None)).run([listener])
"""
_N_ROUTES = """
from app.api import main
from app.api.pages.routers import PAGES
documented = main._application().openapi()["paths"].values()
print(sum(map(len, documented)) + sum(len(pages.routes) for pages in PAGES))
"""


class Footprint(NamedTuple):
    """Processor time of one process until the service was ready, and its resident
    memory at rest, all and no file.
    """

    cpu_s: float
    memory_bytes: int
    anonymous_bytes: int

    def over(self, bare: "Footprint") -> str:
        """This process as multiples of another one."""
        return (
            f"{self.cpu_s:.2f} s of CPU, {self.cpu_s / bare.cpu_s:.2f} of bare; "
            f"{self.memory_bytes / 1e6:.0f} MB, {self.memory_bytes / bare.memory_bytes:.2f} of bare, "
            f"{self.anonymous_bytes / 1e6:.0f} MB no file"
        )


def main() -> None:
    """Prints the medians and their ratios."""
    n_routes = _output([sys.executable, "-c", _N_ROUTES]).strip()
    with tempfile.TemporaryDirectory() as home:
        serve = [
            sys.executable,
            "-m",
            "app.cli",
            "serve",
            "--json",
            "--port",
            "0",
            "--workers",
            "1",
            "--home",
            home,
        ]
        bare = [sys.executable, "-c", _BARE, n_routes]
        _started(serve)  # makes the home
        runs = [(_started(bare), _started(serve)) for _ in range(_PAIRS)]
    reference = _median([run[0][0] for run in runs])
    print(
        f"bare FastAPI, {n_routes} routes: {reference.cpu_s:.2f} s of CPU, {reference.memory_bytes / 1e6:.0f} MB"
    )
    for name, index in (("API", 0), ("worker", 1)):
        print(f"{name}: {_median([run[1][index] for run in runs]).over(reference)}")
    shown = (
        _cpu_s([sys.executable, "-m", "app.cli", "--help"]),
        _cpu_s([sys.executable, "-c", "import typer"]),
    )
    print(
        f"--help: {shown[0]:.2f} s of CPU, {shown[0] / shown[1]:.2f} of importing typer"
    )


def _started(command: Sequence[str]) -> list[Footprint]:
    """Starts a server, and measures its process and those that it started, then ends
    it.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["ready"]
            if httpx.get(f"{url}/readyz", timeout=60).is_success:
                started_s = _of_process(process.pid).cpu_s
            time.sleep(_SETTLED_AFTER_S)
            server = _of_process(process.pid)._replace(cpu_s=started_s)
            return [server, *(_of_process(child) for child in _children(process.pid))]
        finally:
            process.terminate()


def _of_process(pid: int) -> Footprint:
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = [int(pages) for pages in Path(f"/proc/{pid}/statm").read_text().split()]
    resident, of_files = (n * os.sysconf("SC_PAGE_SIZE") for n in pages[1:3])
    cpu_s = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    return Footprint(cpu_s, resident, resident - of_files)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _cpu_s(command: Sequence[str]) -> float:
    return statistics.median(
        _cpu_of_child(lambda: _output(command)) for _ in range(_PAIRS)
    )


def _cpu_of_child(run: Callable[[], object]) -> float:
    before = os.times()
    run()
    after = os.times()
    return (
        after.children_user
        + after.children_system
        - before.children_user
        - before.children_system
    )


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _median(footprints: Sequence[Footprint]) -> Footprint:
    cpu_s, memory_bytes, anonymous_bytes = (
        statistics.median(measured) for measured in zip(*footprints, strict=True)
    )
    return Footprint(cpu_s, int(memory_bytes), int(anonymous_bytes))


if __name__ == "__main__":
    main()

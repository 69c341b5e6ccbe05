"""Starts a Dask scheduler and workers as the command line does, on this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.core.dask_cluster import DaskCluster
from app.core.settings import Settings
from tests.support.ports import free_port
from tests.support.tls_proxy import make_certificates

ROOT = Path(__file__).parents[2]
START_S = 120.0


class Cluster:
    """A scheduler and its workers.

    Attributes:
        settings: environment variables of the cluster's settings.
    """

    def __init__(self, settings: dict[str, str], log: Path) -> None:
        self.settings, self._log, self._stack = settings, log, ExitStack()
        self._log.unlink(missing_ok=True)
        self.scheduler = self._start("scheduler")
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> DaskCluster:
        """As a job's child gets it."""
        cluster = Settings.from_environment(self.settings).dask_cluster
        assert cluster is not None
        return cluster

    def add_worker(self) -> None:
        """Starts one worker."""
        self.workers.append(
            self._start("worker", "--memory-limit", "1GiB", "--host", "127.0.0.1")
        )

    def log(self) -> str:
        """What all processes have logged."""
        return self._log.read_text(encoding="utf-8")

    def stop(self) -> None:
        """Stops every process."""
        self._stack.close()

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        n_ready = self.log().count("is ready") if self._log.exists() else 0
        folders = ":".join(
            map(
                str,
                (
                    ROOT,
                    ROOT / "clients/python",
                    ROOT / "packages/forests",
                    ROOT / "packages/verifier",
                ),
            )
        )
        environment = {**os.environ, "PYTHONPATH": folders, **self.settings}
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "dask", *words],
            stdin=subprocess.DEVNULL,
            stderr=self._stack.enter_context(self._log.open("ab")),
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd="/",
        )
        self._stack.callback(_end, process)
        waits_until = time.monotonic() + START_S
        while self.log().count("is ready") == n_ready:
            assert process.poll() is None, self.log()
            assert time.monotonic() < waits_until, self.log()
            time.sleep(0.05)
        return process


@contextmanager
def dask_cluster(folder: Path, *, n_workers: int, **settings: str) -> Iterator[Cluster]:
    """A cluster on loopback, with TLS if the settings name certificates."""
    scheme = "tls" if "GROVEKEEPER_DASK_CA_FILE" in settings else "tcp"
    address = {"GROVEKEEPER_DASK_SCHEDULER": f"{scheme}://127.0.0.1:{free_port()}"}
    cluster = Cluster({**address, **settings}, folder / "dask.log")
    try:
        for _ in range(n_workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.stop()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def certificates(folder: Path) -> dict[str, str]:
    """The settings of a process with a certificate of a new authority."""
    files = make_certificates(folder)
    return {
        "GROVEKEEPER_DASK_CA_FILE": str(files.authority),
        "GROVEKEEPER_DASK_CERT_FILE": str(files.server),
        "GROVEKEEPER_DASK_KEY_FILE": str(files.server),
    }

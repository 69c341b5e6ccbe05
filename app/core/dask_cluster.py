"""Defines the address of a Dask cluster and the rules of its connections: mutual TLS
beyond this machine.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urlsplit

from grovekeeper_common.json_types import JsonObject

TLS, TCP = "tls", "tcp"

CONFIG = {
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.comm.tls.min-version": 1.3,
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.9,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
}
"""Configuration of every process that speaks Dask: no spilling, no pages, no profiles,
no moving of tasks to workers that do not have the rows.
"""

_FILES = ("ca_file", "cert_file", "key_file")


@dataclass(frozen=True)
class DaskCluster:
    """A Dask scheduler, and the files of this process's certificate.

    Attributes:
        scheduler: ``tls://host:port``, or ``tcp://`` at a loopback address.
        ca_file: certificates of the authority that signs every certificate of the
            cluster, and no other; PEM.
        cert_file: certificate of this process, PEM.
        key_file: its private key, PEM.
        deadline_s: seconds in which all machines answer a question, or read their rows.

    Raises:
        ValueError: the address is not one of a scheduler, or needs the files of a
            certificate, or has no use for them.
    """

    scheduler: str
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    deadline_s: int

    def __post_init__(self) -> None:
        address = _split(self.scheduler)
        files = {self.ca_file is None, self.cert_file is None, self.key_file is None}
        if files != {address.scheme == TCP}:
            raise ValueError(
                "an address with TLS needs three files, and an address without TLS none"
            )
        if address.scheme == TCP and not is_loopback(address.hostname or ""):
            raise ValueError("beyond this machine, a scheduler needs TLS")

    def to_json(self) -> JsonObject:
        """For the child of a job."""
        values = dict(vars(self))
        for name in _FILES:
            values[name] = values[name] and str(values[name])
        return values

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Inverse of :meth:`to_json`."""
        values = dict(value)
        for name in _FILES:
            values[name] = values[name] and Path(values[name])
        return cls(**values)


def _split(scheduler: str) -> SplitResult:
    """The parts of an address, which is shown in lists of processes and has nothing but
    a host and a port.
    """
    wrong = ValueError("not the address of a scheduler")
    try:
        address = urlsplit(scheduler)
        is_place = (
            address.scheme in (TLS, TCP)
            and address.hostname
            and address.port is not None
        )
    except ValueError:  # its message shows a part of the address
        raise wrong from None
    # a password of the address would show, too
    has_more = (
        "@" in scheduler or address.path.strip("/") or address.query or address.fragment
    )
    if not is_place or has_more:
        raise wrong
    return address


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

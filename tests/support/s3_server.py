"""Runs a server that speaks S3, from a lock of its own: it weighs more than all other
test tools of this kind.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.support.environments import environment
from tests.support.ports import free_port

_GIVE_UP_S = 300

BUCKET = "bucket"
"""The bucket that the server has."""


@contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """Installs and runs the server; yields its port on loopback."""
    python = environment("objectstore", folder / "venv")
    port = free_port()
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [python.with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            _make_bucket(f"http://127.0.0.1:{port}/{BUCKET}")
            yield port
        finally:
            server.kill()


def credentials(port: int) -> dict[str, str]:
    """The provider's variables for a server at a port of this machine."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


def _make_bucket(url: str) -> None:
    deadline = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.put(url, trust_env=False).status_code == 200:
                return
        time.sleep(0.1)
    raise TimeoutError

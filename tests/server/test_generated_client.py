"""A client that is generated from the OpenAPI document trains and predicts, and is
generated alike each time.

The generator needs another version of a library than the service, so it is installed
from a lock of its own, into an environment of its own.
"""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.environments import environment, version_in
from tests.support.server import Server

_ROOT = Path(__file__).parents[2]
_OMITTED = {"POST /datasets/{dataset}/rows", "POST /datasets/{dataset}/rows/check"}
"""Operations of which the generator makes no function: their bodies are tables."""


def _generated(python: Path, folder: Path) -> str:
    """Generates a client and returns what the generator printed."""
    generate = (
        "generate",
        "--path",
        _ROOT / "openapi" / "openapi.json",
        "--meta",
        "none",
    )
    program = python.with_name("openapi-python-client")
    done = subprocess.run(
        [program, *generate, "--output-path", folder / "grovekeeper_generated"],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    return done.stdout + done.stderr


def _digest(folder: Path) -> str:
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 100
    return hashlib.sha256(
        b"".join(str(it.relative_to(folder)).encode() + it.read_bytes() for it in files)
    ).hexdigest()


@pytest.mark.long
def test_a_generated_client_trains_and_predicts(
    server: Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    python = environment("generator", tmp_path / "venv")
    record_property("version", version_in(python, "openapi-python-client"))
    printed = _generated(python, tmp_path / "first")
    omitted = {
        line
        for line in printed.splitlines()
        if "Endpoint will not be generated" in line
    }
    assert len(omitted) == len(_OMITTED), omitted
    assert all(any(f"{name} " in line for line in omitted) for name in _OMITTED)
    _generated(python, tmp_path / "second")
    assert _digest(tmp_path / "first") == _digest(tmp_path / "second")
    walk = subprocess.run(
        [python, _ROOT / "docs" / "examples" / "generated_client.py", server.url, server.admin.key],
        env={"PYTHONPATH": str(tmp_path / "first")}, capture_output=True, text=True,
    )  # fmt: skip
    assert (walk.stdout, walk.returncode) == ("succeeded 2\n", 0), walk.stderr

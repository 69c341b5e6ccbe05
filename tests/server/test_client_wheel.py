"""The client is a distribution of its own: its wheel works in an environment that does
not have the service.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.wheels import environment_with

_CLIENT = Path(__file__).parents[2] / "clients" / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    ]
    subprocess.run(command, cwd=_CLIENT, capture_output=True, check=True)
    (path,) = folder.glob("grovekeeper_client-*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(wheel, tmp_path_factory.mktemp("environment")) / "python"


def _run(python: Path, program: str) -> "subprocess.CompletedProcess[str]":
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GROVEKEEPER_", "PYTHON"))
    }
    return subprocess.run(
        [python, "-c", program],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_holds_the_packages_and_their_types_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    listed = subprocess.run(
        ["git", "ls-files", "grovekeeper_client", "grovekeeper_common"],
        cwd=_CLIENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {name for name in names if ".dist-info/" not in name} == set(
        listed.stdout.split()
    )
    assert "grovekeeper_client/py.typed" in names
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_it_runs_without_the_service(python: Path) -> None:
    program = """
import importlib.util
import pkgutil
import sys

import grovekeeper_client

assert importlib.util.find_spec("app") is None
for name in grovekeeper_client.__all__:
    if name != "LeakWarning" and not name.startswith("PrivateForest"):
        getattr(grovekeeper_client, name)
assert not {"numpy", "pandas", "pyarrow", "sklearn"} & sys.modules.keys()
for module in pkgutil.iter_modules(grovekeeper_client.__path__):
    importlib.import_module(f"grovekeeper_client.{module.name}")
print(grovekeeper_client.__file__)
grovekeeper_client.Grovekeeper("http://127.0.0.1:9", "key_test." + "s" * 43).close()
"""
    completed = _run(python, program)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith(str(python.parents[1]))

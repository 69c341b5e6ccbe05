"""The forests are a distribution of their own: a wheel and a source distribution that
price and read without the service.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.wheels import environment_with

_FORESTS = Path(__file__).parents[2] / "packages" / "forests"
_MODULE = "grovekeeper_forests"

PROGRAM = """
import importlib.util
from grovekeeper_forests.account import InProcessAccount
from grovekeeper_forests.estimators import RandomPrivateForest

schema = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 120}],
    "label": {"name": "ill", "classes": ["no", "yes"]},
}
account = InProcessAccount("2.5")
forest = RandomPrivateForest(2, schema=schema, parameters={"n_estimators": 2, "max_depth": 1}, account=account)
forest.fit([[20], [80]] * 20, ["no", "yes"] * 20)
print(importlib.util.find_spec("app"), account.spent, account.remaining, sorted(forest.classes_.tolist()))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=_FORESTS, capture_output=True, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob(f"{_MODULE}-*.whl")
    return path


def _tracked() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", _MODULE],
        cwd=_FORESTS,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(listed.stdout.split())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == _tracked()
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_an_installed_forest_is_trained_without_the_service(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = environment_with(wheel, tmp_path_factory.mktemp("environment"))
    # the loops as Python: compiling them takes a minute
    environ = {"PATH": os.defpath, "NUMBA_DISABLE_JIT": "1"}
    answer = subprocess.run(
        [programs / "python", "-c", PROGRAM],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    # where NumPy warns of numbers that wrap, as they do when compiled
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "None 2 0.5 ['no', 'yes']\n"


def test_the_source_distribution_holds_the_package(built: Path) -> None:
    (path,) = built.glob(f"{_MODULE}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert _tracked() | {"LICENSE", "README.md", "pyproject.toml"} <= names

"""The forests are a distribution of their own: a wheel and a source distribution that price and read without the
service."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

_FORESTS = Path(__file__).parents[2] / "packages" / "forests"
_MODULE = "grovekeeper_forests"


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
    listed = subprocess.run(["git", "ls-files", _MODULE], cwd=_FORESTS, capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == _tracked()
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_source_distribution_holds_the_package(built: Path) -> None:
    (path,) = built.glob(f"{_MODULE}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert _tracked() | {"LICENSE", "README.md", "pyproject.toml"} <= names

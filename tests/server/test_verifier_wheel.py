"""The verifier is a distribution of its own: wheel, source distribution and one file
work without the service.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.export_writers import Writer
from tests.support.wheels import environment_with

_VERIFIER = Path(__file__).parents[2] / "packages" / "verifier"
_MODULE = "grovekeeper_verifier"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=_VERIFIER, capture_output=True, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("grovekeeper_verifier-*.whl")
    return path


@pytest.fixture
def export_file(tmp_path: Path) -> Path:
    file = tmp_path / "export.jsonl"
    file.write_bytes(
        b"".join(
            Writer(shards=2)
            .job("a", "1")
            .job("b", "0.7", None, scope={"shard": [1]})
            .lines()
        )
    )
    return file


def _tracked() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", _MODULE],
        cwd=_VERIFIER,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(listed.stdout.split())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == _tracked()
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_source_distribution_holds_the_package(built: Path) -> None:
    (path,) = built.glob("grovekeeper_verifier-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert _tracked() | {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_an_installed_command_verifies_without_the_service(
    wheel: Path, export_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = environment_with(wheel, tmp_path_factory.mktemp("environment"))
    command = [
        programs / "python",
        "-c",
        "import importlib.util as u; print(u.find_spec('app'))",
    ]
    environ = {"PATH": os.defpath}
    alone = subprocess.run(
        command, cwd="/", env=environ, capture_output=True, text=True, check=True
    )
    assert alone.stdout == "None\n"
    _require_verified([programs / "grovekeeper-verifier"], export_file)


def test_one_file_verifies_with_an_interpreter_alone(
    export_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "grovekeeper-verifier.pyz"
    options = ["--output", str(file), "--main", f"{_MODULE}.main:console"]
    subprocess.run(
        [sys.executable, "-m", "zipapp", str(_VERIFIER), *options], check=True
    )
    _require_verified([sys.executable, "-I", "-S", file], export_file)


def _require_verified(command: list[str | Path], export_file: Path) -> None:
    environ = {"PATH": os.defpath}
    done = subprocess.run(
        [*command, export_file],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("CONSISTENT")
    header, first, _, *others = export_file.read_bytes().splitlines(keepends=True)
    cut = export_file.with_name("cut.jsonl")
    cut.write_bytes(b"".join([header, first, *others]))
    done = subprocess.run(
        [*command, cut],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "NOT VERIFIED" in done.stdout

"""The wheel is complete: installed into an empty environment, it serves and verifies
from any folder.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.processes import running, stop
from tests.support.wheels import environment_with

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built as the Dockerfile builds it, from the files of the image's build
    alone.
    """
    context = tmp_path_factory.mktemp("context")
    for line in (_ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            _copy(_ROOT / line[1:], context / line[1:])
    (arguments,) = re.findall(
        r"/opt/build/bin/hatchling (build [^\\]+)",
        (_ROOT / "Dockerfile").read_text(encoding="utf-8"),
    )
    command = [
        sys.executable,
        "-m",
        "hatchling",
        *arguments.replace("/build/", f"{context}/").split(),
    ]
    built = subprocess.run(
        command, cwd=context, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    (path,) = (context / "dist").glob("*.whl")
    return path


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that contains the wheel."""
    return environment_with(wheel, tmp_path_factory.mktemp("environment"))


def test_it_holds_the_package_its_types_and_its_migrations_and_nothing_else(
    wheel: Path,
) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "grovekeeper_client/py.typed",
        "app/py.typed",
        "app/_migrations/env.py",
        "app/_migrations/versions/0100_first.py",
    } <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "app",
        "grovekeeper_client",
        "grovekeeper_common",
        "grovekeeper_forests",
        "grovekeeper_verifier",
    }
    assert not [name for name in names if name.endswith(".pyc")]


def test_it_carries_the_licence_and_the_notice_for_shipped_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [
            name for name in archive.namelist() if name.endswith(".dist-info/METADATA")
        ]
        licences = metadata.replace("METADATA", "licenses/")
        for name in ("LICENSE", "NOTICE"):
            assert archive.read(f"{licences}{name}") == (_ROOT / name).read_bytes()
        declared = archive.read(metadata).decode().splitlines()
    assert {
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "License-File: NOTICE",
    } <= set(declared)


def test_the_source_distribution_carries_them_too(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--directory",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=_ROOT, capture_output=True, check=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "NOTICE",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "README.md",
    } <= names
    assert {
        "app/cli/demo_data/SOURCE.md",
        "clients/python/pyproject.toml",
        "packages/verifier/pyproject.toml",
    } <= names


def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    """The wheel also contains files that are not Python: the demo's data, the pages,
    the typing marker.
    """
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, package in (
        (_ROOT, "app"),
        (_ROOT / "clients" / "python", "grovekeeper_client"),
        (_ROOT / "clients" / "python", "grovekeeper_common"),
        (_ROOT / "packages" / "forests", "grovekeeper_forests"),
        (_ROOT / "packages" / "verifier", "grovekeeper_verifier"),
    ):
        listed = subprocess.run(
            ["git", "ls-files", package],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        tracked = set(listed.stdout.split())
        assert tracked
        assert tracked <= names


def test_it_serves_and_stops_from_the_root_folder(
    installed: Path, tmp_path: Path
) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GROVEKEEPER_WORKERS": "1",
    }
    command = [str(installed / "grovekeeper"), "serve", "--port", "0"]
    with running(
        command, cwd=Path("/"), environ=environ, log=tmp_path / "log"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(
            "Grovekeeper is ready at http://127.0.0.1:"
        )
        assert stop(process) == 0, (tmp_path / "log").read_text(encoding="utf-8")
        assert process.stdout.read() == ""
    assert (tmp_path / ".grovekeeper" / "grovekeeper.sqlite3").is_file()


def test_it_verifies_from_the_root_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "export.jsonl").write_text("not an export\n", encoding="utf-8")
    completed = subprocess.run(
        [installed / "grovekeeper", "verify", tmp_path / "export.jsonl"],
        cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode in (1, 2)
    assert "Traceback" not in completed.stderr


def test_it_is_the_installed_package_that_runs(installed: Path) -> None:
    program = """
import app
import app.db.revisions
import grovekeeper_client

print(app.__file__, grovekeeper_client.__file__, app.db.revisions.head_revision())
"""
    completed = subprocess.run(
        [installed / "python", "-c", program],
        cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = completed.stdout.split()[:2]
    assert [path for path in paths if not path.startswith(str(installed.parent))] == []

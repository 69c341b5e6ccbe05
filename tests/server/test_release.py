"""A release is made by one command, and anybody who repeats it gets the same bytes."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.environments import environment
from tests.support.wheels import environment_with

pytestmark = pytest.mark.long

_ROOT = Path(__file__).parents[2]
_NAMES = (
    "grovekeeper",
    "grovekeeper_client",
    "grovekeeper_forests",
    "grovekeeper_verifier",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the tools of a release, as ``run.py release`` installs it."""
    folder = tmp_path_factory.mktemp("tools")
    python = environment("build", folder)
    install = ("-m", "pip", "install", "--quiet", "--require-hashes", "--requirement")
    subprocess.run(
        [python, *install, _ROOT / "requirements" / "release.lock"], check=True
    )
    return python


@pytest.fixture(scope="module")
def commit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit of all files that git tracks here, as they are."""
    folder = tmp_path_factory.mktemp("repository") / "grovekeeper"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, check=True
    ).stdout.split(b"\0")
    for name in filter(None, names):
        source = _ROOT / os.fsdecode(name)
        target = folder / os.fsdecode(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def release(
    python: Path, commit: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("releases") / "first"
    done = _release(python, commit, folder)
    assert done.returncode == 0, done.stderr
    return folder


def _release(
    python: Path, checkout: Path, folder: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, checkout / "deploy" / "release.py", folder],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_checkout_at_another_time_writes_the_same_bytes(
    release: Path, python: Path, commit: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "a longer folder" / "checkout"
    before = os.umask(0o077)
    try:
        subprocess.run(["git", "clone", "-q", commit, checkout], check=True)
        settings = ["config", "core.autocrlf", "true"]
        subprocess.run(["git", *settings], cwd=checkout, check=True)
        _hide(checkout, "app/hidden_notes.py", "packages/verifier/hidden.txt")
        done = _release(python, checkout, tmp_path / "second", TZ="Asia/Tokyo")
    finally:
        os.umask(before)

    assert done.returncode == 0, done.stderr
    assert _contents(tmp_path / "second") == _contents(release)


def _hide(checkout: Path, *names: str) -> None:
    """Adds files that the checkout's own settings hide from git."""
    with (checkout / ".git" / "info" / "exclude").open("a", encoding="utf-8") as file:
        file.write("hidden*\n")
    for name in names:
        (checkout / name).write_text("x = 1\n", encoding="utf-8")


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_release_has_every_file_and_its_sum(release: Path) -> None:
    text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = tomllib.loads(text)["project"]["version"]
    distributions = [f"{name}-{version}" for name in _NAMES]

    assert {path.name for path in release.iterdir()} == {
        *(f"{name}-py3-none-any.whl" for name in distributions),
        *(f"{name}.tar.gz" for name in distributions),
        "NOTES.md",
        "SHA256SUMS",
        "grovekeeper-verify.pyz",
        "grovekeeper.service",
        "openapi.json",
        "runtime.lock",
        "sbom.cdx.json",
    }
    subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"],
        cwd=release,
        check=True,
    )
    summed = (release / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    assert len(summed) == len(list(release.iterdir())) - 1
    notes = (release / "NOTES.md").read_text(encoding="utf-8")
    assert notes.startswith(f"# Grovekeeper {version}\n")
    assert "### Upgrading" in notes
    linked = re.findall(r"\]\(([\w./-]+)", notes)
    with tarfile.open(release / f"grovekeeper-{version}.tar.gz") as sources:
        contained = sources.getnames()
    assert linked, "the notes of a version link to its guides"
    assert {f"grovekeeper-{version}/{name}" for name in linked} <= set(contained)
    unit = (release / "grovekeeper.service").read_text(encoding="utf-8")
    assert "/docs/" not in unit, "a release has no such folder"


def test_the_bill_of_materials_lists_every_pin_of_the_lock(release: Path) -> None:
    bill = json.loads((release / "sbom.cdx.json").read_bytes())
    pins = {
        line.split(" ")[0]
        for line in (release / "runtime.lock").read_text(encoding="ascii").splitlines()
        if "==" in line
    }

    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "grovekeeper"
    listed = {f"{it['name']}=={it['version']}" for it in bill["components"]}
    assert listed == pins
    assert all(it["externalReferences"][0]["hashes"] for it in bill["components"]), (
        "a component without a hash"
    )


def test_the_verifier_is_one_file_that_any_python_runs(release: Path) -> None:
    file = release / "grovekeeper-verify.pyz"
    example = _ROOT / "tests" / "golden" / "pure-row.ds_aaaaaaaaaaaaaaaa.export"
    done = subprocess.run(
        [sys.executable, "-I", "-S", file, example],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("CONSISTENT")
    assert os.access(file, os.X_OK)


def test_the_wheel_of_the_service_runs_alone(release: Path, tmp_path: Path) -> None:
    (wheel,) = release.glob("grovekeeper-*.whl")
    assert "app/_migrations/env.py" in zipfile.ZipFile(wheel).namelist()
    programs = environment_with(wheel, tmp_path / "environment")
    done = subprocess.run(
        [programs / "grovekeeper", "openapi"],
        cwd="/",
        env={"PATH": os.defpath, "HOME": str(tmp_path)},
        capture_output=True,
        check=True,
    )

    assert done.stdout == (release / "openapi.json").read_bytes()


def _committed(commit: Path, checkout: Path, *edit: str) -> None:
    """A clone with one more commit, which replaces a text in a file."""
    name, old, new = edit
    subprocess.run(["git", "clone", "-q", commit, checkout], check=True)
    text = (checkout / name).read_text(encoding="utf-8")
    assert old in text
    (checkout / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *author, "commit", "-qam", "x"], cwd=checkout, check=True)


def test_the_notes_are_found_by_the_version_before_a_date(
    release: Path, python: Path, commit: Path, tmp_path: Path
) -> None:
    (sdist,) = release.glob("grovekeeper-*.tar.gz")
    version = sdist.name.removesuffix(".tar.gz").removeprefix("grovekeeper-")
    edit = ("CHANGELOG.md", f"## {version}\n", f"## {version} (2026-12-01)\n")
    _committed(commit, tmp_path / "checkout", *edit)
    done = _release(python, tmp_path / "checkout", tmp_path / "release")

    assert done.returncode == 0, done.stderr
    notes = (tmp_path / "release" / "NOTES.md").read_bytes()
    assert notes == (release / "NOTES.md").read_bytes()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("CITATION.cff", "\nversion: ", "\nversion: 9."), "CITATION.cff differ"),
        (("CHANGELOG.md", "\n## ", "\n## 9"), "CHANGELOG.md has no section"),
    ],
)
def test_what_differs_is_refused_before_anything_is_built(
    edit: tuple[str, str, str], said: str, commit: Path, tmp_path: Path
) -> None:
    _committed(commit, tmp_path / "checkout", *edit)
    done = _release(Path(sys.executable), tmp_path / "checkout", tmp_path / "release")

    assert done.returncode == 1
    assert said in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout"]


@pytest.mark.parametrize("reason", ["absent", "older"])
def test_a_release_without_its_installation_is_refused(
    reason: str, commit: Path, tmp_path: Path
) -> None:
    """Later versions could not test that they upgrade it."""
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", commit, checkout], check=True)
    if reason == "absent":
        for file in (checkout / "tests/support/installations").glob("*.*.*.tar.xz"):
            file.unlink()
    else:
        (checkout / "migrations/versions/9999_later.py").write_text("x = 1\n")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["add", "-A"], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    done = _release(Path(sys.executable), checkout, tmp_path / "release")

    assert done.returncode == 1
    assert "python -m tests.support.snapshot" in done.stderr
    assert not (tmp_path / "release").exists()


@pytest.mark.parametrize("change", ["edited", "added"])
def test_files_of_no_commit_are_refused(
    change: str, python: Path, commit: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", commit, checkout], check=True)
    name = {"edited": "README.md", "added": "app/new.py"}[change]
    (checkout / name).write_text("x", encoding="utf-8")
    done = _release(python, checkout, tmp_path / "release")

    assert done.returncode == 1
    assert name in done.stderr
    assert not (tmp_path / "release").exists()


def test_a_folder_that_exists_is_left_alone(
    release: Path, python: Path, commit: Path
) -> None:
    before = _contents(release)
    done = _release(python, commit, release)

    assert done.returncode == 1
    assert "nothing was written" in done.stderr
    assert _contents(release) == before

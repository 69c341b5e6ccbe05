"""Makes the files of a release from a commit: ``python3 run.py release [folder]``.

The folder (``dist/grovekeeper-VERSION`` by default) gets the wheels and source
distributions of the four distributions, the verifier as one file, the lock of the
service, the OpenAPI document, a bill of materials (CycloneDX), the unit of systemd, the
notes of the version, and the checksums of all of them.

Two runs at one commit write the same bytes, in any folder and at any time: everything is
made from an export of the commit, and all times are the time of the commit. A checkout
may have more files, which its own settings hide from git. Anybody can repeat a release
and compare ``SHA256SUMS``.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERIFIER = "packages/verifier"
DISTRIBUTIONS = (".", "clients/python", "packages/forests", VERIFIER)
COPIED = (
    "requirements/runtime.lock",
    "openapi/openapi.json",
    "deploy/systemd/grovekeeper.service",
)
"""Files that a release has as they are."""
_AS_COMMITTED = ("-c", "core.autocrlf=false", "-c", f"core.attributesFile={os.devnull}")
"""Settings of an account change no file of an export."""
SUMS = "SHA256SUMS"
START_OF_VERIFIER = "from grovekeeper_verifier.main import console\n\nconsole()\n"


@dataclass(frozen=True)
class Export:
    """The files of a commit, apart from the checkout.

    Attributes:
        root: the folder that has them.
        commit_time: in seconds since 1970.
    """

    root: Path
    commit_time: int

    def text(self, name: str) -> str:
        """The text of a file."""
        return (self.root / name).read_text(encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Write a release, or say why it cannot be written."""
    parser = argparse.ArgumentParser(prog="python3 run.py release")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="a new folder (default: dist/grovekeeper-VERSION)",
    )
    chosen = parser.parse_args(arguments).folder
    _require_no_changes()
    with tempfile.TemporaryDirectory(prefix="grovekeeper-release-") as temporary:
        _release(_export(Path(temporary)), chosen)


def _release(export: Export, chosen: Path | None) -> None:
    version = _version(export)
    folder = (chosen or ROOT / "dist" / f"grovekeeper-{version}").absolute()
    if folder.exists():
        sys.exit(f"{folder} exists; nothing was written. Move it away first.")
    _require_installation(export, version)
    notes = _notes(export, version)
    # A release is written beside its folder, so that no half of one has its name.
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (unfinished / "NOTES.md").write_text(notes, encoding="utf-8")
    _write(unfinished, export)
    unfinished.rename(folder)
    print((folder / SUMS).read_text(encoding="ascii"), end="")
    print(f"Wrote version {version} into {folder}.")


def _version(export: Export) -> str:
    """The version of all four distributions and of the citation."""
    versions: set[str] = {
        tomllib.loads(export.text(f"{place}/pyproject.toml"))["project"]["version"]
        for place in DISTRIBUTIONS
    }
    cited = re.findall(r"^version: *(\S+)", export.text("CITATION.cff"), re.MULTILINE)
    versions.update(cited)
    if len(versions) > 1:
        differing = ", ".join(sorted(versions))
        sys.exit(f"The distributions and CITATION.cff differ in version: {differing}.")
    return versions.pop()


def _require_installation(export: Export, version: str) -> None:
    """Tests of later versions upgrade the installation that a release stores."""
    name = f"tests/support/installations/{version}.tar.xz"
    revisions = (export.root / "migrations" / "versions").glob("*.py")
    newest = max(file.stem.partition("_")[0] for file in revisions)
    stored = None
    if (export.root / name).is_file():
        with tarfile.open(export.root / name) as archive:
            answers = archive.extractfile("answers.json")
            assert answers is not None
            stored = json.load(answers)["revision"]
    if stored != newest:
        sys.exit(
            f"{name} has no installation at revision {newest}. "
            "Store one with python -m tests.support.snapshot, and commit it first."
        )


def _require_no_changes() -> None:
    """Whoever releases means the files of the checkout, and gets those of the commit."""
    changes = _git("status", "--porcelain")
    if changes:
        sys.exit(f"These files differ from the commit; commit them first:\n{changes}")


def _export(folder: Path) -> Export:
    """Write the files of the commit into a folder."""
    commit = _git("rev-parse", "HEAD")
    archive = folder / "commit.tar"
    _git(*_AS_COMMITTED, "archive", "--format=tar", f"--output={archive}", commit)
    root = folder / "grovekeeper"
    with tarfile.open(archive) as files:
        files.extractall(root, filter="data")
    return Export(root, int(_git("log", "-1", "--format=%ct", commit)))


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"A release needs a checkout with git: {done.stderr.strip()}")
    return done.stdout.strip()


def _write(folder: Path, export: Export) -> None:
    for place in DISTRIBUTIONS:
        _build(export.root / place, folder, export.commit_time)
    _write_verifier(folder / "grovekeeper-verify.pyz", export)
    for name in COPIED:
        shutil.copyfile(export.root / name, folder / Path(name).name)
    _write_bill_of_materials(folder / "sbom.cdx.json", export)
    _write_sums(folder)


def _build(place: Path, folder: Path, commit_time: int) -> None:
    """Build the wheel and the source distribution of one distribution."""
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    _run(build, place, SOURCE_DATE_EPOCH=str(commit_time))


def _write_verifier(path: Path, export: Export) -> None:
    """Write the verifier as one file that any Python runs.

    The standard library's ``zipapp`` would state when each file was checked out.
    """
    place = export.root / VERIFIER
    package = place / "grovekeeper_verifier"
    sources = {
        str(source.relative_to(place)): source.read_text(encoding="utf-8")
        for source in sorted(package.rglob("*.py"))
    }
    sources["__main__.py"] = START_OF_VERIFIER
    commit_date = time.gmtime(export.commit_time)[:6]
    with path.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in sources.items():
                archive.writestr(_member(name, commit_date), text)
    path.chmod(0o755)


def _member(name: str, commit_date: tuple[int, ...]) -> zipfile.ZipInfo:
    year, month, day, hour, minute, second = commit_date
    member = zipfile.ZipInfo(name, (year, month, day, hour, minute, second))
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o100644 << 16
    return member


def _write_bill_of_materials(path: Path, export: Export) -> None:
    """List what the lock of the service installs, with the hashes of the lock."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--output-reproducible", "--pyproject", "pyproject.toml"]
    files = ["--output-file", str(path), "requirements/runtime.lock"]
    _run([str(program), "requirements", *options, *files], export.root)


def _run(command: list[str], place: Path, **environment: str) -> None:
    """Run a tool whose output matters only if it fails."""
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _notes(export: Export, version: str) -> str:
    """The section of a version in the changelog; a date may follow the version."""
    heading = rf"^## {re.escape(version)}(?:[ \t].*)?$"
    found = re.search(heading, export.text("CHANGELOG.md"), re.MULTILINE)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section '## {version}'.")
    section, _, _ = found.string[found.end() :].partition("\n## ")
    where = f"Links lead to files of `grovekeeper-{version}.tar.gz`."
    return f"# Grovekeeper {version}\n\n{where}\n\n{section.strip()}\n"


def _write_sums(folder: Path) -> None:
    """Write the checksums in the form that ``sha256sum --check`` reads."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / SUMS).write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Makes the files of a release from a commit: ``python3 run.py release [folder]``.

The folder (``dist/grovekeeper-VERSION`` by default) gets the wheels and source
distributions of the four distributions, the verifier as one file, the lock of the
service, the OpenAPI document, a bill of materials (CycloneDX), the notes of the version,
and the checksums of all of them.

Two runs at one commit write the same bytes, in any folder and at any time: only files of
the commit are read, and all times are the time of the commit. Anybody can repeat a
release and compare ``SHA256SUMS``.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERIFIER = ROOT / "packages" / "verifier"
DISTRIBUTIONS = (
    ROOT,
    ROOT / "clients" / "python",
    ROOT / "packages" / "forests",
    VERIFIER,
)
SUMS = "SHA256SUMS"
START_OF_VERIFIER = "from grovekeeper_verifier.main import console\n\nconsole()\n"


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
    version = _version()
    folder = (chosen or ROOT / "dist" / f"grovekeeper-{version}").absolute()
    if folder.exists():
        sys.exit(f"{folder} exists; nothing was written. Move it away first.")
    commit_time = _require_clean_commit()
    # A release is written beside its folder, so that no half of one has its name.
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    _write(unfinished, version, commit_time)
    unfinished.rename(folder)
    print((folder / SUMS).read_text(encoding="ascii"), end="")
    print(f"Wrote version {version} into {folder}.")


def _version() -> str:
    """The version of all four distributions."""
    versions = set[str]()
    for place in DISTRIBUTIONS:
        text = (place / "pyproject.toml").read_text(encoding="utf-8")
        versions.add(tomllib.loads(text)["project"]["version"])
    if len(versions) > 1:
        sys.exit(f"The distributions differ in their version: {', '.join(versions)}.")
    return versions.pop()


def _require_clean_commit() -> int:
    """The time of the commit, in seconds since 1970.

    A file that is in no commit would be in the release without a way to repeat it.
    """
    changes = _git("status", "--porcelain")
    if changes:
        sys.exit(f"These files differ from the commit; commit them first:\n{changes}")
    return int(_git("log", "-1", "--format=%ct"))


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"A release needs a checkout with git: {done.stderr.strip()}")
    return done.stdout.strip()


def _write(folder: Path, version: str, commit_time: int) -> None:
    for place in DISTRIBUTIONS:
        _build(place, folder, commit_time)
    _write_verifier(folder / "grovekeeper-verify.pyz", commit_time)
    shutil.copyfile(ROOT / "requirements" / "runtime.lock", folder / "runtime.lock")
    shutil.copyfile(ROOT / "openapi" / "openapi.json", folder / "openapi.json")
    _write_bill_of_materials(folder / "sbom.cdx.json")
    (folder / "NOTES.md").write_text(_notes(version), encoding="utf-8")
    _write_sums(folder)


def _build(place: Path, folder: Path, commit_time: int) -> None:
    """Build the wheel and the source distribution of one distribution."""
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    _run(build, place, SOURCE_DATE_EPOCH=str(commit_time))


def _write_verifier(path: Path, commit_time: int) -> None:
    """Write the verifier as one file that any Python runs.

    The standard library's ``zipapp`` would state when each file was checked out.
    """
    package = VERIFIER / "grovekeeper_verifier"
    sources = {
        str(source.relative_to(VERIFIER)): source.read_text(encoding="utf-8")
        for source in sorted(package.rglob("*.py"))
    }
    sources["__main__.py"] = START_OF_VERIFIER
    commit_date = time.gmtime(commit_time)[:6]
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


def _write_bill_of_materials(path: Path) -> None:
    """List what the lock of the service installs, with the hashes of the lock."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml")]
    lock = str(ROOT / "requirements" / "runtime.lock")
    _run(
        [str(program), "requirements", *options, "--output-file", str(path), lock], ROOT
    )


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


def _notes(version: str) -> str:
    """The section of a version in the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, found, rest = text.partition(f"\n## {version}\n")
    if not found:
        sys.exit(f"CHANGELOG.md has no section '## {version}'.")
    section, _, _ = rest.partition("\n## ")
    return f"# Grovekeeper {version}\n\n{section.strip()}\n"


def _write_sums(folder: Path) -> None:
    """Write the checksums in the form that ``sha256sum --check`` reads."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / SUMS).write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1:])

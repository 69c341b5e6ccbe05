"""Installs wheels into empty environments, with dependencies from the environment of
the tests.
"""

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def environment_with(wheel: Path, folder: Path) -> Path:
    """Installs a wheel beside every library of the tests, and returns the ``bin``
    folder of the environment.
    """
    packages = _installed([wheel], folder)
    # A .pth file in this folder adds the other folder, but not the paths that its .pth
    # files name: the checkout, which is installed there in editable form, is not
    # importable.
    Path(packages, "dependencies.pth").write_text(
        sysconfig.get_path("purelib"), encoding="utf-8"
    )
    return folder / "bin"


def environment_of(requirement: str, wheels: list[Path], folder: Path) -> Path:
    """Installs wheels, and of the libraries of the tests those alone that a requirement
    needs, such as ``grovekeeper-client[cli]``; returns the ``bin`` folder of the
    environment.
    """
    packages = _installed(wheels, folder)
    for needed in _needed(requirement, packages):
        for name in {file.parts[0] for file in needed.files or ()}:
            link, target = packages / name, Path(str(needed.locate_file(name)))
            if name not in ("..", "__pycache__") and not link.exists():
                link.symlink_to(target)
    return folder / "bin"


def _installed(wheels: list[Path], folder: Path) -> Path:
    """Installs wheels without what they need, and returns their folder."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    options = ("--quiet", "--no-deps", "--no-index")
    subprocess.run([*pip, "install", *options, *map(str, wheels)], check=True)
    base = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", vars=base))


def _needed(requirement: str, packages: Path) -> Iterator[Distribution]:
    """What a requirement needs, and so on, beyond what the folder has."""
    here = {
        canonicalize_name(found.metadata["Name"]): found
        for found in distributions(path=[str(packages)])
    }
    waiting, seen = [Requirement(requirement)], set[tuple[str, str]]()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        found = here.get(name) or distribution(name)
        if name not in here:
            yield found
        for extra in {"", *wanted.extras} - {it for of, it in seen if of == name}:
            seen.add((name, extra))
            for line in found.requires or ():
                further = Requirement(line)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    waiting.append(further)

"""Installs a wheel into an empty environment, with the dependencies of the environment
of the tests.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def environment_with(wheel: Path, folder: Path) -> Path:
    """Installs a wheel, without its dependencies, and returns the ``bin`` folder of the
    environment.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True
    )
    packages = sysconfig.get_path(
        "purelib", vars={"base": str(folder), "platbase": str(folder)}
    )
    # A .pth file in this folder adds the other folder, but not the paths that its .pth
    # files name: the checkout, which is installed there in editable form, is not
    # importable.
    Path(packages, "dependencies.pth").write_text(
        sysconfig.get_path("purelib"), encoding="utf-8"
    )
    return folder / "bin"

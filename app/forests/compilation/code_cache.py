"""Chooses the folder in which Numba caches compiled code between processes.

The folder is beside the package if that is writable (Numba's own default), else in the user's cache folder, else a
temporary folder of the process. It is never under the service's home: a fresh home would compile everything again.

Numba keeps its index as a pickle, so whoever can write to the folder can run code here. A folder that another user
owns or may write to is not used.
"""

import atexit
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

VARIABLE: Final = "NUMBA_CACHE_DIR"

_PACKAGE: Final = Path(__file__).resolve().parent.parent


def choose() -> None:
    """Sets ``NUMBA_CACHE_DIR`` for this process and its children, unless the operator did or the default will do."""
    if os.environ.get(VARIABLE) or _writable(_PACKAGE):
        return
    os.environ[VARIABLE] = str(_user_folder() or _temporary_folder())


def _writable(package: Path) -> bool:
    """Whether every folder with compiled functions can hold ``__pycache__``."""
    for folder in (package / "kernels" / "compiled", package / "noise"):
        cache = folder / "__pycache__"
        if not os.access(cache if cache.is_dir() else folder, os.W_OK | os.X_OK):
            return False
    return True


def _user_folder() -> Path | None:
    """``$XDG_CACHE_HOME/grovekeeper/numba`` or ``~/.cache/grovekeeper/numba``, or nothing if it is not safely ours."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "grovekeeper" / "numba"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except (OSError, RuntimeError):
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return folder if ours and not stat.S_IMODE(found.st_mode) & 0o077 else None


def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="grovekeeper-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)

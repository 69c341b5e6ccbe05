"""Chooses the folder in which Numba caches compiled code between processes.

The folder is inside the package if the package is writable (Numba's default), else in
the user's cache folder, else a temporary folder of the process, which its children
inherit. It is never in the service's home: with a fresh home, everything would be
compiled again. Numba has to be imported after :func:`choose`, because it reads the
folder once.

The user's folder has one folder for each state of the package. Numba takes a file for
unchanged if its size and time are: after an upgrade of an image whose files all have one
time, a process would draw noise with the code of the version before. Options of the
compiler and constants of other modules are in the compiled code, too, so every file
counts. Folders of earlier states stay, because processes may still run their code.

Numba stores its index as a pickle, so anybody who can write to the folder can run code
in this process. A folder that another user owns or may write to is therefore not used.
"""

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"

_PACKAGE = Path(__file__).resolve().parent
_COMPILED = ("kernels/compiled", "noise")
"""The folders with compiled functions."""


def choose() -> None:
    """Sets ``NUMBA_CACHE_DIR`` for this process and its children, unless the operator
    set it or the default works.
    """
    if os.environ.get(VARIABLE) or _writable(_PACKAGE):
        return
    os.environ[VARIABLE] = str(_user_folder() or _temporary_folder())


def folder() -> str:
    """Where this process finds compiled code, after :func:`choose`."""
    return os.environ.get(VARIABLE) or str(_PACKAGE)


def _writable(package: Path) -> bool:
    """Whether ``__pycache__`` can be written in every folder with compiled functions."""
    for name in _COMPILED:
        folder = package / name
        cache = folder / "__pycache__"
        if not os.access(cache if cache.is_dir() else folder, os.W_OK | os.X_OK):
            return False
    return True


def _user_folder() -> Path | None:
    """A folder in ``$XDG_CACHE_HOME/grovekeeper/numba`` or
    ``~/.cache/grovekeeper/numba``; ``None`` if others can write to it.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "grovekeeper" / "numba" / _digest_of_package()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, RuntimeError):
        return None
    is_own = (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )
    # the folder may lie on a disk that is mounted read-only
    is_writable = os.access(folder, os.W_OK | os.X_OK)
    return folder if is_own and is_writable else None


def _digest_of_package() -> str:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="grovekeeper-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)

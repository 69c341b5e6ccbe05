"""Disks with as much free space as a test says."""

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

_EMPTY_DISK_BYTES = 10**12


def free_bytes(
    n_bytes: int, folder: str | None = None
) -> AbstractContextManager[object]:
    """So much is free on every disk in the block, or on that of folders of a name, while
    other disks are empty.
    """

    def usage(path: Path) -> SimpleNamespace:
        is_full = folder in (None, Path(path).name)
        return SimpleNamespace(free=n_bytes if is_full else _EMPTY_DISK_BYTES)

    return patch.object(shutil, "disk_usage", usage)

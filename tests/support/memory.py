"""Finds a folder in memory for the files of tests, none of which has to survive a power
cut.

The product waits for the disk at every commit and new file. On a disk, a test waits
longer than it computes.
"""

import os
import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 2**31


def folder_in_memory() -> Path | None:
    """``/dev/shm`` if it is writable and has room; otherwise ``None``."""
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES else None

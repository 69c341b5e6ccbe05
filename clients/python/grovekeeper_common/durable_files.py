"""Writes files durably, and keeps private files closed to other accounts.

A file gets its name only when its content is complete and on the disk.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path
from typing import Literal

UNFINISHED = ".part"
"""Ending of the hidden file that holds content until it is complete. A killed process
leaves such a file behind.
"""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Existing = Literal["replace", "keep", "refuse"]
"""What to do when a file of that name exists; see :func:`new_file`."""


@contextmanager
def new_file(path: Path, *, existing: Existing) -> Iterator[BufferedRandom]:
    """Opens a file that gets its name when the block ends well.

    The content goes to a hidden file in the same folder, readable by its owner only. At
    the end the file is synced and renamed, and the folder is synced. When the block
    raises, no file is left.

    Args:
        path: the final name, in a folder that exists.
        existing: what to do when a file of that name exists: ``replace`` it, ``keep``
            it and drop the new file (so that the first of several writers wins), or
            ``refuse`` to write.

    Yields:
        A binary file open for reading and writing.

    Raises:
        FileExistsError: a file of that name exists, at the begin or at the end, and
            ``existing`` is ``refuse``.
        OSError: the folder cannot be written.
    """
    if existing == "refuse" and os.path.lexists(path):
        raise FileExistsError(path.name)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with open(unfinished, "x+b", opener=open_private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if existing == "replace":
            unfinished.rename(path)
        else:
            _link(unfinished, path, existing)
    except OSError as error:
        # an error of a write names no file
        if error.errno in _FULL and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def _link(unfinished: Path, path: Path, existing: Literal["keep", "refuse"]) -> None:
    """Gives a file a name that no other file has."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        if existing == "refuse":
            raise FileExistsError(path.name) from None
    except OSError:
        # A disk of a person may have no hard links, such as one in FAT.
        if existing == "keep" or os.path.lexists(path):
            raise
        unfinished.rename(path)


def open_private(name: str, flags: int) -> int:
    """Opens a file for :func:`open`; a new one is readable by its owner only."""
    return os.open(name, flags, 0o600)


def write(path: Path, data: bytes, *, existing: Existing = "replace") -> None:
    """Writes a whole file; see :func:`new_file`."""
    with new_file(path, existing=existing) as file:
        file.write(data)


def make_folder(folder: Path) -> None:
    """Makes a folder and its missing parents durably, readable by their owner only."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable: a new or removed name is on the disk only
    when its folder is synced.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Writes files durably, keeps private files closed to other accounts, and reads stored bytes at any place.

A file gets its name only when its content is complete and on the disk.
"""

import io
import logging
import os
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path
from typing import Literal

from app.core.errors import InstallationError

UNFINISHED = ".part"
"""Ending of the hidden file that holds content until it is complete. A killed process leaves such a file behind."""

_OTHERS = 0o077
_log = logging.getLogger(__name__)


@contextmanager
def new_file(path: Path, *, existing: Literal["replace", "keep", "refuse"]) -> Iterator[BufferedRandom]:
    """Opens a file that gets its name when the block ends well.

    The content goes to a hidden file in the same folder, readable by its owner only. At the end the file is synced and
    renamed, and the folder is synced. When the block raises, no file is left.

    Args:
        path: the final name, in a folder that exists.
        existing: what to do when a file of that name exists: ``replace`` it, ``keep`` it and drop the new file (so that
            the first of several writers wins), or ``refuse`` to write.

    Yields:
        A binary file open for reading and writing.

    Raises:
        FileExistsError: a file of that name exists, and ``existing`` is ``refuse``.
        OSError: the folder cannot be written.
    """
    if existing == "refuse" and path.exists():
        raise FileExistsError(path.name)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with open(unfinished, "x+b", opener=_private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if existing == "keep":
            with suppress(FileExistsError):
                os.link(unfinished, path)
        else:
            unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def write(path: Path, data: bytes, *, existing: Literal["replace", "keep"] = "replace") -> None:
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
    """Makes the names in a folder durable: a new or removed name is on the disk only when its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def close_to_others(paths: Iterable[Path]) -> None:
    """Removes the access of other accounts from files and folders, as far as they exist.

    Raises:
        InstallationError: the access cannot be removed, because the file belongs to another account.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode & 0o777
            if mode & _OTHERS:
                path.chmod(mode & ~_OTHERS)
                _log.warning("other accounts could open a private file or folder of the home; their access was removed")
        except FileNotFoundError:
            continue
        except OSError:
            raise InstallationError(
                f"other accounts have access to {path}, which is not this account's. Run: chmod go= '{path}'"
            ) from None


class SeekableReader(io.RawIOBase):
    """A file object of ``size`` bytes that can only be read. A subclass reads the bytes of a range."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._position = 0

    @abstractmethod
    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` up to and without ``end``; 0 ≤ ``start`` < ``end`` ≤ ``size``."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise ValueError("a position before the start of a file")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end; all remaining bytes by default."""
        start = self._position
        end = self.size if size is None or size < 0 else min(start + size, self.size)
        if start >= end:
            return b""
        text = self.read_range(start, end)
        self._position = end
        return text

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stub's type is private
        view = memoryview(buffer).cast("B")
        text = self.read(len(view))
        view[: len(text)] = text
        return len(text)

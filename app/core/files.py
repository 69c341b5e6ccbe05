"""Writes files durably, keeps private files closed to other accounts, and defines
stores of files.

A file gets its name only when its content is complete and on the disk.

A store has files under names with folders, such as ``rows/ds_1/ep_1.parquet``;
:class:`Directory` is the store in a folder of this machine. A file never changes under
its name: only ``existing="replace"`` puts another file in its place, in one step. A
store gives no meaning to a name. A store that cannot answer raises ``OSError``, as a
broken disk does, so callers have one rule for both.
"""

import errno
import io
import logging
import os
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from app.core import stamps
from app.core.errors import InstallationError
from grovekeeper_common.durable_files import (
    Existing,
    make_folder,
    new_file,
    sync_folder,
)

OTHERS = 0o077
"""The bits of a mode that give access to other accounts."""

NEWEST_BACKUP = "newest-backup"
"""The file in a home with the time of the newest backup."""

_log = logging.getLogger(__name__)


def why(error: OSError) -> str:
    """What the system said of a file or folder, with its name if the error has one."""
    said = f"{error.strerror}"
    return said if error.filename is None else f"{said}: {error.filename}"


def newest_backup(home: Path) -> str | None:
    """The time of the newest backup that was made of a home; ``None`` if it knows of
    none, or its file is damaged.
    """
    try:
        text = (home / NEWEST_BACKUP).read_text("utf-8").strip()
        stamps.from_text(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        _log.warning("the time of the newest backup cannot be read")
        return None
    return text


def note_text(content: bytes) -> str:
    """The text of a file with a signed note, with the line ends that were signed: git,
    mail and editors change them.
    """
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    return text.rstrip("\n") + "\n"


def close_to_others(paths: Iterable[Path]) -> None:
    """Removes the access of other accounts from files and folders, as far as they
    exist.

    Raises:
        InstallationError: the access cannot be removed, because the file belongs to
            another account.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode & 0o777
            if mode & OTHERS:
                path.chmod(mode & ~OTHERS)
                _log.warning(
                    "other accounts could open a private file or folder of the home; their access was removed"
                )
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InstallationError(
                f"other accounts have access to {path}, which cannot be changed ({error.strerror}). If it belongs to "
                f"another account, run as root: chown -R {os.geteuid()} '{path}' && chmod go= '{path}'"
            ) from None


class SeekableReader(io.RawIOBase):
    """A file object that can only be read. A subclass sets ``size``, in bytes, and reads
    the bytes of a range.
    """

    size: int
    _position = 0

    @abstractmethod
    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` up to and without ``end``; 0 ≤ ``start`` < ``end`` ≤
        ``size``.
        """

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        position = starts[whence] + offset
        if position < 0:
            raise ValueError("a position before the start of a file")
        self._position = position
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end; all remaining bytes by default."""
        start = self._position
        if size is None or size < 0:
            end = self.size
        else:
            end = min(start + size, self.size)
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


FOLDERS_OF_ROWS = ("codes", "prints", "rows")
"""The folders whose files come from private rows (:mod:`app.datasets.row_files`)."""


class StoreUnreachable(OSError):
    """A store on other machines does not answer, or refuses the request.

    Args:
        kind: the kind of the error, without its text.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(errno.EIO, f"the object store does not answer ({kind})")


@dataclass(frozen=True)
class Listed:
    """A file of a store.

    Attributes:
        name: with its folders.
        changed_at: when the file got its name, in UTC.
    """

    name: str
    size_bytes: int
    changed_at: datetime

    @property
    def basename(self) -> str:
        """The name without its folders."""
        return self.name.rpartition("/")[2]


class Store(Protocol):
    """Files under names. Threads and processes share a store without locks."""

    def new(self, name: str, *, existing: Existing) -> AbstractContextManager[BinaryIO]:
        """Opens a file that gets its name when the block ends well, and its folders as
        needed.

        Raises:
            FileExistsError: a file of that name exists, and ``existing`` is ``refuse``.
            FileNotFoundError: the folder was erased before the block ended.
            OSError: the store does not answer or is full.
        """

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading at any place; what is read is of one file, even if
        another replaces it meanwhile.

        Raises:
            FileNotFoundError: no such file.
            OSError: the store does not answer.
        """

    def local(self, name: str) -> Path:
        """The path of a complete copy of a file on this machine, or of the file itself;
        raises what :meth:`open` does.

        The copy stays for an hour at least.
        """

    def files(self, folder: str) -> Iterator[Listed]:
        """The files in a folder and its folders, in no order.

        Files that are not complete are listed, too, where they have names: these end in
        :data:`UNFINISHED`.
        """

    def delete(self, name: str) -> None:
        """Deletes a file durably, if it exists."""

    def free_bytes(self, folder: str) -> int:
        """The free bytes of the disk of this machine on which new files of a folder are
        written; 0 if this account may not write to one of its folders.

        Raises:
            OSError: the folder does not exist: nothing was ever stored there.
        """

    def tidy(self) -> None:
        """Removes copies on this machine whose file was deleted or replaced."""


@dataclass(frozen=True)
class Directory:
    """A :class:`Store` in a folder of this machine. Files are readable by their owner
    only.

    Attributes:
        folder: made by the first new file.
    """

    folder: Path

    @contextmanager
    def new(self, name: str, *, existing: Existing) -> Iterator[BinaryIO]:
        path = self.folder / name
        make_folder(path.parent)
        with new_file(path, existing=existing) as file:
            yield cast(BinaryIO, file)

    def open(self, name: str) -> BinaryIO:
        return cast(BinaryIO, (self.folder / name).open("rb", buffering=0))

    def local(self, name: str) -> Path:
        """See :meth:`Store.local`: the file itself."""
        path = self.folder / name
        path.stat()
        return path

    def files(self, folder: str) -> Iterator[Listed]:
        for parent, _, basenames in os.walk(self.folder / folder):
            for basename in basenames:
                path = Path(parent, basename)
                with suppress(FileNotFoundError):  # deleted since the listing
                    facts = path.stat()
                    name = path.relative_to(self.folder).as_posix()
                    changed_at = datetime.fromtimestamp(facts.st_mtime, UTC)
                    yield Listed(name, facts.st_size, changed_at)

    def delete(self, name: str) -> None:
        path = self.folder / name
        with suppress(FileNotFoundError):
            path.unlink()
            sync_folder(path.parent)

    def free_bytes(self, folder: str) -> int:
        path = self.folder / folder
        # a name decides which of them gets the next file
        inner = (each for each in path.iterdir() if each.is_dir())
        if not all(os.access(each, os.W_OK | os.X_OK) for each in (path, *inner)):
            return 0
        return shutil.disk_usage(path).free

    def tidy(self) -> None:
        """See :meth:`Store.tidy`: there are no copies."""


@dataclass(frozen=True)
class StoredFile:
    """A name in a store, with the methods of :class:`Store` for it."""

    store: Store
    name: str

    @classmethod
    def at(cls, path: Path) -> "StoredFile":
        """The file at a path of this machine."""
        return cls(Directory(path.parent), path.name)

    def new(self, *, existing: Existing) -> AbstractContextManager[BinaryIO]:
        return self.store.new(self.name, existing=existing)

    def open(self) -> BinaryIO:
        return self.store.open(self.name)

    def local(self) -> Path:
        return self.store.local(self.name)

    def delete(self) -> None:
        self.store.delete(self.name)

    def read_bytes(self) -> bytes:
        """The whole content."""
        with self.open() as file:
            return file.read()

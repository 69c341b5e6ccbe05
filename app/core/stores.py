"""Defines stores of files, and the store that is a folder of this machine.

A store has files under names with folders, such as ``rows/ds_1/ep_1.parquet``. A file gets its name when its content is
complete and durable, and never changes under its name: only ``existing="replace"`` puts another file in its place, in
one step. A store gives no meaning to a name.

A store that cannot answer raises ``OSError``, as a broken disk does, so callers have one rule for both.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, cast

from app.core import files

Existing = Literal["replace", "keep", "refuse"]
"""What to do when a file of that name exists; see :func:`app.core.files.new_file`."""

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
        """Opens a file that gets its name when the block ends well, and its folders as needed.

        Raises:
            FileExistsError: a file of that name exists, and ``existing`` is ``refuse``.
            FileNotFoundError: the folder was erased before the block ended.
            OSError: the store does not answer or is full.
        """

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading at any place; what is read is of one file, even if another replaces it meanwhile.

        Raises:
            FileNotFoundError: no such file.
            OSError: the store does not answer.
        """

    def local(self, name: str) -> Path:
        """The path of a complete copy of a file on this machine, or of the file itself; raises what :meth:`open` does.

        The copy stays for an hour at least.
        """

    def files(self, folder: str) -> Iterator[Listed]:
        """The files in a folder and its folders, in no order.

        Files that are not complete are listed, too, where they have names: these end in
        :data:`app.core.files.UNFINISHED`.
        """

    def delete(self, name: str) -> None:
        """Deletes a file durably, if it exists."""

    def tidy(self) -> None:
        """Removes copies on this machine whose file was deleted or replaced."""


@dataclass(frozen=True)
class Directory:
    """A :class:`Store` in a folder of this machine. Files are readable by their owner only.

    Attributes:
        folder: made by the first new file.
    """

    folder: Path

    def path(self, name: str) -> Path:
        """The path of a file, which need not exist."""
        return self.folder / name

    @contextmanager
    def new(self, name: str, *, existing: Existing) -> Iterator[BinaryIO]:
        path = self.path(name)
        files.make_folder(path.parent)
        with files.new_file(path, existing=existing) as file:
            yield cast(BinaryIO, file)

    def open(self, name: str) -> BinaryIO:
        return cast(BinaryIO, self.path(name).open("rb", buffering=0))

    def local(self, name: str) -> Path:
        """See :meth:`Store.local`: the file itself."""
        path = self.path(name)
        path.stat()
        return path

    def files(self, folder: str) -> Iterator[Listed]:
        for parent, _, names in os.walk(self.path(folder)):
            for path in (Path(parent, name) for name in names):
                with suppress(FileNotFoundError):  # deleted since the listing
                    facts, name = path.stat(), path.relative_to(self.folder).as_posix()
                    yield Listed(name, facts.st_size, datetime.fromtimestamp(facts.st_mtime, UTC))

    def delete(self, name: str) -> None:
        path = self.path(name)
        with suppress(FileNotFoundError):
            path.unlink()
            files.sync_folder(path.parent)

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

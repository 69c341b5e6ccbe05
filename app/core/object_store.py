"""Stores files as objects: S3 and compatible servers, Google Cloud Storage, Azure, or a
folder by ``file://``.

An object appears completely or not at all. ``keep`` and ``refuse`` are conditional
requests, so of several writers the first wins. Credentials come from the usual
variables of the provider's tools. The library's errors quote addresses and names, so
they never leave this module. The library is an extra, so users import this module where
they open a store.

Copies of objects that this machine reads as a whole are in a folder of the cache: one
folder per version of an object, named by a digest of the object's name and entity tag.
Bytes are as they are in the store: sealed files stay sealed.

Raises:
    InstallationError: on import, if the extra ``objectstore`` is not installed.
"""

import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from app.core import files, limits
from app.core.errors import InstallationError
from grovekeeper_common import durable_files

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError
    from obstore.store import ObjectStore as Remote
    from obstore.store import from_url
except ModuleNotFoundError:
    raise InstallationError(
        "GROVEKEEPER_STORE needs the extra objectstore; install it first"
    ) from None

Facts = Mapping[str, Any]
"""What a store says about an object: its path, size, entity tag and time."""

_WHOLE_BYTES = 32 * 1024 * 1024  # largest object that one conditional request writes

_PIECE_BYTES = 8 * 1024 * 1024
"""Bytes that one request reads, or writes of a larger object. A request ends after 30
seconds, so 300 kB a second are enough. A reader that goes on where it ended takes a
whole piece in advance: every request waits for the network once.
"""

_NAME = "name"  # file in the folder of a copy: the name of the object


@contextmanager
def _answered() -> Iterator[None]:
    """Replaces the errors of the library."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such object") from None
    except AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "an object of that name exists") from None
    except BaseError as error:
        raise files.StoreUnreachable(type(error).__name__) from None


class ObjectStore:
    """A :class:`app.core.files.Store` in a bucket, below a prefix.

    Args:
        address: ``s3://bucket/prefix`` and the like.
        cache: folder for copies and unfinished files; made by the first use. Processes
            of one machine may share it.
        n_attempts: of a request that finds no answer; the pauses begin with a tenth of
            a second and double.

    Raises:
        InstallationError: the address is not usable.
    """

    def __init__(
        self,
        address: str,
        cache: Path,
        *,
        n_attempts: int = 4,
        max_cached_bytes: int = limits.MAX_CACHED_OBJECT_BYTES,
    ) -> None:
        self._cache = cache
        self._max_cached_bytes = max_cached_bytes
        try:
            self._remote = _remote(address, n_attempts)
        except (BaseError, OSError, ValueError, TypeError):
            raise InstallationError(
                "GROVEKEEPER_STORE cannot be used; see the operator's guide"
            ) from None

    @contextmanager
    def new(self, name: str, *, existing: durable_files.Existing) -> Iterator[BinaryIO]:
        """See :meth:`app.core.files.Store.new`. Until its end, the content is in a file
        without a name.
        """
        durable_files.make_folder(self._cache)
        with tempfile.TemporaryFile(dir=self._cache) as file:
            yield cast(BinaryIO, file)
            file.flush()
            try:
                self._put(name, cast(BinaryIO, file), existing=existing)
            except FileExistsError:
                if existing != "keep":
                    raise

    def _put(
        self, name: str, file: BinaryIO, *, existing: durable_files.Existing
    ) -> None:
        is_small = file.seek(0, 2) <= _WHOLE_BYTES
        file.seek(0)
        with _answered():
            if is_small:
                replaces = existing == "replace"
                obstore.put(
                    self._remote,
                    name,
                    file.read(),
                    mode="overwrite" if replaces else "create",
                    use_multipart=False,
                )
                return
            # no store writes parts under a condition; names of large files are random
            if existing != "replace":
                with suppress(FileNotFoundError):
                    obstore.head(self._remote, name)
                    raise FileExistsError(errno.EEXIST, "an object of that name exists")
            obstore.put(
                self._remote,
                name,
                file,
                use_multipart=True,
                chunk_size=_PIECE_BYTES,
                max_concurrency=2,
            )

    def open(self, name: str) -> BinaryIO:
        facts = self._head(name)
        with suppress(FileNotFoundError):
            return cast(BinaryIO, self._copy(facts).open("rb", buffering=0))
        return cast(BinaryIO, _RemoteReader(self._remote, facts))

    def local(self, name: str) -> Path:
        facts = self._head(name)
        path, folder = self._copy(facts), self._folder(facts)
        # in this order: from now on, no other process takes the copy away
        if _keep(folder) and path.exists():
            return path
        durable_files.make_folder(path.parent)
        durable_files.write(folder / _NAME, name.encode("utf-8"), existing="keep")
        with (
            _RemoteReader(self._remote, facts) as reader,
            durable_files.new_file(path, existing="keep") as copy,
        ):
            while piece := reader.read(_PIECE_BYTES):
                copy.write(piece)
                _keep(folder)
        self._make_room()
        return path

    def files(self, folder: str) -> Iterator[files.Listed]:
        with _answered():
            for block in obstore.list(self._remote, prefix=folder):
                for facts in block:
                    yield files.Listed(
                        facts["path"], facts["size"], facts["last_modified"]
                    )

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), _answered():
            obstore.delete(self._remote, name)

    def free_bytes(self, folder: str) -> int:
        """See :meth:`app.core.files.Store.free_bytes`: a new object of any folder is
        first a file of the cache.
        """
        return shutil.disk_usage(self._cache).free

    def tidy(self) -> None:
        for folder in self._unused():
            try:
                name = (folder / _NAME).read_text(encoding="utf-8")
                is_current = self._folder(self._head(name)) == folder
            except FileNotFoundError:  # no such object; or the folder was removed while a job stored codes in it
                is_current = False
            if not is_current:
                shutil.rmtree(folder, ignore_errors=True)

    def _make_room(self) -> None:
        """Removes the copies that were not used for longest while the cache is over its
        limit.
        """
        sizes = {
            folder: _size_bytes(folder)
            for folder in self._cache.iterdir()
            if folder.is_dir()
        }
        excess = sum(sizes.values()) - self._max_cached_bytes
        for folder in self._unused():
            if excess > 0:
                excess -= sizes.get(folder, 0)
                shutil.rmtree(folder, ignore_errors=True)

    def _unused(self) -> list[Path]:
        """Folders of copies that no running job still has to open, the longest unused
        first.
        """
        used_before = time.time() - limits.CACHED_OBJECT_STAYS_S
        folders = []
        with suppress(FileNotFoundError):
            for folder in self._cache.iterdir():
                with suppress(FileNotFoundError):
                    if folder.is_dir() and folder.stat().st_mtime < used_before:
                        folders.append((folder.stat().st_mtime, folder))
        return [folder for _, folder in sorted(folders)]

    def _head(self, name: str) -> Facts:
        with _answered():
            return obstore.head(self._remote, name)

    def _folder(self, facts: Facts) -> Path:
        version = f"{facts['path']}\0{facts['e_tag']}\0{facts['size']}"
        return self._cache / hashlib.sha256(version.encode()).hexdigest()[:32]

    def _copy(self, facts: Facts) -> Path:
        return self._folder(facts) / str(facts["path"])


class _RemoteReader(files.SeekableReader):
    """Reads one version of an object at any place."""

    def __init__(self, remote: Remote, facts: Facts) -> None:
        self.size = facts["size"]
        self._remote = remote
        self._facts = facts
        self._ahead = b""
        """The bytes from ``_start`` on that the last request read."""
        self._start = 0
        self._read_to: int | None = None
        """The end of the last read."""

    def read_range(self, start: int, end: int) -> bytes:
        if not self._start <= start <= end <= self._start + len(self._ahead):
            is_sequel = start == self._read_to
            self._ahead = self._fetched(
                start,
                max(end, min(start + _PIECE_BYTES, self.size)) if is_sequel else end,
            )
            self._start = start
        self._read_to = end
        return self._ahead[start - self._start : end - self._start]

    def _fetched(self, start: int, end: int) -> bytes:
        pieces = []
        for first in range(start, end, _PIECE_BYTES):
            last = min(first + _PIECE_BYTES, end)
            with _answered():
                answer = obstore.get(
                    self._remote,
                    self._facts["path"],
                    options={"range": (first, last), "if_match": self._facts["e_tag"]},
                )
                pieces.append(bytes(answer.bytes()))
            if len(pieces[-1]) != last - first:
                raise files.StoreUnreachable("an answer of another length")
        return b"".join(pieces)


def _remote(address: str, n_attempts: int) -> Remote:
    parts = urlsplit(address)
    if parts.scheme == "file":
        _make_closed(Path(unquote(parts.path)), is_here=not parts.netloc)
        return from_url(address)
    # Options of the client would replace those of the provider's variables, such as
    # AWS_ALLOW_HTTP.
    patience = timedelta(seconds=limits.OBJECT_STORE_WAIT_S)
    return from_url(
        address, retry_config={"max_retries": n_attempts - 1, "retry_timeout": patience}
    )


def _make_closed(folder: Path, *, is_here: bool) -> None:
    """Makes the folder of a store. The library would open folders and files to other
    accounts.
    """
    if not (is_here and folder.is_absolute()):
        raise ValueError("not a folder of this machine")
    durable_files.make_folder(folder)
    # not closed here: it may be a folder of others, such as /tmp
    if folder.stat().st_mode & files.OTHERS:
        raise InstallationError(
            f"other accounts have access to the folder of the store. Run: chmod go= '{folder}'"
        )


def _keep(folder: Path) -> bool:
    """Notes the use of a copy; returns whether its folder exists. (``Path.touch`` would
    make a file in its place.)
    """
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def _size_bytes(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size

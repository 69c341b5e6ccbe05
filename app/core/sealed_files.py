"""Encrypts files in chunks, so that a file is written as a stream and read at any place.

::

    header    48 bytes: "GKSF", version, log2 of the chunk size, two zeros, id of the data key (8), id of the file (32)
    chunks    65,536 bytes of text each, the last one shorter or empty; each is AES-256-GCM with its tag of 16 bytes

Each file has a random id of 256 bits and a key of its own, derived from the data key with the id and the name of the
file without its folders, such as ``ep_1.parquet``: a file that was moved to another name is not accepted. The nonce of
a chunk is its index, so no two chunks share a key and a nonce. The header, the index, and whether the chunk is the last
are authenticated with each chunk: a chunk that was changed, moved, taken from another file or dataset, appended or
removed at the end is not accepted. A reader decrypts the last chunk first, which authenticates the file's length.

Files of version 1, whose keys are derived without a name, are still read.

A file is as long as its text, with 16 bytes for each chunk and the header: whoever sees the disk learns the size.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.core.data_keys import KEY_ID_BYTES, DataKey, SealBroken
from app.core.seekable_reader import SeekableReader
from app.core.stores import Existing, StoredFile

CHUNK_BYTES = 2**16
"""Text of a chunk. AES-GCM is as fast with larger chunks, and a reader of a few bytes decrypts one chunk."""

FILE_ID_BYTES = 32
TAG_BYTES = 16
_PREFIX = b"GKSF\x02\x10\0\0"
_UNNAMED_PREFIX = b"GKSF\x01\x10\0\0"
HEADER_BYTES = len(_PREFIX) + KEY_ID_BYTES + FILE_ID_BYTES
_STRIDE = CHUNK_BYTES + TAG_BYTES
_FILE_KEY = b"grovekeeper/sealed-file/2/"
_UNNAMED_FILE_KEY = b"grovekeeper/sealed-file/1"
_KEY_ID = b"grovekeeper/data-key-id/1"


@dataclass(frozen=True)
class SealedFile:
    """A stored file, and the key that encrypts it."""

    file: StoredFile
    key: DataKey = field(repr=False)

    @classmethod
    def at(cls, path: Path, key: DataKey) -> "SealedFile":
        """The file at a path of this machine."""
        return cls(StoredFile.at(path), key)

    @property
    def basename(self) -> str:
        """The name without folders, which the content is bound to."""
        return self.file.name.rpartition("/")[2]

    @contextmanager
    def new(self, *, existing: Existing) -> Iterator["Writer"]:
        """Opens a file that gets its name when the block ends well; see :meth:`app.core.stores.Store.new`."""
        with self.file.new(existing=existing) as file:
            writer = Writer(file, self.key, name=self.basename)
            yield writer
            if not writer.closed:
                writer.finish()

    def open(self) -> "Reader":
        """Opens the file for reading; the caller closes it.

        Raises:
            FileNotFoundError: no such file.
            SealBroken: the file is damaged, incomplete or of another key.
            OSError: the store does not answer.
        """
        file = self.file.open()
        try:
            return Reader(file, self.key, name=self.basename)
        except BaseException:
            file.close()
            raise

    def authenticate(self) -> None:
        """Checks every chunk of the file, and interprets none; raises what :meth:`open` raises."""
        with self.open() as reader:
            reader.authenticate()


class Writer:
    """Encrypts a stream of bytes into a file, with one chunk in memory. pyarrow writes to it.

    The file is complete only after :meth:`finish`.

    Args:
        file: empty; stays open.
        key: of the dataset.
        name: of the file, without folders.

    Attributes:
        size_bytes: bytes of the file so far.
    """

    def __init__(self, file: BinaryIO, key: DataKey, *, name: str = "") -> None:
        self._file = file
        self._seal = _Seal.new(key, name)
        self._waiting = bytearray()
        self._n_chunks = 0
        self.closed = False
        self.size_bytes = file.write(self._seal.header)

    def write(self, text: bytes | bytearray | memoryview) -> int:
        """Takes all bytes of ``text``."""
        view = memoryview(text).cast("B")
        taken = 0
        while taken < len(view):
            if len(self._waiting) == CHUNK_BYTES:  # more text follows, so this chunk is not the last
                self._put(self._waiting, is_last=False)
                self._waiting.clear()
            piece = view[taken : taken + CHUNK_BYTES - len(self._waiting)]
            taken += len(piece)
            if len(piece) == CHUNK_BYTES and taken < len(view):
                self._put(piece, is_last=False)
            else:
                self._waiting += piece
        return taken

    def flush(self) -> None:
        """Does nothing: a chunk is written when it is complete."""

    def finish(self) -> None:
        """Writes the last chunk."""
        self._put(self._waiting, is_last=True)
        self._file.flush()
        self.closed = True

    def _put(self, chunk: bytearray | memoryview, *, is_last: bool) -> None:
        assert not self.closed, "no chunk follows the last"
        self.size_bytes += self._file.write(self._seal.encrypted(chunk, self._n_chunks, is_last=is_last))
        self._n_chunks += 1


class Reader(SeekableReader):
    """Reads an encrypted file at any place. pyarrow reads from it.

    Args:
        file: an encrypted file; closed with this reader.
        key: of the dataset.
        name: of the file, without folders.

    Raises:
        SealBroken: at once and at every read, if the file is damaged, incomplete or of another key or name. Bytes of a
            chunk that is not authentic are never returned.
    """

    def __init__(self, file: BinaryIO, key: DataKey, *, name: str = "") -> None:
        self._file = file
        file.seek(0)
        self._seal = _Seal.of(file.read(HEADER_BYTES), key, name)
        n_sealed = file.seek(0, os.SEEK_END) - HEADER_BYTES
        self._n_chunks = -(-n_sealed // _STRIDE)
        super().__init__(n_sealed - self._n_chunks * TAG_BYTES)
        if self._n_chunks < 1 or self.size < 0 or (self._n_chunks - 1) * CHUNK_BYTES > self.size:
            raise SealBroken
        self._index, self._chunk = -1, memoryview(b"")
        self._kept(self._n_chunks - 1)

    @property
    def file_id(self) -> bytes:
        """The random id of the file, which is in its header alone: a file that replaces this one has another id."""
        return self._seal.header[-FILE_ID_BYTES:]

    def read_range(self, start: int, end: int) -> bytes:
        text = bytearray(end - start)
        self.read_into(start, memoryview(text))
        return bytes(text)

    def read_into(self, start: int, text: memoryview) -> None:
        """Fills ``text`` with the bytes from ``start``. If it raises an error, ``text`` is of no use."""
        filled = 0
        while filled < len(text):
            index, offset = divmod(start + filled, CHUNK_BYTES)
            piece = text[filled : filled + CHUNK_BYTES - offset]
            if len(piece) == CHUNK_BYTES:
                self._decrypt(index, piece)
            else:
                piece[:] = self._kept(index)[offset : offset + len(piece)]
            filled += len(piece)

    def authenticate(self) -> None:
        """Decrypts every chunk into the same memory, which nobody reads."""
        text = memoryview(bytearray(CHUNK_BYTES))
        for index in range(self._n_chunks):
            self._decrypt(index, text[: min(CHUNK_BYTES, self.size - index * CHUNK_BYTES)])

    def close(self) -> None:
        """Closes the file, too."""
        if not self.closed:
            self._file.close()
        super().close()

    def _kept(self, index: int) -> memoryview:
        """The text of a chunk. The last one of these is kept, since consecutive reads often share a chunk."""
        if index != self._index:
            self._index, self._chunk = -1, memoryview(bytearray(min(CHUNK_BYTES, self.size - index * CHUNK_BYTES)))
            self._decrypt(index, self._chunk)
            self._index = index
        return self._chunk

    def _decrypt(self, index: int, text: memoryview) -> None:
        self._file.seek(HEADER_BYTES + index * _STRIDE)
        self._seal.decrypt(self._file.read(_STRIDE), index, text, is_last=index == self._n_chunks - 1)


class Spool:
    """A file without a name, encrypted with a key that exists in this object only: written once, then read.

    Args:
        file: empty, open for reading and writing; the caller closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._key = DataKey.random()
        self._writer = Writer(file, self._key)

    def write(self, text: bytes) -> int:
        """Appends bytes."""
        return self._writer.write(text)

    def reader(self) -> BinaryIO:
        """Ends writing and opens the text for reading."""
        self._writer.finish()
        return cast(BinaryIO, Reader(self._file, self._key))


class _Seal:
    """The header of a file, and the key that its chunks are encrypted with."""

    def __init__(self, header: bytes, key: DataKey, name: str) -> None:
        self.header = header
        purpose = _FILE_KEY + name.encode() if header.startswith(_PREFIX) else _UNNAMED_FILE_KEY
        self._cipher = AESGCM(key.derived(purpose, salt=header[-FILE_ID_BYTES:]))

    @classmethod
    def new(cls, key: DataKey, name: str) -> "_Seal":
        return cls(_PREFIX + _key_id(key) + secrets.token_bytes(FILE_ID_BYTES), key, name)

    @classmethod
    def of(cls, header: bytes, key: DataKey, name: str) -> "_Seal":
        known = (_PREFIX + _key_id(key), _UNNAMED_PREFIX + _key_id(key))
        if len(header) != HEADER_BYTES or not header.startswith(known):
            raise SealBroken
        return cls(header, key, name)

    def encrypted(self, text: bytearray | memoryview, index: int, *, is_last: bool) -> bytes:
        return self._cipher.encrypt(index.to_bytes(12), text, self._context(index, is_last=is_last))

    def decrypt(self, sealed: bytes, index: int, text: memoryview, *, is_last: bool) -> None:
        try:
            self._cipher.decrypt_into(index.to_bytes(12), sealed, self._context(index, is_last=is_last), text)
        except (InvalidTag, ValueError):
            raise SealBroken from None

    def _context(self, index: int, *, is_last: bool) -> bytes:
        return self.header + index.to_bytes(8) + is_last.to_bytes()


def _key_id(key: DataKey) -> bytes:
    return key.derived(_KEY_ID, n_bytes=KEY_ID_BYTES)

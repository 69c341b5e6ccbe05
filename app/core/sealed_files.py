"""Encrypts what is stored about a dataset with its data key, and wraps data keys with
an installation's storage keys.

A data key is 32 random bytes. Every use has a key of its own, derived with HKDF-SHA256
(RFC 5869), so that no two uses share a nonce. A storage key never leaves its process;
the database has data keys only as :meth:`StorageKeys.wrap` returns them::

    version (1 byte) | id of the storage key (8) | nonce (12) | AES-256-GCM of the data key and its tag (48)

Files are encrypted in chunks, so that a file is written as a stream and read at any
place::

    header    48 bytes: "GKSF", version, log2 of the chunk size, two zeros, id of the data key (8), id of the file (32)
    chunks    65,536 bytes of text each, the last one shorter or empty; each is AES-256-GCM with its tag of 16 bytes

Each file has a random id of 256 bits and a key of its own, derived from the data key
with the id and the name of the file without its folders, such as ``ep_1.parquet``: a
file that was moved to another name is not accepted. The nonce of a chunk is its index,
so no two chunks share a key and a nonce. The header, the index, and whether the chunk
is the last are authenticated with each chunk: a chunk that was changed, moved, taken
from another file or dataset, appended or removed at the end is not accepted. A reader
decrypts the last chunk first, which authenticates the file's length.

Files of version 1, whose keys are derived without a name, are still read.

A file is as long as its text, with 16 bytes for each chunk and the header: whoever sees
the disk learns the size.
"""

import base64
import hashlib
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.core.errors import InstallationError
from app.core.files import SeekableReader, StoredFile
from grovekeeper_common.durable_files import Existing

KEY_BYTES = 32
KEY_ID_BYTES = 8
_NONCE_BYTES = 12
_WRAP_VERSION = b"\x01"
_WRAP_DOMAIN = b"grovekeeper/data-key/1\0"
_STORAGE_KEY_ID = b"grovekeeper/storage-key-id/1\0"

CHUNK_BYTES = 2**16
"""Text of a chunk. AES-GCM is as fast with larger chunks, and a reader of a few bytes
decrypts one chunk.
"""

FILE_ID_BYTES = 32
TAG_BYTES = 16
_PREFIX = b"GKSF\x02\x10\0\0"
_UNNAMED_PREFIX = b"GKSF\x01\x10\0\0"
HEADER_BYTES = len(_PREFIX) + KEY_ID_BYTES + FILE_ID_BYTES
_STRIDE = CHUNK_BYTES + TAG_BYTES
_FILE_KEY = b"grovekeeper/sealed-file/2/"
_UNNAMED_FILE_KEY = b"grovekeeper/sealed-file/1"
_KEY_ID = b"grovekeeper/data-key-id/1"


class SealBroken(Exception):
    """Encrypted bytes are damaged, incomplete, of another place, or encrypted with
    another key. Says nothing else.
    """

    def __str__(self) -> str:
        return "encrypted bytes are damaged or belong elsewhere"


@dataclass(frozen=True)
class DataKey:
    """The key of everything that is stored about the rows of one dataset."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        assert len(self.secret) == KEY_BYTES, "a data key has 32 bytes"

    @classmethod
    def random(cls) -> "DataKey":
        """A key from the operating system's generator."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def derived(
        self, purpose: bytes, *, salt: bytes | None = None, n_bytes: int = KEY_BYTES
    ) -> bytes:
        """The secret of one use of the key.

        Args:
            purpose: a constant that names the use and its version.
            salt: random bytes that separate keys of the same use, such as the id of a
                file.
            n_bytes: length of the secret.
        """
        hkdf = HKDF(algorithm=SHA256(), length=n_bytes, salt=salt, info=purpose)
        return hkdf.derive(self.secret)

    def seal(self, text: bytes, *, purpose: bytes) -> bytes:
        """Encrypts a short text with the key of a purpose."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self.derived(purpose)).encrypt(nonce, text, None)

    def open(self, sealed: bytes, *, purpose: bytes) -> bytes:
        """Inverse of :meth:`seal`.

        Raises:
            SealBroken: the text is of another key or purpose, or damaged.
        """
        return _decrypted(self.derived(purpose), sealed, None)


class StorageKeys:
    """The keys of an installation that wrap data keys: the newest, and older keys
    during a rotation.

    Args:
        keys: the newest first.
    """

    def __init__(self, keys: Collection[bytes]) -> None:
        self._keys = {
            hashlib.sha256(_STORAGE_KEY_ID + key).digest()[:KEY_ID_BYTES]: key
            for key in keys
        }
        self._newest = next(iter(self._keys))

    @classmethod
    def from_text(cls, text: str) -> "StorageKeys":
        """Reads keys in base64, separated by spaces or lines, the newest first.

        Raises:
            InstallationError: no key, or a text that is no key. The message does not
                show the text.
        """
        try:
            keys = [base64.b64decode(word, validate=True) for word in text.split()]
        except ValueError:
            keys = []
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise InstallationError(
                "a storage key is 32 random bytes in base64; see the operator's guide"
            )
        return cls(keys)

    @staticmethod
    def new_text() -> str:
        """The text of one random key, as :meth:`from_text` reads it."""
        return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii") + "\n"

    @property
    def newest_id(self) -> str:
        """The public id of the newest key, hexadecimal."""
        return self._newest.hex()

    def wrap(self, key: DataKey, *, dataset_id: str) -> bytes:
        """Encrypts a data key with the newest storage key, for one dataset."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        # The dataset is authenticated: who writes to the database cannot give a dataset
        # the key, and so the rows, of another.
        context = _wrap_context(self._newest, dataset_id)
        sealed = AESGCM(self._keys[self._newest]).encrypt(nonce, key.secret, context)
        return _WRAP_VERSION + self._newest + nonce + sealed

    def unwrap(self, wrapped: bytes, *, dataset_id: str) -> DataKey:
        """Inverse of :meth:`wrap`.

        Raises:
            InstallationError: no storage key of this process wrapped the data key, or
                it belongs to another dataset.
        """
        key_id, sealed = _parts(wrapped)
        storage_key = self._keys.get(key_id)
        if storage_key is None:
            raise _unknown(key_id)
        context = _wrap_context(key_id, dataset_id)
        try:
            return DataKey(_decrypted(storage_key, sealed, context))
        except SealBroken:
            raise InstallationError(
                "the data key of a dataset is damaged; restore the database"
            ) from None

    def is_newest(self, wrapped: bytes) -> bool:
        """Whether the newest storage key wrapped a data key."""
        return _parts(wrapped)[0] == self._newest

    def require(self, wrapped: Collection[bytes]) -> None:
        """Checks that this process has the storage key of every data key.

        Raises:
            InstallationError: a storage key is missing.
        """
        for wrapped_key in wrapped:
            key_id, _ = _parts(wrapped_key)
            if key_id not in self._keys:
                raise _unknown(key_id)


def _parts(wrapped: bytes) -> tuple[bytes, bytes]:
    """The id of the storage key, and the nonce with the encrypted data key."""
    start = len(_WRAP_VERSION)
    return wrapped[start : start + KEY_ID_BYTES], wrapped[start + KEY_ID_BYTES :]


def _wrap_context(key_id: bytes, dataset_id: str) -> bytes:
    return _WRAP_DOMAIN + _WRAP_VERSION + key_id + dataset_id.encode("ascii")


def _decrypted(key: bytes, sealed: bytes, context: bytes | None) -> bytes:
    try:
        return AESGCM(key).decrypt(
            sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context
        )
    except (InvalidTag, ValueError):
        raise SealBroken from None


def _unknown(key_id: bytes) -> InstallationError:
    return InstallationError(
        f"data keys in the database are wrapped with the storage key {key_id.hex()}, which this process does not have. "
        "Put the key back; without it the stored rows cannot be read"
    )


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
        """Opens a file that gets its name when the block ends well; see
        :meth:`app.core.files.Store.new`.
        """
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
        """Decrypts every chunk of the file into the same memory, which nobody reads;
        raises what :meth:`open` raises.
        """
        text = memoryview(bytearray(CHUNK_BYTES))
        with self.open() as reader:
            for start in range(0, reader.size, CHUNK_BYTES):
                reader.read_into(start, text[: reader.size - start])


class Writer:
    """Encrypts a stream of bytes into a file, with one chunk in memory. pyarrow writes
    to it.

    The file is complete only after :meth:`finish`.

    Args:
        file: empty; stays open.
        name: of the file, without folders.
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
            # more text follows, so this chunk is not the last
            if len(self._waiting) == CHUNK_BYTES:
                self._put(self._waiting, is_last=False)
                self._waiting.clear()
            piece = view[taken : taken + CHUNK_BYTES - len(self._waiting)]
            taken += len(piece)
            # A whole chunk of a large text is encrypted in place. The last one waits: it
            # may be the last of the file, which only the next call knows.
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
        self.size_bytes += self._file.write(
            self._seal.encrypted(chunk, self._n_chunks, is_last=is_last)
        )
        self._n_chunks += 1


class Reader(SeekableReader):
    """Reads an encrypted file at any place. pyarrow reads from it.

    Args:
        file: an encrypted file; closed with this reader.
        name: of the file, without folders.

    Raises:
        SealBroken: at once and at every read, if the file is damaged, incomplete or of
            another key or name. Bytes of a chunk that is not authentic are never
            returned.
    """

    def __init__(self, file: BinaryIO, key: DataKey, *, name: str = "") -> None:
        self._file = file
        file.seek(0)
        self._seal = _Seal(file.read(HEADER_BYTES), key, name)
        n_sealed = file.seek(0, os.SEEK_END) - HEADER_BYTES
        self._n_chunks = -(-n_sealed // _STRIDE)
        self.size = n_sealed - self._n_chunks * TAG_BYTES
        # A last chunk that is shorter than its tag makes the size too small.
        has_short_chunk = (self._n_chunks - 1) * CHUNK_BYTES > self.size
        if self._n_chunks < 1 or self.size < 0 or has_short_chunk:
            raise SealBroken
        self._index, self._chunk = -1, memoryview(b"")
        # Authenticates the length before anything is read by it.
        self._chunk_at(self._n_chunks - 1)

    @property
    def file_id(self) -> bytes:
        """The random id of the file, which is in its header alone: a file that replaces
        this one has another id.
        """
        return self._seal.header[-FILE_ID_BYTES:]

    def read_range(self, start: int, end: int) -> bytes:
        text = bytearray(end - start)
        self.read_into(start, memoryview(text))
        return bytes(text)

    def read_into(self, start: int, text: memoryview) -> None:
        """Fills ``text`` with the bytes from ``start``. If it raises an error, ``text``
        is of no use.
        """
        filled = 0
        while filled < len(text):
            index, offset = divmod(start + filled, CHUNK_BYTES)
            piece = text[filled : filled + CHUNK_BYTES - offset]
            if len(piece) == CHUNK_BYTES:
                self._decrypt(index, piece)
            else:
                piece[:] = self._chunk_at(index)[offset : offset + len(piece)]
            filled += len(piece)

    def close(self) -> None:
        """Closes the file, too."""
        if not self.closed:
            self._file.close()
        super().close()

    def _chunk_at(self, index: int) -> memoryview:
        """The text of a chunk. The last one of these is kept, since consecutive reads
        often share a chunk.
        """
        if index != self._index:
            # no chunk, until it is authentic: a failed one may have been decrypted in part
            self._index = -1
            n_bytes = min(CHUNK_BYTES, self.size - index * CHUNK_BYTES)
            self._chunk = memoryview(bytearray(n_bytes))
            self._decrypt(index, self._chunk)
            self._index = index
        return self._chunk

    def _decrypt(self, index: int, text: memoryview) -> None:
        self._file.seek(HEADER_BYTES + index * _STRIDE)
        is_last = index == self._n_chunks - 1
        self._seal.decrypt(self._file.read(_STRIDE), index, text, is_last=is_last)


class Spool:
    """A file without a name, encrypted with a key that exists in this object only:
    written once, then read.

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
    """The header of a file, and the key that its chunks are encrypted with.

    Raises:
        SealBroken: the header is of no known form, or of another key.
    """

    def __init__(self, header: bytes, key: DataKey, name: str) -> None:
        key_id = _key_id(key)
        known = (_PREFIX + key_id, _UNNAMED_PREFIX + key_id)
        if len(header) != HEADER_BYTES or not header.startswith(known):
            raise SealBroken
        self.header = header
        purpose = _UNNAMED_FILE_KEY
        if header.startswith(_PREFIX):
            purpose = _FILE_KEY + name.encode()
        self._cipher = AESGCM(key.derived(purpose, salt=header[-FILE_ID_BYTES:]))

    @classmethod
    def new(cls, key: DataKey, name: str) -> "_Seal":
        file_id = secrets.token_bytes(FILE_ID_BYTES)
        return cls(_PREFIX + _key_id(key) + file_id, key, name)

    def encrypted(
        self, text: bytearray | memoryview, index: int, *, is_last: bool
    ) -> bytes:
        # A counter may be the nonce, because each file has a key of its own.
        context = self._context(index, is_last=is_last)
        return self._cipher.encrypt(index.to_bytes(_NONCE_BYTES), text, context)

    def decrypt(
        self, sealed: bytes, index: int, text: memoryview, *, is_last: bool
    ) -> None:
        context = self._context(index, is_last=is_last)
        try:
            self._cipher.decrypt_into(
                index.to_bytes(_NONCE_BYTES), sealed, context, text
            )
        except (InvalidTag, ValueError):
            raise SealBroken from None

    def _context(self, index: int, *, is_last: bool) -> bytes:
        return self.header + index.to_bytes(8) + is_last.to_bytes()


def _key_id(key: DataKey) -> bytes:
    return key.derived(_KEY_ID, n_bytes=KEY_ID_BYTES)

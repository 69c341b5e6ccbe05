"""Computes keyed fingerprints of rows, by which an owner finds uploads that contain the
same rows.

The fingerprint of a row is a keyed hash of its features and labels as they were parsed,
in the order of the declaration: of the values of numbers before they are clamped, and
of the texts of declared categories. All undeclared texts of a column are one value, as
they are in the stored rows. Without the key, nobody can test a guess against the files.
The unit column is left out, so that a copy with other identifiers for people is
recognised, too. Fingerprints are stored in a folder beside the rows, encrypted under
the same data key, and erased with them.

The hash is AES-CMAC (RFC 4493), of which 64 bits are kept, computed for all rows of a
block at once: one call of a library for each row, of BLAKE2 as of another hash, costs
as much as the rest of the upload. The message of a row is the number of its columns and
a word of 64 bits for each: the bits of a number, or the keyed BLAKE2b of a category,
which is computed once for each category of the declaration.

No balance, cap, population or job depends on fingerprints. They are compared only when
an owner asks, and only with other datasets of the same owner
(docs/adr/0011-overlap-is-shown-not-held.md).

The digest of an upload's cells recognises the same rows in another packing. It covers
all rows of the upload in their order: their fingerprints, units and cells of
partitions. Its key belongs to one dataset and one caller's key.
"""

import hmac
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from app.core.errors import InstallationError
from app.core.files import Store, StoredFile
from app.core.sealed_files import SealBroken, SealedFile
from grovekeeper_forests.array_types import Float64Array, UInt64Array
from grovekeeper_forests.data.schema import Schema

KEY_BYTES = 32
FINGERPRINT_BYTES = 8
"""Two different rows share a fingerprint once in 2⁶⁴ pairs: enough for a hint."""

KEY_FILE = "fingerprint.key"
"""Name in the store of the key of all fingerprints of an installation."""

_ROW_KEY = b"grovekeeper/fingerprint-row/2"
_TEXT_KEY = b"grovekeeper/fingerprint-text/2"
_UNDECLARED = "\0"
"""Of an undeclared text; no category has a NUL."""

_EMPTY = ""
_REDUCTION = 0x87  # of CMAC's subkeys for blocks of 128 bits
_STORED = np.dtype("<u8")
_NOTHING: UInt64Array = np.empty(0, dtype=_STORED)
_PASS_BYTES = 64 * 1024 * 1024
_CHUNK = 2**20


@dataclass(frozen=True)
class Fingerprints:
    """The fingerprint file of one upload, and what recognises the upload.

    Attributes:
        key: secret; of the fingerprints of rows.
        cells_key: secret; of the digest of the upload's cells.
        body: the keyed fingerprint of the upload's body.
    """

    destination: SealedFile
    key: bytes = field(repr=False)
    cells_key: bytes = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


class RowHash:
    """The fingerprints of the rows of one declaration: AES-CMAC of their words."""

    def __init__(self, key: bytes, schema: Schema) -> None:
        # Each block is XORed with the result of the one before, so equal blocks do not
        # show: the mode is CMAC's.
        row_key = AES256(hmac.digest(key, _ROW_KEY, "sha256"))
        self._aes = Cipher(row_key, ECB()).encryptor()  # noqa: S305
        text_key = hmac.digest(key, _TEXT_KEY, "sha256")
        self._words: list[UInt64Array | None] = []
        for feature in schema.features:
            words = None
            if feature.is_categorical:
                # in the order of the codes: categories, OTHER, MISSING
                texts = [*feature.categories, _UNDECLARED, _EMPTY]
                words = _words_of(texts, text_key)
            self._words.append(words)
        for label in schema.labels:
            words = None
            if not label.has_numbers:
                # Code −1, an unknown class, takes the last word.
                classes = [*label.classes, _UNDECLARED, _EMPTY]
                words = _words_of(classes, text_key)
            self._words.append(words)
        # The first subkey, twice the encrypted zero in the field of 128 bits (RFC 4493,
        # section 2.3). Zeros fill the last block, so CMAC's second subkey has no use.
        zero = self._encrypted(np.zeros((1, 2), _STORED))
        encrypted_zero = int.from_bytes(zero.tobytes())
        subkey = (encrypted_zero << 1) % 2**128
        if encrypted_zero >> 127:
            subkey ^= _REDUCTION
        self._subkey = np.frombuffer(subkey.to_bytes(16), _STORED)

    def of_rows(self, columns: Sequence[pa.Array]) -> UInt64Array:
        """The fingerprints of one block, PRIVATE.

        Args:
            columns: PRIVATE; the features and the labels: float64 with NaN for an empty
                cell, or codes.
        """
        if not len(columns[0]):
            return _NOTHING
        states = np.zeros((len(columns[0]), 2), _STORED)
        # The number of columns comes first: the last block is filled with zeros, so that
        # messages of two lengths could be equal otherwise.
        states[:, 0] = len(columns)
        pairs = zip(columns, self._words, strict=True)
        for place, (column, words) in enumerate(pairs, start=1):
            # two words are a block
            if place % 2 == 0:
                states = self._encrypted(states)
            cells = column.to_numpy()
            states[:, place % 2] ^= _bits(cells) if words is None else words[cells]
        return self._encrypted(states ^ self._subkey)[:, 0].copy()

    def _encrypted(self, blocks: UInt64Array) -> UInt64Array:
        # the library wants room for one more block, without its last byte
        room = np.empty(blocks.size + 2, _STORED)
        self._aes.update_into(blocks.data.cast("B"), room.data.cast("B"))
        return room[: blocks.size].reshape(blocks.shape)


def _words_of(texts: Sequence[str], key: bytes) -> UInt64Array:
    digests = [
        blake2b(text.encode(), digest_size=FINGERPRINT_BYTES, key=key).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), _STORED)


def _bits(numbers: Float64Array) -> UInt64Array:
    """The bits of numbers; equal numbers have equal bits."""
    values = numbers + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan  # a NaN has many patterns of bits
    return values.view(np.uint64)


@dataclass(frozen=True)
class Overlap:
    """Rows that one upload shares with others. The counts are exact and PRIVATE: shown
    to the owner, never logged.

    Attributes:
        rows: number of rows of the upload.
        distinct: number of different rows among them.
        shared: by name of a set of other uploads, the number of this upload's rows that
            the set holds, too.
    """

    rows: int = field(repr=False)
    distinct: int = field(repr=False)
    shared: Mapping[str, int] = field(repr=False)


def side_by_side(columns: Sequence[NDArray[Any]]) -> bytes:
    """The bytes of columns of fixed width, row after row. So a digest does not depend
    on where blocks of rows end.
    """
    cells = [
        np.ascontiguousarray(column)[:, np.newaxis].view(np.uint8) for column in columns
    ]
    return np.concatenate(cells, axis=1).tobytes()


def installation_key(store: Store) -> bytes:
    """The key of an installation's fingerprints and digests of uploads. Created on
    first use; never leaves the store.

    Raises:
        InstallationError: the key file is damaged.
    """
    file = StoredFile(store, KEY_FILE)
    try:
        key = file.read_bytes()
    except FileNotFoundError:
        # the first of several processes wins
        with store.new(KEY_FILE, existing="keep") as written:
            written.write(secrets.token_bytes(KEY_BYTES))
        key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise InstallationError(
            f"{KEY_FILE} in the store is damaged; restore it, or remove it to begin anew"
        )
    return key


def compare(
    uploads: Mapping[str, SealedFile], others: Mapping[str, Mapping[str, SealedFile]]
) -> dict[str, Overlap]:
    """Counts the rows of some uploads that occur in others. Large sets are compared in
    parts, so memory is bounded.

    Args:
        others: sets of uploads by name, each with its files by upload. An upload that
            is in a set is not compared with itself.

    Returns:
        One overlap per upload, every set's name in ``shared``.

    Raises:
        FileNotFoundError: a file was erased meanwhile.
        InstallationError: a file is damaged.
    """
    files = set(uploads.values())
    for named in others.values():
        files.update(named.values())
    n_parts = sum(map(_size_bytes, files)) // _PASS_BYTES + 1
    rows = dict.fromkeys(uploads, 0)
    distinct = dict.fromkeys(uploads, 0)
    shared = {upload: dict.fromkeys(others, 0) for upload in uploads}
    for part in range(n_parts):
        parts = {upload: _part(file, part, n_parts) for upload, file in uploads.items()}
        for upload, part_prints in parts.items():
            rows[upload] += len(part_prints)
            distinct[upload] += len(np.unique(part_prints))
        for name, named in others.items():
            theirs = {
                upload: np.unique(_part(file, part, n_parts))
                for upload, file in named.items()
            }
            # Sorted once for the whole set: sorting it for each upload takes hours for
            # a dataset with daily uploads.
            prints = np.concatenate([_NOTHING, *theirs.values()])
            in_any, n_uploads = np.unique(prints, return_counts=True)
            # An upload of the set finds its own rows there once, so it shares those that
            # the set has twice.
            in_several = in_any[n_uploads > 1]
            for upload, part_prints in parts.items():
                ordered = in_several if upload in theirs else in_any
                shared[upload][name] += _n_within(part_prints, ordered)
    return {
        upload: Overlap(rows[upload], distinct[upload], shared[upload])
        for upload in uploads
    }


def _size_bytes(file: SealedFile) -> int:
    with file.file.open() as stored:
        return stored.seek(0, os.SEEK_END)


def _n_within(prints: UInt64Array, ordered: UInt64Array) -> int:
    first = np.searchsorted(ordered, prints, side="left")
    last = np.searchsorted(ordered, prints, side="right")
    return int(np.count_nonzero(last - first))


def _part(file: SealedFile, part: int, n_parts: int) -> UInt64Array:
    """The fingerprints of a file that belong to one part. Keyed hashes make the parts
    equally large.
    """
    chunks = [chunk[chunk % n_parts == part] for chunk in _chunks(file)]
    return np.concatenate([_NOTHING, *chunks])


def _chunks(file: SealedFile) -> Iterator[UInt64Array]:
    try:
        with file.open() as reader:
            while chunk := reader.read(_CHUNK * FINGERPRINT_BYTES):
                yield np.frombuffer(chunk, dtype=_STORED)
    except SealBroken:
        raise InstallationError(
            "a file of fingerprints is damaged; restore it from a backup"
        ) from None

"""Computes keyed fingerprints of rows, by which an owner finds uploads that contain the same rows.

The fingerprint of a row is a keyed hash of its features and label as they were uploaded, in the order of the
declaration: of the values of numbers, and of texts without spaces around them. Without the key, nobody can test a guess
against the files. The unit column is left out, so that a copy with other identifiers for people is recognised, too.
Fingerprints are stored in a folder beside the rows, encrypted under the same data key, and erased with them.

The hash is PMAC (Black and Rogaway, 2002) with masks that are a function of the block's place: AES of each block XOR
its mask, summed by XOR, and AES of the sum with another key, of which 64 bits are kept. All blocks of many rows are
encrypted in one call, which a hash of one row after another would not allow. A row is encoded as its numbers, two to a
block, and then its texts with separators, filled up with NUL, which no stored text contains: different rows have
different blocks.

No balance, cap, population or job depends on fingerprints. They are compared only when an owner asks, and only
with other datasets of the same owner (docs/adr/0011-overlap-is-shown-not-held.md).

The digest of an upload's cells recognises the same rows in another packing. It covers all rows of the upload in their
order: their fingerprints, units and cells of partitions. Its key belongs to one dataset and one caller's key.
"""

import hmac
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from app.core.errors import InstallationError
from app.core.files import Store, StoredFile
from app.core.sealed_files import SealBroken, SealedFile

KEY_BYTES = 32
FINGERPRINT_BYTES = 8
"""Two different rows share a fingerprint once in 2⁶⁴ pairs: enough for a hint."""

KEY_FILE = "fingerprint.key"
"""Name in the store of the key of all fingerprints of an installation."""

_BLOCK_KEY = b"grovekeeper/fingerprint-block/1"
_MASK_KEY = b"grovekeeper/fingerprint-mask/1"
_SUM_KEY = b"grovekeeper/fingerprint-sum/1"
_BLOCK_BYTES = 16
_SEPARATOR = "\x1f"
_STORED = np.dtype("<u8")
_PASS_BYTES = 64 * 1024 * 1024
_CHUNK = 2**20
_PASS_ROWS = 2**12
"""Rows that are hashed together: their blocks stay in the processor's cache, and in memory that the process has."""


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

    def of_rows(self, columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
        """The fingerprints of one block, PRIVATE.

        Args:
            columns: PRIVATE; the features and the label: float64 with NaN for an empty cell, or text without NUL, in
                a dictionary or not.
        """
        if not len(columns[0]):
            return _NOTHING
        numbers = [column.to_numpy() for column in columns if column.type == "double"]
        texts = _joined([column for column in columns if column.type != "double"])
        return _Mac(self.key).of_rows(numbers, *texts)


@dataclass(frozen=True)
class Overlap:
    """Rows that one upload shares with others. The counts are exact and PRIVATE: shown to the owner, never logged.

    Attributes:
        rows: number of rows of the upload.
        distinct: number of different rows among them.
        shared: by name of a set of other uploads, the number of this upload's rows that the set holds, too.
    """

    rows: int = field(repr=False)
    distinct: int = field(repr=False)
    shared: Mapping[str, int] = field(repr=False)


def side_by_side(columns: Sequence[NDArray[Any]]) -> bytes:
    """The bytes of columns of fixed width, row after row. So a digest does not depend on where blocks of rows end."""
    cells = [np.ascontiguousarray(column)[:, np.newaxis].view(np.uint8) for column in columns]
    return np.concatenate(cells, axis=1).tobytes()


def installation_key(store: Store) -> bytes:
    """The key of an installation's fingerprints and digests of uploads. Created on first use; never leaves the store.

    Raises:
        InstallationError: the key file is damaged.
    """
    file = StoredFile(store, KEY_FILE)
    try:
        key = file.read_bytes()
    except FileNotFoundError:
        with file.new(existing="keep") as written:  # the first of several processes wins
            written.write(secrets.token_bytes(KEY_BYTES))
        key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise InstallationError(f"{KEY_FILE} in the store is damaged; restore it, or remove it to begin anew")
    return key


def compare(uploads: Mapping[str, SealedFile], others: Mapping[str, Mapping[str, SealedFile]]) -> dict[str, Overlap]:
    """Counts the rows of some uploads that occur in others. Large sets are compared in parts, so memory is bounded.

    Args:
        others: sets of uploads by name, each with its files by upload. An upload that is in a set is not compared
            with itself.

    Returns:
        One overlap per upload, every set's name in ``shared``.

    Raises:
        FileNotFoundError: a file was erased meanwhile.
        InstallationError: a file is damaged.
    """
    files = {*uploads.values(), *(file for named in others.values() for file in named.values())}
    n_parts = sum(map(_size_bytes, files)) // _PASS_BYTES + 1
    rows, distinct = dict.fromkeys(uploads, 0), dict.fromkeys(uploads, 0)
    shared = {upload: dict.fromkeys(others, 0) for upload in uploads}
    for part in range(n_parts):
        parts = {upload: _part(file, part, n_parts) for upload, file in uploads.items()}
        for upload, part_prints in parts.items():
            rows[upload] += len(part_prints)
            distinct[upload] += len(np.unique(part_prints))
        for name, named in others.items():
            theirs = {upload: np.unique(_part(file, part, n_parts)) for upload, file in named.items()}
            # Sorted once for the whole set: sorting it for each upload takes hours for a dataset with daily uploads.
            in_any, n_uploads = np.unique(np.concatenate([_NOTHING, *theirs.values()]), return_counts=True)
            in_several = in_any[n_uploads > 1]
            for upload, part_prints in parts.items():
                shared[upload][name] += _n_within(part_prints, in_several if upload in theirs else in_any)
    return {upload: Overlap(rows[upload], distinct[upload], shared[upload]) for upload in uploads}


def _size_bytes(file: SealedFile) -> int:
    with file.file.open() as stored:
        return stored.seek(0, os.SEEK_END)


class _Mac:
    def __init__(self, key: bytes) -> None:
        self._encrypt_blocks, self._encrypt_masks, self._encrypt_sums = (
            _encryptor(hmac.digest(key, purpose, "sha256")) for purpose in (_BLOCK_KEY, _MASK_KEY, _SUM_KEY)
        )

    def of_rows(
        self, numbers: Sequence[NDArray[np.float64]], text: NDArray[np.uint64], n_text_blocks: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """The hash of each row, 64 bits.

        Args:
            numbers: PRIVATE; float64 ``(n_rows,)`` of every column of numbers.
            text: PRIVATE, shape ``(n_rows' blocks in all, 2)``: the further blocks of all rows, row after row.
            n_text_blocks: of each row, at least one.
        """
        n_number_blocks = -(-len(numbers) // 2)
        masks = self._masks(n_number_blocks + int(n_text_blocks.max()))
        ends = np.concatenate([[0], n_text_blocks.cumsum()])
        hashes = np.empty(len(n_text_blocks), _STORED)
        for start in range(0, len(hashes), _PASS_ROWS):
            rows = slice(start, start + _PASS_ROWS)
            starts = ends[:-1][rows] - ends[start]
            of_text = text[ends[start] : ends[min(rows.stop, len(hashes))]]
            sums = self._sums_of_text(of_text, starts, n_text_blocks[rows], masks[n_number_blocks:])
            block = np.zeros_like(sums)
            for place in range(n_number_blocks):
                for half, column in enumerate(numbers[2 * place : 2 * place + 2]):
                    np.bitwise_xor(_bits(column[rows]), masks[place, half], out=block[:, half])
                if len(numbers) == 2 * place + 1:
                    block[:, 1] = masks[place, 1]
                sums ^= _encrypted(self._encrypt_blocks, block)
            hashes[rows] = _encrypted(self._encrypt_sums, sums)[:, 0]
        return hashes

    def _sums_of_text(
        self,
        text: NDArray[np.uint64],
        starts: NDArray[np.int64],
        n_blocks: NDArray[np.int64],
        masks: NDArray[np.uint64],
    ) -> NDArray[np.uint64]:
        places = np.arange(len(text)) - starts.repeat(n_blocks)
        # Masks are moved as elements of 16 bytes: NumPy moves rows of two elements several times slower.
        masked = masks.view(np.complex128)[:, 0].take(places).view(np.uint64).reshape(text.shape)
        masked ^= text
        return np.bitwise_xor.reduceat(_encrypted(self._encrypt_blocks, masked), starts)

    def _masks(self, n_places: int) -> NDArray[np.uint64]:
        """The mask of each place, shape ``(n_places, 2)``."""
        places = np.zeros((n_places, 2), np.uint64)
        places[:, 0] = np.arange(n_places)
        return _encrypted(self._encrypt_masks, places)


def _encryptor(key: bytes) -> CipherContext:
    # Each block is XORed with the mask of its place before, so equal blocks do not show: the mode is a part of PMAC.
    return Cipher(AES256(key), ECB()).encryptor()  # noqa: S305


def _encrypted(encryptor: CipherContext, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    room = np.empty(blocks.size + 2, np.uint64)  # the library wants room for one more block, without its last byte
    encryptor.update_into(blocks.data.cast("B"), room.data.cast("B"))
    return room[: blocks.size].reshape(blocks.shape)


def _bits(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """The bits of numbers; equal numbers have equal bits."""
    values = numbers + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _joined(texts: Sequence[pa.Array]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The texts of each row with separators, as blocks that are filled up with NUL, and the number of blocks of each
    row."""
    joined = pc.binary_join_element_wise(*map(_trimmed, texts), _SEPARATOR)
    n_bytes = pc.binary_length(joined).to_numpy().astype(np.int64)
    n_blocks = np.maximum(-(-n_bytes // _BLOCK_BYTES), 1)
    fillings = pa.array(["\0" * length for length in range(_BLOCK_BYTES + 1)])
    filled = pc.binary_join_element_wise(joined, fillings.take(pa.array(n_blocks * _BLOCK_BYTES - n_bytes)), "")
    n_all = int(n_blocks.sum())
    return np.frombuffer(filled.buffers()[2], np.uint64, count=2 * n_all).reshape(n_all, 2), n_blocks


def _trimmed(texts: pa.Array) -> pa.Array:
    """Texts without white space around them. No text has a space if no byte is a space or a control character."""
    if pa.types.is_dictionary(texts.type):
        return _trimmed(texts.dictionary).take(texts.indices)
    characters = texts.buffers()[2]
    if characters is not None and characters.size and np.frombuffer(characters, np.uint8).min() <= ord(" "):
        return pc.ascii_trim_whitespace(texts)
    return texts


_NOTHING: NDArray[np.uint64] = np.empty(0, dtype=_STORED)


def _n_within(prints: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> int:
    places = np.searchsorted(ordered, prints, side="right") - np.searchsorted(ordered, prints, side="left")
    return int(np.count_nonzero(places))


def _part(file: SealedFile, part: int, n_parts: int) -> NDArray[np.uint64]:
    """The fingerprints of a file that belong to one part. Keyed hashes make the parts equally large."""
    return np.concatenate([_NOTHING, *(chunk[chunk % n_parts == part] for chunk in _chunks(file))])


def _chunks(file: SealedFile) -> Iterator[NDArray[np.uint64]]:
    try:
        with file.open() as reader:
            while chunk := reader.read(_CHUNK * FINGERPRINT_BYTES):
                yield np.frombuffer(chunk, dtype=_STORED)
    except SealBroken:
        raise InstallationError("a file of fingerprints is damaged; restore it from a backup") from None

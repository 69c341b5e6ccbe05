"""Computes keyed fingerprints of rows, by which an owner finds uploads that contain the same rows.

The fingerprint of a row is a keyed hash of its features and label as they were uploaded, in the order of the
declaration, without spaces around the cells. Without the key, nobody can test a guess against the files. The unit
column is left out, so that a copy with other identifiers for people is recognised, too. Fingerprints are stored in a
folder beside the rows, encrypted under the same data key, and erased with them.

No balance, cap, population, upload or job depends on fingerprints. They are compared only when an owner asks, and only
with other datasets of the same owner (docs/adr/0011-overlap-is-shown-not-held.md).
"""

import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.core import durable
from app.core.data_keys import SealBroken
from app.core.errors import InstallationError
from app.core.sealed_files import SealedFile, Writer

if TYPE_CHECKING:  # pyarrow takes 0.2 s of CPU and 40 MB to import
    import pyarrow as pa

KEY_BYTES = 32
FINGERPRINT_BYTES = 8
"""Two different rows share a fingerprint once in 2⁶⁴ pairs: enough for a hint."""

_KEY_FILE = "fingerprint.key"
_DOMAIN = b"grovekeeper/fingerprint/1\0"
_SEPARATOR = "\x1f"
_STORED = np.dtype("<u8")
_PASS_BYTES = 64 * 1024 * 1024
_CHUNK = 2**20


@dataclass(frozen=True)
class Fingerprints:
    """The fingerprint file of one upload, the key of its fingerprints, and the keyed fingerprint of its body."""

    destination: SealedFile
    key: bytes = field(repr=False)
    body: bytes | None = field(default=None, repr=False)

    def write(self, file: Writer, columns: "Sequence[pa.Array]") -> None:
        """Appends the fingerprints of one block.

        Args:
            file: the file that becomes ``destination``.
            columns: PRIVATE; text of the features and the label of the stored rows.
        """
        import pyarrow.compute as pc

        cells = [pc.ascii_trim_whitespace(column) for column in columns]
        rows = pc.binary_join_element_wise(*cells, _SEPARATOR).to_pylist()
        digest, key = hmac.digest, self.key
        file.write(b"".join(digest(key, _DOMAIN + row.encode(), "sha256")[:FINGERPRINT_BYTES] for row in rows))


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


def key_file(home: Path) -> Path:
    """The file of the key of all fingerprints of an installation."""
    return home / _KEY_FILE


def installation_key(home: Path) -> bytes:
    """The key of an installation's fingerprints and digests of uploads. Created on first use; never leaves the home.

    Raises:
        InstallationError: the key file is damaged.
    """
    file = key_file(home)
    if not file.exists():
        durable.write(file, secrets.token_bytes(KEY_BYTES), existing="keep")  # the first of several processes wins
    key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise InstallationError(f"{_KEY_FILE} in the home is damaged; restore it, or remove it to begin anew")
    return key


def compare(uploads: Mapping[str, SealedFile], others: Mapping[str, Mapping[str, SealedFile]]) -> dict[str, Overlap]:
    """Counts the rows of some uploads that occur in others. Large sets are compared in parts, so memory is bounded.

    Args:
        uploads: fingerprint files by upload.
        others: sets of uploads by name, each with its files by upload. An upload that is in a set is not compared
            with itself.

    Returns:
        One overlap per upload, every set's name in ``shared``.

    Raises:
        FileNotFoundError: a file was erased meanwhile.
        InstallationError: a file is damaged.
    """
    files = {*uploads.values(), *(file for named in others.values() for file in named.values())}
    n_parts = sum(file.path.stat().st_size for file in files) // _PASS_BYTES + 1
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


_NOTHING: NDArray[np.uint64] = np.empty(0, dtype=_STORED)


def _n_within(prints: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> int:
    """The number of fingerprints that occur among others, which are sorted."""
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

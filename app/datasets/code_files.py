"""Stores the codes of an upload's rows by public bins, so that later jobs with the same
bins read no values.

A file is sealed under a key that is derived from the dataset's data key, the bins and
the random id of the file of the rows. That id is in the header of the file of the rows
alone. So codes cannot be read once the rows were erased or replaced, even if a job that
had opened the rows before writes the codes afterwards; erasures also remove the files.

The text of a file has, for every row group of the rows: the codes, or their lowest
bytes, one column after another, then the ninth bits of codes of nine bits
(:class:`grovekeeper_forests.data.coded_rows.CodedBlock`).
"""

import errno
import hashlib
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from itertools import accumulate
from types import TracebackType

import numpy as np

from app.core import limits
from app.core.files import Directory, StoredFile
from app.core.sealed_files import DataKey, Reader, SealBroken, SealedFile, Writer
from app.datasets import row_files
from grovekeeper_forests.data.coded_rows import CodedBlock
from grovekeeper_forests.data.encoding import Encoding

FEWEST_ROWS = 2**16
"""Codes of fewer rows are not stored: reading their values takes less than a tenth of a
second.
"""

MAX_FILES = 3
"""Most files of codes of one upload, for example those of both public grids and of the
forests with public bins.
"""

_PURPOSE = b"grovekeeper/codes/1"


def file_of(rows: SealedFile, rows_id: bytes, public: Encoding) -> SealedFile | None:
    """The sealed file of the codes of an upload; ``None`` if its rows are not on this
    machine.

    Args:
        rows_id: the id in its header, as the rows were opened.
    """
    if not isinstance(rows.file.store, Directory):
        return None
    digest = _digest(public)
    path = rows.file.local()
    folder = path.parents[1].with_name(row_files.CODES_FOLDER) / path.parent.name
    path = folder / f"{path.stem}.{digest.hex()[:16]}.codes"
    # The whole digest is in the key: bins whose names are equal by chance cannot read
    # the codes of one another.
    key = DataKey(rows.key.derived(_PURPOSE + digest, salt=rows_id))
    return SealedFile.at(path, key)


def _digest(public: Encoding) -> bytes:
    """A digest of everything that the codes of a row depend on, except the row."""
    digest = hashlib.sha256(repr(public.schema.features).encode())
    for edges in public.edges:
        if edges is None:
            digest.update(b"|")
        else:
            digest.update(len(edges).to_bytes(4) + edges.tobytes())
    return digest.digest()


class CodeReader:
    """Reads stored codes by row group. Files that are absent, damaged or of other rows
    have no codes.

    Args:
        file: from :func:`file_of`, or ``None`` if there are no codes.
        group_rows: number of rows of every row group.
        n_bits: see :func:`grovekeeper_forests.data.coded_rows.code_bits`.

    Attributes:
        has_codes: whether there are codes to read.
    """

    def __init__(
        self,
        file: SealedFile | None,
        *,
        n_columns: int,
        group_rows: Sequence[int],
        n_bits: int,
    ) -> None:
        self._n_columns = n_columns
        self._group_rows = group_rows
        self._n_bits = n_bits
        # whole bytes for the bits of a column
        column_bytes = [-(-n_rows * n_bits // 8) for n_rows in group_rows]
        group_bytes = [n_columns * n_bytes for n_bytes in column_bytes]
        self._ends = [0, *accumulate(group_bytes)]
        self._reader: Reader | None = None
        if file is not None:
            with suppress(SealBroken, OSError):
                self._reader = file.open()
        # of another layout
        if self._reader is not None and self._reader.size != self._ends[-1]:
            self.close()
        self.has_codes = self._reader is not None

    def read(self, group: int) -> CodedBlock | None:
        """PRIVATE codes of a row group; ``None`` if there are none."""
        n_whole_bytes = self._n_bits // 8
        n_low = self._n_columns * self._group_rows[group] * n_whole_bytes
        if self._reader is None or n_low == 0:
            return None
        start, end = self._ends[group : group + 2]
        text = np.empty(end - start, dtype=np.uint8)
        try:
            self._reader.read_into(start, text.data)
        except (SealBroken, OSError):
            return None
        low = text[:n_low].view(f"u{n_whole_bytes}").reshape(self._n_columns, -1)
        return CodedBlock(low, text[n_low:].reshape(self._n_columns, -1))

    def close(self) -> None:
        """Closes the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class CodeWriter:
    """Writes codes by row group into a file that gets its name when the block ends
    well.

    Codes are a copy of what is in the rows, so a file that cannot be written is given
    up and nothing fails.

    Args:
        file: from :func:`file_of`.
    """

    def __init__(self, file: SealedFile) -> None:
        self._file = file
        self._unfinished: AbstractContextManager[Writer] | None = None

    def __enter__(self) -> "CodeWriter":
        unfinished = self._file.new(existing="replace")
        with suppress(OSError):
            _make_room(self._file.file)
            self._writer = unfinished.__enter__()
            self._unfinished = unfinished
        return self

    def write(self, block: CodedBlock) -> None:
        """Appends the PRIVATE codes of the next row group."""
        if self._unfinished is None:
            return
        try:
            self._require_room(block)
            for part in (block.low, block.high):
                if part.size:
                    self._writer.write(np.ascontiguousarray(part).data)
        except OSError as error:
            self.__exit__(OSError, error, None)

    def _require_room(self, block: CodedBlock) -> None:
        """Leaves the room that was looked at before the charge: of the job's own model,
        too.
        """
        assert isinstance(self._file.file.store, Directory)
        free_bytes = shutil.disk_usage(self._file.file.store.folder).free
        left_bytes = free_bytes - block.low.nbytes - block.high.nbytes
        if left_bytes < limits.MIN_FREE_UPLOAD_BYTES:
            raise OSError(errno.ENOSPC, "too little space for codes")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            with suppress(OSError):
                unfinished.__exit__(kind, error, traceback)


def _make_room(file: StoredFile) -> None:
    """Removes the oldest files of codes of the same upload, so that at most
    :data:`MAX_FILES` stay with this one.
    """
    upload = f"{file.name.partition('.')[0]}."
    others = [
        other
        for other in file.store.files("")
        if other.name.startswith(upload) and other.name != file.name
    ]
    others.sort(key=lambda other: other.changed_at)
    for other in others[: -(MAX_FILES - 1)]:
        file.store.delete(other.name)

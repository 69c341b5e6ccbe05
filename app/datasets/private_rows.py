"""Reads stored private rows for releases that the ledger has charged. No other module reads private rows for a release.

(An erasure, :mod:`app.datasets.erasure`, copies row files and computes nothing from them.)
"""

from collections.abc import Sequence
from typing import overload

from app.core.sealed_files import SealedFile
from app.datasets import stored_rows
from app.datasets.row_layout import RowGroups
from app.datasets.stored_rows import Selection
from app.forests.data.coded_rows import CodedRows, CodeRequest
from app.forests.data.sanitiser import SanitisedRows
from app.forests.data.schema import Schema
from app.privacy.composition import Partitions, Scope


@overload
def read(
    files: Sequence[SealedFile],
    *,
    schema: Schema,
    partitions: Partitions,
    scope: Scope,
    keep_unlabelled: bool = False,
    codes: None = None,
) -> SanitisedRows: ...


@overload
def read(
    files: Sequence[SealedFile],
    *,
    schema: Schema,
    partitions: Partitions,
    scope: Scope,
    keep_unlabelled: bool = False,
    codes: CodeRequest,
) -> CodedRows: ...


def read(
    files: Sequence[SealedFile],
    *,
    schema: Schema,
    partitions: Partitions,
    scope: Scope,
    keep_unlabelled: bool = False,
    codes: CodeRequest | None = None,
) -> SanitisedRows | CodedRows:
    """Reads the rows of a job's scope. One call is one private read: commit the charge before it.

    Each row is kept or dropped by its own label and cells alone (lemma L6 in docs/proofs/lemmas.md).

    Args:
        files: public; the files of the epochs in scope, in the order of the returned rows.
        schema: public; the declaration under which the rows were stored.
        partitions: public; as declared.
        scope: public; the box of the job. Its epochs are ignored, because ``files`` are the files of those epochs.
        keep_unlabelled: keep rows without a known label, with class −1, for mechanisms that learn from features alone.
            Where only labels are protected, dropping such rows would reveal which labels are unknown.
        codes: public; read codes by public bins instead of values. A row group is in memory at a time; codes that an
            earlier job stored are read in place of values. Whether they are there depends on jobs, not on rows.

    Returns:
        PRIVATE rows; there may be no row.

    Raises:
        ValueError: the scope names a partition or cell that was not declared.
        InstallationError: a file is absent, damaged or of an unknown form.
    """
    selection = Selection(schema, partitions, scope, keep_unlabelled=keep_unlabelled)
    if codes is None:
        return stored_rows.read(files, selection)
    return stored_rows.read_codes(files, selection, codes)


def shards(files: Sequence[SealedFile], *, schema: Schema, partitions: Partitions, n_rows: int) -> list[RowGroups]:
    """Divides files into row groups of about ``n_rows`` rows together, which several machines read.

    The division depends on the number of rows of each upload, never on their values. It is PRIVATE, as that number is.

    Raises:
        InstallationError: a file is absent, damaged or of an unknown form.
    """
    selection = Selection(schema, partitions, {}, keep_unlabelled=True)
    return [shard for file in files for shard in stored_rows.shards(file, selection, n_rows=n_rows)]


def read_shard(
    shard: RowGroups,
    *,
    schema: Schema,
    partitions: Partitions,
    scope: Scope,
    keep_unlabelled: bool,
    codes: CodeRequest,
) -> CodedRows:
    """Reads row groups of one file; otherwise like :func:`read`. A shard is read again after its machine was lost.

    Raises:
        ValueError: the scope names a partition or cell that was not declared.
        InstallationError: the file is absent, damaged, of an unknown form, or took the place of the file of the shard.
    """
    selection = Selection(schema, partitions, scope, keep_unlabelled=keep_unlabelled)
    return stored_rows.read_codes([shard.file], selection, codes, within=shard)

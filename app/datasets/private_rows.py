"""Reads stored private rows for releases that the ledger has charged. No other module reads private rows for a release.

(An erasure, :mod:`app.datasets.erasure`, copies row files and computes nothing from them.)
"""

from collections.abc import Sequence

from app.core.sealed_files import SealedFile
from app.datasets import row_layout, stored_rows
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.privacy.composition import Partitions, Scope


def read(
    files: Sequence[SealedFile],
    *,
    schema: Schema,
    partitions: Partitions,
    scope: Scope,
    keep_unlabelled: bool = False,
) -> SanitisedRows:
    """Reads the rows of a job's scope. One call is one private read: commit the charge before it.

    Each row is kept or dropped by its own label and cells alone (lemma L6 in docs/proofs/lemmas.md).

    Args:
        files: public; the files of the epochs in scope, in the order of the returned rows.
        schema: public; the declaration under which the rows were stored.
        partitions: public; as declared.
        scope: public; the box of the job. Its epochs are ignored, because ``files`` are the files of those epochs.
        keep_unlabelled: keep rows without a known label, with class −1, for mechanisms that learn from features alone.
            Where only labels are protected, dropping such rows would reveal which labels are unknown.

    Returns:
        PRIVATE rows; there may be no row.

    Raises:
        ValueError: the scope names a partition or cell that was not declared.
        InstallationError: a file is absent, damaged or of an unknown form.
    """
    return stored_rows.read(
        files,
        schema=schema,
        partitions=partitions,
        scope=scope,
        keep_unlabelled=keep_unlabelled,
        marked=row_layout.FORMAT,
    )

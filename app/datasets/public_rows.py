"""Reads the rows of datasets that their owners declared public. It cannot read the rows of a private dataset.

The files of a public dataset are marked as public under their seal, and this reader refuses every other file, whatever
the database says about its dataset.
"""

from collections.abc import Sequence

from app.core.sealed_files import SealedFile
from app.datasets import row_layout, stored_rows
from app.datasets.stored_rows import Selection
from app.forests.data.rows import PublicRows
from app.forests.data.schema import Schema
from app.privacy.composition import Partitions, Scope


def read(files: Sequence[SealedFile], *, schema: Schema, partitions: Partitions, scope: Scope) -> PublicRows:
    """Reads the rows of a job's scope on a public dataset; arguments as in :func:`app.datasets.private_rows.read`.

    Raises:
        ValueError: the scope names a partition or cell that was not declared.
        InstallationError: a file is absent, damaged, of an unknown form, or not the file of a public dataset.
    """
    selection = Selection(schema, partitions, scope, keep_unlabelled=False, marked=row_layout.PUBLIC_FORMAT)
    rows = stored_rows.read(files, selection)
    return PublicRows(rows.features, rows.y, rows.row_ids)

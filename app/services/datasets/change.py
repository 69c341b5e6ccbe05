"""Changes the declared columns of a dataset, as long as nothing follows from them.

Privacy unit, protection, partitions and budget stand in the first entry of the account
and never change. Columns do not; an act in the control chain has the digests of the
columns before and after a change.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785
from sqlalchemy.orm import Session

from app.access.grants import MANAGE_DATASET, Principal
from app.core.errors import (
    ChangedMeanwhile,
    DeclarationFixed,
    FieldProblem,
    InvalidRequest,
)
from app.core.preconditions import NOTHING, Condition, require_unchanged
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import control, populations, tables
from app.ledger.tables import EntryKind
from app.services.authorization import authorized_dataset, write_as
from app.services.datasets.declare import checked_columns, read_partitions
from app.services.datasets.show import columns_etag, dataset_out
from app.services.installation import Installation
from app.wire.datasets import (
    CellSizeIn,
    DatasetIn,
    DatasetOut,
    PartitionIn,
    PrivacyUnitIn,
    SchemaIn,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.partitions import ColumnPartition, Partition

_STAY = (
    "columns beside which privacy unit and partitions stay as they are declared; other ones need another dataset",
)


def change_columns(
    installation: Installation,
    principal: Principal,
    reference: str,
    columns: SchemaIn,
    *,
    condition: Condition = None,
) -> DatasetOut:
    """Replaces the declared columns. The columns in force change nothing, at any time.

    The locks of the dataset and of its account exclude every upload, job and join of a
    population: each is before the change, which is then refused, or meets the new
    columns.

    Args:
        condition: on the declaration that the change replaces.

    Raises:
        InvalidRequest: the columns break a rule, or change the privacy unit or a
            partition.
        DeclarationFixed: something follows from the columns in force.
        ChangedMeanwhile: the condition does not hold.
        DatasetDeleted: the dataset's rows are erased.
    """
    if condition == NOTHING:
        raise ChangedMeanwhile  # a dataset always has columns
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        # before the writer's lock: what columns are compared with never changes
        schema = _checked(dataset, columns)
    with write_as(installation, principal) as (session, principal):
        authorized_dataset(session, principal, dataset.id, MANAGE_DATASET)
        before = catalog.locked(session, dataset.id).living()
        after = before
        if schema != before.schema:
            shown = dataset_out(session, before, principal)
            require_unchanged(condition, columns_etag(shown))
            _require_changeable(session, before)
            digest = _digest(before.schema)
            before.row.schema = schema.to_json()
            session.flush()
            after = Dataset(before.row)
            control.record(
                session,
                EntryKind.DATASET_CHANGED,
                actor=principal.key_id,
                dataset=dataset.id,
                before=digest,
                after=_digest(schema),
            )
        return dataset_out(session, after, principal)


def _checked(dataset: Dataset, columns: SchemaIn) -> Schema:
    """The columns, if they break no rule and leave all else as it is declared."""
    partitions = dataset.partitions
    declared = DatasetIn.model_construct(
        schema_=columns,
        privacy_unit=PrivacyUnitIn.model_construct(
            column=dataset.unit_column, max_rows=dataset.max_rows
        ),
        partitions=[_as_declared(partition) for partition in partitions.declared],
    )
    schema, problems = checked_columns(declared)
    changes = FieldProblem("/schema", "changes-more-than-columns", accepted=_STAY)
    # of the unit or a partition, which the request does not name
    problems = [
        problem if problem.at.startswith("/schema") else changes for problem in problems
    ]
    unit_column = dataset.unit_column
    if not problems:
        read = read_partitions(declared.partitions, schema, unit_column=unit_column)
        problems = [] if read == partitions else [changes]
    if problems:
        raise InvalidRequest(list(dict.fromkeys(problems)))
    return schema


def _as_declared(partition: Partition) -> PartitionIn:
    """A partition as its declaration stated it."""
    stated: dict[str, Any] = {**partition.to_json(), "sizes": None}
    if isinstance(partition, ColumnPartition):
        del stated["cells"]
        if not partition.is_feature:
            stated["categories"] = list(partition.categories)
        if partition.sizes is not None:
            sizes = zip(partition.listed_cells, partition.sizes, strict=True)
            stated["sizes"] = [
                CellSizeIn.model_construct(cell=cell, rows=rows) for cell, rows in sizes
            ]
    return PartitionIn.model_construct(**stated)


def _require_changeable(session: Session, dataset: Dataset) -> None:
    """Checks, under the lock of the dataset, that nothing follows from its columns."""
    tables.locked_account(session, dataset.id)
    because = None
    if catalog.upload_ids(session, dataset.id):
        because = "rows were uploaded"
    elif tables.has_reserved(session, dataset.id):
        because = "its budget was reserved or charged"
    elif populations.id_of(session, dataset.id) is not None:
        because = "it is a member of a population"
    if because is not None:
        raise DeclarationFixed(because)


def _digest(schema: Schema) -> str:
    columns: Mapping[str, Any] = schema.to_json()
    return hashlib.sha256(rfc8785.dumps(dict(columns))).hexdigest()

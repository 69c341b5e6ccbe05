"""Changes the declared columns of a dataset, as long as nothing follows from them.

Privacy unit, protection, partitions and budget stand in the first entry of the account
and never change. Columns do not; an act in the control chain has the digests of the
columns before and after a change.
"""

import hashlib

import rfc8785
from sqlalchemy import Text, literal, update
from sqlalchemy.orm import Session

from app.access import grants
from app.core.errors import (
    ChangedMeanwhile,
    DeclarationFixed,
    FieldProblem,
    InvalidRequest,
    Unavailable,
)
from app.core.preconditions import NOTHING, Condition, require_unchanged
from app.datasets import catalog
from app.datasets.catalog import Dataset, DatasetRow
from app.ledger import control, populations, tables
from app.services.authorization import authorized_dataset, write_as
from app.services.datasets.declaration_rules import checked_columns, read_partitions
from app.services.datasets.declare import same_columns, with_warnings
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
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.partitions import ColumnPartition, Partition

_STAY = (
    "columns beside which privacy unit and partitions stay as they are declared; other ones need another dataset",
)


def change_columns(
    installation: Installation,
    principal: grants.Principal,
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
        Unavailable: another change of the columns came first.
    """
    if condition == NOTHING:
        raise ChangedMeanwhile  # a dataset always has columns
    database = installation.database
    with database.read() as session:
        dataset = authorized_dataset(
            session, principal, reference, grants.MANAGE_DATASET
        ).living()
    schema = _checked(dataset, columns)
    is_changed = schema != dataset.schema
    if is_changed:
        columns_now = dataset.row.schema
        require_unchanged(condition, columns_etag(columns_now))
        _replace(installation, principal, dataset, schema, condition=condition)
    with database.read() as session:
        shown = catalog.find(session, dataset.id)
        warnings = same_columns(session, principal, shown) if is_changed else []
        return with_warnings(dataset_out(session, shown, principal), warnings)


def _replace(
    installation: Installation,
    principal: grants.Principal,
    dataset: Dataset,
    schema: Schema,
    *,
    condition: Condition,
) -> None:
    """Stores columns in place of those that a dataset had when it was read.

    On SQLite, every writer waits for this transaction: what takes as long as the columns
    are large is done before it, except that they are read once and written once.
    """
    was = _written(dataset.row.schema)
    will_be = _written(schema.to_json())
    digests = {"before": _digest(was), "after": _digest(will_be)}
    with write_as(installation, principal) as (session, principal):
        grants.require(
            session, principal, dataset.id, grants.MANAGE_DATASET, kind="dataset"
        )
        locked = catalog.locked(session, dataset.id).living()
        if locked.row.schema != dataset.row.schema:
            require_unchanged(condition, None)  # no tag that held a moment ago holds
            raise Unavailable("the columns were changed meanwhile")
        _require_changeable(session, dataset)
        text = literal(will_be.decode("utf-8"), Text)  # not written as JSON again
        replaced = update(DatasetRow).where(DatasetRow.id == dataset.id)
        session.execute(
            replaced.values(schema=text),
            execution_options={"synchronize_session": False},
        )
        control.record(
            session,
            tables.EntryKind.DATASET_CHANGED,
            actor=principal.key_id,
            dataset=dataset.id,
            **digests,
        )


def _checked(dataset: Dataset, columns: SchemaIn) -> Schema:
    """The columns, if they break no rule and leave all else as it is declared."""
    partitions = dataset.partitions
    declared = DatasetIn.model_construct(
        schema_=columns,
        privacy_unit=PrivacyUnitIn.model_construct(
            column=dataset.unit_column, max_rows=dataset.max_rows
        ),
        partitions=list(map(_as_declared, partitions.declared)),
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
    stated: JsonObject = {**partition.to_json(), "sizes": None}
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


def _written(columns: JsonMapping) -> bytes:
    """Columns as the database stores them, and as the act in the chain has them."""
    return rfc8785.dumps(dict(columns))


def _digest(columns: bytes) -> str:
    return hashlib.sha256(columns).hexdigest()

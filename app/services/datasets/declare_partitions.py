"""Checks and reads the partitions of a declaration."""

from collections.abc import Iterator, Sequence

from app.core import limits
from app.core.errors import FieldProblem, InvalidRequest
from app.forests.data.schema import Feature, Schema, column_name_problem, value_list_problem
from app.privacy.composition import (
    MISSING_CELL,
    OTHER_CELL,
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partition,
    Partitions,
)
from app.wire.datasets import PartitionIn

_FIELDS = {"hash": ("cells",), "column": ("column", "categories", "sizes"), "epoch": ("how",)}
_REQUIRED = {"hash": "cells", "column": "column", "epoch": "how"}


def read_partitions(declared: Sequence[PartitionIn], schema: Schema, *, unit_column: str | None) -> Partitions:
    """Reads the partitions of a declaration.

    Args:
        declared: the partitions of the request, in order.
        schema: the schema of the declaration; a column partition may name one of its categorical features.
        unit_column: the unit column of the declaration; no partition may use this column.

    Raises:
        InvalidRequest: with a pointer below ``/partitions`` and a slug for every broken rule.
    """
    problems = [
        FieldProblem(f"/partitions/{index}/{field}", problem)
        for index, partition in enumerate(declared)
        for field, problem in _problems(partition, declared[:index], schema, unit_column)
    ]
    if problems:
        raise InvalidRequest(problems)
    return Partitions(tuple(_read(partition, schema) for partition in declared))


def _problems(
    partition: PartitionIn, earlier: Sequence[PartitionIn], schema: Schema, unit_column: str | None
) -> Iterator[tuple[str, str]]:
    if partition.name in (other.name for other in earlier):
        yield "name", "not-distinct"
    for field in sorted({field for fields in _FIELDS.values() for field in fields}):
        if field not in _FIELDS[partition.kind] and getattr(partition, field) is not None:
            yield field, f"not-for-{partition.kind}"
    required = _REQUIRED[partition.kind]
    if getattr(partition, required) is None:
        yield required, "required"
    elif partition.kind == "column":
        taken = [schema.label.name, unit_column, *(other.column for other in earlier)]
        yield from _column_problems(partition, schema, taken)
    elif partition.kind == "epoch":
        if any(other.kind == "epoch" for other in earlier):
            yield "kind", "not-distinct"
        problem = value_list_problem([partition.how or ""], smallest=1, largest=1)
        if problem:
            yield "how", problem


def _column_problems(partition: PartitionIn, schema: Schema, taken: Sequence[str | None]) -> Iterator[tuple[str, str]]:
    name = partition.column or ""
    problem = "not-distinct" if name in taken else column_name_problem(name)
    if problem:
        yield "column", problem
        return
    feature = _feature(partition, schema)
    if feature is None and partition.categories is None:
        yield "categories", "required"
        return
    if feature is None:
        problem = value_list_problem(partition.categories or (), smallest=1, largest=limits.MAX_CATEGORIES)
        at, categories = "categories", tuple(partition.categories or ())
    else:
        problem = None if feature.is_categorical else "not-categorical"
        at, categories = "column", feature.categories
        if partition.categories is not None:
            yield "categories", "not-for-a-feature"
    if problem is None and {OTHER_CELL, MISSING_CELL} & set(categories):
        problem = "reserved-cell"
    if problem:
        yield at, problem
    elif partition.sizes is not None:
        yield from _size_problems(partition, _read_column(partition, schema))


def _size_problems(partition: PartitionIn, column: ColumnPartition) -> Iterator[tuple[str, str]]:
    sized = [size.cell for size in partition.sizes or ()]
    if sorted(sized) != sorted(column.listed_cells):
        yield "sizes", "not-the-cells"
    elif not any(size.rows for size in partition.sizes or ()):
        yield "sizes", "not-positive"


def _read(partition: PartitionIn, schema: Schema) -> Partition:
    if partition.kind == "hash":
        return HashPartition(partition.name, partition.cells or 0)
    if partition.kind == "epoch":
        return EpochPartition(partition.name, partition.how or "")
    column = _read_column(partition, schema)
    if partition.sizes is None:
        return column
    rows = {size.cell: two_significant_digits(size.rows) for size in partition.sizes}
    sizes = tuple(rows[cell] for cell in column.listed_cells)
    return ColumnPartition(
        column.name, column.column, column.is_feature, column.categories, has_missing=column.has_missing, sizes=sizes
    )


def _read_column(partition: PartitionIn, schema: Schema) -> ColumnPartition:
    """A column partition without its sizes. An additional column always has a MISSING cell, for empty values."""
    name, feature = partition.column or "", _feature(partition, schema)
    if feature is None:
        return ColumnPartition(partition.name, name, False, tuple(partition.categories or ()), has_missing=True)
    return ColumnPartition(partition.name, name, True, feature.categories, has_missing=feature.missing)


def _feature(partition: PartitionIn, schema: Schema) -> Feature | None:
    return next((feature for feature in schema.features if feature.name == partition.column), None)


def two_significant_digits(size: int) -> int:
    """A declared size rounded to two significant digits, half up: an order of magnitude, never a count."""
    scale: int = 10 ** max(len(str(size)) - 2, 0)
    return (2 * size + scale) // (2 * scale) * scale

"""States the rules that a declaration breaks by itself, and reads its columns and its
partitions. Nothing here reads a database.
"""

import re
from collections.abc import Iterator, Sequence

from app.core.errors import FieldProblem, InvalidRequest, field_problem
from app.datasets import unit_names
from app.datasets.catalog import PROTECTS_LABEL
from app.wire.datasets import DatasetIn, LabelIn, PartitionIn
from grovekeeper_common.number_text import two_significant_digits
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.schema import (
    Feature,
    Schema,
    column_name_problem,
    composed,
    value_list_problem,
)
from grovekeeper_forests.privacy.partitions import (
    MISSING_CELL,
    OTHER_CELL,
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partition,
    Partitions,
)

_FIELDS = {
    "hash": ("cells",),
    "column": ("column", "categories", "sizes"),
    "epoch": ("how",),
}
_REQUIRED = {"hash": "cells", "column": "column", "epoch": "how"}
_READABLE = (
    "a text with a visible character, without marks that turn the direction of the text"
)
_OBEYED = re.compile("[\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Line separators, and marks that reverse the direction of a text."""


def checked_columns(declaration: DatasetIn) -> tuple[Schema, list[FieldProblem]]:
    """The columns of a declaration, and each rule that they break by themselves or
    beside the privacy unit and the partitions.
    """
    schema = Schema.unchecked(declaration.schema_.model_dump(exclude_none=True))
    return schema, [
        *map(field_problem, schema.problems(is_list=bool(declaration.schema_.labels))),
        *_alike_names(declaration),
        *_misread_texts(declaration),
        *_protected_numbers(declaration, schema),
        *_unit_problems(declaration),
        *partition_problems(
            declaration.partitions, schema, unit_column=declaration.privacy_unit.column
        ),
    ]


def _protected_numbers(declaration: DatasetIn, schema: Schema) -> list[FieldProblem]:
    """An account that protects labels is proven for classes. A number that changes moves
    a sum by twice what an added row adds, in one cell: more than two cells by one each.
    """
    is_number = any(label.is_number for label in schema.labels)
    if declaration.protects == PROTECTS_LABEL and is_number:
        return [FieldProblem("/protects", "not-for-numbers", accepted=("row",))]
    return []


def _unit_problems(declaration: DatasetIn) -> list[FieldProblem]:
    """The unit column is neither a feature nor the label: it is not learned from and
    not predicted.
    """
    unit = declaration.privacy_unit
    if unit.column is None:
        problems = []
        if unit.max_rows != 1:
            problems.append(
                FieldProblem("/privacy_unit/max_rows", "needs-a-unit-column")
            )
        if unit.form is not None:
            problems.append(FieldProblem("/privacy_unit/form", "needs-a-unit-column"))
        return problems
    problem = column_name_problem(unit.column)
    names = {name for at, name in _columns(declaration) if at.startswith("/schema/")}
    if unit.column in names:
        problem = "not-distinct"
    if problem is None:
        return []
    return [FieldProblem("/privacy_unit/column", problem)]


def read_partitions(
    declared: Sequence[PartitionIn], schema: Schema, *, unit_column: str | None
) -> Partitions:
    """Reads the partitions of a declaration.

    Args:
        schema: the schema of the declaration; a column partition may name one of its
            categorical features.
        unit_column: the unit column of the declaration; no partition may use this
            column.

    Raises:
        InvalidRequest: with a pointer below ``/partitions`` and a slug for every broken
            rule.
    """
    if problems := partition_problems(declared, schema, unit_column=unit_column):
        raise InvalidRequest(problems)
    return Partitions(tuple(_read(partition, schema) for partition in declared))


def partition_problems(
    declared: Sequence[PartitionIn], schema: Schema, *, unit_column: str | None
) -> list[FieldProblem]:
    """The rules that partitions break; see :func:`read_partitions`."""
    problems = []
    for index, partition in enumerate(declared):
        earlier = declared[:index]
        for name, problem in _problems(partition, earlier, schema, unit_column):
            problems.append(FieldProblem(f"/partitions/{index}/{name}", problem))
    return problems


def _problems(
    partition: PartitionIn,
    earlier: Sequence[PartitionIn],
    schema: Schema,
    unit_column: str | None,
) -> Iterator[tuple[str, str]]:
    if partition.name in (other.name for other in earlier):
        yield "name", "not-distinct"
    of_other_kinds = set[str]().union(*_FIELDS.values()) - set(_FIELDS[partition.kind])
    for name in sorted(of_other_kinds):
        if getattr(partition, name) is not None:
            yield name, f"not-for-{partition.kind}"
    required = _REQUIRED[partition.kind]
    if getattr(partition, required) is None:
        yield required, "required"
    elif partition.kind == "column":
        labels = [label.name for label in schema.labels]
        taken = [*labels, unit_column, *(other.column for other in earlier)]
        yield from _column_problems(partition, schema, taken)
    elif partition.kind == "epoch":
        if any(other.kind == "epoch" for other in earlier):
            yield "kind", "not-distinct"
        problem = value_list_problem([partition.how or ""], smallest=1, largest=1)
        if problem:
            yield "how", problem


def _column_problems(
    partition: PartitionIn, schema: Schema, taken: Sequence[str | None]
) -> Iterator[tuple[str, str]]:
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
        problem = value_list_problem(
            partition.categories or (), smallest=1, largest=forest_limits.MAX_CATEGORIES
        )
        at = "categories"
        categories = tuple(partition.categories or ())
    else:
        problem = None if feature.is_categorical else "not-categorical"
        at = "column"
        categories = feature.categories
        if partition.categories is not None:
            yield "categories", "not-for-a-feature"
    if problem is None and {OTHER_CELL, MISSING_CELL} & set(categories):
        problem = "reserved-cell"
    if problem:
        yield at, problem
    elif partition.sizes is not None:
        yield from _size_problems(partition, _read_column(partition, schema))


def _size_problems(
    partition: PartitionIn, column: ColumnPartition
) -> Iterator[tuple[str, str]]:
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
        column.name,
        column.column,
        column.is_feature,
        column.categories,
        has_missing=column.has_missing,
        sizes=sizes,
    )


def _read_column(partition: PartitionIn, schema: Schema) -> ColumnPartition:
    """A column partition without its sizes. An additional column always has a MISSING
    cell, for empty values.
    """
    name = partition.column or ""
    feature = _feature(partition, schema)
    if feature is None:
        return ColumnPartition(
            partition.name,
            name,
            False,
            tuple(partition.categories or ()),
            has_missing=True,
        )
    return ColumnPartition(
        partition.name, name, True, feature.categories, has_missing=feature.missing
    )


def _feature(partition: PartitionIn, schema: Schema) -> Feature | None:
    return next(
        (feature for feature in schema.features if feature.name == partition.column),
        None,
    )


def _alike_names(declaration: DatasetIn) -> list[FieldProblem]:
    """A problem for each column whose name has other characters than an earlier name,
    and looks the same.

    Equal names are the subject of other rules: a partition may name a feature, and no
    other two columns may be equal.
    """
    seen: dict[str, str] = {}
    return [
        FieldProblem(at, "not-distinct")
        for at, name in _columns(declaration)
        if seen.setdefault(_look(name), name) != name
    ]


def _misread_texts(declaration: DatasetIn) -> list[FieldProblem]:
    """Texts that a person reads wrong. New declarations have none; earlier declarations
    stay readable.
    """
    problems = []
    for pointer, texts in _texts(declaration):
        if "".join(texts).isascii():
            continue
        problem = None
        accepted = _READABLE
        if any(map(_OBEYED.search, texts)):
            problem = "control-character"
        elif any(text and not _look(text) for text in texts):
            problem = "not-visible"
        elif any(text.startswith("\ufeff") for text in texts):
            # a byte order mark, which readers of a file drop from its first name
            problem = "not-visible"
        elif len(set(map(_look, texts))) < len(set(texts)):
            problem = "not-distinct"
            accepted = "texts that look different"
        if problem is not None:
            problems.append(FieldProblem(pointer, problem, accepted=(accepted,)))
    return problems


def _look(text: str) -> str:
    """What two texts have in common that look the same: Unicode's composed form without
    invisible signs.
    """
    return composed(unit_names.without_invisible(text))


def _texts(declaration: DatasetIn) -> Iterator[tuple[str, Sequence[str]]]:
    """Each name of a column, and each list of categories or classes, with its place."""
    yield from ((at, [name]) for at, name in _columns(declaration))
    for index, feature in enumerate(declaration.schema_.features):
        yield f"/schema/features/{index}/categories", feature.categories or ()
    for at, label in _labels(declaration):
        yield f"{at}/classes", label.classes or ()
    yield "/schema/missing_values", declaration.schema_.missing_values or ()
    for index, partition in enumerate(declaration.partitions):
        yield f"/partitions/{index}/categories", partition.categories or ()


def _labels(declaration: DatasetIn) -> Iterator[tuple[str, LabelIn]]:
    """The labels with their places."""
    schema = declaration.schema_
    if schema.label is not None:
        yield "/schema/label", schema.label
    for index, label in enumerate(schema.labels or ()):
        yield f"/schema/labels/{index}", label


def _columns(declaration: DatasetIn) -> Iterator[tuple[str, str]]:
    for index, feature in enumerate(declaration.schema_.features):
        yield f"/schema/features/{index}/name", feature.name
    for at, label in _labels(declaration):
        yield f"{at}/name", label.name
    if declaration.privacy_unit.column is not None:
        yield "/privacy_unit/column", declaration.privacy_unit.column
    for index, partition in enumerate(declaration.partitions):
        if partition.column is not None:
            yield f"/partitions/{index}/column", partition.column

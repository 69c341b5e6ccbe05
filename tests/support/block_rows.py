"""Rows of tests in the form in which statistics read them."""

from collections.abc import Iterator

from grovekeeper_forests.data.coded_rows import RowParts
from grovekeeper_forests.data.sanitiser import (
    ColumnBlock,
    SanitisedRows,
    written_numbers,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.releases.statistics.sums import StoredRows


def in_blocks(rows: SanitisedRows, schema: Schema, *, n_rows: int = 7) -> RowParts:
    """Rows in blocks of a few, after an empty one."""
    names = [feature.name for feature in schema.features]
    label = schema.label
    labels = written_numbers(label, rows.y) if label.is_number else rows.y

    def blocks() -> Iterator[ColumnBlock]:
        for start in range(-n_rows, len(rows.y), n_rows):
            here = slice(max(start, 0), start + n_rows)
            columns = [column[here] for column in rows.features.columns]
            named = dict(zip(names, columns, strict=True))
            named[label.name] = labels[here]
            yield ColumnBlock(named, len(rows.y[here]))

    return RowParts([StoredRows(schema, blocks)])  # type: ignore[arg-type]

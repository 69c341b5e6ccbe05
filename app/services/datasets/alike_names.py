"""Refuses declarations of two columns whose names look the same to people."""

from collections.abc import Iterator

from app.core.errors import FieldProblem
from app.forests.data.schema import composed
from app.wire.datasets import DatasetIn


def alike_names(declaration: DatasetIn) -> list[FieldProblem]:
    """A problem for each column whose name has other characters than an earlier name, and the same composed form.

    Equal names are the subject of other rules: a partition may name a feature, and no other two columns may be equal.
    """
    seen: dict[str, str] = {}
    return [
        FieldProblem(at, "not-distinct")
        for at, name in _columns(declaration)
        if seen.setdefault(composed(name), name) != name
    ]


def _columns(declaration: DatasetIn) -> Iterator[tuple[str, str]]:
    for index, feature in enumerate(declaration.schema_.features):
        yield f"/schema/features/{index}/name", feature.name
    yield "/schema/label/name", declaration.schema_.label.name
    if declaration.privacy_unit.column is not None:
        yield "/privacy_unit/column", declaration.privacy_unit.column
    for index, partition in enumerate(declaration.partitions):
        if partition.column is not None:
            yield f"/partitions/{index}/column", partition.column

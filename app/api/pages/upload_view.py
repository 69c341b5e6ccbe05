"""Prepares the owner's report on an upload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.api.pages import words
from grovekeeper_common.json_types import JsonMapping


@dataclass(frozen=True)
class ReportOnColumn:
    """How many cells of a column were mapped, in words.

    Attributes:
        has_mapped: whether any cell was.
    """

    name: str
    clamped: str
    missing: str
    unknown: str
    has_mapped: bool


@dataclass(frozen=True)
class Report:
    """The report on an upload.

    Attributes:
        upload: its id.
        stored: what was stored, in words. The number of rows is for owners only.
        dropped: the rows that were not stored, if any were.
    """

    upload: str
    stored: str
    warnings: Sequence[str]
    dropped: Mapping[str, int] | None
    columns: Sequence[ReportOnColumn]

    @property
    def has_mapped(self) -> bool:
        """Whether any cell was mapped."""
        return any(column.has_mapped for column in self.columns)


def shown_report(answer: JsonMapping) -> Report:
    """The report for the answer of the API to an upload."""
    stored = "The upload is complete"
    if answer["rows"] is not None:
        stored = f"{words.grouped(answer['rows'])} rows stored"
    return Report(
        upload=answer["epoch"],
        stored=stored,
        warnings=answer["warnings"],
        dropped=answer["dropped"],
        columns=list(map(_report_on, answer["columns"])),
    )


def _report_on(column: JsonMapping) -> ReportOnColumn:
    return ReportOnColumn(
        name=column["name"],
        clamped=words.grouped(column["clamped"]),
        missing=words.grouped(column["missing"]),
        unknown=words.grouped(column["unknown"]),
        has_mapped=bool(column["clamped"] or column["missing"] or column["unknown"]),
    )

"""Defines the types of the rows of a dataset: uploads, erasures, overlaps."""

from typing import Annotated, Literal

from pydantic import Field

from app.core import limits
from app.wire.base import Answer, OfDataset, PublicSentence, Request


class EpochOut(Answer):
    """One upload: its existence is public, its rows are private."""

    epoch: str
    uploaded_at: str
    erased_at: str | None


class ColumnReport(Answer):
    """Cells of one column of an upload that were mapped. Exact counts, for the owner
    only.
    """

    name: str
    clamped: int
    missing: int
    unknown: int


class DroppedRows(Answer):
    """Rows that were not stored: they name no unit, or their unit has all its rows. For
    the owner only.
    """

    without_unit: int
    over_bound: int


class UploadOut(Answer):
    """The owner's report. ``dropped`` is null where the privacy unit is a row. ``rows``
    is the number of stored rows.

    Both are null for a key that is no owner by a grant. ``warnings`` are advice.
    """

    epoch: str
    rows: int | None
    columns: list[ColumnReport]
    dropped: DroppedRows | None
    warnings: list[str]


class ListedUpload(Answer):
    """An upload with the number of its stored rows. Exact, for owners by a grant only;
    null for others.
    """

    epoch: str
    uploaded_at: str
    erased_at: str | None
    rows: int | None


class UploadList(OfDataset):
    """Uploads of a dataset in the order of their arrival."""

    uploads: list[ListedUpload]
    next: str | None


class UploadErasureOut(OfDataset):
    """The erasure of one upload; ``stays`` says what an erasure does not undo.

    ``places`` says whether the places of its units are ``free`` again or stay
    ``taken``; null where the unit is a row.
    """

    epoch: str
    erased_at: str
    places: Literal["free", "taken"] | None
    stays: str


class SharedRows(OfDataset):
    """Rows of an upload that also occur in another dataset of the owner, or in other
    uploads of the same dataset.
    """

    population: str | None
    rows: int


class EpochOverlap(Answer):
    """Overlap of one upload. The counts are null where the upload has no fingerprints."""

    epoch: str
    uploaded_at: str
    rows: int | None
    distinct: int | None
    shared: list[SharedRows]


class OverlapOut(OfDataset):
    """Overlap among the datasets of one owner. Exact counts, for that owner only."""

    population: str | None
    epochs: list[EpochOverlap]


class ErasureIn(Request):
    """The unit to erase: a value of the unit column, compared character by character.

    ``reference`` is the caller's name of the request. It stays in the acts for good, so
    it may name no person.
    """

    unit: Annotated[str, Field(min_length=1, max_length=limits.MAX_CSV_LINE_BYTES)]
    reference: PublicSentence | None = None


class ErasureOut(OfDataset):
    """The sequence of the act and its time; the number of erased rows, and of stored
    units with a similar spelling, which were not erased. The numbers are exact, for
    owners by a grant only; null for others.
    """

    act: int
    at: str
    erased: int | None
    similar_units: int | None

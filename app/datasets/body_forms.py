"""Lists the forms in which rows are uploaded."""

from enum import StrEnum


class BodyForm(StrEnum):
    """The form of an upload's body."""

    CSV = "csv"
    GZIP = "gzip"
    """CSV, packed."""
    PARQUET = "parquet"
    ARROW_STREAM = "arrow-stream"
    ARROW_FILE = "arrow-file"

    @property
    def is_columnar(self) -> bool:
        """Whether the body is decoded by a child process."""
        return self not in (BodyForm.CSV, BodyForm.GZIP)

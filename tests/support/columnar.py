"""Writes tables as bodies of uploads in every columnar form, and of predictions."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.datasets.upload_bodies import BodyForm

COLUMNAR = [form for form in BodyForm if form.is_columnar]


def body_of(table: pa.Table, form: BodyForm, **options: Any) -> bytes:
    """A table in a form; ``options`` are those of pyarrow's writer."""
    file = io.BytesIO()
    match form:
        case BodyForm.PARQUET:
            pq.write_table(table, file, **options)
        case BodyForm.ARROW_STREAM:
            return stream_of(table, **options)
        case _:
            with pa.ipc.new_file(
                file, table.schema, options=pa.ipc.IpcWriteOptions(**options)
            ) as writer:
                writer.write_table(table)
    return file.getvalue()


def stream_of(
    table: pa.Table, *, max_chunksize: int | None = None, **options: Any
) -> bytes:
    """A table as an Arrow stream, in record batches of at most ``max_chunksize`` rows."""
    file = io.BytesIO()
    with pa.ipc.new_stream(
        file, table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_table(table, max_chunksize)
    return file.getvalue()

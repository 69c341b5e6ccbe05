"""Target that decodes uploads of Parquet and Arrow IPC."""

import csv
import io
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.errors import GrovekeeperError
from app.datasets.body_forms import BodyForm
from app.datasets.columnar.decode import Refused, decode
from app.datasets.csv_source import CsvSource
from tests.support.columnar import COLUMNAR, body_of

_FORMS = {form.value[-1:].encode() + form.value[:1].encode(): form for form in COLUMNAR}
"""Forms by the first two bytes of an input."""
_MOST_BYTES = 2**22


@cache
def seeds() -> tuple[bytes, ...]:
    tables = [
        pa.table({"age": [39, 150, None], "sex": ["Male", None, 'a "b", c'], "city, canton": ["Bern", "", "x"]}),
        pa.table({"age": pa.array([1.5, 2.0], pa.float32()), "ok": [True, None], "no": pa.nulls(2)}),
        pa.table({"a": pa.array(["p", "q", "p"]).dictionary_encode(), "b": pa.array([7, 7, 8]).dictionary_encode()}),
        pa.table({"age": pa.array([], pa.int8()), "sex": pa.array([], pa.string())}),
    ]
    return tuple(
        prefix + body_of(table, form, **options)
        for table in tables
        for prefix, form in _FORMS.items()
        for options in ({}, {"compression": "zstd"})
    )


def run(data: bytes) -> bool:
    """A body is refused without a cell in the error, or every row that another reader sees is one record of CSV."""
    form = _FORMS.get(data[:2])
    if form is None:
        return False
    pieces: list[bytes] = []
    try:
        decode(io.BytesIO(data[2:]), form, pieces.append)
    except Refused as error:
        refused = error
    else:
        return _is_read(b"".join(pieces), data[2:], form)
    assert refused.__cause__ is refused.__context__ is None
    assert str(refused) == refused.problem.value
    return False


def _is_read(text: bytes, body: bytes, form: BodyForm) -> bool:
    """Whether the text is CSV, whose records are then compared with the rows that another reader sees."""
    read = CsvSource(io.BytesIO(text), is_gzip=False, max_bytes=_MOST_BYTES, max_line_bytes=_MOST_BYTES)
    try:
        names = read.read_header()
    except GrovekeeperError:
        assert not _schema(body, form).names
        return False
    assert len(names) == len(_schema(body, form).names)
    is_text = all(byte < 128 for byte in text)
    records = list(csv.reader(io.StringIO(text.decode("utf-8", "replace"), newline="")))
    if is_text and len(names) > 1:
        assert {len(record) for record in records} == {len(names)}
        assert len(records) - 1 == _n_rows(body, form)
    return True


def _schema(body: bytes, form: BodyForm) -> pa.Schema:
    match form:
        case BodyForm.PARQUET:
            return pq.read_schema(io.BytesIO(body))
        case BodyForm.ARROW_STREAM:
            return pa.ipc.open_stream(body).schema
        case _:
            return pa.ipc.open_file(body).schema


def _n_rows(body: bytes, form: BodyForm) -> int:
    match form:
        case BodyForm.PARQUET:
            return int(pq.read_metadata(io.BytesIO(body)).num_rows)
        case BodyForm.ARROW_STREAM:
            return sum(batch.num_rows for batch in pa.ipc.open_stream(body))
        case _:
            file = pa.ipc.open_file(body)
            return sum(file.get_batch(index).num_rows for index in range(file.num_record_batches))

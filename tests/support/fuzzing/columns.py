"""Target that decodes uploads of Parquet and Arrow IPC."""

import io
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from app.core import limits
from app.datasets.columnar_decoding import BodyRefused, decode
from app.datasets.columnar_stream import Blocks, Piece
from app.datasets.upload_bodies import BodyForm
from tests.support.columnar import COLUMNAR, body_of

_FORMS = {form.value[-1:].encode() + form.value[:1].encode(): form for form in COLUMNAR}
"""Forms by the first two bytes of an input."""


_MOST_BYTES = 2**24


@cache
def seeds() -> tuple[bytes, ...]:
    tables = [
        pa.table(
            {
                "age": [39, 150, None],
                "sex": ["Male", None, 'a "b", c'],
                "city, canton": ["Bern", "", "x"],
            }
        ),
        pa.table(
            {
                "age": pa.array([1.5, 2.0], pa.float32()),
                "ok": [True, None],
                "no": pa.nulls(2),
            }
        ),
        pa.table(
            {
                "a": pa.array(["p", "q", "p"]).dictionary_encode(),
                "b": pa.array([7, 7, 8]).dictionary_encode(),
            }
        ),
        pa.table({"age": pa.array([], pa.int8()), "sex": pa.array([], pa.string())}),
    ]
    return tuple(
        prefix + body_of(table, form, **options)
        for table in tables
        for prefix, form in _FORMS.items()
        for options in ({}, {"compression": "zstd"})
    )


class _Ended(Exception):
    """The reader of the stream ends the decoding process: a few bytes can claim
    billions of empty rows.
    """


class _Pieces(list[Piece]):
    """Pieces of a stream, of a limited size together."""

    n_bytes = 0

    def append(self, piece: Piece) -> None:
        self.n_bytes += len(piece)
        if self.n_bytes > _MOST_BYTES:
            raise _Ended
        super().append(piece)


def run(data: bytes) -> bool:
    """A body is refused without a cell in the error, or its blocks have every row that
    another reader sees.
    """
    form = _FORMS.get(data[:2])
    if form is None:
        return False
    pieces = _Pieces()
    try:
        decode(
            io.BytesIO(data[2:]),
            form,
            {"age": False},
            pieces.append,
            categories={"sex": ["false", "true"], "a": ["0", "1"]},
        )
    except _Ended:
        return False
    except BodyRefused as error:
        refused = error
    else:
        return _is_read(b"".join(pieces), data[2:], form)
    assert refused.__cause__ is refused.__context__ is None
    assert str(refused) == refused.problem.value
    return False


def _is_read(stream: bytes, body: bytes, form: BodyForm) -> bool:
    """Whether the blocks are those rows that another reader sees."""
    blocks = Blocks(io.BytesIO(stream), max_bytes=limits.MAX_UPLOAD_CSV_BYTES)
    names = blocks.read_header()
    assert len(names) == len(_schema(body, form).names)
    blocks.place_columns(range(len(names)))
    lengths = [{len(column) for column in block} for block in blocks.blocks()]
    if names:
        assert all(len(of_block) == 1 for of_block in lengths)
        assert sum(of_block.pop() for of_block in lengths) == _n_rows(body, form)
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
            return sum(
                file.get_batch(index).num_rows
                for index in range(file.num_record_batches)
            )

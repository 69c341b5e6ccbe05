"""Uploads of Parquet and Arrow IPC are read by the rules of CSV; refusals of hostile
bodies repeat nothing of them.
"""

import base64
import datetime
import importlib.util
import io
import math
import struct
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from app.core import limits
from app.core.errors import RowsInvalid, TooLarge
from app.datasets import columnar_decoding as decoding
from app.datasets import columnar_source, fingerprints, row_files
from app.datasets.columnar_decoding import BodyRefused, decode
from app.datasets.columnar_source import ColumnarSource
from app.datasets.columnar_stream import (
    HEAD,
    MAX_DIFFERENT_TEXTS,
    RANGE,
    Blocks,
    BodyProblem,
    Piece,
    Texts,
    packed_block,
    packed_names,
)
from app.datasets.csv_columns import NumberColumn, UnitColumn
from app.datasets.row_layout import ROW_ID_COLUMN
from app.datasets.unit_names import RAW
from app.datasets.upload_bodies import BodyForm
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import GrovekeeperError
from tests.support.columnar import COLUMNAR, body_of
from tests.support.set_limits import SetLimit
from tests.support.uploads import DATA_KEY, GOOD_ROW, HEADER, Ingestion, stored_table

CANARY = "canary-7f3a"
ROWS: dict[str, list[Any]] = {
    "age": [39, 150, None, -5],
    "height": [1.75, float("nan"), None, 1e300],
    "sex": ["Male", "male", None, ""],
    "city, canton": ["Bern, BE", "0", "Chur", 'a "b", c'],
    "income": [">50K", None, "<=50K", "other"],
}
CSV = (
    'age,height,sex,"city, canton",income\n39,1.75,Male,"Bern, BE",>50K\n150,nan,male,0,\n'
    ',,,Chur,<=50K\n-5,1e300,,"a ""b"", c",other\n'
)
LEGAL = {name: [*cells[:2], *cells[3:]] for name, cells in ROWS.items()}
"""Without the row whose age is empty, which the declaration does not allow."""


def _table(rows: dict[str, Any] = LEGAL) -> pa.Table:
    return pa.table(rows)


def _stream(
    body: bytes,
    form: BodyForm,
    numbers: Collection[str] = (),
    *,
    categories: Collection[str] = (),
    unit: str | None = None,
) -> bytes:
    pieces: list[Piece] = []
    declared = {name: ["false", "true"] for name in categories}
    decode(
        io.BytesIO(body),
        form,
        dict.fromkeys(numbers, False),
        pieces.append,
        categories=declared,
        unit=unit,
    )
    return b"".join(pieces)


def _block(n_rows: int, *columns: Texts | Any) -> bytes:
    return b"".join(packed_block(n_rows, columns))


def _cells(stream: bytes) -> list[list[Any]]:
    """The cells of each column."""
    blocks = Blocks(io.BytesIO(stream), max_bytes=limits.MAX_UPLOAD_CSV_BYTES)
    names = blocks.read_header()
    blocks.place_columns(range(len(names)))
    read = list(blocks.blocks())
    return [
        [cell for block in read for cell in block[index].to_pylist()]
        for index in range(len(names))
    ]


def _refused(body: bytes, form: BodyForm = BodyForm.PARQUET) -> BodyProblem:
    with pytest.raises(BodyRefused) as refused:
        _stream(body, form)
    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None
    return refused.value.problem


def _refusal(ingest: Ingestion, body: bytes, form: BodyForm) -> GrovekeeperError:
    with pytest.raises(GrovekeeperError) as refused:
        ingest(body, form=form)
    assert ingest.files() == []
    assert CANARY not in repr(vars(refused.value))
    return refused.value


def _columns(error: GrovekeeperError) -> dict[str, tuple[str, int]]:
    assert isinstance(error, RowsInvalid)
    return {item.name: (item.problem, item.count) for item in error.columns}


@pytest.mark.usefixtures("new_decoders")
@pytest.mark.parametrize("form", COLUMNAR)
def test_rows_and_report_are_those_of_the_same_csv(
    tmp_path: Path, form: BodyForm
) -> None:
    lines = CSV.splitlines(keepends=True)
    as_csv, as_columns = Ingestion(tmp_path / "csv"), Ingestion(tmp_path / form)
    expected = as_csv("".join(lines[:3] + lines[4:]))
    report = as_columns(body_of(_table(), form), form=form)
    assert report == expected
    tables = [stored_table(ingest.destination) for ingest in (as_csv, as_columns)]
    assert tables[0].drop_columns([ROW_ID_COLUMN, "cell"]) == tables[1].drop_columns(
        [ROW_ID_COLUMN, "cell"]
    )


@pytest.mark.parametrize("form", COLUMNAR)
def test_cells_that_the_declaration_cannot_read_are_counted_as_in_csv(
    tmp_path: Path, form: BodyForm
) -> None:
    broken = {
        **ROWS,
        "age": pa.array(["39", CANARY, None, "1.5"]),
        "sex": ["a\nb", "c\0", None, None],
    }
    problems = _columns(
        _refusal(Ingestion(tmp_path), body_of(_table(broken), form), form)
    )
    assert problems["sex"][1] == 1
    cells = zip(
        *(
            map(_quoted, [name, *column])
            for name, column in _table(broken).to_pydict().items()
        ),
        strict=True,
    )
    with pytest.raises(RowsInvalid) as refused:
        Ingestion(tmp_path / "csv")("".join(",".join(row) + "\n" for row in cells))
    assert _columns(refused.value) == problems


def _quoted(cell: object) -> str:
    return "" if cell is None else '"' + str(cell).replace('"', '""') + '"'


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        (pa.array([1, None], pa.int8()), ["1", ""]),
        (pa.array([2**64 - 1, None], pa.uint64()), [str(2**64 - 1), ""]),
        (pa.array([0.1, 39.0]), ["0.1", "39"]),
        (pa.array([1 / 3, 5e-324]), [repr(1 / 3), "5e-324"]),
        (pa.array(np.array([1.5, 2], np.float16)), ["1.5", "2"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array(["1.10", "2"]).cast(pa.decimal128(9, 2)), ["1.10", "2.00"]),
        (pa.array(["x", None]).dictionary_encode(), ["x", ""]),
        (pa.array(["x", ""]).cast(pa.large_string()), ["x", ""]),
        (pa.array([7, 8]).dictionary_encode(), ["7", "8"]),
        (pa.nulls(2), ["", ""]),
    ],
)
@pytest.mark.parametrize("form", COLUMNAR)
def test_every_type_of_number_and_text_is_read(
    cells: pa.Array, text: list[str], form: BodyForm
) -> None:
    body = body_of(pa.table({"a": cells, "b": ["-", "-"]}), form)
    assert _cells(_stream(body, form)) == [text, ["-", "-"]]
    assert _cells(_stream(body, form, categories=["a", "b"])) == [
        text,
        ["-", "-"],
    ]
    as_declared_numbers, others = _cells(_stream(body, form, numbers=["a", "b"]))
    numbers = [{"true": "1", "false": "0", "": "nan"}.get(cell, cell) for cell in text]
    assert as_declared_numbers == text or list(map(str, map(float, numbers))) == list(
        map(str, as_declared_numbers)
    )
    assert others == ["-", "-"]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([datetime.date(2020, 1, 1)]),
        pa.array([datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)]),
        pa.array([datetime.timedelta(1)]),
        pa.array([CANARY.encode()]),
        pa.array([[1]]),
        pa.array([{"x": CANARY}]),
        pa.array([[{"x": [[1]]}]]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
    ],
)
@pytest.mark.parametrize("form", COLUMNAR)
def test_other_types_are_refused(cells: pa.Array, form: BodyForm) -> None:
    body = body_of(pa.table({"a": cells, "b": ["x"]}), form)
    with pytest.raises(BodyRefused) as refused:
        _stream(body, form)
    assert (refused.value.problem, refused.value.columns) == (BodyProblem.TYPE, ("a",))


def test_a_type_is_refused_by_the_name_of_its_column(ingest: Ingestion) -> None:
    dates = pa.array([datetime.date(2020, 1, 1)] * 3)
    error = _refusal(
        ingest,
        body_of(_table({**LEGAL, "sex": dates}), BodyForm.PARQUET),
        BodyForm.PARQUET,
    )
    assert _columns(error) == {"sex": ("unsupported-type", 1)}


def test_columns_are_those_of_the_declaration(ingest: Ingestion) -> None:
    rows = {name: cells for name, cells in LEGAL.items() if name != "age"} | {
        CANARY: [1, 2, 3],
        "x\ny": [1, 2, 3],
    }
    error = _refusal(
        ingest, body_of(_table(rows), BodyForm.ARROW_STREAM), BodyForm.ARROW_STREAM
    )
    assert _columns(error) == {"age": ("missing-column", 1), "": ("unknown-column", 2)}
    twice = pa.Table.from_arrays(
        [*_table().columns, _table().column("age")],
        names=[*_table().column_names, "age"],
    )
    error = _refusal(
        ingest, body_of(twice, BodyForm.ARROW_STREAM), BodyForm.ARROW_STREAM
    )
    assert _columns(error) == {"age": ("duplicate-column", 2)}


@pytest.mark.parametrize("form", COLUMNAR)
def test_a_table_without_rows_is_legal(ingest: Ingestion, form: BodyForm) -> None:
    assert ingest(body_of(_table().slice(0, 0), form), form=form).n_rows == 0


@pytest.mark.parametrize("form", COLUMNAR)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.95])
def test_a_body_that_is_cut_off_is_refused(form: BodyForm, part: float) -> None:
    body = body_of(_table(), form)
    assert _refused(body[: int(len(body) * part)], form) is BodyProblem.MALFORMED


@pytest.mark.parametrize("n_bytes", [1, 4, 8])
def test_a_stream_that_does_not_say_where_it_ends_is_refused(n_bytes: int) -> None:
    """Without its mark, a stream that was cut off between two batches looks whole."""
    body = body_of(_table(), BodyForm.ARROW_STREAM)
    assert body.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    cut = body[:-n_bytes]
    assert _refused(cut, BodyForm.ARROW_STREAM) is BodyProblem.MALFORMED


@pytest.mark.parametrize("behind", ["a stream", "\0", "\0\0\0\0"])
def test_a_stream_with_something_behind_it_is_refused(behind: str) -> None:
    """``cat a.arrows b.arrows`` would lose the rows of the second."""
    body = body_of(_table(), BodyForm.ARROW_STREAM)
    more = body if behind == "a stream" else behind.encode()
    assert _refused(body + more, BodyForm.ARROW_STREAM) is BodyProblem.MALFORMED


def test_a_stream_of_the_first_version_of_the_format_is_read(ingest: Ingestion) -> None:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with pa.ipc.new_stream(sink, _table().schema, options=options) as writer:
        writer.write_table(_table())
    assert ingest(sink.getvalue(), form=BodyForm.ARROW_STREAM).n_rows == 3


def test_a_body_of_another_form_is_refused(ingest: Ingestion) -> None:
    body = body_of(_table(), BodyForm.PARQUET)
    assert _columns(_refusal(ingest, body, BodyForm.ARROW_FILE)) == {
        "": ("malformed-file", 1)
    }
    assert _refused(CSV.encode(), BodyForm.PARQUET) is BodyProblem.MALFORMED


def test_lists_that_are_nested_too_deeply_are_named(ingest: Ingestion) -> None:
    kind = pa.float64()
    for _ in range(60):
        kind = pa.list_(kind)
    table = _table().append_column("notes", pa.nulls(3, kind))
    refusal = _refusal(ingest, body_of(table, BodyForm.PARQUET), BodyForm.PARQUET)
    [problem] = refusal.columns
    assert (problem.name, problem.problem) == ("", "unsupported-encoding")
    assert "lists nested deeply" in (problem.suspected or "")


def _with_footer_number(body: bytes, old: int, new: int) -> bytes:
    """The body with another number of rows in its footer: the place is found by trying."""
    start, changed = 0, []
    while (start := body.find(bytes([0x16, 2 * old]), start)) >= 0:
        lie = body[:start] + bytes([0x16, 2 * new]) + body[start + 2 :]
        start += 1
        try:
            is_other = pq.read_metadata(io.BytesIO(lie)).num_rows != old
        except (pa.ArrowException, OSError):
            continue
        changed += [lie] * is_other
    (lie,) = changed
    return lie


@pytest.mark.parametrize("claimed", [2, 5])
def test_a_footer_that_lies_about_the_rows_is_refused(claimed: int) -> None:
    body = body_of(_table(), BodyForm.PARQUET)
    assert _refused(_with_footer_number(body, 3, claimed)) is BodyProblem.MALFORMED


def test_a_footer_over_its_limit_is_not_read(ingest: Ingestion) -> None:
    too_long = (limits.MAX_PARQUET_METADATA_BYTES + 1).to_bytes(4, "little")
    assert (
        _refused(b"PAR1" + CANARY.encode() + too_long + b"PAR1") is BodyProblem.METADATA
    )
    described = _table().replace_schema_metadata(
        {CANARY: "x" * limits.MAX_PARQUET_METADATA_BYTES}
    )
    error = _refusal(ingest, body_of(described, BodyForm.PARQUET), BodyForm.PARQUET)
    assert isinstance(error, TooLarge)
    assert error.limit == limits.MAX_PARQUET_METADATA_BYTES


def test_an_encrypted_file_is_refused() -> None:
    class Keys(pe.KmsClient):
        def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
            return base64.b64decode(wrapped_key)

    for is_plain in (False, True):
        settings = pe.EncryptionConfiguration(
            footer_key="f",
            column_keys={"c": ["age"]},
            plaintext_footer=is_plain,
            double_wrapping=False,
        )
        properties = pe.CryptoFactory(lambda _: Keys()).file_encryption_properties(
            pe.KmsConnectionConfig(), settings
        )
        file = io.BytesIO()
        with pq.ParquetWriter(
            file, _table().schema, encryption_properties=properties
        ) as writer:
            writer.write_table(_table())
        assert _refused(file.getvalue()) is BodyProblem.ENCRYPTED


def test_row_groups_and_columns_have_limits(set_limit: SetLimit) -> None:
    set_limit("MAX_ROW_GROUPS", 2)
    assert (
        _refused(body_of(_table(), BodyForm.PARQUET, row_group_size=1))
        is BodyProblem.ROW_GROUPS
    )
    batches = pa.concat_tables([_table()] * 3)
    assert (
        _refused(body_of(batches, BodyForm.ARROW_FILE), BodyForm.ARROW_FILE)
        is BodyProblem.ROW_GROUPS
    )
    assert (
        _refused(body_of(batches, BodyForm.ARROW_STREAM), BodyForm.ARROW_STREAM)
        is BodyProblem.ROW_GROUPS
    )
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, _table().schema) as writer:
        for _ in range(3):
            writer.write_batch(_table().to_batches()[0].slice(0, 0))
    assert _refused(stream.getvalue(), BodyForm.ARROW_STREAM) is BodyProblem.ROW_GROUPS
    set_limit("MAX_UPLOAD_COLUMNS", 4)
    assert (
        _refused(body_of(_table(), BodyForm.ARROW_STREAM), BodyForm.ARROW_STREAM)
        is BodyProblem.COLUMNS
    )


def test_a_compression_bomb_ends_at_the_limit_of_unpacked_bytes(
    ingest: Ingestion,
) -> None:
    n_rows = 30_000
    rows = {
        **{name: [cells[0]] * n_rows for name, cells in LEGAL.items()},
        "sex": ["x" * 1_000] * n_rows,
    }
    body = body_of(_table(rows), BodyForm.PARQUET, compression="zstd")
    assert len(body) < 10_000
    error = _refusal(ingest, body, BodyForm.PARQUET)
    assert isinstance(error, TooLarge)
    assert error.limit == limits.FREE_UNPACKED_BYTES


def _bomb(n_rows: int, length: int) -> bytes:
    """A stream whose dictionary has one long text, to which every row refers."""
    cells = pa.DictionaryArray.from_arrays(
        pa.array([0] * n_rows, pa.int8()), pa.array(["x" * length])
    )
    return body_of(pa.table({"a": cells}), BodyForm.ARROW_STREAM, compression="zstd")


@pytest.mark.parametrize("n_texts", [MAX_DIFFERENT_TEXTS - 1, MAX_DIFFERENT_TEXTS])
@pytest.mark.parametrize("form", COLUMNAR)
def test_texts_of_categories_are_sent_once(form: BodyForm, n_texts: int) -> None:
    """As long as an index in one byte names each of them, and an empty cell."""
    cells = [*map(str, range(n_texts)), None, *["7"] * 20_000]
    table = pa.table({"a": pa.array(cells).dictionary_encode()})
    body = body_of(table, form)
    assert _cells(_stream(body, form, categories=["a"])) == [
        [cell or "" for cell in cells]
    ]
    is_sent_once = (
        len(_stream(body, form, categories=["a"])) < len(_stream(body, form)) / 3
    )
    assert is_sent_once == (n_texts < MAX_DIFFERENT_TEXTS)


def test_long_texts_of_categories_are_sent_with_their_rows() -> None:
    table = pa.table(
        {
            "a": pa.array(
                [str(number) * 1_000 for number in range(200)] + ["x"]
            ).dictionary_encode()
        }
    )
    body = body_of(table, BodyForm.ARROW_STREAM)
    in_rows = _stream(body, BodyForm.ARROW_STREAM)
    assert _stream(body, BodyForm.ARROW_STREAM, categories=["a"]) == in_rows


@pytest.mark.parametrize("form", COLUMNAR)
def test_categories_in_dictionaries_are_read_as_in_csv(
    tmp_path: Path, form: BodyForm
) -> None:
    cells = {
        **LEGAL,
        "sex": [None, " Male", "Male"],
        "city, canton": ["Bern, BE", "Genève", "Bern, BE"],
    }
    folded = pa.table(
        {name: pa.array(column).dictionary_encode() for name, column in cells.items()}
    )
    reports, tables, prints = [], [], []
    for number, table in enumerate((pa.table(cells), folded)):
        ingest = Ingestion(tmp_path / str(number))
        reports.append(ingest(body_of(table, form), form=form))
        tables.append(
            stored_table(ingest.destination).drop_columns([ROW_ID_COLUMN, "cell"])
        )
        with row_files.sealed_prints(
            ingest.store, "ds_a", "ep_a", key=DATA_KEY
        ).open() as file:
            prints.append(file.read())
    assert reports[0] == reports[1]
    assert tables[0] == tables[1]
    assert prints[0] == prints[1]


@pytest.mark.parametrize("form", COLUMNAR)
def test_cells_of_dictionaries_that_cannot_be_read_are_counted(
    ingest: Ingestion, form: BodyForm
) -> None:
    cells = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1, 3], pa.int8()),
        pa.array(["a\nb", "c\0", CANARY + "\n", "Male"]),
    )
    rows = {name: [*column, column[0]] for name, column in LEGAL.items()} | {
        "sex": cells
    }
    error = _refusal(ingest, body_of(pa.table(rows), form), form)
    assert isinstance(error, RowsInvalid)
    assert [(item.name, item.problem, item.count) for item in error.columns] == [
        ("sex", "not-text", 2), ("sex", "line-break", 1)
    ]  # fmt: skip


def test_an_index_without_a_text_is_refused() -> None:
    wrong = pa.DictionaryArray.from_arrays(
        pa.array([0, 5], pa.int8()), pa.array(["x", "y"]), safe=False
    )
    body = body_of(pa.table({"a": wrong}), BodyForm.ARROW_STREAM)
    assert _refused(body, BodyForm.ARROW_STREAM) is BodyProblem.MALFORMED
    batch = pa.record_batch({"a": wrong})
    with pytest.raises(BodyRefused) as refused:
        list(decoding._with_legal_indices(iter([batch])))
    assert refused.value.problem is BodyProblem.MALFORMED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (struct.pack("<4i", 0, 2, 4, 6), struct.pack("<4i", 0, 4, 2, 6)),
        (struct.pack("<4i", 0, 2, 4, 6), struct.pack("<4i", -1, 2, 4, 6)),
        (struct.pack("<4i", 0, 2, 4, 6), struct.pack("<4i", 0, 2, 4, 2**30)),
        (b"uvwxyz", b"uvwxy\x80"),
    ],
)
def test_texts_that_are_not_valid_are_refused(old: bytes, new: bytes) -> None:
    body = body_of(pa.table({"a": ["uv", "wx", "yz"]}), BodyForm.ARROW_STREAM)
    assert body.count(old) == 1
    assert (
        _refused(body.replace(old, new), BodyForm.ARROW_STREAM) is BodyProblem.MALFORMED
    )


def test_a_dictionary_bomb_is_unfolded_piece_by_piece() -> None:
    """Ten gigabytes of text come out in pieces of the limit on slices, until the reader
    has enough.
    """
    n_pieces, longest = 0, 0

    class EnoughError(Exception):
        """The reader has enough."""

    def emit(text: Piece) -> None:
        nonlocal n_pieces, longest
        n_pieces, longest = n_pieces + 1, max(longest, len(text))
        if n_pieces == 20:
            raise EnoughError

    with pytest.raises(EnoughError):
        decode(
            io.BytesIO(_bomb(10_000, limits.MAX_CSV_LINE_BYTES)),
            BodyForm.ARROW_STREAM,
            {},
            emit,
        )
    assert longest <= limits.MAX_BLOCK_BYTES
    assert (
        _refused(_bomb(10, limits.MAX_CSV_LINE_BYTES + 1), BodyForm.ARROW_STREAM)
        is BodyProblem.LONG_LINE
    )


@pytest.mark.covering("cells", "form", "n_columns")
@pytest.mark.parametrize(
    "cells",
    [
        pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(2**19, np.int8)), pa.array([""])
        ),
        pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(2**19, np.int8)), pa.array(["", *map(str, range(250))])
        ),
        pa.array([""] * 2**19),
        pa.nulls(2**19, pa.string()),
        pa.nulls(2**19, pa.null()),
        pa.array(np.zeros(2**19, np.int8)),
        pa.array(np.zeros(2**19, np.bool_)),
    ],
    ids=[
        "one text",
        "few texts",
        "texts",
        "nulls",
        "nothing",
        "numbers",
        "truth values",
    ],
)
@pytest.mark.parametrize("form", COLUMNAR)
@pytest.mark.parametrize("n_columns", [1, 40])
def test_cells_of_no_bytes_count_as_what_is_built_from_them(
    cells: pa.Array, form: BodyForm, n_columns: int
) -> None:
    """105 columns of empty categories, 293 KB in a body, took 2.75 GB of the service:
    2²¹ rows were a block.
    """
    names = [f"c{place}" for place in range(n_columns)]
    body = body_of(
        pa.table([cells.slice(0, 2**21 // (n_columns + 3))] * n_columns, names),
        form,
        compression="zstd",
    )
    blocks = Blocks(
        io.BytesIO(_stream(body, form, categories=names)),
        max_bytes=limits.MAX_UPLOAD_CSV_BYTES,
    )
    blocks.place_columns(range(len(blocks.read_header())))
    n_rows = [len(block[0]) for block in blocks.blocks()]
    assert sum(n_rows) == len(cells.slice(0, 2**21 // (n_columns + 3)))
    assert max(n_rows) <= limits.MAX_BLOCK_ROWS
    assert max(n_rows) * n_columns <= limits.MAX_BLOCK_BYTES // 8


def test_many_dictionaries_are_not_sent_with_every_few_rows() -> None:
    """The bytes of a block follow its rows: 2,000 columns have two thousand
    dictionaries.
    """
    texts = pa.array([f"{number:0200d}" for number in range(250)])
    cells = pa.DictionaryArray.from_arrays(pa.array(np.zeros(64, np.uint8)), texts)
    names = [f"c{place}" for place in range(1_000)]
    body = body_of(pa.table([cells] * len(names), names), BodyForm.ARROW_STREAM)
    stream = _stream(body, BodyForm.ARROW_STREAM, categories=names)
    assert len(stream) < 2 * 64 * len(names) * 200
    assert _cells(stream) == [[f"{0:0200d}"] * 64] * len(names)


def test_the_rows_of_a_block_of_csv_have_the_same_limit(
    monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit, tmp_path: Path
) -> None:
    """A row can be two bytes, so that half a million fit into the text that the parser
    takes at a time.
    """
    set_limit("MAX_BLOCK_ROWS", 10)
    ingest, read = Ingestion(tmp_path), list[int]()
    of_rows = fingerprints.RowHash.of_rows

    def watched(row_hash: Any, columns: Any) -> Any:
        read.append(len(columns[0]))
        return of_rows(row_hash, columns)

    monkeypatch.setattr(fingerprints.RowHash, "of_rows", watched)
    assert ingest(HEADER + GOOD_ROW * 25).n_rows == 25
    assert read == [10, 10, 5]


def test_rows_without_a_column_are_not_counted() -> None:
    """Found by fuzzing: a few bytes claimed billions of rows, which were written block
    by block.
    """
    body = io.BytesIO()
    empty = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    with pa.ipc.new_stream(body, empty.schema) as writer:
        writer.write(empty)
    assert _stream(body.getvalue(), BodyForm.ARROW_STREAM) == packed_names([])


def test_a_length_that_is_a_lie_is_refused_for_want_of_memory(
    ingest: Ingestion,
) -> None:
    cells = {name: [cells[0]] * 1_000 for name, cells in LEGAL.items()}
    body = body_of(_table(cells), BodyForm.ARROW_STREAM, compression="zstd")
    (length, most) = (
        (8_000).to_bytes(8, "little"),
        (3 * 1024**3).to_bytes(8, "little"),
    )
    assert length in body, "the length of an unpacked column of integers"
    error = _refusal(ingest, body.replace(length, most, 1), BodyForm.ARROW_STREAM)
    assert isinstance(error, TooLarge)
    assert error.limit == limits.DECODER_MEMORY_BYTES


def test_memory_does_not_grow_with_the_rows_of_a_row_group(tmp_path: Path) -> None:
    peaks = []
    for n_rows in (100_000, 400_000):
        file = tmp_path / f"{n_rows}.parquet"
        numbers = np.random.default_rng(7).normal(size=n_rows)
        texts = pc.cast(pa.array(numbers), pa.string())
        pq.write_table(
            pa.table({"a": numbers, "b": texts}),
            file,
            row_group_size=n_rows,
            use_dictionary=False,
        )
        del numbers, texts
        default = pa.default_memory_pool()
        measured = pa.proxy_memory_pool(pa.system_memory_pool())
        pa.set_memory_pool(measured)
        try:
            with file.open("rb") as body:
                decode(body, BodyForm.PARQUET, {"a": False}, lambda _: None)
        finally:
            pa.set_memory_pool(default)
        peaks.append(measured.max_memory())
    assert 0 < peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("form", COLUMNAR)
@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1.0, 2.0]), pa.array([1.0, None]), pa.array([math.nan, 1.0], pa.float32()), pa.array([1, None]),
        pa.array([True, None]), pa.array([1.0, 2.0]).dictionary_encode(), pa.nulls(2),
        pa.array(["1", None]).dictionary_encode(), pa.array(["1", "2"], pa.string_view()),
    ],
)  # fmt: skip
def test_the_child_reads_every_type_of_category_and_label(
    tmp_path: Path, cells: pa.Array, form: BodyForm
) -> None:
    """With pandas beside it, whose files it may not open."""
    assert importlib.util.find_spec("pandas") is not None
    schema = Schema(
        (Feature("a", "categorical", categories=("1", "true"), missing=True),),
        Label("y", ("1", "2")),
    )
    assert (
        Ingestion(tmp_path, schema)(
            body_of(pa.table({"a": cells, "y": cells}), form), form=form
        ).n_rows
        == 2
    )


def test_the_child_can_open_no_file_and_no_socket() -> None:
    program = (
        "import os, socket\nfrom app.datasets import columnar_child as child\nchild._give_up()\nwork = []\n"
        "acts = (lambda: open('/dev/null'), socket.socket, os.pipe, lambda: os.dup(0), lambda: bytearray(2**31))\n"
        "for give in acts:\n"
        "    try:\n        give()\n        work.append(1)\n    except (OSError, MemoryError):\n        work.append(0)\n"
        "print(work)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[0, 0, 0, 0, 0]"


def _framed(kind: bytes, payload: bytes) -> bytes:
    return HEAD.pack(kind, len(payload)) + payload


VERDICTS: list[tuple[bytes, str, dict[str, tuple[str, int]]]] = [
    (b"", "", {"": ("malformed-file", 1)}),
    (b"x" * 100, "", {"": ("malformed-file", 1)}),
    (HEAD.pack(b"T", 2**31), "", {"": ("malformed-file", 1)}),
    (_framed(b"Q", b""), "", {"": ("malformed-file", 1)}),
    (_framed(b"R", RANGE.pack(10**6, 1)), "", {"": ("malformed-file", 1)}),
    (_framed(b"R", b"short"), "", {"": ("malformed-file", 1)}),
    (_framed(b"V", b"{}"), "", {"": ("malformed-file", 1)}),
    (_framed(b"V", b"[" * 5_000), "", {"": ("malformed-file", 1)}),
    (_framed(b"V", CANARY.encode()), "", {"": ("malformed-file", 1)}),
    (
        _framed(b"V", b'{"problem": "%s", "columns": []}' % CANARY.encode()),
        "",
        {"": ("malformed-file", 1)},
    ),
    (
        _framed(
            b"V",
            b'{"problem": "unsupported-type", "columns": ["age", "%s", 1, ["age"]]}'
            % CANARY.encode(),
        ),
        "",
        {"": ("malformed-file", 1)},
    ),
    (
        _framed(
            b"V",
            b'{"problem": "unsupported-type", "columns": ["age", "%s", 1]}'
            % CANARY.encode(),
        ),
        "",
        {"age": ("unsupported-type", 1), "": ("unsupported-type", 2)},
    ),
    (
        _framed(b"T", b"a,b\n") + _framed(b"V", b'{"problem": null, "columns": []}'),
        "a,b\n",
        {},
    ),
]


@pytest.mark.parametrize(("sent", "text", "problems"), VERDICTS)
def test_a_child_is_believed_nothing(
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
    text: str,
    problems: dict[str, tuple[str, int]],
) -> None:
    _replace_child(
        monkeypatch,
        f"import os, sys; sys.stdin.readline(); os.write(1, bytes.fromhex('{sent.hex()}'))",
    )
    with ColumnarSource(
        io.BytesIO(b"body"), BodyForm.PARQUET, declared=["age"]
    ) as rows:
        if problems:
            with pytest.raises(RowsInvalid) as refused:
                _read(rows)
            assert _columns(refused.value) == problems
        else:
            assert _read(rows).decode() == text
        assert _read(rows) == b""


def _read(rows: ColumnarSource) -> bytes:
    buffer = bytearray(10)
    return bytes(buffer[: rows.readinto(memoryview(buffer))])


def _texts(
    *offsets: int, text: bytes = b"abc", indices: list[int] | None = None
) -> Texts:
    of_rows = None if indices is None else np.array(indices, np.uint8)
    return Texts(np.array(offsets, np.int32), memoryview(text), of_rows)


_TEXTS = _texts(0, 1, 3)
_NAMES = packed_names(["a", "b"])
_BLOCK = _block(2, _TEXTS, np.array([1.5, np.nan]))
_MANY, _TOO_MANY = MAX_DIFFERENT_TEXTS + 1, limits.MAX_BLOCK_ROWS + 1


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        _NAMES[:-1],
        packed_names([])[:4] + b"{}",
        (2).to_bytes(4, "little") + b"[1",
        (3).to_bytes(4, "little") + b"[1]",
        packed_names(["a"] * (limits.MAX_UPLOAD_COLUMNS + 1)),
        (2**31).to_bytes(4, "little"),
        _NAMES + _BLOCK[:-1],
        _NAMES + _BLOCK[:3],
        _NAMES + (2**31).to_bytes(4, "little") + _BLOCK[4:],
        _NAMES + _BLOCK.replace(b"T", b"Q", 1),
        _NAMES + _block(2, _texts(1, 1, 3), np.zeros(2)),
        _NAMES + _block(2, _texts(0, 2, 1), np.zeros(2)),
        _NAMES + _block(2, _texts(0, 1, 2**31 - 1), np.zeros(2)),
        _NAMES + _block(2, _texts(0, 1, 3, indices=[0, 2]), np.zeros(2)),
        _NAMES + _block(2, _texts(0, text=b"", indices=[0, 0]), np.zeros(2)),
        _NAMES + _block(2, _texts(0, 2, 1, indices=[0, 0]), np.zeros(2)),
        _NAMES + _block(2, _texts(*[0] * _MANY, 3, indices=[0, 0]), np.zeros(2)),
        _NAMES
        + _block(
            100, _texts(0, 2**20, text=bytes(2**20), indices=[0] * 100), np.zeros(100)
        ),
        _NAMES + _block(_TOO_MANY, np.zeros(_TOO_MANY), np.zeros(_TOO_MANY)),
        packed_names(["a"] * 20)
        + _block(limits.MAX_BLOCK_ROWS, *[np.zeros(limits.MAX_BLOCK_ROWS)] * 20),
        packed_names(["a"] * 20)
        + _block(1, *[_texts(0, 2**20, text=bytes(2**20))] * 20),
    ],
)
def test_a_stream_of_rows_is_believed_nothing(sent: bytes) -> None:
    with pytest.raises(RowsInvalid) as refused:
        _cells(sent)
    assert _columns(refused.value) == {"": ("malformed-file", 1)}
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_text_that_is_not_utf_8_is_marked_in_its_cell() -> None:
    accents = "äb".encode()
    blocks = [
        _block(2, _TEXTS, np.array([1.5, 0])),
        _block(2, _texts(0, 1, 3, text=accents), np.zeros(2)),
        _block(2, _texts(0, 1, 3, text=accents, indices=[1, 0]), np.zeros(2)),
        _block(1, _texts(0, 3, text=accents), np.zeros(1)),
    ]
    assert _cells(_NAMES + b"".join(blocks)) == [
        ["a", "bc", "\0", "\0b", "\0b", "\0", "äb"],
        [1.5, 0, 0, 0, 0, 0, 0],
    ]


def test_texts_of_a_dictionary_count_for_every_row() -> None:
    stream = _NAMES + _block(
        50, _texts(0, 1_000, text=b"x" * 1_000, indices=[0] * 50), np.zeros(50)
    )
    blocks = Blocks(io.BytesIO(stream), max_bytes=50_000)
    blocks.place_columns(range(len(blocks.read_header())))
    with pytest.raises(TooLarge):
        list(blocks.blocks())
    assert len(stream) < 2_000


@pytest.mark.parametrize(
    ("kind", "is_read"),
    [
        (pa.int64(), True),
        (pa.string(), True),
        (pa.decimal128(38, 0), True),
        (pa.dictionary(pa.int32(), pa.decimal128(38, 0)), True),
        (pa.decimal128(38, 2), False),
        (pa.float64(), False),
        (pa.bool_(), False),
    ],
)
def test_a_column_of_units_has_one_spelling_for_each(
    kind: pa.DataType, is_read: bool
) -> None:
    body = body_of(pa.table({"u": pa.nulls(1, kind)}), BodyForm.ARROW_STREAM)
    if is_read:
        assert _stream(body, BodyForm.ARROW_STREAM, unit="u")
    else:
        with pytest.raises(BodyRefused) as refused:
            _stream(body, BodyForm.ARROW_STREAM, unit="u")
        assert refused.value.problem is BodyProblem.TYPE


def test_dictionaries_in_columns_of_numbers_and_units_are_read_as_text() -> None:
    cells = pa.array(["1.5", "x\ny", "1.5"]).dictionary_encode()
    number = NumberColumn(Feature("a", "numeric", lower=0, upper=1))
    number.read(cells)
    assert [(item.problem, item.count) for item in number.problems] == [
        ("not-a-number", 1)
    ]
    unit = UnitColumn("u", RAW)
    assert unit.read(cells) == cells.cast(pa.string())
    assert [(item.problem, item.count) for item in unit.problems] == [("line-break", 1)]


def test_a_child_that_uses_up_its_time_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _replace_child(
        monkeypatch,
        "import os, signal; os.kill(os.getpid(), signal.SIGXCPU); signal.pause()",
    )
    with (
        ColumnarSource(io.BytesIO(b"body"), BodyForm.PARQUET, declared=[]) as rows,
        pytest.raises(TooLarge, match="CPU time"),
    ):
        _read(rows)


def test_a_silent_child_is_ended(
    monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    set_limit("DECODER_SILENCE_S", 0)
    _replace_child(monkeypatch, "import sys; sys.stdin.read()")
    with (
        ColumnarSource(io.BytesIO(b"body"), BodyForm.PARQUET, declared=[]) as rows,
        pytest.raises(RowsInvalid),
    ):
        _read(rows)


def test_a_child_that_takes_nothing_is_ended(
    monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    """It asks for bytes of the body, and does not read the answer, for which a pipe has
    no room.
    """
    head = columnar_source.HEAD.pack(columnar_source.READ, RANGE.size) + RANGE.pack(
        0, 2**20
    )
    _replace_child(
        monkeypatch, f"import os, signal; os.write(1, {head * 8!r}); signal.pause()"
    )
    with ColumnarSource(
        io.BytesIO(bytes(2**20)), BodyForm.PARQUET, declared=[]
    ) as rows:
        set_limit("DECODER_SILENCE_S", 0.2)
        with pytest.raises(RowsInvalid):
            _read(rows)


def test_a_child_that_sends_a_byte_now_and_then_is_ended(
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
) -> None:
    _replace_child(
        monkeypatch, "import os, time\nwhile True: os.write(1, b'T'); time.sleep(0.05)"
    )
    set_limit("DECODER_WAIT_S", 0.3)
    with (
        ColumnarSource(io.BytesIO(b"body"), BodyForm.PARQUET, declared=[]) as rows,
        pytest.raises(TooLarge, match="time for decoding"),
    ):
        while True:
            rows._exactly(1)


def test_closing_ends_a_read_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_child(monkeypatch, "import sys; sys.stdin.read()")
    rows = ColumnarSource(io.BytesIO(b"body"), BodyForm.PARQUET, declared=[])
    ended: list[object] = []

    def read() -> None:
        try:
            ended.append(_read(rows))
        except RowsInvalid as error:
            ended.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    rows.close()
    reader.join()
    assert len(ended) == 1
    assert rows._child.returncode is not None


def _replace_child(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    start = subprocess.Popen

    def other(_: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return start([sys.executable, "-ISc", program], **options)

    monkeypatch.setattr(columnar_source.subprocess, "Popen", other)

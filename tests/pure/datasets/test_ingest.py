"""Tests how an upload is mapped and refused, and that a refusal leaves no file and
quotes no cell.
"""

import gc
import gzip
import io
import itertools
import math
import sys
import traceback
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.core import limits
from app.core.errors import MalformedRequest, RowsInvalid, TooLarge
from app.datasets import row_layout
from app.datasets.csv_columns import ReadColumn
from app.datasets.row_layout import hash_cells, hash_keys
from app.datasets.upload_bodies import BodyForm
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from tests.support.columnar import body_of
from tests.support.set_limits import SetLimit
from tests.support.uploads import (
    GOOD_ROW,
    HEADER,
    KEY,
    Ingestion,
    path_of,
    stored_table,
)

CANARY = "Canary7Q"


def refusal(ingest, body, **options):
    """The error of a refused upload, after checks that nothing was stored and nothing
    was quoted.
    """
    with pytest.raises(GrovekeeperError) as caught:
        ingest(body, **options)
    error = caught.value
    assert ingest.files() == []
    assert error.__cause__ is None
    assert error.__context__ is None
    texts = [
        str(error),
        repr(error),
        repr(error.args),
        repr(vars(error)),
        *traceback.format_exception(error),
    ]
    # A traceback shows lines of this file, too; they contain the name CANARY, not its
    # value.
    assert not any(CANARY in text for text in texts)
    return error


def problems(ingest, body, **options):
    error = refusal(ingest, body, **options)
    assert isinstance(error, RowsInvalid)
    return [(problem.name, problem.problem, problem.count) for problem in error.columns]


def numbers(cells, column=0):
    """A file of good rows in which one column has the given cells."""
    rows = []
    for cell in cells:
        values = ["39", "1.75", "Male", '"Bern, BE"', ">50K"]
        values[column] = cell
        rows.append(",".join(values) + "\n")
    return HEADER + "".join(rows)


def test_rows_are_stored_sanitised_and_counted(ingest):
    report = ingest(
        HEADER
        + GOOD_ROW
        + '150,,,0,<=50K\n-1,9,female,"Bern, BE",50\n12,0.5," Male",Basel,\n7,nan,Female,0,>50K\n'
    )
    assert report.n_rows == 5
    assert report.columns == (
        ReadColumn("age", clamped=2, missing=0, unknown=0),
        ReadColumn("height", clamped=1, missing=2, unknown=0),
        ReadColumn("sex", clamped=0, missing=1, unknown=2),
        ReadColumn("city, canton", clamped=0, missing=0, unknown=1),
        ReadColumn("income", clamped=0, missing=0, unknown=2),
    )
    rows = ingest.read()
    age, height, sex, city = rows.features.columns
    assert rows.features.n_rows == 3
    assert age.tolist() == [39.0, 120.0, 7.0]
    assert height[0] == 1.75
    assert np.isnan(height[1:]).all()
    assert sex.tolist() == [1, 3, 0]
    assert city.tolist() == [0, 1, 1]
    assert rows.y.tolist() == [1, 0, 1]
    assert len({row_id.tobytes() for row_id in rows.row_ids}) == 3


def test_the_stored_file_has_fresh_ids_and_their_cells(ingest):
    ingest(HEADER + GOOD_ROW * 100)
    table = stored_table(ingest.destination)
    ids = b"".join(table.column("row_id").to_pylist())
    assert len({ids[at : at + 16] for at in range(0, 1600, 16)}) == 100
    partition = HashPartition("shard", 4)
    key = hash_keys(Partitions((partition,)), dataset_key=KEY)["shard"]
    assert (
        table.column("cell").to_pylist()
        == hash_cells(ids, partition=partition, dataset_key=key).tolist()
    )
    path_of(ingest.destination).unlink()
    ingest(HEADER + GOOD_ROW * 100)
    again = stored_table(ingest.destination).column("row_id").to_pylist()
    # not a function of the place of a row in its file
    assert set(again).isdisjoint(table.column("row_id").to_pylist())


def test_without_a_partition_there_is_no_cell(ingest):
    ingest.partitions = Partitions(())
    ingest(HEADER + GOOD_ROW)
    assert stored_table(ingest.destination).column_names == [
        "f0",
        "f1",
        "f2",
        "f3",
        "label",
        "row_id",
    ]


def test_the_report_prints_no_count(ingest):
    report = ingest(numbers(["500"] * 4711))
    assert report.n_rows == report.columns[0].clamped == 4711
    assert "4711" not in repr(report) + repr(report.columns)


def test_columns_come_in_any_order(ingest):
    ingest('income,"city, canton",height,age,sex\n>50K,0,1.5,40,Female\n')
    rows = ingest.read()
    assert [array.tolist() for array in rows.features.columns] == [
        [40.0],
        [1.5],
        [0],
        [1],
    ]
    assert rows.y.tolist() == [1]


@pytest.mark.parametrize(
    "body", [HEADER, HEADER.rstrip("\n"), HEADER + "\n\r\n\n", "\n" + HEADER]
)
def test_a_header_without_rows_is_legal(ingest, body):
    report = ingest(body)
    assert report.n_rows == 0
    assert [
        (column.clamped, column.missing, column.unknown) for column in report.columns
    ] == [(0, 0, 0)] * 5
    rows = ingest.read()
    assert rows.features.n_rows == 0
    assert [array.dtype for array in rows.features.columns] == [
        np.float64,
        np.float64,
        np.int32,
        np.int32,
    ]
    assert rows.row_ids.shape == (0, 16)


@pytest.mark.parametrize(
    "body",
    [
        "\ufeff" + HEADER + GOOD_ROW * 2,
        (HEADER + GOOD_ROW * 2).replace("\n", "\r\n"),
        (HEADER + GOOD_ROW * 2).replace("\n", "\r"),
        HEADER + GOOD_ROW + "\n\n" + GOOD_ROW.rstrip("\n"),
        HEADER + '"39","1.75","Male","Bern, BE",">50K"\n' * 2,
    ],
    ids=["byte order mark", "CRLF", "CR", "empty lines, no last end", "all quoted"],
)
def test_dialects_are_read_alike(ingest, body):
    ingest(body)
    rows = ingest.read()
    assert [array.tolist() for array in rows.features.columns] == [
        [39.0] * 2,
        [1.75] * 2,
        [1] * 2,
        [0] * 2,
    ]
    assert rows.y.tolist() == [1, 1]


def test_gzip_is_read(ingest):
    ingest(
        gzip.compress(HEADER.encode()) + gzip.compress(GOOD_ROW.encode() * 3), gzip=True
    )
    assert ingest.read().features.n_rows == 3


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("1", 1.0), ("+1", 1.0), ("1.", 1.0), (".75", 0.75), ("01.50", 1.5), ("15e-1", 1.5), ("0.2E+1", 2.0),
        (" 1.5", 1.5), ("\t1.5 ", 1.5), ('" 1.5 "', 1.5),
        ("1e999", 2.5), ("-1e999", 0.5), ("9" * 400, 2.5), ("inf", 2.5), ("-Infinity", 0.5), ("+INF", 2.5),
        ("1e-999", 0.5),
        ("", math.nan), ('""', math.nan), ("  ", math.nan), ("nan", math.nan), ("NaN", math.nan),
        ("-nan", math.nan), (" nan ", math.nan),
    ],
)  # fmt: skip
def test_numbers_are_read(ingest, cell, expected):
    ingest(numbers(["1", cell], column=1))
    np.testing.assert_array_equal(ingest.read().features.columns[1], [1.0, expected])


@pytest.mark.parametrize(
    "cell",
    [CANARY, "1,5", "1_0", "0x10", "1d5", "1 2", "--1", "+-1", "e5", "1e", ".", "-",
     "٣", "½", "1.5%", "NA", "null", "nan(1)", "infin", "1\u00a0"],
)  # fmt: skip
def test_other_texts_in_a_number_column_are_refused(ingest, cell):
    body = numbers([f'"{cell}"', "1", f'"{cell}"', "", " 2 "], column=1)
    assert problems(ingest, body) == [("height", "not-a-number", 2)]


def test_an_integer_column_takes_only_integers(ingest):
    assert problems(ingest, numbers(["1.5", "1.0", "1e2", "-0.25", "inf", "7"])) == [
        ("age", "not-an-integer", 2)
    ]


def test_an_integer_beyond_floats_is_clamped(ingest):
    report = ingest(numbers(["9" * 400, "-" + "9" * 400, "inf", "1.0"]))
    assert ingest.read().features.columns[0].tolist() == [120.0, 0.0, 120.0, 1.0]
    assert report.columns[0].clamped == 3


@pytest.mark.parametrize("column", [0, 3])
def test_an_empty_cell_is_refused_unless_the_feature_may_be_missing(ingest, column):
    name = ingest.schema.features[column].name
    good = "0"
    assert problems(ingest, numbers(["", good, '""'], column=column)) == [
        (name, "empty", 2)
    ]


def test_nan_is_an_empty_cell(ingest):
    assert problems(ingest, numbers(["nan", "1"])) == [("age", "empty", 1)]


def test_a_refusal_names_the_first_row_of_each_problem_over_all_blocks(
    ingest, set_limit: SetLimit
):
    # the parser's blocks have a few rows
    set_limit("MAX_CSV_LINE_BYTES", 100)
    good = ["39", "1.75", "Male", "0", ">50K"]
    rows = [good.copy() for _ in range(90)]
    rows[40][1], rows[60][1], rows[70][0], rows[80][3], rows[85][0] = (
        CANARY,
        "NA",
        "",
        "",
        "1.5",
    )
    error = refusal(ingest, HEADER + "".join(",".join(row) + "\n" for row in rows))
    found = {(problem.name, problem.problem): problem.row for problem in error.columns}
    assert found == {
        ("age", "empty"): 71,
        ("age", "not-an-integer"): 86,
        ("height", "not-a-number"): 41,
        ("city, canton", "empty"): 81,
    }


def test_a_refusal_states_the_places_of_columns_that_are_not_declared(ingest):
    error = refusal(ingest, f'{CANARY},age,height,x,sex,"city, canton",income\n')
    assert [problem.positions for problem in error.columns] == [(1, 4)]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("age,height,sex,income", [("city, canton", "missing-column", 1)]),
        ('age,age,height,sex,"city, canton",income', [("age", "duplicate-column", 2)]),
        (
            f'age,height,sex,"city, canton",income,{CANARY},{CANARY}',
            [("", "unknown-column", 2)],
        ),
        (
            f'{CANARY},height,sex,"city, canton",income',
            [("age", "missing-column", 1), ("", "unknown-column", 1)],
        ),
        ('age,height,sex,"city, canton",income,', [("", "unknown-column", 1)]),
        (
            'Age,height,sex,"city, canton",income',
            [("age", "missing-column", 1), ("", "unknown-column", 1)],
        ),
        (f'"{CANARY}', [("", "malformed-header", 1)]),
    ],
)
def test_the_header_names_each_declared_column_once(ingest, header, expected):
    # the row has the cells of the declaration, and other problems show in it
    found = problems(ingest, header + "\n" + GOOD_ROW)
    assert found[: len(expected)] == expected
    assert {problem for _, problem, _ in found[len(expected) :]} <= {"ragged-row"}


def test_the_first_row_of_a_file_without_header_is_not_quoted(ingest):
    body = GOOD_ROW.replace("Male", CANARY) * 3
    assert ("", "unknown-column", 5) in problems(ingest, body)


@pytest.mark.parametrize("body", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_body_has_no_header(ingest, body):
    assert problems(ingest, body) == [("", "no-header", 1)]


def test_bytes_that_are_not_utf8_are_counted_by_column(ingest):
    cell = CANARY.encode() + b"\xff"
    body = (
        HEADER.encode()
        + (b"1,2," + cell + b",0,<=50K\n") * 3
        + cell
        + b",2,Male,0,"
        + cell
        + b"\n"
    )
    expected = [
        ("age", "not-text", 1),
        ("sex", "not-text", 3),
        ("income", "not-text", 1),
        ("age", "not-a-number", 1),  # in the suspected encoding
    ]
    assert problems(ingest, body) == expected


def test_rows_of_the_wrong_width_are_counted(ingest):
    body = HEADER + f"{CANARY}\n" + GOOD_ROW + f"1,2,Male,0,<=50K,{CANARY}\n" + "1,2\n"
    assert problems(ingest, body) == [("", "ragged-row", 3)]


def test_nul_bytes_are_refused_as_text(ingest):
    body = (
        HEADER
        + GOOD_ROW
        + f"1\0,2,{CANARY}\0\0,0,<=50K\n1,\0,Male,0,<=50K\n1,\0,Male\0,0,\0\n"
    )
    expected = [("age", 1), ("height", 2), ("sex", 2), ("income", 1)]
    assert problems(ingest, body) == [
        (name, "not-text", count) for name, count in expected
    ]


def test_a_row_of_the_wrong_width_that_is_not_utf8_is_not_printed(
    ingest, capfd, recwarn
):
    body = HEADER.encode() + GOOD_ROW.encode() + CANARY.encode() + b"\xff\xfe,1\n"
    assert problems(ingest, body) == [("", "ragged-row", 1)]
    gc.collect()
    assert capfd.readouterr() == ("", "")
    assert list(recwarn) == []


@pytest.mark.parametrize("column", [2, 3, 4])
def test_a_line_break_in_a_cell_is_refused(ingest, column):
    name = [*(feature.name for feature in ingest.schema.features), "income"][column]
    body = numbers([f'"{CANARY}\n1"', f'"{CANARY}\r\n"', "0"], column=column)
    assert problems(ingest, body) == [(name, "line-break", 2)]


@pytest.mark.parametrize("shift", range(0, 66, 3))
def test_a_line_break_in_a_cell_is_refused_wherever_blocks_end(
    ingest, set_limit: SetLimit, shift
):
    set_limit("MAX_CSV_LINE_BYTES", 64)
    body = (
        HEADER
        + f"1,2,Male,0{'y' * (shift % 40)},<=50K\n" * (1 + shift // 40)
        + f'1,2,"{CANARY}\n{CANARY}",0,<=50K\n'
        + GOOD_ROW * 3
    )
    assert problems(ingest, body) == [("sex", "line-break", 1)]


@pytest.mark.parametrize("word", ["NA", "null", "NULL", "None", "nan", "#N/A"])
def test_words_for_missing_values_are_unknown_categories(ingest, word):
    report = ingest(numbers([word], column=2))
    assert (report.columns[2].missing, report.columns[2].unknown) == (0, 1)


def test_a_stray_quote_does_not_hide_the_rows_after_it(ingest):
    body = (
        HEADER
        + GOOD_ROW
        + f'1,2,Male,0,"{CANARY}\n'
        + GOOD_ROW.replace('"Bern, BE"', "0") * 50
    )
    assert problems(ingest, body) == [("income", "line-break", 1)]


def test_all_problems_of_the_whole_file_are_counted(ingest, set_limit: SetLimit):
    set_limit("MAX_CSV_LINE_BYTES", 128)
    bad = f"{CANARY},x,Male,,<=50K\n1.5,1,Male,0,<=50K\n,1,Male,0,<=50K\n1\n"
    body = HEADER + (GOOD_ROW * 40 + bad) * 25
    assert problems(ingest, body) == [
        ("age", "empty", 25),
        ("age", "not-a-number", 25),
        ("age", "not-an-integer", 25),
        ("height", "not-a-number", 25),
        ("city, canton", "empty", 25),
        ("", "ragged-row", 25),
    ]


def test_a_line_over_the_limit_is_refused(ingest):
    good = HEADER + GOOD_ROW
    row = "1,2,Male,0,"
    longest = limits.MAX_CSV_LINE_BYTES - len(row)
    ingest(good + row + "x" * longest + "\n" + GOOD_ROW)
    path_of(ingest.destination).unlink()
    assert problems(ingest, good + row + CANARY + "x" * longest + "\n") == [
        ("", "line-too-long", 1)
    ]


@pytest.mark.parametrize("shift", range(0, 140, 7))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_longest_line_is_read_wherever_blocks_begin(
    ingest, set_limit: SetLimit, shift, end
):
    set_limit("MAX_CSV_LINE_BYTES", 64)
    filling = "1,2,Male,0," + "y" * shift
    lines = [filling[:64], "1,2,Male,0," + "x" * 53, GOOD_ROW.rstrip("\n")] * 3
    ingest(HEADER.rstrip("\n") + end + end.join(lines))
    assert stored_table(ingest.destination).num_rows == 9


def test_a_record_longer_than_a_block_is_refused(ingest, set_limit: SetLimit):
    set_limit("MAX_CSV_LINE_BYTES", 64)
    body = HEADER + GOOD_ROW + f'1,2,Male,0,"{CANARY}\n' + f"{CANARY}\n" * 200 + '"\n'
    assert problems(ingest, body) == [("", "malformed-csv", 1)]


@pytest.mark.parametrize("is_gzip", [False, True])
def test_an_upload_over_the_limit_is_refused(ingest, set_limit: SetLimit, is_gzip):
    body = (HEADER + GOOD_ROW * 3 + GOOD_ROW.replace("Male", CANARY)).encode()
    set_limit("MAX_UPLOAD_CSV_BYTES", len(body) - 1)
    error = refusal(ingest, gzip.compress(body) if is_gzip else body, gzip=is_gzip)
    assert isinstance(error, TooLarge)
    set_limit("MAX_UPLOAD_CSV_BYTES", len(body))
    assert ingest(gzip.compress(body) if is_gzip else body, gzip=is_gzip).n_rows == 4


def test_a_small_gzip_does_not_unpack_to_a_large_upload(ingest, set_limit: SetLimit):
    body = (HEADER + GOOD_ROW * 20_000).encode()
    packed = gzip.compress(body)
    assert len(packed) * limits.MAX_GZIP_RATIO < len(body) < limits.FREE_UNPACKED_BYTES
    set_limit("FREE_UNPACKED_BYTES", 1_000)
    error = refusal(ingest, packed, gzip=True)
    assert isinstance(error, TooLarge)
    assert error.limit == len(packed) * limits.MAX_GZIP_RATIO
    set_limit("FREE_UNPACKED_BYTES", len(body))
    assert ingest(packed, gzip=True).n_rows == 20_000


def test_too_many_rows_are_refused(ingest, set_limit: SetLimit):
    set_limit("MAX_ROWS_PER_DATASET", 3)
    assert isinstance(refusal(ingest, HEADER + GOOD_ROW * 4), TooLarge)
    assert ingest(HEADER + GOOD_ROW * 3).n_rows == 3


@pytest.mark.parametrize("cut", [5, 30, -9, -1])
def test_an_incomplete_gzip_is_refused_and_not_stored(ingest, cut):
    packed = gzip.compress((HEADER + GOOD_ROW * 1000).encode())
    assert isinstance(refusal(ingest, packed[:cut], gzip=True), MalformedRequest)


def test_plain_text_that_is_declared_as_gzip_is_refused(ingest):
    assert isinstance(refusal(ingest, HEADER + CANARY, gzip=True), MalformedRequest)


class FailingDisk(io.BytesIO):
    """A body whose second read fails."""

    def read(self, size=-1):
        if self.tell():
            raise OSError(5, "Input/output error")
        return super().read(size)


def test_a_failing_disk_leaves_nothing(ingest, set_limit: SetLimit):
    set_limit("MAX_CSV_LINE_BYTES", 128)
    with pytest.raises(OSError, match="Input/output"):
        ingest(FailingDisk((HEADER + GOOD_ROW * 100).encode()))
    assert ingest.files() == []


def test_an_upload_with_one_bad_cell_is_not_stored(ingest):
    assert problems(
        ingest, HEADER + GOOD_ROW * 50_000 + GOOD_ROW.replace("39", CANARY)
    ) == [("age", "not-a-number", 1)]


def test_row_groups_are_bounded(ingest, monkeypatch, set_limit: SetLimit):
    monkeypatch.setattr("app.datasets.ingest._ROW_GROUP_ROWS", (100, 200))
    set_limit("MAX_CSV_LINE_BYTES", 512)
    ingest(HEADER + GOOD_ROW * 1000)
    with row_layout.reading(ingest.destination) as file:
        stored = file.metadata
    sizes = [stored.row_group(index).num_rows for index in range(stored.num_row_groups)]
    assert sum(sizes) == 1000
    assert max(sizes) < 250
    assert ingest.read().features.n_rows == 1000


def test_each_block_of_few_rows_takes_as_many_steps_as_the_one_before(
    ingest, set_limit: SetLimit
):
    """A file with 32,768 row groups of one row took minutes."""
    set_limit("MAX_CSV_LINE_BYTES", 128)
    steps = {}
    for n_rows in (2_000, 4_000):
        n_calls = itertools.count()
        sys.setprofile(lambda *_, n_calls=n_calls: next(n_calls))
        try:
            ingest(HEADER + GOOD_ROW * n_rows)
        finally:
            sys.setprofile(None)
        steps[n_rows] = next(n_calls)
        path_of(ingest.destination).unlink()
    assert steps[4_000] < 2.1 * steps[2_000]


def test_the_body_is_read_to_its_end_and_not_closed(ingest):
    body = io.BytesIO((HEADER + GOOD_ROW).encode())
    ingest(body)
    assert body.read() == b""
    assert not body.closed


@pytest.mark.parametrize("declared", ["größe", unicodedata.normalize("NFD", "größe")])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_header_means_the_column_that_looks_the_same(tmp_path, declared, form):
    schema = Schema(
        (Feature(declared, "integer", lower=0, upper=9),),
        Label("income", ("low", "high")),
    )
    ingest = Ingestion(tmp_path, schema)
    header = unicodedata.normalize(form, "größe")
    assert ingest(f"income,{header}\nlow,7\n").columns[0].name == declared
    assert ingest.read().features.columns[0].tolist() == [7]


def test_two_headers_that_look_the_same_are_one_column_twice(tmp_path):
    both = [unicodedata.normalize(form, "größe") for form in ("NFC", "NFD")]
    schema = Schema(
        (Feature(both[0], "integer", lower=0, upper=9),),
        Label("income", ("low", "high")),
    )
    error = refusal(Ingestion(tmp_path, schema), f"income,{','.join(both)}\nlow,7,8\n")
    assert [(item.name, item.problem, item.count) for item in error.columns] == [
        (both[0], "duplicate-column", 2)
    ]


def test_the_digest_of_the_cells_does_not_depend_on_where_blocks_end(
    tmp_path: Path,
) -> None:
    """A block of the parser has about a megabyte, so CRLF and gzip move its ends; a
    record batch has any size.
    """
    n_rows = 40_000
    text = HEADER + "".join(
        f'{row % 50},1.75,Male,"Bern, BE",>50K\n' for row in range(n_rows)
    )
    ages = [row % 50 for row in range(n_rows)]
    same = {
        "height": [1.75] * n_rows,
        "sex": ["Male"] * n_rows,
        "city, canton": ["Bern, BE"] * n_rows,
    }
    table = pa.table({"age": ages, **same, "income": [">50K"] * n_rows})
    bodies = [
        (text.encode(), BodyForm.CSV),
        (text.replace("\n", "\r\n").encode(), BodyForm.CSV),
        (gzip.compress(text.encode()), BodyForm.GZIP),
        (body_of(table, BodyForm.PARQUET, row_group_size=777), BodyForm.PARQUET),
        (
            body_of(table, BodyForm.ARROW_STREAM, max_chunksize=1_001),
            BodyForm.ARROW_STREAM,
        ),
    ]
    digests = [
        Ingestion(tmp_path / str(place))(body, form=form).cells
        for place, (body, form) in enumerate(bodies)
    ]
    assert len(text) > 2**20
    assert len(set(digests)) == 1
    turned = Ingestion(tmp_path / "turned")(
        HEADER + "".join(reversed(text.splitlines(keepends=True)[1:]))
    )
    assert turned.cells != digests[0]

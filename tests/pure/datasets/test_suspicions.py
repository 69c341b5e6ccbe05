"""A refused upload names its suspected cause and its place, for files as R,
spreadsheets and pandas write; no cell.
"""

import base64
import gzip
import zlib

import pytest

from app.core.errors import ColumnProblem, RowsInvalid
from app.datasets.upload_bodies import BodyForm
from grovekeeper_common import suspicions
from tests.support.set_limits import SetLimit
from tests.support.uploads import GOOD_ROW, HEADER, Ingestion

CANARY = "Canary7Q"
OF_DUCKDB = """
eNp9U81q20AQHq1VIYQC8mGWXdBBLVhVwRipNDQFx0lMmkt/ED6HFkdeYhFHLrET2psPeYw+Rh8jxz5Bn6OHzspeRylpl9WsZnbm22/2k/KjUY
aAIYZdtNFDBx2AVeCyjww2g+IBBu+RoYnA7wOqyTHv1nt1zVMKH1nw/2ExoMIUU13o3x/m2ibjw3imTtQlWUrsYe+vxGDHJA7VVdWNhm/TR/Pc
LfvBbvquv08GD8MQwDywSYgAAliBtgCHmwiNFdpytgtiZ3JdXEzOPi+KKbFCD5B1QLTG56rzDNDrMOFMVXk+XQL6emOhvnZg/e4X5fJbNyrG1X
JemaBTVsX8UpHLbRnK0xhCZBI9WWMiRfmAD2K3L+yEaAj7OVkOScNrt0GG1LWHugcN4EkMpCFSY3y3aMZf4pNQuEay+zfOOHss3m5zAKmvktrU
SgW08J8t/LQ+x5c06x7rQ0Z8FP+yiKkWTThr2TTXpm/Y+lu2a5QHt1PD5TyPf7C+cI20wkoJren+C2xzq1uY2xax0sqLJ7X2mlTDfQjD71rcjl
1aIEmOSe7jYXSjrhblvIpuXvbSXhYlZ9flbBLtTV7vZdkr9SZ9IU/1h9SYkBFWTn/TH9AcdpI=
"""
"""A file that DuckDB wrote with ``parquet_version v2``: its texts are
DELTA_LENGTH_BYTE_ARRAY.
"""


def _problems(
    ingest: Ingestion, body: str | bytes, **options: bool
) -> list[ColumnProblem]:
    with pytest.raises(RowsInvalid) as refused:
        ingest(body, **options)
    assert ingest.files() == []
    assert CANARY not in repr(refused.value.columns)
    return list(refused.value.columns)


def _problem(ingest: Ingestion, body: str | bytes, **options: bool) -> ColumnProblem:
    (problem,) = _problems(ingest, body, **options)
    return problem


def _excel(separator: str) -> str:
    return (
        (HEADER + GOOD_ROW)
        .replace('"city, canton"', "city")
        .replace('"Bern, BE"', CANARY)
        .replace(",", separator)
    )


@pytest.mark.parametrize(
    ("separator", "words"),
    [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")],
)
@pytest.mark.parametrize("begin", ["", "\ufeff", "\r\n\r\n"])
def test_another_separator_is_named(
    ingest: Ingestion, separator: str, words: str, begin: str
) -> None:
    problem, *others = _problems(ingest, begin + _excel(separator))
    assert (problem.name, problem.problem, problem.line) == (
        "",
        "separator",
        1 + begin.count("\n"),
    )
    assert problem.suspected == f"cells seem to be separated by {words}"
    option = "tab" if separator == "\t" else separator
    assert problem.option == f"separator={option}"
    # the rest of the file is looked at with that separator
    assert [other.problem for other in others] == ["missing-column", "unknown-column"]


def test_quoted_names_with_semicolons_are_no_malformed_header(
    ingest: Ingestion,
) -> None:
    """R's write.csv2 quotes every name."""
    problem, *others = _problems(
        ingest, '"";"age";"height";"sex"\n"1";39;1,75;"Male"\n'
    )
    assert problem.problem == "separator"
    assert others[-1].option == "decimal=,"
    assert _problem(ingest, '"a" x,b\n').problem == "malformed-header"


@pytest.mark.parametrize(
    "mark", ["sep=,", "sep=;", "SEP=;", '"sep=;"', "sep=\t", "sep=,,"]
)
def test_the_separator_line_of_a_spreadsheet_is_named(
    ingest: Ingestion, mark: str
) -> None:
    problem, *others = _problems(ingest, f"{mark}\n{HEADER}{GOOD_ROW}")
    assert (problem.problem, problem.line) == ("separator-line", 1)
    # the cells of this file are between commas, whatever the line says
    assert {other.option for other in others} <= {"separator=,"}
    assert problem.suspected is not None
    assert "remove it" in problem.suspected


def test_names_with_semicolons_are_legal(ingest: Ingestion) -> None:
    body = (HEADER + GOOD_ROW).replace("age", "a;ge")
    assert [problem.problem for problem in _problems(ingest, body)] == [
        "missing-column",
        "unknown-column",
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_utf_16_is_named(ingest: Ingestion, encoding: str, packed: bool) -> None:
    body = (HEADER + GOOD_ROW).encode(encoding)
    problem = _problem(ingest, gzip.compress(body) if packed else body, gzip=packed)
    assert (problem.problem, problem.line, problem.suspected) == (
        "not-text",
        1,
        suspicions.UTF_16,
    )


@pytest.mark.parametrize("encoding", ["utf-32", "utf-32-le", "utf-32-be"])
def test_utf_32_is_named_and_no_option_reads_it(
    ingest: Ingestion, encoding: str
) -> None:
    problem = _problem(ingest, (HEADER + GOOD_ROW).encode(encoding))
    assert (problem.suspected, problem.option) == (suspicions.UTF_32, None)


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (b"PK\x03\x04\x14\x00", "workbook"), (b"\xd0\xcf\x11\xe0\xa1\xb1", "workbook"), (b"\x1f\x8b\x08\x00", "gzip"),
        (b"BZh91AY&SY\xff", "packed"), (b"\xfd7zXZ\x00\x00", "packed"), (b"\x28\xb5\x2f\xfd\x24", "packed"),
        (b"$FL2@(#)\x00\xff", "SPSS"),
        (b"PAR1\x15\x00", "Parquet"), (b"ARROW1\x00\x00", "Arrow"), (b"<!DOCTYPE html>", "HTML"),
        (b'{"rows": [', "JSON"),
        (b'[{"age": 39}]', "JSON"),
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_named(
    ingest: Ingestion, begin: bytes, words: str
) -> None:
    problem = _problems(ingest, begin + CANARY.encode() + b"\n" + bytes(range(256)))[-1]
    assert words in str(problem.suspected)


@pytest.mark.parametrize("begin", ["PKä", "PAR1ä", "ARROW1ä"])
def test_the_name_of_a_column_is_not_taken_for_another_form(
    ingest: Ingestion, begin: str
) -> None:
    body = (HEADER + GOOD_ROW).replace("age", begin).encode("latin-1")
    assert suspicions.LATIN_1 in {
        problem.suspected for problem in _problems(ingest, body)
    }


def test_latin_1_is_named_in_the_header_and_in_cells(ingest: Ingestion) -> None:
    header, *others = _problems(
        ingest, (HEADER.replace("sex", "säx") + GOOD_ROW).encode("latin-1")
    )
    assert [other.problem for other in others] == ["missing-column", "unknown-column"]
    assert (header.problem, header.line, header.suspected) == (
        "not-text",
        1,
        suspicions.LATIN_1,
    )
    rows = HEADER + GOOD_ROW + GOOD_ROW.replace("Male", "Mälè")
    cell = _problem(ingest, rows.encode("latin-1"))
    assert (cell.name, cell.problem, cell.count, cell.row) == ("sex", "not-text", 1, 2)
    assert cell.suspected == suspicions.LATIN_1


@pytest.mark.parametrize("n_empty", [1, 3])
def test_empty_columns_at_the_end_are_named(ingest: Ingestion, n_empty: int) -> None:
    ends = "," * n_empty
    problem = _problem(ingest, f"{HEADER.strip()}{ends}\n{GOOD_ROW.strip()}{ends}\n")
    assert (problem.problem, problem.count, problem.suspected) == (
        "unknown-column",
        n_empty,
        suspicions._EMPTY_ENDS,
    )


@pytest.mark.parametrize(
    "name", ["", "Unnamed: 0", "__index_level_0__", "index", "row.names"]
)
def test_an_index_column_is_named(ingest: Ingestion, name: str) -> None:
    problem = _problem(ingest, f'"{name}",{HEADER}1,{GOOD_ROW}')
    assert (problem.problem, problem.positions) == ("unknown-column", (1,))
    assert problem.suspected is not None
    assert "index=False" in problem.suspected


@pytest.mark.parametrize("name", ["Patient", "patient_id", "customerId"])
def test_the_column_of_the_person_leads_to_the_privacy_unit(
    ingest: Ingestion, name: str
) -> None:
    """Whoever left it out of the declaration got a guarantee for single rows."""
    problem = _problem(ingest, f"{name},{HEADER}p7,{GOOD_ROW}")
    assert (problem.problem, problem.positions) == ("unknown-column", (1,))
    assert "privacy_unit" in str(problem.suspected)
    other = _problem(ingest, f"ward,{HEADER}north,{GOOD_ROW}")
    assert other.suspected is None


def test_a_file_without_a_header_and_a_header_in_other_letters_are_named(
    ingest: Ingestion,
) -> None:
    *missing, unknown = _problems(ingest, GOOD_ROW + GOOD_ROW)
    assert unknown.suspected is not None
    assert "a header with the names" in unknown.suspected
    assert [problem.suspected for problem in missing] == [None] * 5
    first, *_ = _problems(ingest, HEADER.replace("age", " Age") + GOOD_ROW)
    assert (first.name, first.problem) == ("age", "missing-column")
    assert first.suspected is not None
    assert "other letters" in first.suspected


@pytest.mark.parametrize(
    ("cell", "cause"),
    [
        ("NA", "NA"), ("N/A", "NA"), ("null", "NA"), ("#N/A", "NA"), (".", "NA"), ("\\N", "NA"), ('"1,75"', "comma"),
        ('"1.234,5"', "comma"), ('"1,234"', "comma"), ("TRUE", "TRUE"), ("false", "TRUE"), ("2026-01-31", "dates"),
        ("31.01.2026 12:00", "dates"), (CANARY, None), ("1_0", None), ("1.75\u00a0", "no-break"), ("k.A.", "NA"),
        ("\u22121.75", "minus"), ("22.5%", "percent"), ("$22.5", "currency"), (' "1.75"', "quotes"), ("cm 5", None),
        ("3:00", "3:00"), ("03:00:00", "3:00"), ("3:00 pm", "3:00"), ("126:30:00.5", "3:00"),
        ("3:99", None),
    ],
)  # fmt: skip
def test_what_is_no_number_has_a_suspected_cause(
    ingest: Ingestion, cell: str, cause: str | None
) -> None:
    body = HEADER + GOOD_ROW + GOOD_ROW.replace("1.75", cell) * 2
    problem, *others = _problems(ingest, body)
    # with decimal commas, the first row cannot be read
    assert len(others) == (cell == '"1,75"')
    assert (problem.name, problem.problem, problem.count, problem.row) == (
        "height",
        "not-a-number",
        2,
        2,
    )
    assert (
        problem.suspected is None if cause is None else cause in str(problem.suspected)
    )


@pytest.mark.parametrize(
    ("cell", "cause"),
    [
        (" Male", "blanks"), ("Male ", "blanks"), ("male", "other letters"), ("MALE ", "other letters"), ("NA", "NA"),
        (CANARY, None), ("01", None),
    ],
)  # fmt: skip
def test_what_is_not_declared_has_a_suspected_cause(
    ingest: Ingestion, cell: str, cause: str | None
) -> None:
    report = ingest(HEADER + GOOD_ROW + GOOD_ROW.replace("Male", cell))
    (column,) = [column for column in report.columns if column.unknown]
    assert column.name == "sex"
    assert column.suspected is None if cause is None else cause in str(column.suspected)


@pytest.mark.parametrize(
    ("declared", "cells", "cause"),
    [
        (("0", "1"), ["1.0", "0.0", ""], "whole numbers"), (("0", "1"), ["TRUE", "FALSE"], "truth values"),
        (("true", "false"), ["WAHR", "FALSCH"], "truth values"), (("0", "1"), ["VRAI", "FAUX"], "truth values"),
        (("TRUE", "FALSE"), ["1", "0"], "truth values"), (("01067", "10115"), ["1067"], "leading zeros"),
        (("1067",), ["01067"], "leading zeros"), (("True", "False"), ["true"], "other letters"),
        (("1.0", "2.0"), ["1", "2"], "without the point"),
        (("00123", "I10"), ['="00123"', '="I10"'], "spreadsheet's signs"),
        (("00123",), ["'00123"], "spreadsheet's signs"),
        (("a", "b"), ["true"], None), (("Zürich",), ["Zu\u0308rich"], "other letters"),
    ],
)  # fmt: skip
def test_spellings_of_numbers_and_truth_values_are_recognised(
    declared: tuple[str, ...], cells: list[str], cause: str | None
) -> None:
    suspected = suspicions.of_undeclared(cells, declared)
    assert suspected is None if cause is None else cause in str(suspected)


@pytest.mark.parametrize("cell", ["25'5", "-25'5", "+1'200", "1\u202f200"])
def test_a_decimal_point_where_commas_are_stated_has_a_cause(cell: str) -> None:
    """Points were replaced by then, and a number has a sign or none."""
    assert "decimal points where" in str(suspicions.of_no_numbers([cell]))


def test_a_nul_byte_is_no_latin_1(ingest: Ingestion) -> None:
    for body in (
        HEADER + GOOD_ROW.replace("Male", "Ma\0le"),
        HEADER[:5] + "\0" + HEADER[5:],
    ):
        problem = _problem(ingest, body)
        assert (problem.problem, problem.option) == ("not-text", None)
        assert "a NUL byte" in str(problem.suspected)


def test_the_most_frequent_cause_is_stated() -> None:
    assert suspicions.of_no_numbers(
        ["NA", "1,5", "2,5", CANARY, CANARY, CANARY]
    ) == suspicions.of_no_numbers(["1,5"])


def test_a_decimal_comma_without_quotes_has_a_place(ingest: Ingestion) -> None:
    problem = _problem(
        ingest, HEADER + GOOD_ROW + GOOD_ROW.replace("1.75", "1,75") + GOOD_ROW
    )
    assert (problem.problem, problem.count, problem.row) == ("ragged-row", 1, 2)
    assert problem.suspected == suspicions.MORE_CELLS
    cut = _problem(ingest, HEADER + GOOD_ROW + "39,1.75")
    assert (cut.row, cut.suspected) == (2, suspicions.FEWER_CELLS)


def test_problems_of_the_whole_file_have_a_place(
    ingest: Ingestion, set_limit: SetLimit
) -> None:
    assert _problem(ingest, "").line == 1
    assert _problem(ingest, "\n\n").suspected == suspicions.NO_TEXT
    assert _problem(ingest, '\r\r"a" x,b\n').line == 3
    broken = _problem(ingest, HEADER + GOOD_ROW + GOOD_ROW.replace("Male", '"Ma\nle"'))
    assert (broken.name, broken.problem, broken.row) == ("sex", "line-break", 2)
    set_limit("MAX_CSV_LINE_BYTES", 100)
    long = _problem(ingest, HEADER + GOOD_ROW + "x" * 101)
    assert (long.problem, long.byte) == ("line-too-long", len(HEADER + GOOD_ROW) + 1)


def test_parquet_with_texts_in_delta_encodings_is_read(ingest: Ingestion) -> None:
    report = ingest(zlib.decompress(base64.b64decode(OF_DUCKDB)), form=BodyForm.PARQUET)
    assert report.n_rows == 2
    assert [column.unknown for column in report.columns] == [0] * 5


@pytest.mark.parametrize(
    "cell",
    [
        "1.234,56",
        "-12.345.678,9",
        "1 234,5",
        "1'234,5",
        "1\u00a0234,5",
        "1\u202f234,5",
        "1’234,5",
    ],
)
def test_a_decimal_comma_beside_thousands_says_what_to_do(cell: str) -> None:
    suspected = suspicions.of_no_numbers([cell])
    assert "without the signs between thousands, then decimal=," in str(suspected)
    assert suspicions.option_of(suspected, [cell]) is None
    assert suspicions.option_of(suspected, [cell, "2,5"]) == "decimal=,"


@pytest.mark.parametrize("cell", ["70.5 kg", "3 days", "12mmol/", "-4°C", "8 m²"])
def test_a_unit_behind_a_number_is_named(cell: str) -> None:
    assert "a unit or a word behind" in str(suspicions.of_no_numbers([cell]))


@pytest.mark.parametrize("cell", ["kg", "0x1F", "3:99", "twelve"])
def test_other_texts_are_no_number_with_a_unit(cell: str) -> None:
    assert suspicions.of_no_numbers([cell]) is None


def test_a_nul_beside_a_number_is_no_sign_of_a_currency() -> None:
    assert suspicions.of_no_numbers(["2\0"]) == suspicions.NUL_CELL


def test_single_quotes_around_a_value_are_named() -> None:
    assert "single quotes" in str(suspicions.of_undeclared(["'North'"], ["North"]))
    assert suspicions.of_undeclared(["'"], ["North"]) is None


def test_a_title_before_the_header_is_named() -> None:
    title = {1: "Export of 2022"}
    assert "looks like a title" in str(suspicions.of_unknown_columns(title, 1))
    assert suspicions.of_unknown_columns({1: "hours"}, 1) is None

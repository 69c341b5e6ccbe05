"""Files as spreadsheets, R, SAS and databases write them: their options read them, and a
refusal names the options.
"""

import datetime
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from app.core.errors import ColumnProblem, InvalidRequest, RowsInvalid
from app.datasets.upload_bodies import RFC_4180, BodyForm, Dialect
from app.services.datasets.upload import UploadTerms
from grovekeeper_forests.data.schema import Feature, Label, Schema
from tests.support.columnar import body_of
from tests.support.uploads import Ingestion

SCHEMA = Schema(
    (
        Feature("age", "integer", lower=0.0, upper=120.0, missing=True),
        Feature("height", "numeric", lower=0.5, upper=2.5, missing=True),
        Feature("city", "categorical", categories=("Zürich", "NA"), missing=True),
    ),
    Label("ill", ("0", "1")),
)
PLAIN = "age,height,city,ill\n39,1.75,Zürich,0\n,1.8,NA,1\n40,,,0\n"
GERMAN = "age;height;city;ill\r\n39;1,75;Zürich;0\r\n;1,8;NA;1\r\n40;;;0\r\n"
NULL = "\\N"


@pytest.fixture
def ingest(tmp_path: Path) -> Ingestion:
    return Ingestion(tmp_path, SCHEMA)


def _as_tabs(text: str) -> str:
    return text.replace(";", "\t")


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        (GERMAN.encode("cp1252"), Dialect(";", ",", "cp1252")),
        (GERMAN.encode("latin-1"), Dialect(";", ",", "latin-1")),
        (_as_tabs(GERMAN).encode("utf-16"), Dialect("tab", ",", "utf-16")),
        (_as_tabs(GERMAN).encode("utf-16-be"), Dialect("tab", ",", "utf-16")),
        (GERMAN.replace(";", "|").encode("utf-8-sig"), Dialect("|", ",")),
        (PLAIN.replace(",,", ",NA,").encode(), Dialect(missing=("NA",))),
        (PLAIN.replace(",,", ", . ,").encode(), Dialect(missing=(".",))),
        (PLAIN.replace("\n,", f"\n{NULL},").encode(), Dialect(missing=(NULL,))),
    ],
)
def test_a_file_of_another_program_has_the_rows_of_a_plain_file(
    tmp_path: Path, body: bytes, dialect: Dialect
) -> None:
    plain = Ingestion(tmp_path / "plain", SCHEMA)(PLAIN)
    report = Ingestion(tmp_path / "other", SCHEMA)(body, dialect=dialect)
    assert (report.columns, report.n_rows) == (plain.columns, 3)
    # the same rows sent again are recognised
    assert report.cells == plain.cells


def test_a_declared_value_is_not_missing(ingest: Ingestion) -> None:
    """NA is Namibia in one column, and no value in another."""
    report = ingest(
        "age,height,city,ill\nNA,NA,NA,NA\n", dialect=Dialect(missing=("NA",))
    )
    assert [column.missing for column in report.columns] == [1, 1, 0, 0]
    assert [column.unknown for column in report.columns] == [0, 0, 0, 1]


def test_missing_values_of_the_declaration_act_in_every_form(tmp_path: Path) -> None:
    schema = Schema(SCHEMA.features, SCHEMA.label, (".", "none"))
    assert Schema.from_json(schema.to_json()).to_json() == schema.to_json()
    cells = {"age": [".", "40"], "height": [1.5, 1.6], "city": ["none", "Zürich"]}
    table = pa.table({**cells, "ill": ["0", "1"]})
    for form in (BodyForm.PARQUET, BodyForm.ARROW_FILE):
        report = Ingestion(tmp_path / form, schema)(body_of(table, form), form=form)
        assert [column.missing for column in report.columns] == [1, 0, 1, 0]
    csv = "age,height,city,ill\n.,1.5,none,0\n40,1.6,Zürich,1\n"
    assert Ingestion(tmp_path / "csv", schema)(csv).cells == report.cells


def test_a_schema_without_missing_values_keeps_its_bytes() -> None:
    assert list(SCHEMA.to_json()) == ["features", "label"]


@pytest.mark.parametrize(
    ("marks", "problem"),
    [
        (("-99",), "a-number"),
        (("inf",), "a-number"),
        (("NA", "NA"), "not-distinct"),
        (("",), "empty"),
        (tuple(map(str, range(33))), "too-many"),
        (("nan", "NA", "."), None),
    ],
)
def test_a_missing_value_is_a_text_that_is_no_number(
    marks: tuple[str, ...], problem: str | None
) -> None:
    schema = Schema(SCHEMA.features[:2], SCHEMA.label, marks)
    found = [(item.place, item.problem) for item in schema.problems()]
    assert found == ([(("schema", "missing_values"), problem)] if problem else [])


def _refused(ingest: Ingestion, body: bytes, dialect: Dialect) -> list[ColumnProblem]:
    with pytest.raises(RowsInvalid) as refused:
        ingest(body, dialect=dialect)
    assert ingest.files() == []
    return list(refused.value.columns)


def test_all_causes_are_named_at_once(ingest: Ingestion) -> None:
    """What a German spreadsheet writes, after R wrote NA: one answer has every option."""
    marked = GERMAN.replace("\n;", "\nNA;").replace("Zürich", "Zürich ")
    found = _refused(ingest, marked.encode("cp1252"), RFC_4180)
    options = [problem.option for problem in found if problem.option]
    assert options == ["separator=;", "missing=NA", "decimal=,", "encoding=cp1252"]
    assert "semicolons" in str(found[0].suspected)
    read = RFC_4180.with_options(options)
    assert read == Dialect(";", ",", "cp1252", ("NA",))
    assert ingest(marked.encode("cp1252"), dialect=read).n_rows == 3


def test_row_names_hide_no_other_problem(ingest: Ingestion) -> None:
    body = b'"","age","height","city","ill"\n"1",39,NA,"x","0"\n"2",NA,1.7,"x","0"\n'
    row_names, age, height = _refused(ingest, body, RFC_4180)
    assert (row_names.problem, row_names.positions) == ("unknown-column", (1,))
    assert (age.name, age.row, age.option) == ("age", 2, "missing=NA")
    assert (height.name, height.row, height.option) == ("height", 1, "missing=NA")


def test_a_refusal_repeats_marks_alone(ingest: Ingestion) -> None:
    body = b"age,height,city,ill\nCanary7Q,#####,x,0\nNA,N/A,x,0\n.,1.5,x,0\n"
    found = _refused(ingest, body, RFC_4180)
    assert "Canary7Q" not in repr(found)
    # one option for all columns: an upload has it once
    assert {problem.option for problem in found} == {"missing=.,NA,N/A", None}


def test_a_suspected_mark_is_added_to_those_that_are_stated(ingest: Ingestion) -> None:
    body = b"age,height,city,ill\n.,NA,NA,0\n39,n.a.,.,0\n"
    found = _refused(ingest, body, Dialect(missing=(".",)))
    assert [problem.option for problem in found] == ["missing=.,NA,n.a."]
    read = Dialect(missing=(".",)).with_options([str(found[0].option)])
    assert ingest(body, dialect=read).n_rows == 2


@pytest.mark.parametrize("mark", [".", "n.a.", "k.A.", "1.#qnan", "-", "9,9 kg"])
@pytest.mark.parametrize("is_declared", [False, True])
def test_marks_with_points_stand_beside_decimal_commas(
    tmp_path: Path, mark: str, is_declared: bool
) -> None:
    body = f"age;height;city;ill\n39;1,75;Zürich;0\n{mark};{mark};NA;1\n".encode()
    declared, stated = ((mark,), ()) if is_declared else ((), (mark,))
    schema = Schema(SCHEMA.features, SCHEMA.label, declared)
    report = Ingestion(tmp_path, schema)(
        body, dialect=Dialect(";", ",", missing=stated)
    )
    assert [column.missing for column in report.columns] == [1, 1, 0, 0]
    assert [column.clamped for column in report.columns] == [0, 0, 0, 0]


@pytest.mark.parametrize("mark", [".", "n.a.", "1.#qnan"])
def test_marks_with_points_are_suspected_beside_decimal_commas(
    ingest: Ingestion, mark: str
) -> None:
    body = f"age;height;city;ill\n39;1,75;Zürich;0\n40;{mark};NA;1\n".encode()
    (problem,) = _refused(ingest, body, Dialect(";", ","))
    assert problem.option == f"missing={mark}"


def test_an_empty_cell_is_no_advice_where_it_would_be_refused(tmp_path: Path) -> None:
    features = [replace(feature, missing=False) for feature in SCHEMA.features]
    schema = Schema(tuple(features), SCHEMA.label)
    body = b"age,height,city,ill\nNA,1.5,n/a,0\n39,n/a,NA,0\n"
    found = _refused(Ingestion(tmp_path, schema), body, RFC_4180)
    assert [column.option for column in found] == [None, None]
    assert all("would not be read here" in str(column.suspected) for column in found)


@pytest.mark.parametrize(
    ("cells", "cause"),
    [(["NA\0", "NA"], "a NUL in the cell"), ([None, "NA"], "(missing)")],
)
def test_a_table_is_refused_for_no_cause_that_text_alone_has(
    tmp_path: Path, cells: list[str | None], cause: str
) -> None:
    """A table has no encoding, and no separators between its cells."""
    city = replace(SCHEMA.features[2], missing=False)
    ingest = Ingestion(tmp_path, Schema((city,), SCHEMA.label))
    body = body_of(pa.table({"city": cells, "ill": ["0", "1"]}), BodyForm.ARROW_FILE)
    with pytest.raises(RowsInvalid) as refused:
        ingest(body, form=BodyForm.ARROW_FILE)
    (column,) = refused.value.columns
    assert cause in str(column.suspected)
    assert "encoding" not in str(column.suspected)
    assert "separators" not in str(column.suspected)


def test_decimal_commas_of_one_column_are_no_advice_against_points_of_another(
    ingest: Ingestion,
) -> None:
    body = 'age,height,city,ill\n39.0,"1,5",NA,0\nNA,"1,6",NA,0\n'
    age, height = _refused(ingest, body.encode(), RFC_4180)
    assert (age.name, age.count, age.option) == ("age", 1, "missing=NA")
    assert (height.name, height.count, height.option) == ("height", 2, None)
    assert "comma" in str(height.suspected)


NAMES = "age,height,city,ill\n39,1.75,Zürich,0\n40,1.75,Škoda,0\n"


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "größe,"])
@pytest.mark.parametrize("n_bad", [0, 1])
def test_utf_8_is_not_read_in_an_encoding_of_one_byte(
    ingest: Ingestion, encoding: str, begin: str, n_bad: int
) -> None:
    """Almost any bytes are text in it: a person would be another one."""
    body = f"{begin}{NAMES}".encode() + b"41,1.75,\xfc,0\n" * n_bad
    found = _refused(ingest, body, Dialect(encoding=encoding))
    assert "encoding=utf-8" in [problem.option for problem in found]
    assert "encoding=cp1252" not in [problem.option for problem in found]


def test_utf_8_is_found_in_pieces(tmp_path: Path) -> None:
    """A character may begin in one piece of the file, and end in the next."""
    for shift in range(3):
        rows = "40,1.75,NA,0\n" * 60_000
        body = f"age,height,city,ill\n{'4' * (shift + 1)},1,€,0\n{rows}".encode()
        ingest = Ingestion(tmp_path / str(shift), SCHEMA)
        (problem,) = _refused(ingest, body, Dialect(encoding="cp1252"))
        assert (problem.name, problem.option) == ("", "encoding=utf-8")


@pytest.mark.parametrize("name", ["Škoda", "“", "€"])
def test_controls_are_no_latin_1(ingest: Ingestion, name: str) -> None:
    """Names of units lose controls: three people would become one."""
    body = f"age,height,city,ill\n39,1.75,{name},0\n".encode("cp1252")
    (problem,) = _refused(ingest, body, Dialect(encoding="latin-1"))
    assert (problem.name, problem.problem) == ("city", "not-text")
    assert problem.option == "encoding=cp1252"
    assert ingest(body, dialect=Dialect(encoding="cp1252")).n_rows == 1


@pytest.mark.parametrize(
    "body",
    [
        NAMES.encode() + b"41,1.75,\xfc,0\n",
        b"41,1.75,\xfc,0\n".join([b"age,height,city,ill\n", "41,1,ü,0\n".encode()]),
        "\ufeffage,height,city,ill\n".encode() + b"41,1.75,\xfc,0\n",
        b"\xfc" + NAMES.encode(),
        b"\xfc,age,height,city,ill\n"
        + b"1,1,1,NA,0\n" * 200_000
        + "1,1,1,ü,0".encode(),
    ],
)
def test_some_bad_bytes_of_utf_8_are_no_other_encoding(
    ingest: Ingestion, body: bytes
) -> None:
    found = _refused(ingest, body, RFC_4180)
    not_text = [item for item in found if item.problem == "not-text"]
    assert [item.option for item in not_text] == [None]
    assert "some bytes are not UTF-8" in str(not_text[0].suspected)


def test_utf_16_is_recognised_where_another_encoding_is_stated(
    ingest: Ingestion,
) -> None:
    for encoding in ("latin-1", "cp1252"):
        found = _refused(ingest, NAMES.encode("utf-16"), Dialect(encoding=encoding))
        assert found[0].option == "encoding=utf-16"


def test_an_option_is_no_advice_where_an_empty_cell_is_a_problem(
    tmp_path: Path,
) -> None:
    schema = Schema(
        (Feature("city", "categorical", categories=("Zürich",)),), SCHEMA.label
    )
    report = Ingestion(tmp_path, schema)("city,ill\nNA,NA\n")
    assert [(cells.name, cells.option) for cells in report.mapped] == [
        ("city", None),
        ("ill", None),
    ]


@pytest.mark.parametrize(
    ("cells", "option"),
    [
        (("1,5", "2,75"), "decimal=,"),
        (("1,234", "12,345,678"), None),  # thousands
        (("1,234.5", "0,5"), None),
        (("1.234,5", "2,5"), "decimal=,"),
    ],
)
def test_commas_between_thousands_are_no_decimal_commas(
    ingest: Ingestion, cells: tuple[str, ...], option: str | None
) -> None:
    rows = "".join(f'39,"{cell}",Zürich,0\n' for cell in cells)
    first, *_ = _refused(ingest, f"age,height,city,ill\n{rows}".encode(), RFC_4180)
    assert (first.name, first.option) == ("height", option)


def test_a_point_is_no_decimal_sign_beside_decimal_commas(ingest: Ingestion) -> None:
    body = b"age;height;city;ill\n39;1.234;NA;0\n"
    (problem,) = _refused(ingest, body, Dialect(";", ","))
    assert (problem.name, problem.problem) == ("height", "not-a-number")
    assert "thousands" in str(problem.suspected)


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_bytes_that_an_encoding_does_not_have_are_refused(
    ingest: Ingestion, encoding: str
) -> None:
    text = "age,height,city,ill\n39,1.75,Z\N{REPLACEMENT CHARACTER}rich,0\n"
    body = text.encode("utf-16") if encoding == "utf-16" else b"\x81" + text.encode()
    (problem,) = _refused(ingest, body, Dialect(encoding=encoding))
    assert (problem.problem, problem.option) == ("not-text", None)
    assert problem.suspected == "bytes that the stated encoding does not have"


def test_options_have_closed_sets() -> None:
    assert Dialect.of("tab", ",", "cp1252", "NA,.") == Dialect(
        "tab", ",", "cp1252", ("NA", ".")
    )
    for options in (
        (":", ".", "utf-8", ""),
        (",", "'", "utf-8", ""),
        (",", ".", "rot13", ""),
        (",", ".", "utf-8", "-99"),
    ):
        with pytest.raises(InvalidRequest):
            Dialect.of(*options)


def test_a_file_of_parquet_has_no_separator() -> None:
    UploadTerms(BodyForm.PARQUET, Dialect(missing=("NA",)))
    with pytest.raises(InvalidRequest):
        UploadTerms(BodyForm.PARQUET, Dialect(";"))


@pytest.mark.parametrize(
    ("sign", "option"), [(";", "separator=;"), ("\t", "separator=tab"), (",", None)]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_for_spreadsheets_hides_no_other_problem(
    ingest: Ingestion, sign: str, option: str | None, end: str
) -> None:
    lines = [f"sep={sign}", "age;height;city;ill".replace(";", sign)]
    lines.append("NA;1.5;Zürich;0".replace(";", sign))
    line, age = _refused(ingest, end.join(lines).encode(), RFC_4180)
    assert (line.problem, line.option) == ("separator-line", option)
    assert (age.name, age.row, age.option) == ("age", 1, "missing=NA")


def test_blanks_around_a_stated_mark_do_not_count(ingest: Ingestion) -> None:
    assert Dialect.of(",", ".", "utf-8", "NA, .,\tNULL").missing == ("NA", ".", "NULL")
    schema = Schema(SCHEMA.features[:2], SCHEMA.label, ("NA", " ."))
    assert [item.problem for item in schema.problems()] == ["blanks-around"]


@pytest.mark.parametrize("blank", ["\N{NO-BREAK SPACE}", "\N{EM SPACE}"])
def test_an_option_has_no_mark_that_the_reader_would_not_find(
    ingest: Ingestion, blank: str
) -> None:
    body = f"age,height,city,ill\nNA{blank},1.5,NA,0\n".encode()
    (problem,) = _refused(ingest, body, RFC_4180)
    assert problem.option is None


DAYS = Schema(
    (Feature("day", "date", upper=9_999.0, missing=True, first_day=16_436),),
    Label("ill", ("0", "1")),
)


def test_a_date_of_a_german_spreadsheet_has_its_cause(tmp_path: Path) -> None:
    body = b"day;ill\n01.05.2022;0\n"
    [problem] = _refused(Ingestion(tmp_path, DAYS), body, Dialect(";", ","))
    assert problem.problem == "not-a-date"
    assert "such as 29.02.2024" in str(problem.suspected)


@pytest.mark.parametrize("form", [BodyForm.PARQUET, BodyForm.ARROW_FILE])
def test_a_time_of_the_day_in_a_table_has_its_cause(
    tmp_path: Path, form: BodyForm
) -> None:
    noon = pa.array([datetime.datetime.fromisoformat("2022-05-01T12:00:00")])
    body = body_of(pa.table({"day": noon, "ill": ["0"]}), form)
    with pytest.raises(RowsInvalid) as refused:
        Ingestion(tmp_path, DAYS)(body, form=form)
    [problem] = refused.value.columns
    assert problem.problem == "not-a-date"
    assert "a time of the day" in str(problem.suspected)

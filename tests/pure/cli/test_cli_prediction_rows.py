"""Files of rows become JSON values by the schema, without guessed types."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grovekeeper_client.cli import prediction_rows, prediction_tables
from grovekeeper_client.cli.command import WrongUse
from grovekeeper_client.cli.written import Written
from grovekeeper_common.number_text import number_of

SCHEMA: dict[str, Any] = {
    "features": [
        {"name": "age", "type": "integer"},
        {"name": "weight", "type": "numeric"},
        {"name": "code", "type": "categorical"},
    ],
    "label": {"name": "y", "classes": ["a", "b"]},
}
ROWS = [
    {"age": 39, "weight": 1.5, "code": "007"},
    {"age": None, "weight": -2000.0, "code": None},
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.csv", "age,weight,code\n39,1.5,007\n,-2e3,\n"),
        ("bom.csv", "\ufeffage,weight,code\r\n39,1.5,007\r\n,-2e3,\r\n"),
        ("labelled.csv", "y,age,weight,code\na,39,1.5,007\nb,,-2e3,\n"),
        ("bom.jsonl", '\ufeff{"age": 39, "weight": 1.5, "code": "007"}\r\n{"weight": -2e3, "age": NaN, "code": NaN}'),
        ("bom.json", '\ufeff[{"age": 39, "weight": 1.5, "code": "007"}, {"age": NaN, "weight": -2e3, "code": null}]'),
        ("rows.jsonl", '{"age": 39, "weight": 1.5, "code": "007"}\n\n{"age": null, "weight": -2000.0, "code": null}\n'),
        ("rows.ndjson", '{"age": 39, "weight": 1.5, "code": "007"}\n{"age": null, "weight": -2000.0, "code": null}\n'),
        ("rows.json", '[{"age": 39, "weight": 1.5, "code": "007"}, {"age": null, "weight": -2e3, "code": null}]'),
        ("body.json", '{"rows": [{"age": 39, "weight": 1.5, "code": "007"}, '
                      '{"age": null, "weight": -2e3, "code": null}]}'),
        ("columns.json", '{"columns": {"age": [39, NaN], "weight": [1.5, -2e3], "code": ["007", null]}}'),
    ],
)  # fmt: skip
def test_every_form_gives_the_same_rows(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert prediction_rows.read_rows(tmp_path / name, SCHEMA) == ROWS


def test_an_empty_line_of_one_column_is_its_empty_cell(tmp_path: Path) -> None:
    only = {**SCHEMA, "features": SCHEMA["features"][:1]}
    (tmp_path / "rows.csv").write_text("age\n39\n\n40\n")
    assert prediction_rows.read_rows(tmp_path / "rows.csv", only) == [
        {"age": 39},
        {"age": None},
        {"age": 40},
    ]


def test_a_name_of_decomposed_letters_is_the_composed_one(tmp_path: Path) -> None:
    """As macOS and some databases write them."""
    feature = {"name": "\u00e9", "type": "integer"}
    (tmp_path / "a.csv").write_text("e\u0301\n1\n", encoding="utf-8")
    read = prediction_rows.read_rows(
        tmp_path / "a.csv", SCHEMA | {"features": [feature]}
    )
    assert read == [{"\u00e9": 1}]


def test_a_number_beyond_floats_is_the_largest_float(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"age": 1e400, "weight": -1e400}\n')
    largest = sys.float_info.max
    assert prediction_rows.read_rows(tmp_path / "rows.jsonl", SCHEMA) == [
        {"age": largest, "weight": -largest}
    ]


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.CSV", "rows.csv"])
def test_a_file_in_gzip_is_unpacked_whatever_its_name_says(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(
        gzip.compress(b"age,weight,code\n39,1.5,007\n,-2e3,\n")
    )
    assert prediction_rows.read_rows(tmp_path / name, SCHEMA) == ROWS
    (tmp_path / "rows.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, ROWS)).encode())
    )
    assert prediction_rows.read_rows(tmp_path / "rows.jsonl.gz", SCHEMA) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.parquet",
            b"PAR1\x15\x04",
            "looks like Parquet: predict takes .csv with a header, .jsonl and .json",
        ),
        ("a.arrow", b"ARROW1\0\0", "looks like Arrow: predict takes .csv"),
        (
            "a.xlsx",
            b"PK\x03\x04",
            "looks like a workbook or a zip archive: predict takes .csv",
        ),
        (
            "a.csv.gz",
            gzip.compress(b"age\n1\n", mtime=0)[:-9],
            "cannot be unpacked: it is cut off or damaged",
        ),
        ("a.csv.gz", gzip.compress(b"PAR1\x15\x04", mtime=0), "looks like Parquet"),
        (
            "a.csv",
            "age,weight,code\n1,2,é\n".encode("utf-16"),
            "it looks like UTF-16; save the file as UTF-8",
        ),
        (
            "a.csv",
            "age,weight,code\n1,2,x\n".encode("utf-16-le"),
            "it looks like UTF-16; save the file as UTF-8",
        ),
        (
            "a.json",
            '[{"age": 1}]'.encode("utf-16-le"),
            "it looks like UTF-16; save the file as UTF-8",
        ),
        (
            "a.csv",
            "age,weight,code\n1,2,é\n".encode("latin-1"),
            "it looks like Latin-1 or Windows-1252",
        ),
        *(
            (
                "a.csv",
                "age;weight;code\n1;2;é\n".encode(encoding),
                f"; add --encoding {option}; line 1: cells seem to be separated by semicolons; add --separator ';'",
            )
            for encoding, option in (("latin-1", "cp1252"), ("utf-16", "utf-16"))
        ),
        *(
            (
                "a.csv",
                "age;weight;code\n1;2,5;x\n2;3,5;é\n".encode(encoding),
                "separated by semicolons; add --separator ';'; a comma in a number; a decimal point is needed, "
                "and no sign between thousands; add --decimal ,",
            )
            for encoding in ("latin-1", "utf-16", "utf-8")
        ),
        (
            "a.csv",
            'age,weight,code\n1,"2,5",é\n,NA,x\n3,"4,5",x'.encode("latin-1"),
            "add --encoding cp1252; a comma in a number;",
        ),
        (
            "a.csv",
            b"age;weight;code\n1;2;x\n",
            "line 1: cells seem to be separated by semicolons; add --separator ';'",
        ),
        (
            "a.csv",
            b"\nage\tweight\tcode\n1\t2\tx\n",
            "line 2: cells seem to be separated by tabs",
        ),
        ("a.csv", b"sep=;\nage;weight;code\n", "names the separator in it: remove it"),
        ("a.csv", b"", "is empty: predict takes"),
        ("a.jsonl", b"\n", "is empty: predict takes"),
        ("a.json", gzip.compress(b"", mtime=0), "is empty: predict takes"),
        (
            "a.tsv",
            b"age\tweight\tcode\n1\t2\tx\n",
            "line 1: cells seem to be separated by tabs; add --separator tab",
        ),
    ],
)
def test_a_file_of_another_form_is_named_with_the_forms_that_are_taken(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WrongUse) as refused:
        prediction_rows.read_rows(tmp_path / name, SCHEMA)
    assert words in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "content", "written", "words"),
    [
        ("a.jsonl", b"{}", Written(separator=";"), "and CSV alone is written"),
        ("a.csv", b"age\n1\n", Written(separator=":"), "--separator is one of: , ;"),
        ("a.csv", b"age\n1\n", Written(decimal=";"), "--decimal is one of: . ,"),
        (
            "a.csv",
            b"age\n1\n",
            Written(encoding="utf-7"),
            "--encoding is one of: utf-8",
        ),
        ("a.csv", b"age\n\xff\n", Written(separator=";"), "a.csv is not utf-8"),
        ("a.csv", b"age\n1\n", Written(missing=["NA,1.5"]), "and 1.5 is a number"),
        ("a.jsonl", b"{}", Written(missing=["NA"]), "no CSV by its ending"),
        ("a.csv", b'age\n"1" 2\n', Written(separator=";"), "is written twice"),
        (
            "a.csv",
            b"age;weight\n1;2;3\n",
            Written(separator=";"),
            "line 2 has more cells than the header",
        ),
        (
            "a.csv",
            b"age;weight\n1;1.234,5\n",
            Written(separator=";", decimal=","),
            "signs between thousands, or decimal points where",
        ),
    ],
)
def test_a_file_that_is_not_as_its_options_say_is_refused(
    tmp_path: Path, name: str, content: bytes, written: Written, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WrongUse) as refused:
        prediction_rows.read_rows(tmp_path / name, SCHEMA, written)
    assert words in str(refused.value)


def test_options_change_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    """A declared category stays one, a cell of blanks is no empty cell, lines before a
    header and a text of two bytes a letter are read as an upload reads them.
    """
    declared = {"name": "code", "type": "categorical", "categories": ["NA", "x"]}
    ward = {"name": "ward", "type": "categorical", "categories": ["A"]}
    schema = {**SCHEMA, "features": [declared, ward]}
    text = '\n"code","ward"\nNA," "\n"x",NA\n'
    read = [{"code": "NA", "ward": " "}, {"code": "x", "ward": None}]
    for encoding in ("utf-8", "utf-16", "utf-16-le", "utf-16-be"):
        (tmp_path / "a.tsv").write_bytes(text.encode(encoding))
        options = Written(missing=["NA"], encoding=encoding[:6].removesuffix("-"))
        assert prediction_rows.read_rows(tmp_path / "a.tsv", schema, options) == read
    (tmp_path / "a.csv").write_text(text)
    usual = prediction_rows.read_rows(tmp_path / "a.csv", schema)
    assert usual == [{"code": "NA", "ward": " "}, {"code": "x", "ward": "NA"}]
    assert usual == prediction_rows.read_rows(
        tmp_path / "a.csv", schema, Written(separator=",")
    )


def test_an_empty_cell_is_advised_where_it_helps_alone(tmp_path: Path) -> None:
    """Not for a declared mark, and not in a column whose values must not be missing."""
    (tmp_path / "a.csv").write_bytes("age;code\nNA;é\n2;x\n".encode("latin-1"))
    age, _, code = SCHEMA["features"]
    marked = {**SCHEMA, "missing_values": ["NA"]}
    advice = "a mark such as NA stands for a missing value; "
    for schema, missing, end in (
        (SCHEMA, True, f"{advice}leave the cell empty instead; add --missing NA"),
        (SCHEMA, False, f"{advice}an empty cell would not be read here, either"),
        (marked, True, "semicolons; add --separator ';'"),
    ):
        features = [{**age, "missing": missing}, code]
        with pytest.raises(WrongUse) as refused:
            prediction_rows.read_rows(
                tmp_path / "a.csv", {**schema, "features": features}
            )
        assert str(refused.value).endswith(end)


@pytest.mark.parametrize(
    ("cell", "cause"),
    [
        ("29.02.2024", "dates in another form"),
        ("29FEB2024", "dates in another form"),
        ("29FEB2024:00:00:00", "dates in another form"),
        ("29-Feb-24", "dates in another form"),
        ("Feb 29 2024", "dates in another form"),
        ("0000-00-00", "which MySQL writes"),
        ("0000-00-00 00:00:00", "which MySQL writes"),
        ("2023-02-29", "a day that its month does not have"),
        ("2024-02-29 12:00", "a time of the day"),
        ("soon", "such as 2024-02-29"),
    ],
)
def test_what_is_no_date_is_named_with_its_line_and_cause(
    tmp_path: Path, cell: str, cause: str
) -> None:
    admitted = {"name": "admitted", "type": "date"}
    (tmp_path / "a.csv").write_text(f"admitted\n2024-02-29\n{cell}\n")
    with pytest.raises(WrongUse, match="line 3: the cell of admitted") as refused:
        prediction_rows.read_rows(
            tmp_path / "a.csv", {**SCHEMA, "features": [admitted]}
        )
    assert cause in str(refused.value)


def test_a_text_of_json_needs_no_ending(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text(json.dumps(ROWS))
    assert prediction_rows.read_rows(tmp_path / "rows", SCHEMA) == ROWS


def test_what_is_not_json_has_a_place(tmp_path: Path) -> None:
    for name, content, place in (
        (
            "a.jsonl",
            b'{"age": 1}\n\n{"age": 1,}\n',
            "line 3, is not JSON: line 1, column 10: a trailing comma",
        ),
        ("a.json", b'[{"age": 1}\n{}]', "a.json is not JSON: line 2, column 1"),
        (
            "a.json",
            b'[{"age": Infinity}]',
            "a.json is not JSON: line 1, column 10: NaN and Infinity",
        ),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WrongUse) as refused:
            prediction_rows.read_rows(tmp_path / name, SCHEMA)
        assert place in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"age,weight,code\n39,1.5\n"),
        ("a.csv", b"age,weight,code\n39,1.5,x,y\n"),
        ("a.csv", b"age,weight,code\nold,1.5,x\n"),
        ("a.csv", b"age,weight,age\n39,1.5,40\n"),
        ("a.csv", b'age,weight,code\n39,1,"x\n'),
        ("a.csv", b"age\n\xff\n"),
        ("a.json", b"{"),
        ("a.json", b"[1]"),
        ("a.json", b'{"columns": [1]}'),
        ("a.json", b'{"columns": {"age": "39"}}'),
        ("a.json", b'{"columns": {"age": [39], "weight": []}}'),
        ("a.json", b'{"columns": {"age": [39]}, "rows": []}'),
        ("a.jsonl", b"[]\n"),
    ],
)
def test_an_unusable_prediction_file_is_invalid_usage(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WrongUse):
        prediction_rows.read_rows(tmp_path / name, SCHEMA)


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"rows": [{"age": 39, "age": 4000}]}')
    with pytest.raises(WrongUse, match="twice"):
        prediction_rows.read_rows(tmp_path / "a.json", SCHEMA)


def test_numbers_are_those_of_an_upload(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"age,weight,code\n 39 ,nan,x\n,-inf,\n")
    largest = sys.float_info.max
    assert prediction_rows.read_rows(tmp_path / "a.csv", SCHEMA) == [
        {"age": 39, "weight": None, "code": "x"},
        {"age": None, "weight": -largest, "code": None},
    ]
    (tmp_path / "a.csv").write_bytes(b'age,weight,code\n39,"1,5",x\n')
    with pytest.raises(
        WrongUse, match=r"line 2: the cell of weight is not a number: .*comma"
    ):
        prediction_rows.read_rows(tmp_path / "a.csv", SCHEMA)


@pytest.mark.parametrize(
    ("missing", "advice"),
    [(True, "leave the cell empty instead; add --missing NA"), (False, "would not be read here")],
)  # fmt: skip
def test_an_empty_cell_is_advice_where_the_model_takes_one(
    tmp_path: Path, missing: bool, advice: str
) -> None:
    feature = {"name": "age", "type": "integer", "missing": missing}
    (tmp_path / "a.csv").write_text("age\nNA\n")
    with pytest.raises(WrongUse) as refused:
        prediction_rows.read_rows(tmp_path / "a.csv", SCHEMA | {"features": [feature]})
    assert advice in str(refused.value)
    assert ("--missing" in str(refused.value)) is missing


def test_numbers_of_text_are_the_same_with_and_without_pyarrow() -> None:
    texts = [
        "", " 39 ", "nan", "-NaN", "inf", "-Infinity", "1e400", "+1", "1.", ".5", "1e5", "0x1", "1_0", "1e", ".", "１",
        "nan(1)", "infin", "1 2", "--1", "1.5e-3", "007", "-0", "9" * 30, "\t7", "\u00a07",
    ]  # fmt: skip
    schema = {"features": [{"name": "x", "type": "numeric"}], "label": {"name": "y"}}
    for text in texts:
        read = prediction_tables.of_csv(f"{text},\n".encode(), ["x", "z"], schema)
        try:
            number = number_of(text)
        except ValueError:
            assert read is None, text
            continue
        assert read is not None, text
        (found,) = read[0].column("x").to_pylist()
        if number is None:
            assert found is None or found != found
        else:
            largest = sys.float_info.max
            assert min(max(found, -largest), largest) == float(number)


@pytest.mark.parametrize("cell", ["29.02.2024", "2023-02-29"])
def test_a_date_of_another_form_is_left_to_the_reader_that_says_why(cell: str) -> None:
    """So that it has a cause with ``--output``, too."""
    label = {"name": "y", "classes": ["a", "b"]}
    schema = {"features": [{"name": "day", "type": "date"}], "label": label}
    legal = b"2024-02-29\n 2024-03-01\n\n"
    assert prediction_tables.of_csv(legal, ["day"], schema) is not None
    assert prediction_tables.of_csv(cell.encode(), ["day"], schema) is None


@pytest.mark.parametrize(
    ("content", "encoding", "why"),
    [
        ("Zürich".encode(), "cp1252", "the file is UTF-8"),
        ("Zürich".encode(), "latin-1", "the file is UTF-8"),
        (b"a\x80b", "latin-1", "not latin-1: controls"),
        (b"a\x81b", "cp1252", "not cp1252: bytes that the stated encoding"),
        ("a\0b".encode("utf-16"), "utf-16", "not utf-16"),
    ],
)
def test_a_stated_encoding_reads_no_other_text_than_an_upload(
    tmp_path: Path, content: bytes, encoding: str, why: str
) -> None:
    header = "age,weight,code\n1,2,".encode(encoding)
    end = "\n".encode(encoding).removeprefix(b"\xff\xfe")
    content = content.removeprefix(b"\xff\xfe")
    (tmp_path / "a.csv").write_bytes(header + content + end)
    with pytest.raises(WrongUse) as refused:
        prediction_rows.read_rows(
            tmp_path / "a.csv", SCHEMA, Written(encoding=encoding)
        )
    assert why in str(refused.value)


def test_a_file_has_no_more_texts_for_a_missing_value_than_a_declaration(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("age,weight,code\n1,2,x\n")
    marks = [f"m{number}" for number in range(33)]
    read = prediction_rows.read_rows
    assert len(read(tmp_path / "a.csv", SCHEMA, Written(missing=marks[:32]))) == 1
    with pytest.raises(WrongUse, match="at most 32 texts"):
        read(tmp_path / "a.csv", SCHEMA, Written(missing=marks))


@pytest.mark.parametrize(
    ("cell", "why"),
    [('"x\ny"', "not a category: a cell has a line break"), ("x\0", "not text")],
)
def test_signs_that_no_upload_takes_are_refused(
    tmp_path: Path, cell: str, why: str
) -> None:
    code = {"name": "code", "type": "categorical", "categories": ["a\r\nb", "x"]}
    schema = {**SCHEMA, "features": [code]}
    file = tmp_path / "a.csv"
    file.write_bytes(b'code\n"a\r\nb"\n' + cell.encode() + b"\n")
    with pytest.raises(WrongUse, match=rf"the cell of code is {why}"):
        prediction_rows.read_rows(file, schema)
    block = b'"x"\n' + cell.encode() + b"\n"
    assert prediction_tables.of_csv(block, ["code"], schema) is None
    assert prediction_tables.of_csv(b'"x"\n', ["code"], schema) is not None

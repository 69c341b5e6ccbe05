"""``datasets check DECLARATION ROWS`` reads a file on this machine, asks no service, and
names all that an upload would refuse, map or drop.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from grovekeeper_client.cli import datasets
from grovekeeper_client.cli.problems import ExitCode
from tests.support.set_limits import SetLimit

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")

DECLARATION: dict[str, Any] = {
    "name": "patients",
    "schema": {
        "features": [
            {
                "name": "age",
                "type": "integer",
                "lower": 0,
                "upper": 120,
                "missing": True,
            },
            {"name": "height", "type": "numeric", "lower": 0.5, "upper": 2.5},
            {"name": "city", "type": "categorical", "categories": ["Zürich", "Bern"]},
        ],
        "label": {"name": "ill", "classes": ["0", "1"]},
    },
    "budget": {"accountant": "pure", "epsilon": "3"},
    "privacy_unit": {"column": "id", "max_rows": 1},
}
GERMAN = "id;age;height;city;ill\n1;39;1,75;Zürich;0\n2;NA;1,80;Bern ;1\n"
OPTIONS = ["--separator", ";", "--decimal", ",", "--encoding", "cp1252"]


def _check(run: Run, rows: str | bytes, *options: str) -> Result:
    Path("d.json").write_text(json.dumps(DECLARATION), encoding="utf-8")
    content = rows.encode("cp1252") if isinstance(rows, str) else rows
    Path("r.csv").write_bytes(content)
    return run("datasets", "check", "d.json", "r.csv", *options)


def test_one_answer_has_all_options(run: Run, service: Any) -> None:
    result = _check(run, GERMAN)
    assert result.exit_code == ExitCode.FAILED
    said = " ".join(result.stdout.split())
    assert "an upload would be refused" in said
    assert "semicolons; send --separator ';'" in said
    assert "age: not a number, first in row 2" in said
    options = "--separator ';' --missing NA --decimal , --encoding cp1252"
    assert f"next: grovekeeper datasets check d.json r.csv {options}" in said
    assert not service.requests


def test_the_options_read_the_file_and_what_is_left_is_counted(run: Run) -> None:
    result = _check(run, GERMAN, *OPTIONS, "--missing", "NA", "--json")
    answer = json.loads(result.stdout)
    (unknown,) = answer["problems"]
    assert result.exit_code == ExitCode.FAILED
    assert (unknown["name"], unknown["problem"], unknown["count"]) == (
        "city",
        "unknown",
        1,
    )
    assert "blanks" in unknown["suspected"]
    assert {cells["problem"] for cells in answer["mapped"]} == {"unknown", "missing"}
    accepted = _check(run, GERMAN, *OPTIONS, "--missing", "NA", "--accept-unknown")
    assert accepted.exit_code == ExitCode.DONE
    assert "an upload would be stored" in accepted.stdout


def test_rows_that_would_be_dropped_are_counted(run: Run, tmp_path: Path) -> None:
    rows = b"id,age,height,city,ill\n1,39,1.75,Bern,0\n1,39,1.75,Bern,0\n,39,9,Bern,0\n"
    answer = json.loads(_check(run, rows, "--accept-unknown", "--json").stdout)
    assert answer["problems"] == []
    assert answer["dropped"] == {"without_unit": 1, "over_bound": 1}
    assert [cells["problem"] for cells in answer["mapped"]] == ["clamped"]
    assert answer["mapped"][0]["row"] == 3


def test_an_empty_file_and_wrong_uses_are_named(run: Run) -> None:
    empty = _check(run, b"id,age,height,city,ill\n")
    assert empty.exit_code == ExitCode.FAILED
    assert "no row" in empty.stdout
    assert _check(run, GERMAN, "--separator", ":").exit_code != ExitCode.DONE
    Path("d.json").write_text("{}", encoding="utf-8")
    broken = run("datasets", "check", "d.json", "r.csv")
    assert broken.exit_code == ExitCode.WRONG_USE
    assert "no declaration" in broken.stderr


def test_the_client_alone_says_what_reads_rows() -> None:
    Path("r.csv").write_text("a\n", encoding="utf-8")
    result = CliRunner().invoke(datasets.app, ["check", "d.json", "r.csv"])
    assert result.exit_code == ExitCode.WRONG_USE
    assert "pip install grovekeeper" in result.stderr


def test_the_next_command_has_all_options_and_can_be_pasted(run: Run) -> None:
    declared = json.dumps(DECLARATION)
    rows = "id;age;height;city;ill\n1;.;1,75;Bern;0\n2;NA;1,80;Zürich;1\n3;N/A;1;x;1\n"
    Path("my d.json").write_text(declared, encoding="utf-8")
    Path("my rows.csv").write_bytes(rows.encode("cp1252"))
    first = ["datasets", "check", "my d.json", "my rows.csv", "--missing", "."]
    said = run(*first, "--separator", ";", "--accept-unknown").stdout
    hint = shlex.split(next(line for line in said.splitlines() if "next: " in line))
    following = hint[hint.index("datasets") :]
    assert following.count("--missing") == 1
    assert run(*following).exit_code == ExitCode.DONE


def test_repeated_marks_are_joined(run: Run) -> None:
    rows = "id;age;height;city;ill\n1;.;1,75;Bern;0\n2;NA;1,80;Zürich;1\n"
    marks = ["--missing", ".", "--missing", "NA,N/A"]
    assert _check(run, rows, *OPTIONS, *marks).exit_code == ExitCode.DONE


def test_what_is_wrong_with_a_declaration_is_said_without_a_service(
    run: Run, service: Any
) -> None:
    Path("r.csv").write_text("age\n1\n", encoding="utf-8")
    schema = DECLARATION["schema"]
    twisted = {"name": "w", "type": "numeric", "lower": 3, "upper": 1}
    for changes, words in (
        ({"budget": {"accountant": "pure"}}, "/budget/"),
        ({"schema": schema | {"features": [twisted]}}, "/schema/features/0/"),
        ({"schema": schema | {"missing_values": ["-99"]}}, "/schema/missing_values"),
        ({"partitions": [{"name": "shard", "kind": "x"}]}, "/partitions/0"),
    ):
        Path("d.json").write_text(json.dumps(DECLARATION | changes), encoding="utf-8")
        result = run("datasets", "check", "d.json", "r.csv")
        assert result.exit_code == ExitCode.WRONG_USE
        assert f"d.json is no declaration: {words}" in " ".join(result.stderr.split())
    assert not service.requests


def test_an_option_names_its_choices_and_needs_rows(run: Run, service: Any) -> None:
    wrong = _check(run, GERMAN, "--separator", ":")
    assert wrong.exit_code == ExitCode.WRONG_USE
    assert "accepted: ,, ;, tab, |" in " ".join(wrong.stderr.split())
    without_rows = run("datasets", "check", "d.json", "--separator", ";")
    assert without_rows.exit_code == ExitCode.WRONG_USE
    assert "name a file of rows" in " ".join(without_rows.stderr.split())
    assert not service.requests


def test_a_file_is_not_larger_than_a_body(run: Run, set_limit: SetLimit) -> None:
    set_limit("MAX_UPLOAD_BODY_BYTES", 10)
    assert "over the limit" in _check(run, GERMAN, *OPTIONS).stderr


def test_no_share_is_more_than_all(run: Run) -> None:
    """Also where the unit column is the only declared one of a file."""
    answer = json.loads(_check(run, b"id,other\nNA,1\nNA,1\n", "--json").stdout)
    (marks,) = (cells for cells in answer["problems"] if cells["name"] == "id")
    assert (marks["problem"], marks["percent"]) == ("missing-mark", 100)


def test_an_option_of_text_for_a_file_of_columns_is_named(run: Run) -> None:
    result = _check(run, b"PAR1" + b"\0" * 20, "--separator", ";")
    assert result.exit_code == ExitCode.WRONG_USE
    assert "separator: for csv only" in result.stderr


def test_what_is_no_date_is_not_out_of_bounds_besides(run: Run) -> None:
    day = {"name": "day", "type": "date", "lower": "2020-01-01", "upper": "2021-12-31"}
    schema = {"features": [day], "label": {"name": "y", "classes": ["0", "1"]}}
    Path("d.json").write_text(json.dumps({**DECLARATION, "schema": schema}))
    Path("r.csv").write_text("day,y\n01.03.2020,0\n2020-03-01,1\n")
    said = run("datasets", "check", "d.json", "r.csv").stdout
    assert "day: not a date, first in row 1" in said
    assert "clamped" not in said


def test_a_refused_column_is_not_said_to_have_no_missing_cell(run: Run) -> None:
    schema = {
        "features": [{"name": "age", "type": "numeric", "lower": 0, "upper": 99}],
        "label": {"name": "y", "classes": ["0", "1"]},
    }
    Path("d.json").write_text(json.dumps({**DECLARATION, "schema": schema}))
    Path("r.csv").write_text("age,y\n,0\n40,1\n")
    said = run("datasets", "check", "d.json", "r.csv").stdout
    assert "age: empty, first in row 1" in said
    assert "no cell would be" not in said
    assert "all the options above" not in said


def test_rows_are_checked_from_standard_input(run: Run, service: Any) -> None:
    from_file = _check(run, GERMAN).stdout
    piped = run("datasets", "check", "d.json", "-", input=GERMAN.encode("cp1252"))
    assert piped.stdout == from_file.replace("d.json r.csv", "d.json -")

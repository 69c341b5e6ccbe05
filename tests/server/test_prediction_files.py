"""``grovekeeper predict --output``: files of any form and length, by one model, whole or
not at all.
"""

import csv
import gzip
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from app.cli.main import app as grovekeeper
from grovekeeper_client.cli import prediction_files
from grovekeeper_client.client import Client
from grovekeeper_client.models import predict_rows
from tests.support.databases import on_one_server
from tests.support.server import SCHEMA, Server, new_idempotency_key

pytestmark = on_one_server

Predict = Callable[..., Result]


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return str(server.trained(server.uploaded()["id"])["model_id"])


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.admin.key) as client:
        yield client


@pytest.fixture
def predict(
    server: Server, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Predict:
    """Predicts a file of the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    return lambda *typed: CliRunner().invoke(grovekeeper, ["predict", model, *typed])


@pytest.fixture(params=["arrow", "plain"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With pyarrow and without it."""
    monkeypatch.setattr(prediction_files, "HAS_PYARROW", request.param == "arrow")
    return str(request.param)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_files, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(prediction_files, "n_rows_at_once", lambda _schema: 3)


def _rows(n_rows: int) -> list[dict[str, Any]]:
    rng = random.Random(n_rows)
    return [
        {
            "patient": f"{index:04}",
            "age": rng.randrange(-5, 130),
            "height": rng.choice([None, 1.5, 1e-7, 2.75]),
            "sex": rng.choice(["Female", "Male", "other", None]),
            "ward": rng.choice(['a "b"', "c, d", "", " e "]),
        }
        for index in range(n_rows)
    ]


def _write(file: Path, rows: list[dict[str, Any]], *, quoting: int) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), quoting=quoting)  # type: ignore[arg-type]
        writer.writeheader()
        writer.writerows(rows)


def _read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """A row with numbers for probabilities."""
    return row | {name: float(row[name]) for name in ("P(<=50K)", "P(>50K)")}


@pytest.mark.usefixtures("small_blocks", "library")
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_the_answers_are_those_of_one_request_in_the_order_of_the_rows(
    predict: Predict, client: Client, model: str, tmp_path: Path, quoting: int
) -> None:
    rows = _rows(50)
    _write(tmp_path / "in.csv", rows, quoting=quoting)
    typed = ("in.csv", "--output", "out.csv", "--keep", "patient", "--keep", "ward")
    result = predict(*typed, "--json")
    assert result.exit_code == 0, result.output
    features = [{n: row[n] for n in ("age", "height", "sex")} for row in rows]
    expected = predict_rows(client, model, features, schema=SCHEMA)
    facts = json.loads(result.stdout)
    assert (facts["rows"], facts["model"]) == (50, model)
    assert facts["counts"] == expected["counts"]
    written = _read(tmp_path / "out.csv")
    assert list(written[0]) == [
        *("patient", "ward", "predicted", "P(<=50K)", "P(>50K)")
    ]
    assert [row["patient"] for row in written] == [row["patient"] for row in rows]
    assert [row["ward"] for row in written] == [row["ward"] for row in rows]
    assert [row["predicted"] for row in written] == expected["labels"]
    shares = [[float(row["P(<=50K)"]), float(row["P(>50K)"])] for row in written]
    assert shares == expected["probabilities"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.csv", "out.csv"]


@pytest.mark.covering("form", "output")
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("form", ["parquet", "arrow", "csv.gz", "jsonl", "json"])
@pytest.mark.parametrize("output", ["out.csv", "out.parquet", "out.arrow"])
def test_every_form_gives_the_same_predictions(
    predict: Predict, tmp_path: Path, form: str, output: str
) -> None:
    rows = _rows(20)
    _write(tmp_path / "in.csv", rows, quoting=csv.QUOTE_MINIMAL)
    file = tmp_path / f"other.{form}"
    match form:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=7)
        case "arrow":
            table = pa.Table.from_pylist(rows)
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=7)
        case "csv.gz":
            file.write_bytes(gzip.compress((tmp_path / "in.csv").read_bytes()))
        case "jsonl":
            file.write_text("\n".join(map(json.dumps, rows)))
        case "json":
            file.write_text(json.dumps(rows))
    for source, target in (("in.csv", "first.csv"), (file.name, output)):
        kept = ("--keep", "patient", "--keep", "ward")
        result = predict(source, "--output", target, *kept)
        assert result.exit_code == 0, result.output
        assert f"wrote {target}: 20 rows" in result.stdout
    target = tmp_path / output
    match target.suffix:
        case ".csv":
            written = _read(target)
        case ".parquet":
            written = pq.read_table(target).to_pylist()
        case _:
            written = pa.ipc.open_file(target).read_all().to_pylist()
    first = _read(tmp_path / "first.csv")
    assert list(map(_typed, written)) == list(map(_typed, first))


@pytest.mark.usefixtures("small_blocks")
def test_a_file_of_an_upload_is_predicted_with_the_options_of_the_upload(
    predict: Predict, tmp_path: Path
) -> None:
    rows = [
        row
        | {"patient": "Zoë; née Ng", "height": "" if place % 3 == 0 else row["height"]}
        for place, row in enumerate(_rows(50))
    ]
    _write(tmp_path / "usual.csv", rows, quoting=csv.QUOTE_MINIMAL)
    _write(tmp_path / "own.csv", rows, quoting=csv.QUOTE_MINIMAL)
    own = [
        row | {"height": str(row["height"] or "k.A.").replace(".", ",")} for row in rows
    ]
    own = [row | {"height": "k.A."} if row["height"] == "k,A," else row for row in own]
    with (tmp_path / "own.csv").open("w", encoding="cp1252", newline="") as file:
        writer = csv.DictWriter(file, list(own[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(own)
    options = (
        *("--separator", ";", "--decimal", ",", "--encoding", "cp1252"),
        *("--missing", "k.A."),
    )
    kept = ("--keep", "patient", "--keep", "ward")
    for source, target, written in (
        ("usual.csv", "first.csv", ()),
        ("own.csv", "second.csv", options),
    ):
        result = predict(source, "--output", target, *kept, *written)
        assert result.exit_code == 0, result.output
    first, second = (_read(tmp_path / name) for name in ("first.csv", "second.csv"))
    assert first == second


def _as_arrow(table: pa.Table, file: Path) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("name", ["in.csv", "in.parquet", "in.arrow", "in.jsonl"])
def test_declared_texts_mean_a_missing_value_in_every_form(
    server: Server, client: Client, predict: Predict, tmp_path: Path, name: str
) -> None:
    schema = SCHEMA | {"missing_values": ["NA", "Male"]}
    model = str(server.trained(server.uploaded(schema=schema)["id"])["model_id"])
    rows = [
        {"patient": "NA", "age": 30, "sex": " NA"},
        {"patient": "2", "age": 31, "sex": "Male"},
    ]
    file = tmp_path / name
    match file.suffix:
        case ".csv":
            _write(file, rows, quoting=csv.QUOTE_MINIMAL)
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        case ".arrow":
            _as_arrow(pa.Table.from_pylist(rows), file)
        case ".jsonl":
            file.write_text("\n".join(map(json.dumps, rows)))
    task = prediction_files.Task(
        file, tmp_path / "out.csv", client.model(model), ["patient"], None
    )
    answer = prediction_files.predict_file(client, task, lambda *_: None)
    assert answer["counts"] == {"clamped": {}, "unseen": {}}
    assert [row["patient"] for row in _read(task.target)] == ["NA", "2"]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("text", ["\ufeff", "\ufeff\n \n", "\u00a0\n"])
def test_a_file_of_blanks_is_empty(predict: Predict, tmp_path: Path, text: str) -> None:
    (tmp_path / "in.csv").write_text(text, encoding="utf-8")
    for typed in (["in.csv", "--output", "out.csv"], ["in.csv"]):
        result = predict(*typed)
        assert (result.exit_code, "in.csv is empty" in result.stderr) == (2, True)


@pytest.mark.parametrize("typed", [(), ("--keep", "sex")])
def test_a_table_that_names_a_column_twice_is_refused(
    predict: Predict, tmp_path: Path, typed: tuple[str, ...]
) -> None:
    cells = [pa.array([30]), pa.array(["Male"]), pa.array(["Male"])]
    table = pa.table(cells, names=["age", "sex", "sex"])
    pq.write_table(table, tmp_path / "in.parquet")
    _as_arrow(table, tmp_path / "in.arrow")
    for name in ("in.parquet", "in.arrow"):
        result = predict(name, "--output", "out.csv", *typed)
        assert "names a column twice: 'sex'" in result.stderr, result.output


@pytest.mark.usefixtures("small_blocks", "library")
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["x,1.5,Male"] * 3, "line 2: the cell of age is not a number"),
        (["30,1.5,Male"] * 40 + ["30,1.5"], "line 42 has fewer cells than the header"),
        (["30,1.5,Male"] * 40 + ["30,high,Male"], "line 42: the cell of height"),
        (["30,1.5,Male"] * 40 + ['30,1.5,"Ma'], "line 42 is not CSV"),
        (['30,1.5,"x\n30,1.5,"y'], "is not CSV"),
    ],
)
def test_an_unreadable_row_is_named_and_no_file_is_left(
    predict: Predict, tmp_path: Path, lines: list[str], words: str
) -> None:
    (tmp_path / "in.csv").write_text("\n".join(["age,height,sex", *lines, ""]))
    result = predict("in.csv", "--output", "out.csv")
    assert (result.exit_code, words in result.stderr) == (2, True), result.output
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.usefixtures("small_blocks", "library")
def test_the_middle_of_a_file_is_no_header(predict: Predict, tmp_path: Path) -> None:
    """Its encoding alone is suspected, and not the signs in a cell that is kept."""
    lines = [
        "age,height,sex,note",
        *[f"30,1.5,Male,{'a; b; ' * 1500}"] * 9,
        "30,1.5,é,",
    ]
    (tmp_path / "in.csv").write_text("\n".join(lines), encoding="latin-1")
    result = predict("in.csv", "--output", "out.csv", "--keep", "note")
    assert result.exit_code == 2
    assert result.stderr.endswith("save the file as UTF-8; add --encoding cp1252\n")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("--keep", "patien"), "no column 'patien' to keep; did you mean patient?"),
        ((), "the model does not read the column 'patient'"),
        (
            ("--keep", "patient", "--keep", "P(>50K)"),
            "the column 'P(>50K)' cannot be kept",
        ),
        (("--keep", "predicted"), "the column 'predicted' cannot be kept"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    predict: Predict, tmp_path: Path, typed: tuple[str, ...], words: str
) -> None:
    (tmp_path / "in.csv").write_text("patient,age,height,sex\n1,30,1.5,Male\n")
    result = predict("in.csv", "--output", "out.csv", *typed)
    assert (result.exit_code, words in result.stderr) == (2, True), result.output


def test_a_form_that_needs_pyarrow_says_so(
    predict: Predict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_files, "HAS_PYARROW", False)
    (tmp_path / "in.csv").write_text("age,height,sex\n30,1.5,Male\n")
    (tmp_path / "in.parquet").write_bytes(b"PAR1\x15...PAR1")
    for source, target in (("in.csv", "out.parquet"), ("in.parquet", "out.csv")):
        result = predict(source, "--output", target)
        assert "grovekeeper-client[arrow]" in result.stderr
    assert "one of .csv" in predict("in.csv", "--output", "out.txt").stderr


@pytest.mark.usefixtures("library")
def test_a_file_without_rows_is_refused(predict: Predict, tmp_path: Path) -> None:
    """A nightly export that broke has a header alone."""
    (tmp_path / "in.csv").write_text("age,height,sex\n")
    result = predict("in.csv", "--output", "out.csv")
    assert (result.exit_code, "in.csv has no rows" in result.stderr) == (2, True)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["PK", "PAR1", "ARROW1"])
def test_a_column_may_be_named_as_another_form_begins(
    predict: Predict, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in.csv").write_text(f"{name},age\n1,30\n")
    result = predict("in.csv", "--output", "out.csv", "--keep", name)
    assert "wrote out.csv: 1 row," in result.stdout, result.output


@pytest.mark.parametrize("form", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("typed", ["\u00e9tat", "e\u0301tat"])
def test_a_column_is_kept_in_composed_and_in_decomposed_letters(
    predict: Predict, tmp_path: Path, library: str, form: str, typed: str
) -> None:
    if (form, library) == (".parquet", "plain"):
        pytest.skip("needs pyarrow")
    row = {"age": 41, "height": 1.7, "sex": "Male", "e\u0301tat": "x"}
    file = tmp_path / f"in{form}"
    match form:
        case ".csv":
            file.write_text(f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")
        case ".jsonl":
            file.write_text(json.dumps(row))
        case _:
            pq.write_table(pa.Table.from_pylist([row]), file)
    result = predict(file.name, "--output", "out.csv", "--keep", typed)
    assert result.exit_code == 0, result.stderr
    header, written = (tmp_path / "out.csv").read_text().splitlines()
    assert header.startswith('"\u00e9tat",')
    assert written.startswith('"x",')


def test_a_pipe_is_refused_before_it_is_opened(
    predict: Predict, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "in.csv")
    result = predict("in.csv", "--output", "out.csv")
    assert (result.exit_code, "in.csv is a pipe" in result.stderr) == (2, True)


def test_a_stream_of_arrow_is_named(predict: Predict, tmp_path: Path) -> None:
    table = pa.table({"age": [30]})
    with pa.ipc.new_stream(tmp_path / "in.arrow", table.schema) as writer:
        writer.write_table(table)
    result = predict("in.arrow", "--output", "out.csv")
    assert "a stream of Arrow, which is no file of Arrow" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_command_leaves_no_file(
    predict: Predict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (tmp_path / "in.csv").write_text("age,height,sex\n30,1.5,Male\n")
    send = httpx.Client.send

    def terminated(self: httpx.Client, request: httpx.Request, **options: Any) -> Any:
        if request.method == "POST":
            # else the process of the tests would end
            assert signal.getsignal(number) != signal.SIG_DFL
            os.kill(os.getpid(), number)
        return send(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", terminated)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert predict("in.csv", "--output", "out.csv").exit_code == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


def test_a_file_that_appears_meanwhile_is_kept(
    predict: Predict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("age,height,sex\n30,1.5,Male\n")
    send = httpx.Client.send

    def writes(self: httpx.Client, request: httpx.Request, **options: Any) -> Any:
        if request.method == "POST":
            (tmp_path / "out.csv").write_text("of another program")
        return send(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", writes)
    for _ in range(2):
        result = predict("in.csv", "--output", "out.csv")
        assert (result.exit_code, "exists already" in result.stderr) == (2, True)
        assert (tmp_path / "out.csv").read_text() == "of another program"


def test_an_existing_file_is_not_overwritten(predict: Predict, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("age,height,sex\n30,1.5,Male\n")
    assert "exists already" in predict("in.csv", "--output", "in.csv").stderr
    assert "--keep goes with --output" in predict("in.csv", "--keep", "x").stderr


@pytest.mark.usefixtures("small_blocks", "library")
@pytest.mark.parametrize("failure", ["connection", "interrupt"])
def test_a_failure_in_the_middle_says_how_far_it_came_and_leaves_no_file(
    predict: Predict, tmp_path: Path, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("age,height,sex\n" + "30,1.5,Male\n" * 10)
    n_sent = 0
    send = httpx.Client.send

    def fails(self: httpx.Client, request: httpx.Request, **options: Any) -> Any:
        nonlocal n_sent
        n_sent += request.method == "POST"
        if n_sent > 2:
            raise KeyboardInterrupt if failure == "interrupt" else httpx.ReadError("x")
        return send(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", fails)
    monkeypatch.setattr("grovekeeper_client.transport._FIRST_WAIT_S", 0.0)
    result = predict("in.csv", "--output", "out.csv")
    assert result.exit_code == (1 if failure == "interrupt" else 5)
    if failure == "connection":
        words = "rows of in.csv were answered, the others were not"
        assert words in result.stderr
        assert "out.csv was not written" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["in.csv", "in.parquet", "in.jsonl"])
@pytest.mark.parametrize("at_once", [10_000, 1])
def test_a_refusal_names_the_row_of_the_file(
    predict: Predict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    at_once: int,
) -> None:
    monkeypatch.setattr("grovekeeper_client.models.MAX_ROWS", at_once)
    rows: list[dict[str, Any]] = [{"age": 30, "sex": "Male"} for _ in range(20)]
    rows[16]["age"] = None
    file = tmp_path / name
    match file.suffix:
        case ".csv":
            _write(file, rows, quoting=csv.QUOTE_MINIMAL)
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        case ".jsonl":
            file.write_text("\n".join(map(json.dumps, rows)))
    result = predict(name, "--output", "out.csv")
    assert result.exit_code != 0
    assert f"row 17 of {name} is the first that was refused" in result.stderr
    assert "out.csv was not written" in result.stderr


def test_classes_and_columns_may_have_the_names_of_each_other(
    server: Server, client: Client, tmp_path: Path
) -> None:
    label = {"name": "income", "classes": ["predicted", "patient"]}
    content = "age,height,sex,income\n" + "30,1.5,Male,patient\n" * 20
    dataset = server.declared(schema=SCHEMA | {"label": label})["id"]
    headers = {"Content-Type": "text/csv"} | new_idempotency_key()
    sent = server.admin.http.post(
        f"/datasets/{dataset}/rows", content=content, headers=headers
    )
    assert sent.status_code == 201, sent.text
    card = client.model(str(server.trained(dataset)["model_id"]))
    (tmp_path / "in.csv").write_text("patient,age\n1,30\n")
    task = prediction_files.Task(
        tmp_path / "in.csv", tmp_path / "out.csv", card, ["patient"], None
    )
    prediction_files.predict_file(client, task, lambda *_: None)
    assert list(_read(task.target)[0]) == [
        *("patient", "predicted", "P(predicted)", "P(patient)")
    ]


@pytest.mark.usefixtures("library")
def test_a_spreadsheet_computes_no_text_of_a_csv(
    predict: Predict, tmp_path: Path
) -> None:
    kept = ["=1+1", "@x", "+x", "-x", "-88.50", "-88,50", "+1e-7", "", "x=1"]
    rows = [{"age": 30, "height": 1.5, "sex": "Male", "=note": cell} for cell in kept]
    _write(tmp_path / "in.csv", rows, quoting=csv.QUOTE_MINIMAL)
    result = predict("in.csv", "--output", "out.csv", "--keep", "=note")
    assert result.exit_code == 0, result.output
    assert [row["'=note"] for row in _read(tmp_path / "out.csv")] == [
        *("'=1+1", "'@x", "'+x", "'-x", "-88.50", "-88,50", "+1e-7", "", "x=1")
    ]


@pytest.mark.usefixtures("small_blocks")
def test_all_parts_are_answered_by_the_model_that_an_alias_named_at_first(
    server: Server, client: Client, tmp_path: Path
) -> None:
    dataset = server.uploaded()["id"]
    first, second = (str(server.trained(dataset)["model_id"]) for _ in range(2))
    client.put_alias(dataset, "now", first)
    (tmp_path / "in.csv").write_text("age,height,sex\n" + "30,1.5,Male\n" * 10)
    card = client.model(f"{dataset}@now")
    task = prediction_files.Task(
        tmp_path / "in.csv", tmp_path / "out.csv", card, [], None
    )
    asked = []
    predicts = client.predict_table

    def recorded(address: str, stream: bytes) -> bytes:
        client.put_alias(dataset, "now", second)
        asked.append(address)
        return predicts(address, stream)

    client.predict_table = recorded  # type: ignore[method-assign]
    answer = prediction_files.predict_file(client, task, lambda *_: None)
    assert (answer["model"], {*asked}) == (first, {first})

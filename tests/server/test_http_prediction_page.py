"""The form of a model's page that predicts a file: the answer is the file with the
predictions of the API beside its rows, and a refusal names the cause.
"""

import csv
import gzip
import io
from typing import Any

import httpx
import pytest

from app.core import limits
from tests.support.databases import on_one_server
from tests.support.pages import section, signed_in
from tests.support.server import Server

pytestmark = on_one_server

Trained = tuple[Server, str, str]
GERMAN = {"separator": ";", "decimal": ",", "encoding": "latin-1", "missing": "NA"}


@pytest.fixture(scope="module")
def trained(server: Server) -> Trained:
    """A server, a dataset and its model."""
    dataset = server.uploaded()["id"]
    trees = {"n_estimators": 5, "max_depth": 2}
    job = server.trained(dataset, epsilon="0.5", parameters=trees)
    return server, dataset, job["model_id"]


def sent(
    trained: Trained,
    content: str | bytes,
    form: dict[str, str] | None = None,
    *,
    role: str = "predictor",
) -> httpx.Response:
    """The answer to the form of a caller with a role on the dataset."""
    server, dataset, model = trained
    browser = signed_in(server, server.granted(dataset, role))
    return browser.post(
        f"/ui/models/{model}/predictions",
        data=form or {},
        files={"file": ("rows.csv", content)},
    )


def records(answer: httpx.Response) -> list[dict[str, str]]:
    """The rows of a downloaded file."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def predicted(trained: Trained, rows: list[dict[str, Any]]) -> Any:
    """The answer of the API for rows."""
    server, _, model = trained
    answer = server.admin.http.post(f"/models/{model}/predict", json={"rows": rows})
    return answer.json()


def test_a_file_as_spreadsheets_write_it_comes_back_with_its_predictions(
    trained: Trained,
) -> None:
    text = (
        "Müller;age;sex;height\r\n"
        '"=1+1; ä";39;Male;1,75\r\n'
        "\r\n"
        "-88,50;40;Female;NA\r\n"
        "-y;61;;1.234,5\r\n"
    )
    answer = sent(trained, text.replace("1.234", "1").encode("latin-1"), GERMAN)
    found = records(answer)
    _, _, model = trained
    name = f'attachment; filename="predictions-{model}.csv"'
    assert answer.headers["Content-Disposition"] == name
    assert list(found[0])[:4] == ["Müller", "age", "sex", "height"]
    # a spreadsheet runs no cell, and a number stays one
    assert [row["Müller"] for row in found] == ["'=1+1; ä", "-88,50", "'-y"]
    assert [row["height"] for row in found] == ["1,75", "NA", "1,5"]

    rows = [
        {"age": 39, "height": 1.75, "sex": "Male"},
        {"age": 40, "height": None, "sex": "Female"},
        {"age": 61, "height": 1.5, "sex": None},
    ]
    expected = predicted(trained, rows)
    assert [row["predicted"] for row in found] == expected["labels"]
    shares = [
        [float(row[f"P({name})"]) for name in expected["classes"]] for row in found
    ]
    assert shares == expected["probabilities"]


def test_a_packed_file_is_unpacked(trained: Trained) -> None:
    packed = gzip.compress(b"age,height,sex\n39,1.7,Male\n")
    [row] = records(sent(trained, packed))
    [label] = predicted(trained, [{"age": 39, "height": 1.7, "sex": "Male"}])["labels"]
    assert row["predicted"] == label


@pytest.mark.parametrize(
    ("content", "form", "causes"),
    [
        (
            "age;height;sex\n39;1,7;Male\n",
            {},
            ["separated by semicolons", "choose separator ;"],
        ),
        (
            "age;height;sex\n39;1,7;Male\n",
            {"separator": ";"},
            ["height not a number", "choose decimal ,"],
        ),
        ("age,height,sex\n39,1.7,Male\n39,NA,x\n", {}, ["choose missing NA 1 2"]),
        (
            "age,height,sex\n1,1,Male\nx,1,\ny,2,\n",
            {},
            ["age not a number", "2 2"],  # cells, and the first row
        ),
        (
            "age,height,sex\n39,1.7,Male\n,1,\n",
            {},
            ["age empty, and the model needs a value 1 2"],
        ),
        (
            "Age,height,sex\n39,1.7,Male\n",
            {},
            ["age missing column", "in other letters"],
        ),
        ("age,age,height,sex\n1,1,1,Male\n", {}, ["age duplicate column"]),
        ("age,height,sex\n39,1.7\n", {}, ["ragged row", "fewer cells"]),
        ("age,height,sex\n39,1.7,Male,1\n", {}, ["ragged row", "more cells"]),
        ('age,height,sex\n39,1.7,"Ma"le\n', {}, ["malformed csv"]),
        ("age,height,sex\n", {}, ["no rows"]),
        ("", {}, ["no header"]),
        (b"PAR1\x15\x04\x15\x00", {}, ["not text", "Parquet"]),
        (b"PK\x03\x04\x14\x00", {}, ["not text", "workbook"]),
        (
            "age,height,sex,predicted\n39,1.7,Male,x\n",
            {},
            ["predicted", "rename that of the file"],
        ),
        (
            "age,height,sex\n39,1.7,M\xe4le\n".encode("latin-1"),
            {},
            ["not text", "choose encoding cp1252"],
        ),
        ("age,height,sex\n39,1.7,Male\n", {"separator": "x"}, ["separator"]),
        ("age,height,sex\n" + "1,1,Male\n" * 10_001, {}, ["10000"]),
    ],
)
def test_a_file_that_cannot_be_predicted_is_refused_with_its_cause(
    trained: Trained, content: str | bytes, form: dict[str, str], causes: list[str]
) -> None:
    answer = sent(trained, content, form)
    assert answer.status_code == 422
    shown = section(answer.text, "prediction")
    assert "The file cannot be predicted" in shown
    for cause in causes:
        assert cause in shown.partition("The answer is")[0], shown
    assert "upload" not in shown


def test_a_refused_form_keeps_how_the_file_is_written(trained: Trained) -> None:
    page = sent(trained, "age;height;sex\nx;1,7;Male\n", GERMAN).text
    form = page.partition('id="file"')[2].partition("</form>")[0]
    assert form.count(" selected") == 3
    assert 'value="NA"' in form


def test_a_file_above_the_limit_is_refused_before_it_is_read(trained: Trained) -> None:
    header = "age,height,sex\n"
    row = "39,1.7,Male\n"
    large = header + row * (limits.MAX_PREDICTION_FILE_BYTES // len(row))
    assert sent(trained, large).status_code == 413
    answer = sent(trained, gzip.compress(large.encode() + b"," * len(header)))
    assert answer.status_code == 422
    assert str(limits.MAX_PREDICTION_FILE_BYTES) in section(answer.text, "prediction")


def test_a_file_is_predicted_for_those_who_may_predict_alone(trained: Trained) -> None:
    server, dataset, model = trained
    rows = "age,height,sex\n39,1.7,Male\n"
    assert sent(trained, rows, role="auditor").status_code == 403
    assert sent((server, server.uploaded()["id"], model), rows).status_code == 404
    browser = signed_in(server, server.granted(dataset, "predictor"))
    browser.headers["Origin"] = "https://elsewhere.example"
    path = f"/ui/models/{model}/predictions"
    elsewhere = browser.post(path, files={"file": ("rows.csv", rows)})
    assert elsewhere.status_code >= 400
    assert "predicted" not in elsewhere.text

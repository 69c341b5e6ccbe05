"""A label that is a number, over HTTP: declared, uploaded, learned from, predicted in
every form, counted, and developed with dummy rows.
"""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from grovekeeper_client import Grovekeeper
from grovekeeper_forests.releases.forest import read
from grovekeeper_verifier.dataset_replay import verify
from tests.server.test_http_statistics import _released
from tests.support.pages import fields, hidden, signed_in, text_of
from tests.support.server import CSV, Server, declaration, new_idempotency_key, training

LABEL = {"name": "los_days", "type": "number", "lower": 0, "upper": 60}
SCHEMA: dict[str, Any] = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 99}],
    "label": LABEL,
}
BUDGET = {"accountant": "gdp", "epsilon": "1000", "delta": "0.000001"}
N_ROWS = 2_000
AGES = [index % 100 for index in range(N_ROWS)]
DAYS = [age / 10 for age in AGES]
"""0 to 9.9, of 60 days that the bounds allow; 4.95 on average."""

ASKED = {"algorithm": "nbrt", "parameters": {"n_estimators": 60}, "epsilon": "100"}


def _declared(server: Server, **changes: object) -> dict[str, Any]:
    return server.declared(
        **{"schema": SCHEMA, "budget": BUDGET, "partitions": [], **changes}
    )


def _upload(
    server: Server,
    dataset: dict[str, Any],
    lines: list[str],
) -> Any:
    return server.admin.http.post(
        f"/datasets/{dataset['id']}/rows?accept_unknown=true",
        content="\n".join(["age,los_days", *lines, ""]),
        headers=CSV,
    )


def _uploaded(server: Server, **changes: object) -> dict[str, Any]:
    dataset = _declared(server, **changes)
    lines = [f"{age},{day}" for age, day in zip(AGES, DAYS, strict=True)]
    answer = _upload(server, dataset, lines)
    assert answer.status_code == 201, answer.text
    return dataset


PURE: dict[str, Any] = {"accountant": "pure", "epsilon": "1000"}
BY_RPF = {"algorithm": "rpf", "parameters": {}, "epsilon": "100"}


def _trained(server: Server, *, is_pure: bool) -> str:
    budget, asked = (PURE, BY_RPF) if is_pure else (BUDGET, ASKED)
    dataset = _uploaded(server, budget=budget)
    return str(server.trained(dataset["id"], **asked)["model_id"])


def test_a_declaration_shows_the_bounds(server: Server) -> None:
    dataset = _declared(server)
    shown = server.admin.http.get(f"/datasets/{dataset['id']}").json()
    assert shown["schema"]["label"] == LABEL
    page = signed_in(server, server.admin).get(f"/ui/datasets/{dataset['id']}")
    assert "a number, 0 to 60" in text_of(page)
    whole = {**LABEL, "type": "integer"}
    again = _declared(server, schema={**shown["schema"], "label": whole})
    assert again["schema"]["label"] == whole
    page = signed_in(server, server.admin).get(f"/ui/datasets/{again['id']}")
    assert "a whole number, 0 to 60" in text_of(page)


@pytest.mark.parametrize(
    ("label", "at", "problem"),
    [
        ({"lower": 60, "upper": 0}, "lower", "not-below-upper"),
        ({"lower": 1, "upper": 1}, "lower", "not-below-upper"),
        ({"lower": 0}, "upper", "missing"),
        ({"lower": 0, "upper": "60"}, "upper", "not-a-number"),
        ({"lower": -1.7e308, "upper": 1.7e308}, "upper", "too-large"),
        ({"lower": 0, "upper": 9, "cuts": [3]}, "cuts", "not-for-numbers"),
        ({"lower": 0, "upper": 9, "classes": ["a", "b"]}, "classes", "not-for-numbers"),
        ({"lower": 0, "upper": 9.5, "type": "integer"}, "upper", "not-an-integer"),
        ({"lower": 0, "upper": 9, "type": "numeric"}, "type", "unknown-choice"),
    ],
)
def test_other_bounds_are_refused(
    server: Server, label: dict[str, Any], at: str, problem: str
) -> None:
    schema = {
        **SCHEMA,
        "label": {"name": "los_days", "type": "number", **label},
    }
    body = declaration(schema=schema, partitions=[])
    answer = server.admin.http.post("/declarations", json=body)
    assert answer.status_code == 422, answer.text
    found = [(error["at"], error["problem"]) for error in answer.json()["errors"]]
    assert found == [(f"/schema/label/{at}", problem)]


def test_an_account_of_labels_takes_no_numbers(server: Server) -> None:
    body = declaration(schema=SCHEMA, partitions=[], protects="label")
    answer = server.admin.http.post("/declarations", json=body)
    [error] = answer.json()["errors"]
    assert (error["at"], error["problem"]) == ("/protects", "not-for-numbers")
    assert error["accepted"] == ["row"]
    classes = {"name": "ill", "classes": ["no", "yes"]}
    for labels in ([LABEL, classes], [classes, LABEL]):
        schema = {"features": SCHEMA["features"], "labels": labels}
        body = declaration(schema=schema, partitions=[], protects="label")
        answer = server.admin.http.post("/declarations", json=body)
        assert answer.json()["errors"] == [error]


def test_cells_are_clamped_empty_or_refused(server: Server) -> None:
    dataset = _declared(server)
    report = _upload(server, dataset, ["4,3", "5,", "6,61.5", "7,-1", "8,nan"]).json()
    _, label = report["columns"]
    assert (label["clamped"], label["unknown"]) == (2, 2)
    refused = _upload(server, dataset, ["4,3", "5,long"])
    assert refused.status_code == 422
    [column] = refused.json()["columns"]
    assert (column["name"], column["problem"]) == ("los_days", "not-a-number")
    assert (column["count"], column["row"]) == (1, 2)
    again = _upload(server, dataset, ["4,3.0", "5,", "6,61.50", "7,-1", "8,nan"])
    assert again.status_code == 409, "the same cells, written otherwise"


@pytest.mark.parametrize("is_pure", [False, True])
def test_every_way_to_ask_answers_the_same_numbers(
    server: Server, is_pure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _trained(server, is_pure=is_pure)
    path = f"/models/{model}"
    ages = [5, 50, 95]
    rows = [{"age": age} for age in ages]
    answer = server.admin.http.post(
        f"{path}/predict", json={"rows": rows, "counts": True}
    ).json()
    assert (answer["classes"], answer["probabilities"]) == ([], [])
    numbers = answer["labels"]
    assert np.abs(np.array(numbers) - [0.5, 5, 9.5]).max() < 1.5
    assert answer["counts"] == {"clamped": {}, "unseen": {}}
    by_column = server.admin.http.post(
        f"{path}/predict", json={"columns": {"age": ages}}
    ).json()
    assert by_column["labels"] == numbers

    card = server.admin.http.get(path).json()
    assert card["schema"]["label"] == LABEL
    assert card["read_outs"] == ["number"]
    wrong = server.admin.http.post(
        f"{path}/predict", json={"rows": rows, "read_out": "mv"}
    )
    assert wrong.json()["errors"][0]["accepted"] == ["number"]

    tensor = {
        "name": "age",
        "shape": [3],
        "datatype": "INT64",
        "data": ages,
    }
    described = server.admin.http.get(f"/v2{path}").json()
    assert described["outputs"] == [
        {"name": "label", "datatype": "FP64", "shape": [-1]}
    ]
    inferred = server.admin.http.post(
        f"/v2{path}/infer",
        json={"inputs": [tensor]},
    )
    [output] = inferred.json()["outputs"]
    assert (output["datatype"], output["shape"]) == ("FP64", [3])
    assert output["data"] == numbers
    binary = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    content = server.admin.http.post(f"/v2{path}/infer", json=binary).content
    assert np.frombuffer(content[-24:], "<f8").tolist() == numbers
    of_classes = {"inputs": [tensor], "outputs": [{"name": "probabilities"}]}
    refused = server.admin.http.post(f"/v2{path}/infer", json=of_classes)
    assert refused.json()["errors"][0]["accepted"] == ["label"]

    with Grovekeeper(server.url, key=server.admin.key) as gk:
        own = gk.model(model)
        assert own.classes == []
        assert own.predict(rows) == numbers
        table = pa.table({"age": ages})
        assert own.predict(table).to_pylist() == numbers
        with pytest.raises(ValueError, match="predicts a number"):
            own.predict_proba(rows)
        artifact = tmp_path / "model.safetensors"
        own.download(artifact)
    stored = read.loads(artifact.read_bytes())
    columns = stored.predictor.rows.sanitise(rows)
    assert stored.predictor.numbers(columns).tolist() == numbers

    file, target = tmp_path / "in.csv", tmp_path / "out.csv"
    file.write_text("age,who\n5,a\n50,b\n95,c\n")
    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    typed = ["predict", model, str(file)]
    kept = ["--output", str(target), "--keep", "who"]
    assert CliRunner().invoke(grovekeeper, [*typed, *kept]).exit_code == 0
    _, *lines = target.read_text().splitlines()
    assert [float(line.split(",")[1].strip('"')) for line in lines] == numbers
    file.write_text("age\n5\n")
    printed = CliRunner().invoke(grovekeeper, typed)
    assert f"{numbers[0]:.6g}" in printed.stdout

    page = signed_in(server, server.admin).post(
        f"/ui{path}", data={"feature.age": "50"}
    )
    assert f"los_days: {numbers[1]:.6g}" in " ".join(text_of(page).split())


@pytest.mark.parametrize("is_pure", [False, True])
def test_no_view_of_a_model_of_numbers_speaks_of_classes(
    server: Server, is_pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card said that the forest starts from class counts, and that a temperature
    makes probabilities.
    """
    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    model, other = (_trained(server, is_pure=is_pure) for _ in range(2))
    card = server.admin.http.get(f"/models/{model}").json()
    asked = training(card["dataset"], **(BY_RPF if is_pure else ASKED))
    quote = server.admin.http.post("/plans", json=asked).json()
    assert quote["parameters"] == card["parameters"]
    browser = signed_in(server, server.admin)
    typed = [
        ["plan", card["dataset"], "--epsilon", "100"],
        ["models", "show", model],
        ["models", "compare", model, other],
        ["evaluations", "quote", model, "--epsilon", "1"],
    ]
    pages = [
        f"/ui/models/{model}",
        f"/ui/models/{model}/evaluate?epsilon=1",
        f"/ui/models/comparison?models={model}&models={other}",
        f"/ui/datasets/{card['dataset']}/train?epsilon=1",
    ]
    texts = [CliRunner().invoke(grovekeeper, words).stdout for words in typed]
    texts += [text_of(browser.get(page)) for page in pages]
    for text in texts:
        assert card["dataset_name"] in text
        assert re.findall(r"\b(?:class\w*|temperature)\b", text) == []


def test_statistics_treat_the_label_as_a_number(server: Server) -> None:
    dataset = _uploaded(server)
    _upload(server, dataset, ["7,"] * 500)
    tables = [
        {"statistic": "mean", "column": "los_days"},
        {"statistic": "histogram", "column": "los_days", "bins": {"los_days": [5]}},
        {"statistic": "median", "column": "los_days"},
        {"statistic": "count", "where": [{"column": "los_days", "below": 5}]},
    ]
    shown = _released(server, dataset["id"], epsilon="200", tables=tables)
    mean, histogram, median, count = shown["tables"]
    assert abs(mean["rows"][0]["value"] - 4.95) < 0.3
    counts = [row["value"] for row in histogram["rows"]]
    assert np.abs(np.array(counts) - [1_000, 1_000, 500]).max() < 20
    assert abs(median["rows"][0]["value"] - 4.95) < 0.5
    assert abs(count["total"]["value"] - 1_000) < 20


def test_a_profile_tells_mean_and_quantiles_and_a_forest_reuses_its_bins(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = SCHEMA | {
        "features": [{"name": "age", "type": "numeric", "lower": 0, "upper": 99}]
    }
    dataset = _uploaded(server, schema=schema)
    path = f"/datasets/{dataset['id']}/profiles"
    body = {"epsilon": "50"}
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    assert quote["private_features"] == ["age"]
    mean, quantiles = quote["tables"]
    assert (mean["half_width"], mean["unit"]) == (None, "los_days")
    assert (quantiles["unit"], quantiles["n_cells"]) == ("rank", 5)
    assert 0 < quantiles["half_width"] < 100

    accepted = server.admin.http.post(path, json=body, headers=new_idempotency_key())
    assert accepted.status_code == 202, accepted.text
    job = server.ended(accepted.json()["job_id"])
    profile = server.admin.http.get(f"/profiles/{job['profile_id']}").json()
    assert profile["event"] == quote["event"]
    assert profile["class_counts"] == []
    assert abs(profile["size"]["count"] - N_ROWS) < 20 * profile["size"]["noise_sd"]
    shown_mean, shown = profile["tables"]
    assert abs(shown_mean["rows"][0]["value"] - 4.95) < 1.5
    values = [row["value"] for row in shown["rows"]]
    assert np.abs(np.array(values) - [0.45, 2.45, 4.95, 7.45, 9.45]).max() < 1
    assert shown["rank_error"] == quantiles["half_width"]

    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    typed = ["profiles", "quote", dataset["name"], "--epsilon", "50"]
    assert "rows in rank" in CliRunner().invoke(grovekeeper, typed).stdout
    typed = ["profiles", "show", profile["id"]]
    printed = CliRunner().invoke(grovekeeper, typed).stdout
    assert "mean of los_days" in printed
    assert "quantiles of los_days" in printed

    asked = training(dataset["id"], **ASKED, profile=profile["id"])
    planned = server.admin.http.post("/plans", json=asked).json()
    assert planned["profile"]["is_used"]
    trained = server.trained(dataset["id"], **ASKED, profile=profile["id"])
    model = trained["model_id"]
    card = server.admin.http.get(f"/models/{model}").json()
    assert card["profile_id"] == profile["id"]
    answer = server.admin.http.post(
        f"/models/{model}/predict", json={"rows": [{"age": 5}, {"age": 95}]}
    )
    young, old = answer.json()["labels"]
    assert young < 4 < 6 < old


def test_an_algorithm_that_counts_classes_is_refused(server: Server) -> None:
    dataset = _uploaded(server)
    other = training(
        dataset["id"],
        algorithm="rdt-ta",
        parameters={},
        epsilon="1",
    )
    refused = server.admin.http.post("/plans", json=other)
    [error] = refused.json()["errors"]
    assert (error["at"], error["problem"]) == ("/algorithm", "not-for-numbers")
    assert error["accepted"] == ["rpf", "nbrt"]


def test_a_job_names_the_number_among_several_labels(server: Server) -> None:
    old = {"name": "old", "classes": ["no", "yes"]}
    schema = {"features": SCHEMA["features"], "labels": [old, LABEL]}
    dataset = _declared(server, schema=schema)
    lines = ["age,old,los_days"]
    lines += [f"{age},{['no', 'yes'][age >= 50]},{age / 10}" for age in AGES]
    stored = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows",
        content="\n".join([*lines, ""]),
        headers=CSV,
    )
    assert stored.status_code == 201, stored.text
    models = {
        name: server.trained(dataset["id"], label=name, **ASKED)["model_id"]
        for name in ("old", "los_days")
    }
    answers = {
        name: server.admin.http.post(
            f"/models/{model}/predict", json={"rows": [{"age": 90}]}
        ).json()["labels"][0]
        for name, model in models.items()
    }
    assert answers["old"] == "yes"
    assert abs(answers["los_days"] - 9) < 1.5
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    assert verify(io.BytesIO(export)).kinds["charge"] == 2


def test_dummy_rows_and_tables_are_accepted(server: Server, tmp_path: Path) -> None:
    dataset = _declared(server)
    with Grovekeeper(server.url, key=server.admin.key) as gk:
        own = gk.dataset(dataset["id"])
        dummies = own.dummy(300, seed=1)
        assert all(0 <= days <= 60 for days in dummies.columns["los_days"])
        file = tmp_path / "rows.csv"
        dummies.write(file)
        for source in (dummies.frame(), dummies.table(), file):
            report = own.upload(source, again=True)
            assert [column["unknown"] for column in report["columns"]] == [0, 0]
            assert [column["clamped"] for column in report["columns"]] == [0, 0]


def test_the_form_declares_bounds(server: Server) -> None:
    browser = signed_in(server, server.caller("owner"))
    body = declaration(schema=SCHEMA, partitions=[])
    text = {
        "go": "read",
        "dictionary": json.dumps(body),
        "once": "c" * 22,
    }
    columns = browser.post("/ui/datasets/new", data=text)
    form = fields(columns.text)
    assert (form["l0.lower"], form["l0.upper"]) == ("0", "60")
    wrong = browser.post(
        "/ui/datasets/new", data={**form, "l0.lower": "61", "go": "budget"}
    )
    assert wrong.status_code == 422
    assert "Must be below the upper bound." in wrong.text
    form["l0.whole"] = "yes"
    budget = browser.post("/ui/datasets/new", data={**form, "go": "budget"})
    review = browser.post(
        "/ui/datasets/new", data={**fields(budget.text), "go": "review"}
    )
    assert "a whole number from 0 to 60" in review.text
    declared = browser.post(
        "/ui/datasets/new", data={**hidden(review.text), "go": "declare"}
    )
    assert declared.status_code == 303, declared.text
    path = declared.headers["Location"].removeprefix("/ui")
    declared_label = server.admin.http.get(path).json()["schema"]["label"]
    assert declared_label == {**LABEL, "type": "integer"}


@pytest.mark.parametrize(
    ("budget", "chosen"), [(BUDGET, "nbrt"), (PURE, "rpf")], ids=["gdp", "pure"]
)
def test_auto_and_the_form_of_a_job_take_a_number(
    server: Server, budget: dict[str, Any], chosen: str
) -> None:
    dataset = _uploaded(server, budget=budget)
    browser = signed_in(server, server.admin)
    path = f"/ui/datasets/{dataset['id']}/train"
    page = browser.get(path, params={"epsilon": "1"})
    assert page.status_code == 200
    assert "docs/results/regression.md" in page.text
    asked = training(
        dataset["id"],
        algorithm="auto",
        parameters={},
        epsilon="1",
    )
    expected = server.admin.http.post("/plans", json=asked).json()["expected_accuracy"]
    assert expected["sentence"].startswith("Expect an R² of about 0.")
    assert "Expect an R² of about 0." in page.text
    job = server.trained(
        dataset["id"],
        algorithm="auto",
        parameters={},
        epsilon="9",
    )
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert card["algorithm"] == chosen
    use = server.admin.http.get(f"/models/{job['model_id']}/importances").json()
    assert use["leaves"] == []

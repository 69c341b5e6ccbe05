"""Evaluations of models that predict a number, over HTTP: quoted, charged, shown in
every place, and the choice of the best.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from grovekeeper_client import Grovekeeper
from grovekeeper_verifier.dataset_replay import verify
from tests.server.test_http_number_labels import AGES, ASKED, DAYS, N_ROWS, _uploaded
from tests.support.databases import on_one_server
from tests.support.pages import fields, section, signed_in, text_of
from tests.support.server import Server, new_idempotency_key


def _models(
    server: Server,
    n_models: int = 1,
) -> tuple[dict[str, Any], list[str]]:
    dataset = _uploaded(server, public_size=N_ROWS)
    jobs = [server.trained(dataset["id"], **ASKED) for _ in range(n_models)]
    return dataset, [job["model_id"] for job in jobs]


def _evaluated(
    server: Server,
    path: str,
    **body: object,
) -> dict[str, Any]:
    accepted = server.admin.http.post(
        path,
        json=body,
        headers=new_idempotency_key(),
    )
    assert accepted.status_code == 202, accepted.text
    job = server.ended(accepted.json()["job_id"])
    assert job["state"] == "succeeded", job
    return dict(server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json())


def _errors(server: Server, model: str) -> np.ndarray:
    """The exact errors of a model on all rows, which only this test knows."""
    answer = server.admin.http.post(
        f"/models/{model}/predict", json={"columns": {"age": AGES}}
    )
    return np.array(answer.json()["labels"]) - DAYS


def test_an_evaluation_releases_what_was_quoted(server: Server) -> None:
    dataset, (model,) = _models(server)
    path = f"/models/{model}/evaluations"
    body = {
        "epsilon": "200",
        "metrics": ["mae", "rmse", "r2"],
        "largest_error": 10,
    }
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    sums = ["rows", "absolute", "squared", "centred", "spread"]
    assert quote["releases"] == sums
    assert 0 < quote["mae_half_width"] < 0.5
    evaluation = _evaluated(server, path, **body)
    assert (evaluation["event"], evaluation["price"]) == (
        quote["event"],
        quote["price"],
    )
    assert (evaluation["releases"], evaluation["largest_error"]) == (sums, 10)
    assert (evaluation["accuracy"], evaluation["majority"]) == (None, None)
    errors = _errors(server, model)
    exact = {
        "mae": np.abs(errors).mean(),
        "rmse": np.sqrt(np.square(errors).mean()),
        "r2": 1 - np.square(errors).sum() / (np.var(DAYS) * N_ROWS),
    }
    for name, value in exact.items():
        shown = evaluation[name]
        interval = shown["interval"]
        assert shown["on_training_rows"]
        assert interval["low"] < interval["high"]
        width = interval["high"] - interval["low"]
        # other tests check 95 of 100
        assert abs(shown["estimate"] - value) < 3 * width
    assert evaluation["mae"]["interval"]["high"] < 2
    assert evaluation["r2"]["estimate"] > 0.5

    card = server.admin.http.get("/models", params={"dataset": dataset["id"]}).json()
    [listed] = card["models"]
    source = {"evaluation": evaluation["id"], "dataset": dataset["id"]}
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    assert verify(io.BytesIO(export)).kinds["charge"] == 2
    assert listed["accuracy"] is None
    assert listed["error"] == {
        **evaluation["mae"],
        **source,
        "dataset_name": dataset["name"],
    }


@on_one_server
def test_the_default_is_the_mean_absolute_error(server: Server) -> None:
    _, (model,) = _models(server)
    evaluation = _evaluated(server, f"/models/{model}/evaluations", epsilon="20")
    assert evaluation["releases"] == ["rows", "absolute"]
    assert evaluation["largest_error"] == 60
    assert (evaluation["rmse"], evaluation["r2"]) == (None, None)


@on_one_server
def test_what_is_of_classes_is_refused_and_the_reverse(server: Server) -> None:
    _, (model,) = _models(server)
    classes = server.trained(server.uploaded()["id"])["model_id"]
    for of, body, at, problem in (
        (model, {"metrics": ["accuracy"]}, "/metrics", "not-for-numbers"),
        (model, {"metrics": ["mae", "auroc"]}, "/metrics", "not-for-numbers"),
        (model, {"largest_error": 0}, "/largest_error", "too-small"),
        (model, {"largest_error": 61}, "/largest_error", "too-large"),
        (classes, {"metrics": ["mae"]}, "/metrics", "not-for-classes"),
        (classes, {"largest_error": 1}, "/largest_error", "not-for-classes"),
    ):
        answer = server.admin.http.post(
            f"/models/{of}/evaluations/quote", json={"epsilon": "1", **body}
        )
        [error] = answer.json()["errors"]
        assert (answer.status_code, error["at"], error["problem"]) == (422, at, problem)
    assert server.admin.http.post(
        f"/models/{model}/evaluations/quote",
        json={"epsilon": "1", "metrics": ["accuracy"]},
    ).json()["errors"][0]["accepted"] == ["mae", "rmse", "r2"]


@on_one_server
def test_the_best_of_several_is_one_charge(server: Server) -> None:
    dataset, models = _models(server, 2)
    # two numbers for a hundred ages are wrong by 1.2 days on average, the others by 0.1
    split_once = {**ASKED, "parameters": {"n_estimators": 1, "max_depth": 1}}
    models.append(server.trained(dataset["id"], **split_once)["model_id"])
    evaluation = _evaluated(
        server, "/evaluations", models=models, epsilon="50", winner_accuracy=True
    )
    assert evaluation["releases"] == ["best", "rows", "absolute"]
    assert evaluation["best"] in models[:2], "noise of 100 rows does not hide the worst"
    assert evaluation["mae"]["estimate"] is not None
    listed = server.admin.http.get("/models", params={"dataset": dataset["id"]}).json()[
        "models"
    ]
    assert {item["id"]: item["error"] is not None for item in listed} == {
        model: model == evaluation["best"] for model in models
    }


@on_one_server
def test_errors_are_shown_in_every_place(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dataset, models = _models(server, 2)
    model = models[0]
    browser = signed_in(server, server.admin)
    path = f"/ui/models/{model}/evaluate"
    form = browser.get(path, params={"epsilon": "20", "counts": "mae r2"})
    assert "The noise moves the mean absolute error by at most ±" in text_of(form)
    refused = browser.get(path, params={"epsilon": "20", "largest_error": "x"})
    assert refused.status_code == 422
    assert 'value="x"' in refused.text
    sent = fields(form.text.rpartition("<form")[2])
    submitted = browser.post(path, data=sent)
    assert submitted.status_code == 303, submitted.text
    job = server.ended(submitted.headers["Location"].removeprefix("/ui/jobs/"))
    evaluation = server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json()
    page = browser.get(f"/ui/evaluations/{evaluation['id']}")
    errors = section(page.text, "errors")
    for name in ("Mean absolute error", "Root mean squared error", "R²"):
        assert name in errors
    assert "Errors of more than 60 count as that much" in errors
    assert "Accuracy" not in text_of(page)
    card = text_of(browser.get(f"/ui/models/{model}"))
    assert "Mean absolute error" in card
    for address in (f"/ui/models?dataset={dataset['id']}", "/ui/models/comparison"):
        shown = (
            browser.get(address, params={"models": models})
            if ("comparison" in address)
            else browser.get(address)
        )
        assert f"/ui/evaluations/{evaluation['id']}" in shown.text
        assert "MAE" in text_of(shown)

    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)

    def run(*typed: str) -> str:
        result = CliRunner().invoke(grovekeeper, list(typed))
        assert result.exit_code == 0, result.output
        return result.stdout

    shown = run("evaluations", "show", evaluation["id"])
    for words in ("mean absolute error", "root mean squared error", "R²"):
        assert words in shown
    assert "largest class" not in shown
    assert "MAE" in run("evaluations", "list", model)
    assert "MAE" in run("models", "list", "--dataset", dataset["name"])
    assert "MAE" in run("models", "compare", *models)
    asked = ("--epsilon", "9", "--metric", "mae", "--largest-error", "20")
    quoted = run("evaluations", "quote", model, *asked)
    assert "mean absolute error by at most ±" in quoted
    assert "--largest-error 20.0" in quoted
    assert "mean absolute error" in run("evaluations", "run", model, *asked, "--wait")

    with Grovekeeper(server.url, key=server.admin.key) as gk:
        own = gk.model(model).evaluate(9, metrics=["mae", "rmse"]).wait()
        assert own.accuracy is None
        assert own.mae_interval is not None
        assert own.mae_interval[0] <= own.mae <= own.mae_interval[1]
        # noise may show less than the mean error, or nothing
        assert own.rmse is None or own.rmse > 0
        assert own.rmse_interval is not None
        assert 0 <= own.rmse_interval[0] <= own.rmse_interval[1]
        assert own.r2_interval is None
        [frame] = [
            row
            for row in gk.models(dataset=dataset["id"]).frame().to_dict("records")
            if row["id"] == model
        ]
        assert frame["mae"] == own.mae

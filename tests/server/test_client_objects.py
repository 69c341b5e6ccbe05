"""The objects of the Python client, on a real service: quote, train, predict, evaluate,
refusal, ledger.
"""

import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from grovekeeper_client import (
    Dataset,
    Grovekeeper,
    JobFailed,
    JobUnfinished,
    Refused,
    Unreachable,
)
from grovekeeper_client.client import Client
from grovekeeper_client.dummies import declaration_like
from grovekeeper_client.errors import ApiProblem
from tests.support.databases import on_one_server
from tests.support.server import CSV, Server, csv_rows

pytestmark = pytest.mark.in_turn("server")

SMALL = {"n_estimators": 2, "max_depth": 2}
FRAME = pd.DataFrame(
    {
        "age": [20, 80, None],
        "height": [1.5, np.nan, 1.7],
        "sex": ["Male", None, "other"],
    }
)


@pytest.fixture(scope="module")
def gk(server: Server) -> Iterator[Grovekeeper]:
    with Grovekeeper(server.url, server.admin.key) as connection:
        yield connection


@pytest.fixture(scope="module")
def dataset(gk: Grovekeeper, server: Server) -> Dataset:
    schema = server.declared()["schema"]
    features = [feature | {"missing": True} for feature in schema["features"]]
    name = server.uploaded(
        schema={**schema, "features": features},
        budget={"accountant": "pure", "epsilon": "90"},
    )
    return gk.dataset(name["name"])


@on_one_server
def test_a_model_is_quoted_trained_used_and_measured(
    gk: Grovekeeper, dataset: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    quote = dataset.plan(
        "rdt-ta", epsilon=Decimal("0.1") + Decimal("0.2"), parameters=SMALL
    )
    assert quote.price.amount == Decimal("0.3")
    assert quote.fits
    assert quote.largest_that_fits == dataset.balance().remaining == 90
    assert quote.limited_by == dataset.balance().limited_by == "cap"
    assert quote.odds == {"add_remove": 0.5745, "replace_one": 0.6457}
    assert quote.why is None
    assert dataset.plan(epsilon=1).why, "auto gives its reason"

    job = dataset.train(
        "rdt-ta",
        epsilon=20,
        parameters={name: np.int64(value) for name, value in SMALL.items()},
        name="first",
    )
    model = job.wait()
    assert "2/2 trees" in capsys.readouterr().err
    assert job.is_finished
    assert job.price.epsilon == 20
    assert gk.model(model.id).card == model.card
    assert gk.job(job.id).wait(progress=False).card == model.card  # type: ignore[union-attr]

    assert dataset.name_model("production", model) == f"{dataset.name}@production"
    assert gk.model(f"{dataset.name}@production").id == model.id

    labels = model.predict(FRAME)
    assert labels.index.equals(FRAME.index)
    assert set(labels) <= set(model.classes)
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    assert model.predict(table).to_pylist() == labels.tolist()
    rows = table.to_pylist()
    assert (
        model.predict(rows)
        == model.predict([list(row.values()) for row in rows])
        == labels.tolist()
    )
    shares = model.predict_proba(FRAME)
    assert list(shares.columns) == model.classes
    assert model.predict_proba(rows) == shares.to_dict("records")

    use = model.importances()
    assert [feature["name"] for feature in use] == model.features
    assert sum(feature["n_splits"] for feature in use) <= 2 * 3
    total = sum(use.frame()["importance"])
    # random splits need not separate the classes at all
    assert total == pytest.approx(1) or total == 0
    assert list(model.leaf_shares()) == model.classes
    tree = model.tree()
    assert set(tree.answer["nodes"][0]) >= {"test", "yes", "no", "label"}
    assert "yes: " in str(tree)
    assert tree._repr_html_().startswith("<svg")
    with pytest.raises(ApiProblem, match="tree"):
        model.tree(tree.answer["n_trees"])

    evaluation = model.evaluate("30", metrics=["accuracy", "confusion"]).wait(
        progress=False
    )
    assert evaluation.accuracy is not None
    assert evaluation.interval is not None
    assert evaluation.interval[0] <= evaluation.accuracy <= evaluation.interval[1]
    assert evaluation.confusion is not None
    assert set(evaluation.confusion) == set(model.classes)
    listed = gk.models(dataset=dataset.name).frame().loc[0]
    assert (listed["epsilon"], listed["n_leaves"]) == (
        "20",
        2 * 2 ** SMALL["max_depth"],
    )
    assert listed["accuracy"] == evaluation.accuracy
    assert (listed["accuracy_low"], listed["accuracy_high"]) == evaluation.interval
    other = dataset.train("rdt-ta", epsilon=1, parameters={**SMALL, "max_depth": 1})
    second = other.wait(progress=False)
    compared = gk.compare(f"{dataset.name}@production", second)
    assert [item["id"] for item in compared] == [model.id, second.id]
    assert [item["parameters"] for item in compared] == [
        {"max_depth": 2},
        {"max_depth": 1},
    ]
    assert compared.frame()["epsilon"].tolist() == ["20", "1"]
    assert model.quote_evaluation(1).warnings, "the rows were trained on"

    charged = [entry.amount for entry in dataset.ledger() if entry.kind == "charge"]
    assert [group["charged"] for group in dataset.spent("kind")] == ["30", "21"]
    assert charged == [20, 30, 1]
    balance = dataset.balance()
    assert (balance.charged, balance.reserved, balance.remaining) == (51, 0, 39)


@on_one_server
def test_a_refusal_carries_its_numbers(dataset: Dataset) -> None:
    before = dataset.balance()
    with pytest.raises(Refused) as caught:
        dataset.train("rdt-ta", epsilon="90.5", parameters=SMALL)
    refused = caught.value
    assert (refused.cap, refused.charged, refused.reserved) == (
        before.cap,
        before.charged,
        before.reserved,
    )
    assert refused.requested == Decimal("90.5")
    assert refused.remaining == refused.largest_that_fits == before.remaining
    assert refused.unit == "epsilon"
    assert dataset.balance() == before
    assert pickle.loads(pickle.dumps(refused)).remaining == refused.remaining


class _Cut(httpx.HTTPTransport):
    """Passes requests on, and loses the answers to the first ``n_lost`` of the training
    requests.
    """

    def __init__(self, n_lost: int) -> None:
        super().__init__()
        self.n_lost = n_lost
        self.keys: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if request.url.path == "/train":
            self.keys.append(request.headers["Idempotency-Key"])
            if len(self.keys) <= self.n_lost:
                response.read()
                response.close()
                raise httpx.ReadError(
                    "the connection was cut after the request", request=request
                )
        return response


def _reserved(dataset: Dataset) -> list[Decimal]:
    return [entry.amount for entry in dataset.ledger() if entry.kind == "reserve"]


def test_a_connection_that_is_cut_after_the_request_never_pays_twice(
    server: Server,
) -> None:
    cut = _Cut(n_lost=2)
    with Client(
        server.url, server.admin.key, transport=cut, sleep=lambda _seconds: None
    ) as client:
        dataset = Dataset(client, server.uploaded())
        job = dataset.train("rdt-ta", epsilon="1", parameters=SMALL)
        assert (len(cut.keys), len(set(cut.keys))) == (3, 1)
        assert _reserved(dataset) == [1]
        job.wait(progress=False)
        dataset.train("rdt-ta", epsilon="1", parameters=SMALL)
        assert _reserved(dataset) == [1, 1], "another call is another job"


def test_a_call_that_got_no_answer_is_continued_with_the_key_of_its_error(
    server: Server,
) -> None:
    cut = _Cut(n_lost=5)
    with Client(
        server.url, server.admin.key, transport=cut, sleep=lambda _seconds: None
    ) as client:
        dataset = Dataset(client, server.uploaded())
        with pytest.raises(Unreachable, match="pass idempotency_key=") as caught:
            dataset.train("rdt-ta", epsilon="1", parameters=SMALL)
        assert _reserved(dataset) == [1]
        job = dataset.train(
            "rdt-ta",
            epsilon="1",
            parameters=SMALL,
            idempotency_key=caught.value.idempotency_key,
        )
        assert _reserved(dataset) == [1]
        assert job.price.amount == 1


@on_one_server
def test_a_pickled_connection_holds_no_key(
    gk: Grovekeeper, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = pickle.dumps(gk)
    assert server.admin.key.encode() not in stored
    assert server.admin.key not in repr(gk)
    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.delenv("GROVEKEEPER_API_KEY_FILE", raising=False)
    with pickle.loads(stored) as again:
        assert again.url == gk.url
        assert next(again.datasets()).name


@on_one_server
def test_what_the_objects_take_is_what_the_service_takes(dataset: Dataset) -> None:
    scope: dict[str, Any] = {}
    body = dataset._training(
        "auto",
        np.float64(0.25),
        {"delta": 1e-6, "scope": scope, "unlabelled": {"epsilon": 1}},
    )
    assert body == {
        "dataset": dataset.id, "algorithm": "auto", "epsilon": "0.25", "delta": "1e-06", "scope": {},
        "unlabelled": {"epsilon": "1"},
    }  # fmt: skip


@on_one_server
def test_frames_and_files_of_tables_are_uploaded_as_rows(
    gk: Grovekeeper, server: Server, tmp_path: Path
) -> None:
    dataset = gk.dataset(server.declared()["id"])
    frame = pd.DataFrame(
        {
            "age": [20, 150],
            "height": [1.5, np.nan],
            "sex": pd.Categorical(["Male", None]),
            "income": ["<=50K", "?"],
        }
    )
    file = tmp_path / "rows.parquet"
    frame.to_parquet(file, index=False)
    sources = (frame, file, pa.Table.from_pandas(frame))
    reports = [
        dataset.upload(rows, again=True, accept_unknown=True)["columns"]
        for rows in sources
    ]
    assert reports[0] == reports[1] == reports[2]
    counts = {
        column["name"]: (column["clamped"], column["missing"], column["unknown"])
        for column in reports[0]
    }
    assert (counts["age"], counts["income"]) == ((1, 0, 0), (0, 0, 1))


@on_one_server
def test_a_replacement_erases_an_upload_only_for_rows_that_the_service_takes(
    gk: Grovekeeper, server: Server, tmp_path: Path
) -> None:
    dataset, file = gk.dataset(server.declared()["name"]), tmp_path / "rows.csv"
    file.write_text(csv_rows(200))
    upload = dataset.upload(file)["epoch"]
    file.write_text(csv_rows(100).replace(",", ";"))
    with pytest.raises(ApiProblem, match="rows-invalid"):
        dataset.replace_upload(upload, file)
    with pytest.raises(OSError, match="absent"):
        dataset.replace_upload(upload, tmp_path / "absent.csv")
    assert [listed["rows"] for listed in dataset._client.uploads(dataset.id)] == [200]
    for n_rows, replaced in ((200, "the same rows"), (100, "corrected rows")):
        file.write_text(csv_rows(n_rows))
        upload = dataset.replace_upload(upload, file)["stored"]["epoch"]
        listed = [
            listed["rows"]
            for listed in dataset._client.uploads(dataset.id)
            if not listed["erased_at"]
        ]
        assert listed == [n_rows], replaced


@on_one_server
def test_a_wait_ends_at_an_approval_and_at_a_timeout(
    gk: Grovekeeper, server: Server
) -> None:
    """The job goes on in both cases, and another wait gives its output or says why
    there is none.
    """
    declared = server.uploaded()
    rules = {
        "largest_job": None,
        "approval_above": "0.5",
        "quotas": [],
        "frozen": False,
        "erase_rows_at": None,
    }
    server.admin.http.put(
        f"/datasets/{declared['id']}/rules", json=rules
    ).raise_for_status()
    job = gk.dataset(declared["name"]).train("rdt-ta", epsilon=1, parameters=SMALL)
    for timeout in (None, 3_600):
        with pytest.raises(JobUnfinished) as caught:
            job.wait(timeout=timeout, progress=False)
        assert (caught.value.is_waiting, caught.value.job["id"]) == (True, job.id)
    assert job.state == "waiting"
    job.cancel()
    with pytest.raises(JobFailed):
        job.wait(timeout=0, progress=False)


PARTITIONED = [
    {"name": "shard", "kind": "hash", "cells": 4},
    {"name": "sex", "kind": "column", "column": "sex"},
    {
        "name": "site",
        "kind": "column",
        "column": "site",
        "categories": ["north", "south"],
    },
]


@pytest.mark.parametrize(
    "budget",
    [
        {"accountant": "pure", "epsilon": "3"},
        {"accountant": "gdp", "epsilon": "1", "delta": "1e-6"},
        {
            "accountant": "zcdp",
            "epsilon": "1",
            "delta": "1e-6",
            "delta_set_aside": "9e-7",
        },
    ],
)
def test_a_like_dataset_takes_dummy_rows_and_has_the_same_quotes(
    gk: Grovekeeper, server: Server, budget: dict[str, str]
) -> None:
    declared = server.declared(
        budget=budget,
        privacy_unit={"column": "person", "max_rows": 3},
        partitions=PARTITIONED,
    )
    real = gk.dataset(declared["id"])
    other_rows = real.dummy(20, seed=1).frame()
    real.upload(other_rows)
    balance = server.admin.http.get(f"/ledger/{real.id}").json()
    declaration = declaration_like(real.facts, balance)
    practice = gk.declare({**declaration, "name": f"{real.name}-practice"})
    report = practice.upload(real.dummy(300).frame())
    assert report["rows"] == 300
    kinds = ("clamped", "unknown")
    assert not any(column[kind] for column in report["columns"] for kind in kinds)
    assert report["dropped"] == {"without_unit": 0, "over_bound": 0}

    body = {"epsilon": "0.5", "scope": {"shard": [0], "site": ["north"]}}
    quotes = [
        server.admin.http.post("/plans", json={"dataset": dataset.id, **body}).json()
        for dataset in (real, practice)
    ]
    named = ("dataset", "dataset_name")
    amounts = ("cap", "remaining", "largest_that_fits", "left_afterwards")
    for quote in quotes:
        assert quote["fits"]
        for name in (*named, *(amounts if budget["accountant"] != "pure" else ())):
            del quote[name]
    assert quotes[0] == quotes[1]
    model = practice.train(**body, parameters=SMALL, algorithm="rdt-ta").wait()
    features = real.dummy(5).frame()[["age", "height", "sex"]]
    assert len(model.predict(features)) == 5


def test_dummy_rows_read_no_row_and_charge_nothing(
    gk: Grovekeeper, server: Server
) -> None:
    declared = server.declared()
    before = gk.dataset(declared["id"]).dummy(50)
    server.admin.http.post(
        f"/datasets/{declared['id']}/rows", content=csv_rows(200), headers=CSV
    )
    dataset = gk.dataset(declared["id"])
    after = dataset.dummy(50)
    assert after.columns == before.columns
    assert [entry.kind for entry in dataset.ledger()] == ["open"]


@on_one_server
def test_lists_are_those_of_the_api_and_tables_in_a_notebook(
    gk: Grovekeeper, dataset: Dataset
) -> None:
    model = dataset.train("rdt-ta", epsilon="0.5", parameters=SMALL).wait()
    job = dataset.train("rdt-ta", epsilon="0.5", parameters=SMALL)
    job.wait()
    models = gk.models(dataset=dataset.name)
    assert list(models) == list(gk.client.models(dataset=dataset.name))
    (listed,) = (item for item in models if item["id"] == model.id)
    assert listed["scope"] == model.card["scope"] == {}
    assert listed["price"]["epsilon"] == "0.5"
    assert model.id in models._repr_html_()
    assert list(models.frame()["id"]) == [item["id"] for item in models]
    jobs = gk.jobs(dataset=dataset.name, state="succeeded")
    assert job.id in jobs._repr_html_()
    assert "rdt-ta" in gk.algorithms()._repr_html_()
    assert dataset.profiles() == list(gk.client.profiles(dataset.id))
    assert dataset.released_statistics() == list(gk.client.all_statistics(dataset.id))
    for shown in (dataset, model, dataset.plan("rdt-ta", epsilon="0.1")):
        assert shown._repr_html_().startswith("<table><caption>")


@on_one_server
def test_jobs_of_every_kind_give_their_output_in_another_session(
    gk: Grovekeeper, dataset: Dataset
) -> None:
    counts = dataset.statistics({"statistic": "count"}, epsilon="0.1")
    assert counts.wait()[0].value is not None
    released = gk.job(counts.id).wait()
    (listed,) = (s for s in dataset.released_statistics() if s["id"] == released.id)  # type: ignore[union-attr]
    assert gk.statistics(listed["id"]).facts == released.facts  # type: ignore[union-attr]
    accepted = gk.client.release_profile(dataset.id, {"epsilon": "0.1"})
    profile = gk.job(accepted["job_id"]).wait()
    assert profile["id"] in {item["id"] for item in dataset.profiles()}  # type: ignore[index]

"""Evaluations over HTTP: quotes, charges to the held-out cells alone, intervals, and
the best of several models.
"""

import itertools
import weakref
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from app.registry.tables import ReleaseRow
from app.services.releases import evaluations
from grovekeeper_forests.releases.profile.read import Profile
from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import on_one_server
from tests.support.pages import signed_in, text_of
from tests.support.server import SCHEMA, Server, new_idempotency_key

pytestmark = pytest.mark.in_turn("server")

DELTA = "0.000001"
BUDGETS = {
    "pure": {"accountant": "pure", "epsilon": "1000"},
    "zcdp": {"accountant": "zcdp", "epsilon": "100", "delta": DELTA},
    "gdp": {"accountant": "gdp", "epsilon": "100", "delta": DELTA},
}
SHARDS = [{"name": "shard", "kind": "hash", "cells": 2}]
HELD_OUT: dict[str, Any] = {"shard": [1]}


def _trained(
    server: Server, accountant: str, n_models: int = 1, **changes: Any
) -> tuple[dict[str, Any], list[str]]:
    """A dataset, and models that were trained on its first cell."""
    dataset = server.uploaded(600, budget=BUDGETS[accountant], partitions=SHARDS)
    delta = {} if accountant == "pure" else {"delta": DELTA}
    body = {
        "algorithm": "rdt-ta",
        "epsilon": "20",
        "scope": {"shard": [0]},
        **delta,
        **changes,
    }
    parameters = {"n_estimators": 2, "max_depth": 2}
    jobs = [
        server.trained(dataset["id"], **body, parameters=parameters)
        for _ in range(n_models)
    ]
    return dataset, [job["model_id"] for job in jobs]


def _evaluated(server: Server, path: str, **body: object) -> dict[str, Any]:
    accepted = server.admin.http.post(
        path, json={"scope": HELD_OUT, **body}, headers=new_idempotency_key()
    )
    assert accepted.status_code == 202, accepted.text
    job = server.ended(accepted.json()["job_id"])
    assert (job["state"], job["kind"], job["model_id"]) == (
        "succeeded",
        "evaluation",
        None,
    ), job
    return dict(server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json())


def _about_rows(answer: dict[str, Any]) -> list[str]:
    """Warnings without the one about the large ε of these tests."""
    return [
        warning
        for warning in answer["warnings"]
        if not warning.startswith(("ε is above 10", "Model md_"))
    ]


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_an_evaluation_costs_the_held_out_cells_what_was_quoted(
    server: Server, accountant: str
) -> None:
    dataset, (model,) = _trained(server, accountant)
    path = f"/models/{model}/evaluations"
    delta = {} if accountant == "pure" else {"delta": DELTA}
    body = {
        "epsilon": "20",
        **delta,
        "metrics": ["accuracy", "confusion", "auroc"],
        "score_bins": 16,
    }
    before = server.footprint()
    quote = server.admin.http.post(
        f"{path}/quote", json={**body, "scope": HELD_OUT}
    ).json()
    assert server.footprint() == before, "a quote changes nothing"
    assert (quote["releases"], _about_rows(quote)) == (["confusion", "auroc"], []), (
        "a matrix tells the accuracy"
    )
    evaluation = _evaluated(server, path, **body)
    assert (evaluation["event"], evaluation["receipt"], evaluation["price"]) == (
        quote["event"],
        quote["receipt"],
        quote["price"],
    )
    accuracy = evaluation["accuracy"]
    assert (
        0
        <= accuracy["interval"]["low"]
        <= accuracy["estimate"]
        <= accuracy["interval"]["high"]
        <= 1
    )
    assert accuracy["population_interval"]["low"] <= accuracy["interval"]["low"]
    assert accuracy["population_interval"]["high"] >= accuracy["interval"]["high"]
    total = sum(itertools.chain(*evaluation["confusion"]["counts"]))
    assert 150 < total < 450, "about half of six hundred rows"
    rows = [sum(counts) for counts in evaluation["confusion"]["counts"]]
    assert evaluation["majority"]["source"] == "confusion"
    assert evaluation["majority"]["share"] == pytest.approx(max(rows) / total, abs=0.05)
    assert 0 <= evaluation["auroc"]["estimate"] <= 1
    assert [len(side) for side in evaluation["auroc"]["histogram"]] == [16, 16]
    assert "this evaluation" in evaluation["guarantee"]["text"]
    charged = [
        server.admin.http.get(
            f"/ledger/{dataset['id']}", params={"scope": f'{{"shard": [{cell}]}}'}
        ).json()["charged"]
        for cell in (0, 1)
    ]
    assert charged == [quote["price"]["amount"]] * 2, (
        "the model's own cell paid for the model alone"
    )
    listed = server.admin.http.get(path).json()
    assert [item["id"] for item in listed["evaluations"]] == [evaluation["id"]]
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    verify(export.splitlines(keepends=True))


@on_one_server
def test_the_majority_is_told_by_a_profile_of_the_same_rows_alone(
    server: Server,
) -> None:
    dataset, (model,) = _trained(server, "pure")
    released = server.admin.http.post(
        f"/datasets/{dataset['id']}/profiles",
        json={"epsilon": "20"},
        headers=new_idempotency_key(),
    )
    assert server.ended(released.json()["job_id"])["state"] == "succeeded"
    evaluation = _evaluated(server, f"/models/{model}/evaluations", epsilon="20")
    assert evaluation["majority"] is None, (
        "a profile of all rows says nothing exact about the held-out cell"
    )
    profile = _profiled(server, dataset["id"])
    majority = server.admin.http.get(f"/evaluations/{evaluation['id']}").json()[
        "majority"
    ]
    assert majority["source"] == profile
    assert 0.5 <= majority["share"] <= 1


def _profiled(server: Server, dataset: str) -> str:
    """The id of a released profile of the rows that no model was trained on."""
    released = server.admin.http.post(
        f"/datasets/{dataset}/profiles",
        json={"epsilon": "20", "scope": HELD_OUT},
        headers=new_idempotency_key(),
    )
    return str(server.ended(released.json()["job_id"])["profile_id"])


@on_one_server
def test_a_list_reads_a_profile_once_however_many_evaluations_name_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile of fifty columns on the fine grid makes three million edges."""
    dataset, (model,) = _trained(server, "pure")
    profile = _profiled(server, dataset["id"])
    path = f"/models/{model}/evaluations"
    for _ in range(3):
        _evaluated(server, path, epsilon="1")
    read: list[str] = []
    honest = evaluations.released_profile

    def released_profile(row: ReleaseRow) -> Profile:
        read.append(row.id)
        return honest(row)

    monkeypatch.setattr(evaluations, "released_profile", released_profile)
    listed = server.admin.http.get(path).json()["evaluations"]
    assert [item["majority"]["source"] for item in listed] == [profile] * 3
    assert read == [profile]


@on_one_server
def test_an_evaluation_is_listed_to_those_alone_who_may_train_on_its_rows(
    server: Server,
) -> None:
    """A model is measured on the rows of others, too: their numbers are theirs."""
    dataset, (model,) = _trained(server, "pure")
    elsewhere = server.uploaded(200, budget=BUDGETS["pure"], partitions=SHARDS)
    path = f"/models/{model}/evaluations"
    there = _evaluated(server, path, epsilon="1", dataset=elsewhere["id"])
    here = _evaluated(server, path, epsilon="1")
    of_model = server.granted(dataset["id"], "analyst").http
    listed = of_model.get(path).json()["evaluations"]
    assert [item["id"] for item in listed] == [here["id"]]
    assert of_model.get(f"/evaluations/{there['id']}").status_code == 404
    both = server.admin.http.get(path).json()["evaluations"]
    assert [item["id"] for item in both] == [here["id"], there["id"]]


@on_one_server
def test_evaluations_hold_a_few_profiles_in_memory_however_many_there_are(
    server: Server,
) -> None:
    """A profile states all columns of its dataset, up to some megabytes of them."""
    dataset, (model,) = _trained(server, "pure")
    profile = _profiled(server, dataset["id"])
    path = f"/models/{model}/evaluations"
    _evaluated(server, path, epsilon="1")
    with server.database.write() as session:
        row = session.get_one(ReleaseRow, profile)
        column_names = [column.name for column in ReleaseRow.__table__.columns]
        facts = {name: getattr(row, name) for name in column_names}
        for number in range(40):
            later = {
                "id": f"pf_later{number}",
                "job_id": f"jb_later{number}",
                "created_at": row.created_at + timedelta(seconds=1 + number),
                "body": {**row.facts, "scope": {"shard": [0]}},
            }
            session.add(ReleaseRow(**{**facts, **later}))
    alive: weakref.WeakSet[ReleaseRow] = weakref.WeakSet()
    most = 0

    def loaded(row: ReleaseRow, _: object) -> None:
        nonlocal most
        alive.add(row)
        most = max(most, len(alive))

    event.listen(ReleaseRow, "load", loaded)
    try:
        (listed,) = server.admin.http.get(path).json()["evaluations"]
    finally:
        event.remove(ReleaseRow, "load", loaded)
    assert listed["majority"]["source"] == profile
    assert most < 20


@on_one_server
def test_a_scope_that_was_trained_on_is_named(server: Server) -> None:
    _, (model,) = _trained(server, "pure")
    path = f"/models/{model}/evaluations"
    for scope, n_warnings in (({}, 1), ({"shard": [0, 1]}, 1), (HELD_OUT, 0)):
        quote = server.admin.http.post(
            f"{path}/quote", json={"epsilon": "1", "scope": scope}
        ).json()
        assert len(_about_rows(quote)) == n_warnings
    age, *others = SCHEMA["features"]
    fresh = server.uploaded(
        200, schema={**SCHEMA, "features": [{**age, "bounds": "documented"}, *others]}
    )
    elsewhere = server.admin.http.post(
        f"{path}/quote", json={"epsilon": "1", "dataset": fresh["id"]}
    ).json()
    assert (elsewhere["dataset"], _about_rows(elsewhere)) == (fresh["id"], [])
    evaluation = _evaluated(server, path, epsilon="5", scope={})
    assert len(_about_rows(evaluation)) == 1
    assert evaluation["accuracy"]["on_training_rows"]
    page = text_of(signed_in(server, server.admin).get(f"/ui/models/{model}"))
    assert "on rows used in training" in page
    assert evaluation["guarantee"]["adds"]["add_remove"] == "5", (
        "given the model, like everything before it"
    )


@on_one_server
@pytest.mark.parametrize("accountant", ["pure", "gdp"])
def test_the_best_of_several_is_one_charge(server: Server, accountant: str) -> None:
    dataset, good = _trained(server, accountant, 1, epsilon="60")
    delta = {} if accountant == "pure" else {"delta": DELTA}
    bad = [
        server.trained(
            dataset["id"], algorithm="rdt-ta", epsilon="0.001", **delta, scope={"shard": [0]},
            parameters={"n_estimators": 1, "max_depth": 1},
        )["model_id"]
        for _ in range(2)
    ]  # fmt: skip
    models = [*bad, *good]
    evaluation = _evaluated(
        server,
        "/evaluations",
        models=models,
        epsilon="30",
        **delta,
        winner_accuracy=True,
    )
    assert evaluation["models"] == models
    assert evaluation["best"] in models
    assert evaluation["releases"] == ["best", "accuracy"]
    assert evaluation["accuracy"]["estimate"] is not None
    balance = server.admin.http.get(
        f"/ledger/{dataset['id']}", params={"scope": '{"shard": [1]}'}
    ).json()
    assert balance["charged"] == evaluation["price"]["amount"], "however many models"
    alone = _evaluated(server, "/evaluations", models=models, epsilon="30", **delta)
    assert (alone["releases"], alone["accuracy"]) == (["best"], None)


@on_one_server
def test_refusals_charge_nothing_and_name_the_rule(server: Server) -> None:
    dataset, (model,) = _trained(server, "pure")
    twin = server.declared(
        schema={
            "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 100}],
            "label": {"name": "income", "classes": ["<=50K", ">50K"]},
        }
    )
    before = server.footprint()
    one, several = f"/models/{model}/evaluations", "/evaluations"
    for path, body, problem in (
        (one, {"metrics": []}, ("/metrics", "too-short")),
        (one, {"metrics": ["f1"]}, None),
        (one, {"score_bins": 1}, None),
        (one, {"dataset": twin["id"]}, ("/dataset", "other-declaration")),
        (one, {"scope": {"region": ["EU"]}}, ("/scope", "unknown-partition")),
        (several, {"models": [model]}, None),
        (several, {"models": [model, model]}, ("/models", "not-distinct")),
    ):  # fmt: skip
        answer = server.admin.http.post(
            path, json={"epsilon": "1", **body}, headers=new_idempotency_key()
        )
        assert (answer.status_code, answer.json()["type"]) == (
            422,
            "invalid-request",
        ), answer.text
        if problem is not None and problem[1] != "too-short":
            assert (
                answer.json()["errors"][0]["at"],
                answer.json()["errors"][0]["problem"],
            ) == problem
    over = server.admin.http.post(
        one, json={"epsilon": "9999", "scope": HELD_OUT}, headers=new_idempotency_key()
    )
    assert (over.status_code, over.json()["type"]) == (409, "budget-exceeded")
    unknown = server.admin.http.post(
        several,
        json={"epsilon": "1", "models": [model, "md_none"]},
        headers=new_idempotency_key(),
    )
    assert (unknown.status_code, unknown.json()["type"]) == (404, "not-found")
    for reference in ("md_\0", "", "x" * 65, "é"):  # an invalid id: no database query
        for body in (
            {"models": [model, reference]},
            {"models": [reference, model], "dataset": reference},
        ):
            answer = server.admin.http.post(
                f"{several}/quote", json={"epsilon": "1", **body}
            )
            assert answer.status_code == 404, answer.text
        planned = {
            "dataset": dataset["id"],
            "algorithm": "rpf",
            "epsilon": "1",
            "profile": reference,
        }
        assert server.admin.http.post("/plans", json=planned).status_code == 404
    assert server.footprint() == before


@on_one_server
def test_evaluations_need_the_role_analyst_on_the_dataset(server: Server) -> None:
    dataset, (model,) = _trained(server, "pure")
    evaluation = _evaluated(server, f"/models/{model}/evaluations", epsilon="1")
    for role, status in (("predictor", 403), ("auditor", 403), ("analyst", 200)):
        caller = server.granted(dataset["id"], role)
        assert caller.http.get(f"/evaluations/{evaluation['id']}").status_code == status
        assert (
            caller.http.post(
                f"/models/{model}/evaluations/quote", json={"epsilon": "1"}
            ).status_code
            == status
        )
    other = server.uploaded(100)
    analyst_elsewhere = server.granted(other["id"], "analyst")
    hidden = analyst_elsewhere.http.post(
        f"/models/{model}/evaluations/quote",
        json={"epsilon": "1", "dataset": other["id"]},
    )
    assert hidden.status_code == 404, "a model that the key may not see"

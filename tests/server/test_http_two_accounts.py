"""Jobs on two datasets over HTTP: both accounts pay or neither pays, and answers name
each part's dataset.
"""

import io
import re
from html import unescape
from typing import Any

import pytest

from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import on_one_server
from tests.support.pages import signed_in
from tests.support.server import SCHEMA, Server, new_idempotency_key, training

PARAMETERS = {"n_estimators": 2, "max_depth": 2}


def semi_supervised(labelled: str, second: str, **changes: object) -> dict[str, Any]:
    """A request for semi-supervised training; ``changes`` apply to its second part."""
    part = {"dataset": second, "epsilon": "2"} | changes
    return training(labelled, algorithm="sspe-1", parameters=PARAMETERS) | {
        "unlabelled": part
    }


def submitted(
    server: Server, body: dict[str, Any], key: dict[str, str] | None = None
) -> Any:
    return server.admin.http.post(
        "/train", json=body, headers=key or new_idempotency_key()
    )


def charged(server: Server, dataset: str) -> tuple[str, str]:
    balance = server.admin.http.get(f"/ledger/{dataset}").json()
    return balance["charged"], balance["reserved"]


def test_a_job_on_two_datasets_is_quoted_charged_and_shown_on_both(
    server: Server,
) -> None:
    labelled, unlabelled = server.uploaded(), server.uploaded()
    body = semi_supervised(labelled["name"], unlabelled["name"])
    quote = server.admin.http.post("/plans", json=body).json()

    assert (quote["price"]["amount"], quote["unlabelled"]["price"]["amount"]) == (
        "1",
        "2",
    )
    assert quote["unlabelled"]["dataset"] == unlabelled["id"]
    assert quote["event"] != quote["unlabelled"]["event"]
    assert "permute-and-flip" in quote["unlabelled"]["receipt"]
    assert "permute-and-flip" not in quote["receipt"]
    assert any(
        "adds the sum of the two prices" in warning for warning in quote["warnings"]
    )

    accepted = submitted(server, body).json()
    job = server.ended(accepted["job_id"])
    card = server.admin.http.get(f"/models/{job['model_id']}").json()

    assert job["state"] == "succeeded"
    assert job["unlabelled"] == accepted["unlabelled"]
    assert job["unlabelled"]["dataset"] == unlabelled["id"]
    assert charged(server, labelled["id"]) == ("1", "0")
    assert charged(server, unlabelled["id"]) == ("2", "0")
    assert card["guarantee"]["adds"]["add_remove"] == "1"
    assert card["unlabelled"]["guarantee"]["adds"]["add_remove"] == "2"
    assert (
        card["unlabelled"]["ledger"]["reservation_id"]
        == accepted["unlabelled"]["reservation_id"]
    )
    assert "adds the sum of the two prices" in card["unlabelled"]["persons_in_both"]
    rows = [{"age": age, "height": 1.5, "sex": "Male"} for age in (10, 90)]
    assert (
        server.admin.http.post(
            f"/models/{job['model_id']}/predict", json={"rows": rows}
        ).status_code
        == 200
    )
    browser = signed_in(server, server.admin)
    both = f"1 ε on {labelled['name']}, 2 ε on {unlabelled['name']}"
    for path in (f"/ui/jobs/{job['id']}", f"/ui/jobs?dataset={labelled['id']}"):
        assert both in " ".join(
            re.sub(r"<[^>]*>", "", browser.get(path).text).split()
        ), path
    page = unescape(browser.get(f"/ui/models/{job['model_id']}").text)
    assert card["unlabelled"]["persons_in_both"] in page
    assert f"{unlabelled['name']}</a>, its second dataset, it adds:" in page


@on_one_server
def test_a_model_card_names_the_second_dataset_to_those_who_see_it(
    server: Server,
) -> None:
    labelled, unlabelled = server.uploaded(), server.uploaded()
    job = server.ended(
        submitted(server, semi_supervised(labelled["id"], unlabelled["id"])).json()[
            "job_id"
        ]
    )
    predictor = server.granted(labelled["id"], "predictor")
    card = predictor.http.get(f"/models/{job['model_id']}")
    shown = server.admin.http.get(f"/models/{job['model_id']}").json()["unlabelled"]
    hidden = card.json()["unlabelled"]

    assert unlabelled["id"] not in card.text
    assert unlabelled["name"] not in card.text
    assert (hidden["dataset"], hidden["dataset_name"], hidden["ledger"]) == (
        None,
        None,
        None,
    )
    assert hidden["guarantee"] == {"adds": shown["guarantee"]["adds"]}
    assert hidden["receipt"] == shown["receipt"]
    server.admin.http.put(
        f"/datasets/{unlabelled['id']}/grants/{predictor.id}",
        json={"role": "predictor"},
    )
    assert (
        predictor.http.get(f"/models/{job['model_id']}").json()["unlabelled"] == shown
    )


def test_each_account_verifies_by_itself_with_the_event_that_it_paid_for(
    server: Server,
) -> None:
    labelled, unlabelled = server.uploaded(), server.uploaded()
    body = semi_supervised(labelled["id"], unlabelled["id"])
    quote = server.admin.http.post("/plans", json=body).json()
    server.ended(submitted(server, body).json()["job_id"])

    for dataset, part in ((labelled, quote), (unlabelled, quote["unlabelled"])):
        summary = verify(
            io.BytesIO(server.admin.http.get(f"/ledger/{dataset['id']}/export").content)
        )
        entries = server.admin.http.get(f"/ledger/{dataset['id']}/entries").json()[
            "entries"
        ]
        assert summary.kinds == {"open": 1, "reserve": 1, "charge": 1}
        assert entries[-1]["event"] == part["event"]


@on_one_server
def test_accounts_of_different_units_pay_each_in_its_own(server: Server) -> None:
    labelled = server.uploaded()
    unlabelled = server.uploaded(
        budget={"accountant": "zcdp", "epsilon": "3", "delta": "1e-6"}
    )
    body = semi_supervised(labelled["id"], unlabelled["id"], delta="1e-6")
    quote = server.admin.http.post("/plans", json=body).json()
    job = server.ended(submitted(server, body).json()["job_id"])

    assert job["state"] == "succeeded"
    assert "exponential mechanism" in quote["unlabelled"]["receipt"]
    assert job["unlabelled"]["price"]["unit"] == "rho"
    assert (
        charged(server, unlabelled["id"])[0] == quote["unlabelled"]["price"]["amount"]
    )


@pytest.mark.parametrize("refusing", ["labelled", "unlabelled"])
def test_a_refusal_names_the_account_and_neither_keeps_anything(
    server: Server, refusing: str
) -> None:
    datasets = {
        name: server.uploaded(budget={"accountant": "pure", "epsilon": "5"})
        for name in ("labelled", "unlabelled")
    }
    body = semi_supervised(datasets["labelled"]["id"], datasets["unlabelled"]["id"])
    if refusing == "labelled":
        body["epsilon"] = "6"
    else:
        body["unlabelled"]["epsilon"] = "6"
    key = new_idempotency_key()
    refused = submitted(server, body, key)

    assert (refused.status_code, refused.json()["type"]) == (409, "budget-exceeded")
    assert refused.json()["dataset"] == datasets[refusing]["id"]
    assert [charged(server, dataset["id"]) for dataset in datasets.values()] == [
        ("0", "0")
    ] * 2
    body["epsilon"] = body["unlabelled"]["epsilon"] = "5"
    assert submitted(server, body, key).status_code == 202, (
        "a refusal leaves the key free"
    )


@on_one_server
def test_a_second_dataset_needs_the_role_on_it(server: Server) -> None:
    labelled, unlabelled = server.uploaded(), server.uploaded()
    body = semi_supervised(labelled["id"], unlabelled["id"])
    analyst = server.granted(labelled["id"], "analyst")
    hidden = analyst.http.post("/plans", json=body)
    server.admin.http.put(
        f"/datasets/{unlabelled['id']}/grants/{analyst.id}", json={"role": "predictor"}
    )
    forbidden = analyst.http.post("/train", json=body, headers=new_idempotency_key())
    server.admin.http.put(
        f"/datasets/{unlabelled['id']}/grants/{analyst.id}", json={"role": "analyst"}
    )

    assert (hidden.status_code, forbidden.status_code) == (404, 403)
    assert analyst.http.post("/plans", json=body).status_code == 200


def test_a_quote_on_two_members_of_a_population_adds_up_both_parts(
    idle_server: Server,
) -> None:
    server = idle_server
    opened = {
        "name": new_idempotency_key()["Idempotency-Key"],
        "budget": {"accountant": "pure", "epsilon": "4"},
    }
    assert server.admin.http.post("/populations", json=opened).status_code == 201
    labelled, unlabelled = (
        server.uploaded(population=opened["name"])["id"] for _ in range(2)
    )
    body = semi_supervised(labelled, unlabelled, epsilon="2.5") | {"epsilon": "2.5"}
    quote = server.admin.http.post("/plans", json=body).json()
    refused = submitted(server, body)

    assert [
        (each["fits"], each["largest_that_fits"])
        for each in (quote, quote["unlabelled"])
    ] == [(False, "1.5")] * 2
    assert (refused.status_code, refused.json()["population"]) == (409, opened["name"])
    assert refused.json()["largest_that_fits"] == "1.5"
    amounts = {
        name: refused.json()[name] for name in ("charged", "reserved", "remaining")
    }
    assert amounts == {"charged": "0", "reserved": "2.5", "remaining": "1.5"}, (
        "the other part of the job is no charge"
    )
    body["epsilon"] = quote["largest_that_fits"]
    fitting = server.admin.http.post("/plans", json=body).json()
    assert [(each["fits"], each["largest_that_fits"]) for each in (fitting, fitting["unlabelled"])] == [
        (True, "1.5"), (True, "2.5"),
    ]  # fmt: skip
    assert submitted(server, body).status_code == 202


OTHER = {
    **SCHEMA,
    "features": [{**SCHEMA["features"][0], "upper": 121}, *SCHEMA["features"][1:]],
}
RENAMED = {**SCHEMA, "label": {"name": "wealth", "classes": ["low", "middle", "high"]}}


@on_one_server
def test_a_second_dataset_that_does_not_fit_is_refused_with_a_place(
    server: Server,
) -> None:
    labelled, other, empty = (
        server.uploaded(),
        server.declared(schema=OTHER),
        server.declared(),
    )
    cases: list[tuple[dict[str, Any], str, str]] = [
        (semi_supervised(labelled["id"], labelled["id"]), "/unlabelled/scope", "not-disjoint"),
        (semi_supervised(labelled["id"], other["id"]), "/unlabelled/dataset", "other-features"),
        (semi_supervised(labelled["id"], empty["id"], scope={"x": [1]}), "/unlabelled/scope",
         "unknown-partition"),
        (semi_supervised(labelled["id"], empty["id"], delta="1e-6"), "/unlabelled/delta",
         "not-for-pure"),
        (semi_supervised(labelled["id"], empty["id"]) | {"algorithm": "spe"}, "/unlabelled", "not-for-this-algorithm"),
        (semi_supervised(labelled["id"], labelled["id"]) | {"algorithm": "spe"}, "/unlabelled",
         "not-for-this-algorithm"),
        (training(labelled["id"], algorithm="sspe-1", parameters=PARAMETERS), "/unlabelled", "required"),
    ]  # fmt: skip
    for body, at, problem in cases:
        for path, headers in (("/plans", {}), ("/train", new_idempotency_key())):
            refused = server.admin.http.post(path, json=body, headers=headers)
            assert (refused.status_code, refused.json()["errors"]) == (
                422,
                [{"at": at, "problem": problem}],
            )
    before_rows = submitted(server, semi_supervised(labelled["id"], empty["id"]))
    assert (before_rows.status_code, before_rows.json()["type"]) == (409, "no-rows-yet")
    assert charged(server, labelled["id"]) == ("0", "0")


@on_one_server
def test_labels_of_the_second_dataset_may_be_of_another_kind(server: Server) -> None:
    labelled, unlabelled = server.uploaded(), server.declared(schema=RENAMED)
    rows = "age,height,sex,wealth\n" + "".join(
        f"{age},1.5,Male,\n" for age in range(80)
    )
    upload = server.admin.http.post(
        f"/datasets/{unlabelled['id']}/rows?accept_unknown=true",
        content=rows,
        headers={"Content-Type": "text/csv"},
    )
    job = server.ended(
        submitted(server, semi_supervised(labelled["id"], unlabelled["id"])).json()[
            "job_id"
        ]
    )

    assert upload.status_code == 201
    assert job["state"] == "succeeded"


def test_erasing_the_second_dataset_voids_a_waiting_job_on_both_accounts(
    idle_server: Server,
) -> None:
    server = idle_server
    labelled, unlabelled = server.uploaded(), server.uploaded()
    job_id = submitted(
        server, semi_supervised(labelled["id"], unlabelled["id"])
    ).json()["job_id"]
    assert charged(server, labelled["id"]) == ("0", "1")
    assert server.admin.http.delete(f"/datasets/{unlabelled['id']}").status_code == 204

    assert server.admin.http.get(f"/jobs/{job_id}").json()["state"] == "cancelled"
    assert (
        charged(server, labelled["id"])
        == charged(server, unlabelled["id"])
        == ("0", "0")
    )


SHARDS = {"partitions": [{"name": "shard", "kind": "hash", "cells": 3}]}


def charged_in(server: Server, dataset: str, shard: int) -> str:
    balance = server.admin.http.get(
        f"/ledger/{dataset}", params={"scope": f'{{"shard": [{shard}]}}'}
    ).json()
    return str(balance["charged"])


def test_both_parts_may_be_disjoint_cells_of_one_dataset(server: Server) -> None:
    dataset = server.uploaded(**SHARDS)
    body = semi_supervised(dataset["id"], dataset["name"], scope={"shard": [1]}) | {
        "scope": {"shard": [0]}
    }
    quote = server.admin.http.post("/plans", json=body).json()
    assert (quote["price"]["amount"], quote["unlabelled"]["price"]["amount"]) == (
        "1",
        "2",
    )
    assert "on disjoint cells" in quote["warnings"][-1]
    accepted = submitted(server, body).json()
    job = server.ended(accepted["job_id"])
    card = server.admin.http.get(f"/models/{job['model_id']}").json()

    assert job["state"] == "succeeded"
    assert accepted["reservation_id"] != accepted["unlabelled"]["reservation_id"]
    assert [charged_in(server, dataset["id"], shard) for shard in range(3)] == [
        "1",
        "2",
        "0",
    ]
    assert charged(server, dataset["id"]) == ("2", "0"), (
        "the larger of the two, and not the sum"
    )
    assert card["guarantee"]["adds"]["add_remove"] == "2", (
        "what holds for the rows of either part"
    )
    assert card["unlabelled"]["guarantee"]["adds"]["add_remove"] == "2"
    assert "on disjoint cells" in card["unlabelled"]["persons_in_both"]
    verify(io.BytesIO(server.admin.http.get(f"/ledger/{dataset['id']}/export").content))
    fields = {"epsilon": "1", "scope": {"shard": [2]}, "metrics": ["accuracy"]}
    path = f"/models/{job['model_id']}/evaluations"
    evaluation = server.ended(
        server.admin.http.post(path, json=fields, headers=new_idempotency_key()).json()[
            "job_id"
        ]
    )
    result = server.admin.http.get(f"/evaluations/{evaluation['evaluation_id']}").json()
    assert result["guarantee"]["adds"]["add_remove"] == "1"


@on_one_server
def test_parts_that_share_a_cell_of_one_dataset_are_refused(server: Server) -> None:
    dataset = server.uploaded(**SHARDS)
    cases: list[tuple[dict[str, list[int]], dict[str, list[int]]]] = [
        ({}, {"shard": [1]}),
        ({"shard": [1]}, {}),
        ({"shard": [0, 1]}, {"shard": [1, 2]}),
    ]
    for own, other in cases:
        refused = submitted(
            server,
            semi_supervised(dataset["id"], dataset["id"], scope=other) | {"scope": own},
        )
        assert refused.status_code == 422
        assert refused.json()["errors"] == [
            {"at": "/unlabelled/scope", "problem": "not-disjoint"}
        ]
    assert charged(server, dataset["id"]) == ("0", "0")


def test_both_parts_of_one_dataset_are_held_or_neither_and_given_back_together(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded(
        **SHARDS, budget={"accountant": "pure", "epsilon": "3"}
    )

    def body(of_labelled: str, of_unlabelled: str) -> dict[str, Any]:
        requested = semi_supervised(
            dataset["id"], dataset["id"], scope={"shard": [1]}, epsilon=of_unlabelled
        )
        return requested | {"scope": {"shard": [0]}, "epsilon": of_labelled}

    before = idle_server.footprint()
    for prices in (("1", "3.5"), ("3.5", "1")):
        refused = submitted(idle_server, body(*prices))
        assert (refused.status_code, refused.json()["type"]) == (409, "budget-exceeded")
    assert idle_server.footprint() == before
    job_id = submitted(idle_server, body("3", "2.5")).json()["job_id"]
    assert charged(idle_server, dataset["id"]) == ("0", "3")
    assert (
        idle_server.admin.http.delete(f"/jobs/{job_id}").json()["state"] == "cancelled"
    )

    assert charged(idle_server, dataset["id"]) == ("0", "0")
    entries = idle_server.admin.http.get(f"/ledger/{dataset['id']}/entries").json()[
        "entries"
    ]
    assert [entry["kind"] for entry in entries] == [
        "open",
        "reserve",
        "reserve",
        "void",
        "void",
    ]
    verify(
        io.BytesIO(
            idle_server.admin.http.get(f"/ledger/{dataset['id']}/export").content
        )
    )

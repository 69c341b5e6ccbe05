"""Profiles over HTTP: quoted, released once, shown, reused, and available after the
rows are erased.
"""

import pytest

from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import on_one_server
from tests.support.server import SCHEMA, Server, new_idempotency_key

pytestmark = pytest.mark.in_turn("server")

DELTA = "0.000001"
BUDGETS = {
    "pure": {"accountant": "pure", "epsilon": "100"},
    "zcdp": {"accountant": "zcdp", "epsilon": "20", "delta": DELTA},
    "gdp": {"accountant": "gdp", "epsilon": "20", "delta": DELTA},
}


def _released(server: Server, dataset: str, **body: object) -> dict[str, object]:
    fields = {"epsilon": "10", **body}
    answer = server.admin.http.post(
        f"/datasets/{dataset}/profiles", json=fields, headers=new_idempotency_key()
    )
    assert answer.status_code == 202, answer.text
    job = server.ended(answer.json()["job_id"])
    assert job["state"] == "succeeded", job
    return dict(server.admin.http.get(f"/profiles/{job['profile_id']}").json())


@pytest.mark.parametrize(
    ("public_size", "grid"), [(200, "intervals"), (10**6, "intervals of fine cells")]
)
@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_a_profile_costs_what_was_quoted_and_shows_what_was_released(
    server: Server, accountant: str, public_size: int, grid: str
) -> None:
    dataset = server.uploaded(400, budget=BUDGETS[accountant], public_size=public_size)
    path = f"/datasets/{dataset['name']}/profiles"
    body = {"epsilon": "10", "parameters": {"bins": "4", "size_share": "0.1"}}
    if accountant != "pure":
        body["delta"] = DELTA
    before = server.footprint()
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    assert server.footprint() == before, "a quote changes nothing"
    assert quote["private_features"] == ["height"]
    assert quote["parameters"] == {
        "bins": "4",
        "class_share": "0.2",
        "size_share": "0.1",
    }
    profile = _released(server, dataset["id"], **body)
    assert (profile["event"], profile["receipt"], profile["price"]) == (
        quote["event"], quote["receipt"], quote["price"],
    )  # fmt: skip
    bins = profile["event"]["parts"][0]["event"]["parts"][0]["event"]
    assert bins["parts"][0]["event"]["over"] == grid, "by the public size"
    assert [feature["name"] for feature in profile["features"]] == ["height"]
    edges = profile["features"][0]["edges"]
    assert edges == sorted(edges)
    assert 1 <= len(edges) <= 3
    assert [count["label"] for count in profile["class_counts"]] == ["<=50K", ">50K"]
    assert abs(profile["size"]["count"] - 400) < 20 * profile["size"]["noise_sd"]
    assert "this profile" in profile["guarantee"]["text"]
    balance = server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert balance["charged"] == quote["price"]["amount"]
    listed = server.admin.http.get(path).json()
    assert [item["id"] for item in listed["profiles"]] == [profile["id"]]
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    verify(export.splitlines(keepends=True))


def test_a_profile_outlives_the_rows_of_its_dataset(server: Server) -> None:
    dataset = server.uploaded()
    profile = _released(server, dataset["id"])
    assert server.admin.http.delete(f"/datasets/{dataset['id']}").status_code == 204
    assert server.admin.http.get(f"/profiles/{profile['id']}").json() == profile
    refused = server.admin.http.post(
        f"/datasets/{dataset['id']}/profiles",
        json={"epsilon": "1"},
        headers=new_idempotency_key(),
    )
    assert (refused.status_code, refused.json()["type"]) == (409, "dataset-deleted")


def test_a_repeated_request_is_one_job_under_the_name_and_the_id(
    server: Server,
) -> None:
    dataset = server.uploaded()
    key = new_idempotency_key()
    answers = [
        server.admin.http.post(
            f"/datasets/{reference}/profiles", json={"epsilon": "1"}, headers=key
        )
        for reference in (dataset["id"], dataset["name"], dataset["id"])
    ]
    assert len({answer.content for answer in answers}) == 1
    server.ended(answers[0].json()["job_id"])
    assert server.admin.http.get(f"/ledger/{dataset['id']}").json()["charged"] == "1"


def test_refusals_charge_nothing_and_name_the_rule(idle_server: Server) -> None:
    server = idle_server
    dataset = server.declared()
    path = f"/datasets/{dataset['id']}/profiles"
    for body, problem in (
        ({"epsilon": "1", "parameters": {"bins": "5"}}, ("/parameters/bins", "unknown-choice")),
        ({"epsilon": "1", "parameters": {"class_share": "0.9", "size_share": "0.1"}},
         ("/parameters/size_share", "too-large")),
        ({"epsilon": "1", "parameters": {"cuts": 3}}, ("/parameters", "unknown-field")),
        ({"epsilon": "1", "scope": {"shard": [0]}}, ("/scope", "unknown-partition")),
        ({"epsilon": "1", "delta": DELTA}, ("/delta", "not-for-pure")),
    ):  # fmt: skip
        answer = server.admin.http.post(path, json=body, headers=new_idempotency_key())
        assert answer.status_code == 422, answer.text
        assert (
            answer.json()["errors"][0]["at"],
            answer.json()["errors"][0]["problem"],
        ) == problem
    no_rows = server.admin.http.post(
        path, json={"epsilon": "1"}, headers=new_idempotency_key()
    )
    assert (no_rows.status_code, no_rows.json()["type"]) == (409, "no-rows-yet")
    unkeyed = server.admin.http.post(path, json={"epsilon": "1"})
    assert (unkeyed.status_code, unkeyed.json()["type"]) == (
        400,
        "idempotency-key-missing",
    )
    assert server.admin.http.get(f"/ledger/{dataset['id']}").json()["charged"] == "0"


@on_one_server
def test_profiles_need_the_role_analyst(server: Server) -> None:
    dataset = server.uploaded()
    profile = _released(server, dataset["id"])
    path = f"/datasets/{dataset['id']}/profiles"
    for role, status in (("predictor", 403), ("auditor", 403), ("analyst", 200)):
        caller = server.granted(dataset["id"], role)
        assert caller.http.get(f"/profiles/{profile['id']}").status_code == status
        assert caller.http.get(path).status_code == status
        assert (
            caller.http.post(f"{path}/quote", json={"epsilon": "1"}).status_code
            == status
        )
    stranger = server.caller()
    assert stranger.http.get(f"/profiles/{profile['id']}").status_code == 404
    assert (
        stranger.http.post(
            path, json={"epsilon": "1"}, headers=new_idempotency_key()
        ).status_code
        == 404
    )


@on_one_server
@pytest.mark.parametrize("algorithm", ["rpf", "mrf"])
def test_a_forest_is_cut_where_a_profile_of_the_fine_grid_was(
    server: Server, algorithm: str
) -> None:
    """Also a forest of another dataset, whose own size asks for the coarse grid."""
    dataset, small = server.uploaded(400, public_size=10**6), server.uploaded(400)
    profile = _released(server, dataset["id"])
    assert "fine cells" in str(profile["event"])
    for trained in (dataset, small):
        body = {
            "dataset": trained["id"],
            "algorithm": algorithm,
            "epsilon": "5",
            "profile": profile["id"],
        }
        quote = server.admin.http.post("/plans", json=body).json()
        accepted = server.admin.http.post(
            "/train", json=body, headers=new_idempotency_key()
        )
        job = server.ended(accepted.json()["job_id"])
        assert job["state"] == "succeeded", job
        card = server.admin.http.get(f"/models/{job['model_id']}").json()
        assert card["event"] == quote["event"]
        assert "fine cells" not in str(card["event"]), "the profile paid for the bins"


@on_one_server
@pytest.mark.parametrize(
    ("accountant", "algorithm"), [("pure", "auto"), ("gdp", "auto"), ("zcdp", "rpf")]
)
def test_a_quote_states_that_a_profile_has_no_effect(
    server: Server, accountant: str, algorithm: str
) -> None:
    delta = {} if accountant == "pure" else {"delta": DELTA}
    shards = [{"name": "shard", "kind": "hash", "cells": 4}]
    # a noisy size far above its noise
    dataset = server.uploaded(1600, budget=BUDGETS[accountant], partitions=shards)
    profile = _released(
        server, dataset["id"], epsilon="2", scope={"shard": [0]}, **delta
    )
    fields = {
        "dataset": dataset["id"],
        "algorithm": algorithm,
        "epsilon": "4",
        **delta,
        "scope": {"shard": [1, 2]},
    }
    alone = server.admin.http.post("/plans", json=fields).json()
    quote = server.admin.http.post(
        "/plans", json={**fields, "profile": profile["id"]}
    ).json()
    assert alone["profile"] is None
    assert quote["price"] == alone["price"]
    assert quote["event"] != alone["event"]
    assert (
        quote["profile"].items()
        >= {"id": profile["id"], "scope": {"shard": [0]}, "is_used": True}.items()
    )
    assert 2 * profile["size"]["count"] == pytest.approx(
        quote["profile"]["size"], abs=1
    ), "twice as many cells"
    body = {**fields, "profile": profile["id"]}
    accepted = server.admin.http.post(
        "/train", json=body, headers=new_idempotency_key()
    )
    job = server.ended(accepted.json()["job_id"])
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert card["profile_id"] == profile["id"]
    assert card["event"] == quote["event"]
    assert card["guarantee"]["adds"]["add_remove"] == alone["price"]["amount"], (
        "given the profile, like all before it"
    )
    balance = server.admin.http.get(
        f"/ledger/{dataset['id']}", params={"scope": '{"shard": [3]}'}
    ).json()
    assert balance["charged"] == "0"


@on_one_server
def test_a_model_whose_size_follows_from_a_profile_names_it_even_where_it_has_no_splits(
    server: Server,
) -> None:
    dataset = server.uploaded(400)
    profile = _released(server, dataset["id"], epsilon="2")
    fields = {
        "dataset": dataset["id"],
        "algorithm": "rpf",
        "epsilon": "1",
        "parameters": {"max_depth": 0},
    }
    body = {**fields, "profile": profile["id"]}
    assert not server.admin.http.post("/plans", json=body).json()["profile"]["is_used"]
    accepted = server.admin.http.post(
        "/train", json=body, headers=new_idempotency_key()
    )
    job = server.ended(accepted.json()["job_id"])
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert card["guarantee"]["adds"]["add_remove"] == "1", (
        "given the profile, like all before it"
    )
    assert card["profile_id"] == profile["id"]
    twin = server.uploaded(400)
    accepted = server.admin.http.post(
        "/train", json={**body, "dataset": twin["id"]}, headers=new_idempotency_key()
    )
    job = server.ended(accepted.json()["job_id"])
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert card["profile_id"] is None, "the size of another dataset says nothing"


def test_a_profile_counts_on_the_account_of_its_own_dataset(server: Server) -> None:
    """The second dataset's account pays for its medians and its bins; the first account
    pays for neither.
    """
    labelled, unlabelled = server.uploaded(), server.uploaded()
    profile = _released(server, unlabelled["id"], epsilon="3")
    body = {
        "dataset": labelled["id"], "algorithm": "sspe-1", "epsilon": "1", "profile": profile["id"],
        "parameters": {"n_estimators": 2, "max_depth": 2},
        "unlabelled": {"dataset": unlabelled["id"], "epsilon": "2"},
    }  # fmt: skip
    quote = server.admin.http.post("/plans", json=body).json()
    assert (quote["profile"]["id"], quote["profile"]["is_used"]) == (
        profile["id"],
        True,
    )
    assert (quote["price"]["amount"], quote["unlabelled"]["price"]["amount"]) == (
        "1",
        "2",
    )
    accepted = server.admin.http.post(
        "/train", json=body, headers=new_idempotency_key()
    )
    card = server.admin.http.get(
        f"/models/{server.ended(accepted.json()['job_id'])['model_id']}"
    ).json()

    assert card["profile_id"] == profile["id"]
    assert card["guarantee"]["adds"]["add_remove"] == "1"
    assert card["unlabelled"]["guarantee"]["adds"]["add_remove"] == "2"
    for dataset, charged in ((labelled, "1"), (unlabelled, "5")):
        assert (
            server.admin.http.get(f"/ledger/{dataset['id']}").json()["charged"]
            == charged
        )
        export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
        verify(export.splitlines(keepends=True))


@on_one_server
def test_a_profile_of_another_dataset_needs_the_same_declaration(
    server: Server,
) -> None:
    age, *others = SCHEMA["features"]
    noted = {**SCHEMA, "features": [{**age, "bounds": "documented"}, *others]}
    assert age["bounds"] != "documented"
    dataset, twin = server.uploaded(), server.uploaded(public_size=None, schema=noted)
    other = server.declared(
        schema={
            "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 100}],
            "label": {"name": "income", "classes": ["<=50K", ">50K"]},
        }
    )
    profile = _released(server, dataset["id"])
    body = {"algorithm": "rpf", "epsilon": "5", "profile": profile["id"]}
    on_twin = server.admin.http.post("/plans", json={**body, "dataset": twin["id"]})
    assert on_twin.status_code == 200
    assert on_twin.json()["profile"]["dataset"] == dataset["id"]
    assert on_twin.json()["profile"]["size"] is None, (
        "the size of another dataset says nothing"
    )
    refused = server.admin.http.post("/plans", json={**body, "dataset": other["id"]})
    assert refused.json()["errors"] == [
        {"at": "/profile", "problem": "other-declaration"}
    ]
    of_labels = server.declared(protects="label")
    unfit = server.admin.http.post(
        "/plans", json={**body, "dataset": of_labels["id"], "algorithm": "sspe-2"}
    )
    assert unfit.json()["errors"] == [
        {"at": "/profile", "problem": "not-for-this-algorithm"}
    ]
    unknown = server.admin.http.post(
        "/plans", json={**body, "dataset": dataset["id"], "profile": "pf_none"}
    )
    assert (unknown.status_code, unknown.json()["type"]) == (404, "not-found")
    stranger = server.granted(twin["id"], "analyst")
    hidden = stranger.http.post("/plans", json={**body, "dataset": twin["id"]})
    assert hidden.status_code == 404, (
        "a profile is shown to those who may train where it was made"
    )

"""Populations over HTTP: opening, visibility, joining, refusals, and the tombstone of
an erased dataset.
"""

import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.pages import signed_in
from tests.support.server import (
    CSV,
    Caller,
    Server,
    csv_rows,
    declaration,
    new_idempotency_key,
    training,
)
from tests.support.standalone import verified_alone

pytestmark = pytest.mark.in_turn("server")

THREE = {"accountant": "pure", "epsilon": "3"}


def new_name() -> str:
    return f"people-{secrets.token_hex(6)}"


def declared_by(caller: Caller, **changes: object) -> dict[str, Any]:
    answer = caller.http.post("/datasets", json=declaration(**changes))
    assert answer.status_code == 201, answer.text
    uploaded = caller.http.post(
        f"/datasets/{answer.json()['id']}/rows", content=csv_rows(20), headers=CSV
    )
    assert uploaded.status_code == 201, uploaded.text
    return dict(answer.json())


def submitted(caller: Caller, dataset: str, epsilon: str, **changes: object) -> Any:
    body = training(dataset, epsilon=epsilon, **changes)
    return caller.http.post("/train", json=body, headers=new_idempotency_key())


def test_first_dataset_opens_it_and_members_share_its_cap(idle_server: Server) -> None:
    owner, name = idle_server.caller("owner"), new_name()
    one = declared_by(owner, population=name, budget=THREE)
    two = declared_by(owner, population=name, budget={**THREE, "epsilon": "5"})
    assert submitted(owner, one["id"], "2").status_code == 202

    shown = owner.http.get(f"/populations/{name}").json()
    assert [shown[key] for key in ("cap", "charged", "reserved", "remaining")] == [
        "3",
        "0",
        "2",
        "1",
    ]
    assert {member["dataset"] for member in shown["members"]} == {one["id"], two["id"]}
    assert (shown["adjacency"], shown["unit_column"]) == ("add_remove", None)
    assert (
        "one person, who has at most one row in each of them"
        in shown["guarantee"]["text"]
    )
    assert shown["guarantee"]["epsilon"] == "3"

    quote = owner.http.post("/plans", json=training(two["id"], epsilon="1.5")).json()
    assert (quote["fits"], quote["largest_that_fits"], quote["population"]) == (
        False,
        "1",
        name,
    )
    assert quote["limited_by"] == "population"
    for balance in (
        owner.http.get(f"/datasets/{two['id']}").json()["account"],
        owner.http.get(f"/ledger/{two['id']}").json(),
    ):
        assert (balance["remaining"], balance["available"], balance["limited_by"]) == (
            "5",
            "1",
            "population",
        )
    page = (
        signed_in(idle_server, owner)
        .get("/ui/datasets", params={"name": two["name"]})
        .text
    )
    assert f"limited by the cap of the population {name}, which leaves less" in page
    refused = submitted(owner, two["id"], "1.5")
    assert (refused.status_code, refused.json()["type"]) == (409, "budget-exceeded")
    problem = refused.json()
    assert (
        problem["population"],
        problem["cap"],
        problem["remaining"],
        problem["largest_that_fits"],
    ) == (
        name,
        "3",
        "1",
        "1",
    )
    assert f"left for population {name} of dataset {two['name']}" in problem["detail"]
    assert submitted(owner, two["id"], "1").status_code == 202
    assert submitted(owner, one["id"], "0.1").json()["population"] == name


def test_it_may_be_opened_beforehand(idle_server: Server) -> None:
    owner, name = idle_server.caller("owner"), new_name()
    created = owner.http.post("/populations", json={"name": name, "budget": THREE})
    assert created.status_code == 201
    assert created.headers["Location"] == f"/populations/{created.json()['id']}"
    assert (created.json()["members"], created.json()["adjacency"]) == ([], None)
    again = owner.http.post("/populations", json={"name": name, "budget": THREE})
    assert (again.status_code, again.json()["type"]) == (409, "name-taken")
    dataset = declared_by(
        owner, population=created.json()["id"], budget={**THREE, "epsilon": "100"}
    )
    assert dataset["population"] == name
    assert submitted(owner, dataset["id"], "3.5").json()["population"] == name


@on_one_idle_server
def test_only_its_owner_and_admins_add_to_it_or_see_it(idle_server: Server) -> None:
    owner, other, name = (
        idle_server.caller("owner"),
        idle_server.caller("owner"),
        new_name(),
    )
    declared_by(owner, population=name, budget=THREE)
    before = idle_server.footprint()
    refused = other.http.post(
        "/datasets", json=declaration(population=name, budget=THREE)
    )
    assert (refused.status_code, refused.json()["type"]) == (404, "not-found")
    assert (
        refused.json()["detail"] == "no such population, or none that this key may see"
    )
    assert other.http.get(f"/populations/{name}").status_code == 404
    assert other.http.get("/populations").json()["populations"] == []
    assert idle_server.footprint() == before, "nothing of the refused declaration stays"

    other_dataset = declared_by(other, budget=THREE)
    joining = {"json": {"population": name}}
    assert (
        other.http.put(
            f"/datasets/{other_dataset['id']}/population", **joining
        ).status_code
        == 404
    )
    assert (
        owner.http.put(
            f"/datasets/{other_dataset['id']}/population", **joining
        ).status_code
        == 404
    )
    who_sees_all = idle_server.caller("owner", "auditor").http
    assert who_sees_all.get(f"/populations/{name}").status_code == 200
    assert (
        who_sees_all.post(
            "/datasets", json=declaration(population=name, budget=THREE)
        ).status_code
        == 404
    )
    joined = idle_server.admin.http.put(
        f"/datasets/{other_dataset['id']}/population", **joining
    )
    assert (joined.status_code, joined.json()["population"]) == (200, name)
    assert idle_server.caller().http.get("/populations").status_code == 403
    auditor = idle_server.caller("auditor")
    assert len(auditor.http.get(f"/populations/{name}").json()["members"]) == 2
    analyst = idle_server.granted(other_dataset["id"], "analyst")
    assert (
        analyst.http.put(
            f"/datasets/{other_dataset['id']}/population", **joining
        ).status_code
        == 403
    )


@on_one_idle_server
@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        (
            {"budget": {"accountant": "gdp", "epsilon": "3", "delta": "1e-6"}},
            ["accountant", "delta"],
        ),
        ({"protects": "label"}, ["adjacency"]),
        ({"privacy_unit": {"column": "patient", "max_rows": 2}}, ["privacy_unit"]),
    ],
)
def test_a_join_of_incompatible_losses_names_the_differences(
    idle_server: Server, changes: dict[str, Any], differs: list[str]
) -> None:
    owner, name = idle_server.caller("owner"), new_name()
    declared_by(owner, population=name, budget=THREE)
    before = idle_server.footprint()
    refused = owner.http.post(
        "/datasets", json=declaration(population=name, **{"budget": THREE, **changes})
    )
    assert (refused.status_code, refused.json()["type"]) == (409, "population-mismatch")
    assert refused.json()["differs"] == differs
    assert idle_server.footprint() == before


def test_late_join_counts_what_was_spent_and_the_statement_grows(
    idle_server: Server,
) -> None:
    owner, name = idle_server.caller("owner"), new_name()
    first, late = (
        declared_by(owner, population=name, budget=THREE),
        declared_by(owner, budget=THREE),
    )
    assert submitted(owner, first["id"], "2").status_code == 202
    assert submitted(owner, late["id"], "2.5").status_code == 202
    joined = owner.http.put(
        f"/datasets/{late['id']}/population", json={"population": name}
    )
    assert joined.json()["population"] == name

    shown = owner.http.get(f"/populations/{name}").json()
    assert (shown["reserved"], shown["remaining"], shown["guarantee"]["epsilon"]) == (
        "4.5",
        "0",
        "4.5",
    )
    refused = submitted(owner, late["id"], "0.1").json()
    assert (
        refused["population"],
        refused["remaining"],
        refused["largest_that_fits"],
    ) == (name, "0", "0")


@on_one_server
@pytest.mark.parametrize(
    "budget", [THREE, {"accountant": "gdp", "epsilon": "3", "delta": "0.000001"}]
)
def test_guarantees_of_earlier_outputs_name_the_population_after_a_late_join(
    server: Server, budget: dict[str, str]
) -> None:
    dataset, name = server.uploaded(budget=budget), new_name()
    delta = {"delta": budget["delta"]} if "delta" in budget else {}
    model = f"/models/{server.trained(dataset['id'], **delta)['model_id']}"
    accepted = server.admin.http.post(
        f"/datasets/{dataset['id']}/profiles",
        json={"epsilon": "0.5", **delta},
        headers=new_idempotency_key(),
    )
    profile = f"/profiles/{server.ended(accepted.json()['job_id'])['profile_id']}"
    before = {
        path: server.admin.http.get(path).json()["guarantee"]
        for path in (model, profile)
    }
    assert (
        server.admin.http.put(
            f"/datasets/{dataset['id']}/population", json={"population": name}
        ).status_code
        == 200
    )
    younger = f"/models/{server.trained(dataset['id'], **delta)['model_id']}"

    for path, old in before.items():
        guarantee = server.admin.http.get(path).json()["guarantee"]
        assert guarantee["add_remove"] == old["add_remove"]
        assert guarantee["text"].startswith(old["text"])
        assert guarantee["text"].count(f"belongs to the population '{name}'") == 1
    assert (
        server.admin.http.get(younger)
        .json()["guarantee"]["text"]
        .count("belongs to the population")
        == 1
    )


def test_an_erased_dataset_still_counts_and_reusing_its_name_frees_no_budget(
    server: Server,
) -> None:
    name, admin = new_name(), server.admin
    old = declared_by(admin, population=name, budget=THREE, name=f"{name}-data")
    assert server.trained(old["id"], epsilon="2")["state"] == "succeeded"
    assert admin.http.delete(f"/datasets/{old['id']}").status_code == 204

    again = declared_by(admin, population=name, budget=THREE, name=f"{name}-data")
    assert again["id"] != old["id"]
    assert admin.http.get(f"/ledger/{again['id']}").json()["charged"] == "2", (
        "the account goes on"
    )
    shown = admin.http.get(f"/populations/{name}").json()
    assert (shown["charged"], shown["remaining"]) == ("2", "1"), (
        "what was spent about these people was spent"
    )
    tombstone = next(
        member for member in shown["members"] if member["dataset"] == old["id"]
    )
    assert (tombstone["charged"], tombstone["deleted_at"] is None) == ("0", False), (
        "the new member carries the load"
    )
    assert submitted(admin, again["id"], "1.5").json()["type"] == "budget-exceeded"
    assert server.trained(again["id"], epsilon="1")["state"] == "succeeded"


def test_populations_are_paged(idle_server: Server) -> None:
    owner = idle_server.caller("owner")
    names = {new_name() for _ in range(3)}
    for name in names:
        owner.http.post("/populations", json={"name": name, "budget": THREE})
    first = owner.http.get("/populations?limit=2").json()
    rest = owner.http.get(f"/populations?limit=2&cursor={first['next']}").json()
    assert {
        each["name"] for each in first["populations"] + rest["populations"]
    } == names
    assert rest["next"] is None


@on_one_server
def test_model_cards_say_that_the_guarantee_is_of_one_dataset(server: Server) -> None:
    name = new_name()
    dataset = server.uploaded(population=name)
    card = server.admin.http.get(
        f"/models/{server.trained(dataset['id'])['model_id']}"
    ).json()
    assert (
        f"The dataset belongs to the population '{name}'" in card["guarantee"]["text"]
    )


@on_one_idle_server
def test_a_population_has_entries_cap_export_and_verification(
    idle_server: Server, tmp_path: Path
) -> None:
    owner, admin, name = idle_server.caller("owner"), idle_server.admin, new_name()
    one = declared_by(owner, population=name, budget=THREE)
    two = declared_by(owner, budget=THREE)
    submitted(owner, two["id"], "0.5")
    assert (
        owner.http.put(
            f"/datasets/{two['id']}/population", json={"population": name}
        ).status_code
        == 200
    )
    job_id = submitted(owner, one["id"], "2").json()["job_id"]
    account = owner.http.get(f"/populations/{name}").json()["id"]
    change = {
        "json": {"cap": "1.5", "reason": "we promised less"},
        "headers": new_idempotency_key(),
    }
    lowered = owner.http.post(f"/ledger/{account}/cap", **change)
    assert (
        lowered.status_code,
        lowered.json()["cap"],
        lowered.json()["remaining"],
    ) == (200, "1.5", "0")
    assert [lowered.json()[name] for name in ("account", "account_name", "kind", "dataset")] == [
        account, name, "population", None,
    ]  # fmt: skip
    balance = owner.http.get(f"/ledger/{account}").json()
    assert balance["guarantee"]["epsilon"] == "2.5", "never less than what was spent"
    same = {
        member: value
        for member, value in lowered.json().items()
        if member != "warnings"
    }
    assert {member: balance[member] for member in same} == same
    assert lowered.json()["warnings"] == []
    assert (
        balance["tightest_cell"],
        balance["partitions"],
        balance["largest_that_fits"],
    ) == ({}, [], "0")
    assert (
        owner.http.post(f"/ledger/{account}/cap", **change).content == lowered.content
    )
    assert submitted(owner, two["id"], "0.1").json()["population"] == name
    assert owner.http.delete(f"/jobs/{job_id}").status_code == 200
    assert (
        owner.http.post(
            f"/ledger/{account}/cap", json={"cap": "2", "reason": "more"}
        ).status_code
        == 403
    )
    (tmp_path / "earlier").write_text(
        owner.http.get(f"/ledger/{account}/checkpoint").text
    )
    assert submitted(owner, two["id"], "1").status_code == 202

    entries = owner.http.get(f"/ledger/{account}/entries").json()["entries"]
    assert [(entry["kind"], entry["amount"]) for entry in entries] == [
        ("open", "3"), ("join", "0"), ("join", "0.5"), ("load", "2"), ("cap", "1.5"), ("load", "0"), ("load", "1.5"),
    ]  # fmt: skip
    assert entries[3]["job_id"] == job_id
    assert entries[4]["details"] == {"reason": "we promised less"}
    own = owner.http.get(f"/ledger/{one['id']}/entries").json()["entries"]
    named = {
        "dataset": one["id"],
        "sequence": own[1]["sequence"],
        "hash": own[1]["hash"],
    }
    assert entries[3]["details"] == {"member": named}

    files = {"population": f"/ledger/{account}/export"} | {
        str(number): f"/ledger/{each['id']}/export"
        for number, each in enumerate((one, two))
    }
    for file, path in files.items():
        (tmp_path / file).write_bytes(owner.http.get(path).content)
    (tmp_path / "note").write_text(owner.http.get(f"/ledger/{account}/checkpoint").text)
    (tmp_path / "key").write_text(admin.http.get("/signer").json()["public_key"])
    held = ["--checkpoint", tmp_path / "note", "--public-key", tmp_path / "key"]
    members = ["--member", tmp_path / "0", "--member", tmp_path / "1"]
    assert verified_alone(tmp_path / "population", *members, *held)["exit"] == 0
    proof = tmp_path / "proof"
    for query, more in (
        ("sequence=4", []),
        ("from_size=6", ["--checkpoint", tmp_path / "earlier"]),
    ):
        proof.write_bytes(
            owner.http.get(f"/ledger/{account}/proofs?{query}").content + b"\n"
        )
        assert verified_alone(proof, *held, *more)["exit"] == 0
    lines = (tmp_path / "population").read_bytes().splitlines(keepends=True)
    (tmp_path / "population").write_bytes(b"".join(lines[:-1]))
    assert (
        "the export was truncated"
        in verified_alone(tmp_path / "population", *members, *held)["reason"]
    )
    table = owner.http.get(f"/ledger/{account}/export?format=csv").text.splitlines()
    assert (len(table), table[0].split(",")[:3]) == (8, ["sequence", "kind", "amount"])


@on_one_idle_server
def test_populations_are_no_datasets(idle_server: Server) -> None:
    admin, name = idle_server.admin, new_name()
    created = admin.http.post(
        "/populations", json={"name": name, "budget": THREE}
    ).json()
    for path in (
        f"/datasets/{created['id']}",
        f"/ledger/{created['id']}/reservations",
        f"/ledger/{name}",
    ):
        assert admin.http.get(path).status_code == 404
    other = idle_server.caller("owner")
    for caller, account in (
        (admin, name),
        (other, created["id"]),
        (other, "pop_unknown"),
        (other, "census"),
    ):
        refused = caller.http.get(f"/ledger/{account}")
        assert (refused.status_code, refused.json()["detail"]) == (
            404,
            "no such account, or none that this key may see",
        )
    assert submitted(admin, created["id"], "1").status_code == 404
    dataset = declared_by(admin, name=name, budget={**THREE, "epsilon": "7"})
    assert admin.http.get(f"/ledger/{name}").json()["account"] == dataset["id"], (
        "a name is a dataset's"
    )
    assert admin.http.get(f"/ledger/{created['id']}").json()["cap"] == "3"
    listed, cursor = [], None
    while True:
        page = admin.http.get(
            "/ledger", params={"limit": 500} | ({"cursor": cursor} if cursor else {})
        ).json()
        listed += [each["dataset"] for each in page["datasets"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert not [each for each in listed if each.startswith("pop_")]


def test_a_job_on_two_scopes_of_a_member_is_loaded_and_verified(
    idle_server: Server, tmp_path: Path
) -> None:
    """Both reservations raise the member's load to that of its largest cell, and both
    are voided.
    """
    owner, name = idle_server.caller("owner"), new_name()
    shards = [{"name": "shard", "kind": "hash", "cells": 3}]
    dataset = declared_by(owner, population=name, budget=THREE, partitions=shards)["id"]
    second = {"dataset": dataset, "epsilon": "2", "scope": {"shard": [1]}}
    parts = {"algorithm": "sspe-1", "scope": {"shard": [0]}, "unlabelled": second}
    job_id = submitted(owner, dataset, "1.5", **parts).json()["job_id"]
    assert (
        submitted(
            owner, dataset, "2", **parts | {"unlabelled": {**second, "epsilon": "1"}}
        ).status_code
        == 409
    )
    assert owner.http.delete(f"/jobs/{job_id}").status_code == 200

    account = owner.http.get(f"/populations/{name}").json()["id"]
    entries = owner.http.get(f"/ledger/{account}/entries").json()["entries"]
    assert [(entry["kind"], entry["amount"], entry["job_id"]) for entry in entries[2:]] == [
        ("load", "1.5", job_id), ("load", "2", job_id), ("load", "2", job_id), ("load", "0", job_id),
    ]  # fmt: skip
    for file, path in (
        ("population", f"/ledger/{account}/export"),
        ("member", f"/ledger/{dataset}/export"),
    ):
        (tmp_path / file).write_bytes(owner.http.get(path).content)
    assert (
        verified_alone(tmp_path / "population", "--member", tmp_path / "member")["exit"]
        == 0
    )

"""The page of one dataset over HTTP: its spend, cells and access, and the forms of
grants, rules and population.
"""

import io
import re
import secrets
from typing import Any

import pytest

from app.core import limits
from grovekeeper_client.dummies import DummyRows
from grovekeeper_common.job_words import place_in_words
from tests.support.databases import on_one_idle_server
from tests.support.estate import with_unit
from tests.support.operations import EXTERNAL
from tests.support.pages import hidden, section, signed_in, text_of
from tests.support.server import (
    CSV,
    Caller,
    Server,
    csv_rows,
    declaration,
    new_idempotency_key,
    training,
)

pytestmark = on_one_idle_server

PARTITIONS = [
    {"name": "shard", "kind": "hash", "cells": 2},
    {"name": "sex", "kind": "column", "column": "sex"},
    {"name": "wave", "kind": "epoch", "how": "one upload a year"},
]


def _charged(server: Server, dataset: str, epsilon: str, scope: dict[str, Any]) -> None:
    body = EXTERNAL | {
        "declared": {"adjacency": "add_remove", "epsilon": epsilon},
        "scope": scope,
    }
    headers = new_idempotency_key()
    answer = server.admin.http.post(
        f"/ledger/{dataset}/reservations", json=body, headers=headers
    )
    assert answer.status_code == 201, answer.text


def _acts(server: Server, dataset: str) -> list[str]:
    """The kinds of the administrative acts on a dataset, in order."""
    kinds, cursor = [], ""
    while cursor is not None:
        answer = server.admin.http.get(
            "/audit", params={"limit": 500} | ({"cursor": cursor} if cursor else {})
        ).json()
        kinds += [
            act["kind"]
            for act in answer["acts"]
            if act["details"].get("dataset") == dataset
        ]
        cursor = answer["next"]
    return kinds


def test_the_steps_of_the_plot_are_the_charges_of_the_tightest_cell(
    idle_server: Server,
) -> None:
    """A reservation that was given back, and a charge of other cells, are no steps."""
    dataset = idle_server.uploaded(partitions=PARTITIONS)["id"]
    browser = signed_in(idle_server, idle_server.granted(dataset, "auditor"))
    assert "Nothing was charged yet." in section(
        browser.get(f"/ui/datasets/{dataset}").text, "spend"
    )
    _charged(idle_server, dataset, "0.5", {})
    job = idle_server.submitted(dataset, epsilon="0.125", scope={"shard": [1]}).json()[
        "job_id"
    ]
    idle_server.admin.http.delete(f"/jobs/{job}").raise_for_status()
    _charged(idle_server, dataset, "0.25", {"shard": [0]})
    _charged(idle_server, dataset, "2", {"shard": [1], "sex": ["Male"]})
    _charged(idle_server, dataset, "1", {"sex": ["Male"]})
    page = browser.get(f"/ui/datasets/{dataset}").text
    balance = idle_server.admin.http.get(f"/ledger/{dataset}").json()
    assert balance["tightest_cell"]["sex"] == "Male"
    steps = re.findall(
        r'data-words="([0-9.]+) ε charged, ([0-9.]+) ε in all: a mean, test admin', page
    )
    assert steps == [("0.5", "0.5"), ("2", "2.5"), ("1", "3.5")]
    assert steps[-1][1] == balance["charged"]
    rows = (
        page[page.index("Charges, newest first") :]
        .partition("</table>")[0]
        .count('<td class="number"><a href')
    )
    assert rows == 4, "the table has the charges of all cells"


def test_a_page_shows_what_the_key_may_see_and_says_who_gives_rights(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded(partitions=PARTITIONS)["id"]
    _charged(idle_server, dataset, "0.5", {})
    page = f"/ui/datasets/{dataset}"
    browsers = {
        role: signed_in(idle_server, idle_server.granted(dataset, role))
        for role in ("predictor", "analyst", "auditor", "owner")
    }
    shown = {
        role: "".join(
            browser.get(f"{page}{tab}").text
            for tab in ("", "/uploads", "/access", "/rules")
        )
        for role, browser in browsers.items()
    }
    refused = {
        role: [
            name
            for name in ("access", "rules")
            if "Your key may not see" in section(page, name)
        ]
        for role, page in shown.items()
    }
    assert refused == {
        "predictor": ["access", "rules"], "analyst": ["access", "rules"], "auditor": ["rules"], "owner": [],
    }  # fmt: skip
    assert "owners and auditors of the dataset may. An owner of the dataset" in section(
        shown["analyst"], "spend"
    )
    assert "data-words" not in shown["analyst"] + shown["predictor"]
    assert "outside the service" in section(shown["auditor"], "spend")
    forms = [
        role
        for role, page in shown.items()
        if f'action="/ui/datasets/{dataset}/' in page
    ]
    assert forms == ["owner"], "only owners change a dataset"


def test_pairs_of_cells_are_those_of_the_api(idle_server: Server) -> None:
    dataset = idle_server.uploaded(partitions=PARTITIONS)["id"]
    _charged(idle_server, dataset, "0.5", {"shard": [0]})
    _charged(idle_server, dataset, "2", {"shard": [1], "sex": ["Male"]})
    browser = signed_in(idle_server, idle_server.admin)
    page = browser.get(f"/ui/datasets/{dataset}").text
    grid = page[page.index('<table class="heat">') :].partition("</tbody>")[0]
    for cell, row in enumerate(grid.split("<tr>")[2:]):
        scope = f'{{"shard": [{cell}]}}'
        balance = idle_server.admin.http.get(
            f"/ledger/{dataset}", params={"scope": scope}
        ).json()
        expected = [cell["remaining"] for cell in balance["partitions"][1]["cells"]]
        assert re.findall(r", ([0-9.]+) left", row) == expected
    other = browser.get(f"/ui/datasets/{dataset}", params={"pair": "sex,wave"}).text
    assert "By sex and wave" in other
    assert (
        browser.get(
            f"/ui/datasets/{dataset}", params={"pair": "sex,nothing"}
        ).status_code
        == 200
    )


def test_grants_are_given_and_revoked_by_form(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    browser, other = (
        signed_in(idle_server, idle_server.granted(dataset, "owner")),
        idle_server.caller(),
    )
    before = _acts(idle_server, dataset)
    page = f"/ui/datasets/{dataset}/access"
    given = browser.post(page, data={"key_id": f" {other.id} ", "role": "analyst"})
    assert (given.status_code, given.headers["Location"]) == (303, page)
    assert other.http.get(f"/ledger/{dataset}").status_code == 200
    revocation = f"/ui/datasets/{dataset}/grants/{other.id}/revoke"
    assert f'href="{revocation}"' in browser.get(page).text
    assert "<strong>analyst</strong>" in browser.get(revocation).text
    assert other.http.get(f"/ledger/{dataset}").status_code == 200, (
        "the page asks, and changes nothing"
    )
    assert browser.post(revocation).headers["Location"] == page
    assert other.http.get(f"/ledger/{dataset}").status_code == 404
    assert _acts(idle_server, dataset)[len(before) :] == ["grant-made", "grant-removed"]
    unknown = browser.post(page, data={"key_id": "key_nobody", "role": "analyst"})
    assert unknown.status_code == 404
    assert section(unknown.text, "access"), "the page stays, with the reason above"
    assert (
        browser.post(page, data={"key_id": other.id, "role": "emperor"}).status_code
        == 422
    )
    assert browser.get(revocation).status_code == 404, "there is no grant any more"


def test_a_key_is_named_by_its_name_where_the_reader_may_know_it(
    idle_server: Server,
) -> None:
    """An administrator knows every name, an owner those with a role on the dataset."""
    dataset = idle_server.declared()["id"]
    name = f"ben {secrets.token_hex(4)}"

    def made() -> str:
        body = {"name": name, "roles": []}
        return str(idle_server.admin.http.post("/keys", json=body).json()["id"])

    key, path = made(), f"/ui/datasets/{dataset}"
    owner = signed_in(idle_server, idle_server.granted(dataset, "owner"))
    admin = signed_in(idle_server, idle_server.admin)
    form = {"key_id": name, "role": "analyst"}
    assert owner.post(f"{path}/access", data=form).status_code == 404
    assert admin.post(f"{path}/access", data=form).status_code == 303
    form = {"key_id": name, "role": "predictor"}
    assert owner.post(f"{path}/access", data=form).status_code == 303
    grants = idle_server.admin.http.get(f"/datasets/{dataset}/grants").json()["grants"]
    assert {grant["key_id"]: grant["role"] for grant in grants}[key] == "predictor"
    quotas = {"quotas": f"{name}: 0.5"}
    assert owner.post(f"{path}/rules", data=quotas).status_code == 303
    rules = idle_server.admin.http.get(f"/datasets/{dataset}/rules").json()
    assert [quota["keys"] for quota in rules["quotas"]] == [[key]]
    other = made()
    refused = admin.post(f"{path}/access", data=form)
    assert refused.status_code == 422
    for known in (key, other):
        assert known in section(refused.text, "access")


def test_the_page_that_revokes_says_that_the_last_owner_stays(
    idle_server: Server,
) -> None:
    owner = idle_server.caller("owner")
    dataset = owner.http.post("/datasets", json=declaration()).json()["id"]
    browser, path = (
        signed_in(idle_server, owner),
        f"/ui/datasets/{dataset}/grants/{owner.id}/revoke",
    )
    page = browser.get(path).text
    assert "keeps the role" in page
    assert '<form method="post" class="actions">' not in page
    refused = browser.post(path)
    assert refused.status_code == 409
    assert "another key an owner first" in refused.text
    other = idle_server.granted(dataset, "owner")
    assert "which is yours" in browser.get(path).text
    assert browser.post(path).headers["Location"] == "/"
    assert browser.get(f"/ui/datasets/{dataset}").status_code == 404
    assert (
        signed_in(idle_server, other).get(f"/ui/datasets/{dataset}").status_code == 200
    )


def test_rules_are_put_in_force_and_proposed_by_form(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    first, second = (idle_server.granted(dataset, "owner") for _ in range(2))
    path, http = f"/ui/datasets/{dataset}/rules", idle_server.admin.http
    form = {
        "largest_job": "1", "approval_above": "", "quotas": f"{first.id}, {second.id}: 2\r\n\r\n{first.id}: 1\r\n",
        "erase_rows_at": "2040-01-02T03:04",
    }  # fmt: skip
    assert signed_in(idle_server, first).post(path, data=form).status_code == 303
    rules = http.get(f"/datasets/{dataset}/rules").json()
    assert {quota["cap"]: len(quota["keys"]) for quota in rules["quotas"]} == {
        "2": 2,
        "1": 1,
    }
    assert (rules["largest_job"], rules["approval_above"], rules["frozen"]) == (
        "1",
        None,
        False,
    )
    assert rules["erase_rows_at"] == "2040-01-02T03:04:00.000000Z"

    looser = {**form, "largest_job": "3"}
    browser = signed_in(idle_server, first)
    assert browser.post(path, data=looser).status_code == 303
    assert http.get(f"/datasets/{dataset}/rules").json()["largest_job"] == "1", (
        "one owner does not loosen rules"
    )
    assert "Put these rules in force" not in browser.get(path).text
    browser = signed_in(idle_server, second)
    proposal = browser.get(path).text
    for named in (
        f"test {first.id} proposed looser rules",
        f"Quota of test {first.id}:",
        f"UTC, by test {first.id}",
    ):
        assert named in section(proposal, "rules")
    access = browser.get(f"/ui/datasets/{dataset}/access").text
    giver = f"<bdi>test admin</bdi> <code>{idle_server.admin.id}</code></td>"
    assert f'{giver}<td data-label="Last use of key">never' in access, (
        "who gave the role, and when its key was last used"
    )
    agreed = {name: text for name, text in hidden(proposal).items() if name != "key_id"}
    assert browser.post(path, data=agreed).status_code == 303
    assert http.get(f"/datasets/{dataset}/rules").json()["largest_job"] == "3"
    assert _acts(idle_server, dataset)[-3:] == [
        "rules-changed",
        "rules-proposed",
        "rules-changed",
    ]

    wrong = browser.post(path, data={**form, "quotas": "no amount"})
    assert wrong.status_code == 422
    assert "quotas: Not a quota. Accepted: key_a, key_b: amount." in section(
        wrong.text, "rules"
    )
    assert ">no amount</textarea>" in wrong.text, "the form stays as it was sent"


def test_a_dataset_joins_a_population_by_form(idle_server: Server) -> None:
    dataset, name = idle_server.declared()["id"], f"people-{secrets.token_hex(4)}"
    owner, browser = (
        idle_server.granted(dataset, "owner"),
        signed_in(idle_server, idle_server.admin),
    )
    page = f"/ui/datasets/{dataset}"
    assert (
        browser.post(f"{page}/population", data={"population": name}).status_code == 303
    )
    population = idle_server.admin.http.get(f"/populations/{name}").json()["id"]
    assert f'href="/ui/ledger/{population}"' in browser.get(page).text
    shown = signed_in(idle_server, owner).get(page).text
    assert "shown to the key that opened it" in section(shown, "population"), (
        "another key opened the population"
    )
    assert f"/ui/ledger/{population}" not in shown
    again = browser.post(f"{page}/population", data={"population": f"{name}-2"})
    assert again.status_code == 409
    assert "cannot join" in again.text


@pytest.mark.parametrize("role", ["analyst", "predictor", "auditor", None])
def test_a_form_of_a_key_without_the_right_changes_nothing(
    idle_server: Server, role: str | None
) -> None:
    dataset = idle_server.declared()["id"]
    caller: Caller = (
        idle_server.caller() if role is None else idle_server.granted(dataset, role)
    )
    browser, before = signed_in(idle_server, caller), idle_server.footprint()
    forms = {
        "access": {"key_id": caller.id, "role": "owner"},
        "rules": {"largest_job": "1"},
        "population": {"population": "anything"},
    }
    for name, form in forms.items():
        answer = browser.post(f"/ui/datasets/{dataset}/{name}", data=form)
        assert answer.status_code == (404 if role is None else 403), (name, answer.text)
    assert idle_server.footprint() == before


def test_the_page_of_jobs_is_filtered_by_kind_and_submitter(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded()["id"]
    ann = idle_server.granted(dataset, "analyst")
    headers = new_idempotency_key()
    ann.http.post("/train", json=training(dataset), headers=headers).raise_for_status()
    by_admin = idle_server.submitted(dataset, epsilon="0.125").json()["job_id"]
    browser = signed_in(idle_server, idle_server.admin)

    def found(**fields: str) -> int:
        page = browser.get("/ui/jobs", params={"dataset": dataset, **fields}).text
        return len(re.findall(r'href="/ui/jobs/jb_', page))

    assert found() == found(kind="train") == found(kind="", submitted_by="") == 2
    assert found(submitted_by=ann.id) == 1
    page = browser.get("/ui/jobs", params={"submitted_by": ann.id, "state": "queued"})
    assert by_admin not in page.text
    assert '<input type="hidden" name="state" value="queued">' in page.text
    assert found(kind="profile") == 0
    none = {"dataset": dataset, "state": "queued", "kind": "profile"}
    shown = browser.get("/ui/jobs", params=none).text
    assert "matches" in shown
    assert f'<a href="?dataset={dataset}&amp;state=queued">Show all</a>' in shown


def test_a_page_of_a_queued_job_says_why_no_worker_may_start_it(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded()["id"]
    job = idle_server.submitted(dataset, epsilon="0.125").json()["job_id"]
    browser = signed_in(idle_server, idle_server.granted(dataset, "analyst"))
    before = idle_server.admin.http.get(f"/jobs/{job}").json()["jobs_before"]
    assert place_in_words(before)[1:] in browser.get(f"/ui/jobs/{job}").text
    rules = {
        "largest_job": None,
        "approval_above": None,
        "quotas": [],
        "frozen": True,
        "erase_rows_at": None,
    }
    idle_server.admin.http.put(
        f"/datasets/{dataset}/rules", json=rules
    ).raise_for_status()
    page = browser.get(f"/ui/jobs/{job}").text
    assert " before it" not in page
    assert "Workers take it next" not in page
    assert (
        "A dataset that it reads is frozen, and it starts once an owner or an admin has ended the freeze."
        in page
    )
    assert idle_server.admin.http.get(f"/jobs/{job}").json()["held_by"] == "frozen"
    listed = browser.get(
        "/ui/datasets",
        params={
            "name": idle_server.admin.http.get(f"/datasets/{dataset}").json()["name"]
        },
    ).text
    assert "limited by the freeze of the dataset" in listed, "an admin froze it"


def test_the_first_part_of_a_dataset_has_its_facts_and_the_next_step(
    idle_server: Server,
) -> None:
    unit = {"column": "patient", "max_rows": 2}
    dataset = idle_server.declared(privacy_unit=unit, public_size=1200)
    path = f"/ui/datasets/{dataset['id']}"
    of_owner = signed_in(idle_server, idle_server.admin).get(path)
    facts = "Protects one value of patient, with up to 2 rows Accountant pure"
    assert f"{facts} Public size 1,200 rows Declared " in text_of(of_owner)
    assert f"Id {dataset['id']}" in text_of(of_owner)
    assert f'href="{path}/rows"' in of_owner.text
    analyst = idle_server.granted(dataset["id"], "analyst")
    of_analyst = signed_in(idle_server, analyst).get(path)
    assert "An owner of the dataset uploads them." in text_of(of_analyst)
    assert f'href="{path}/rows"' not in of_analyst.text


def test_one_person_is_erased_from_a_dataset_by_form(idle_server: Server) -> None:
    dataset = with_unit(idle_server)
    owner = idle_server.granted(dataset, "owner")
    browser = signed_in(idle_server, owner)
    path = f"/ui/datasets/{dataset}/erase-unit"
    assert f'href="{path}"' in browser.get(f"/ui/datasets/{dataset}/uploads").text
    assert "Value of the column patient" in text_of(browser.get(path))
    unchecked = browser.post(path, data={"unit": "ann"})
    assert unchecked.status_code == 422
    assert "Tick that the identity of the person was checked." in unchecked.text
    checked = {"identity": "yes"}
    absent = browser.post(path, data={"unit": "secret-name"} | checked)
    assert absent.status_code == 404
    assert "secret-name" not in absent.text
    assert "Your reference for the request" in text_of(browser.get(path))
    erased = browser.post(
        path, data={"unit": "ann", "reference": "request 118"} | checked
    )
    assert re.search(r"Rows erased: 1\. Act \d+ of 20", text_of(erased))
    assert "ann" not in re.findall(r"\w+", erased.text)
    refused = signed_in(idle_server, idle_server.granted(dataset, "analyst"))
    assert refused.get(path).status_code == 403
    assert refused.post(path, data={"unit": "ann"} | checked).status_code == 403
    without = idle_server.declared()["id"]
    page = signed_in(idle_server, idle_server.admin).get(
        f"/ui/datasets/{without}/erase-unit"
    )
    assert "no person can be found in it" in text_of(page)


def test_dummy_rows_are_drawn_from_the_declaration_alone(
    idle_server: Server,
) -> None:
    dataset = idle_server.declared(partitions=PARTITIONS)["id"]
    predictor = idle_server.granted(dataset, "predictor")
    browser = signed_in(idle_server, predictor)
    path = f"/ui/datasets/{dataset}/dummy-rows"
    drawn = browser.get(path)
    assert drawn.status_code == 200, drawn.text
    assert drawn.headers["content-type"].startswith("text/csv")
    assert "dummy-rows.csv" in drawn.headers["content-disposition"]
    facts = predictor.http.get(f"/datasets/{dataset}").json()
    text = io.StringIO(newline="")
    DummyRows(facts, 100, seed=0).write_csv(text)
    assert drawn.text == text.getvalue(), "as the command line draws them"
    before = browser.get(f"{path}?rows=3").text
    idle_server.admin.http.post(
        f"/datasets/{dataset}/rows", content=csv_rows(20), headers=CSV
    ).raise_for_status()
    assert browser.get(f"{path}?rows=3").text == before, "no row is read"
    assert len(before.splitlines()) == 4
    most = limits.MAX_DUMMY_ROWS
    assert browser.get(f"{path}?rows={most}").status_code == 200
    assert browser.get(f"{path}?rows={most + 1}").status_code == 422
    stranger = signed_in(idle_server, idle_server.caller())
    assert stranger.get(path).status_code == 404

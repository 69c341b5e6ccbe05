"""Several labels over the same rows, over HTTP: one account and one upload, and each job
names the label that it reads.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from grovekeeper_client import Grovekeeper
from grovekeeper_verifier.dataset_replay import verify
from tests.server.test_http_statistics import _released, _submitted
from tests.support.pages import fields as form_fields
from tests.support.pages import hidden, signed_in, text_of
from tests.support.server import (
    CSV,
    Server,
    declaration,
    new_idempotency_key,
    training,
)

FEATURES = [{"name": "age", "type": "integer", "lower": 0, "upper": 99}]
OLD = {"name": "old", "classes": ["no", "yes"]}
DAYS = {"name": "los_days", "cuts": [3, 7]}
SCHEMA: dict[str, Any] = {"features": FEATURES, "labels": [OLD, DAYS]}
CLASSES = {"old": ["no", "yes"], "los_days": ["below 3", "3 to below 7", "7 or more"]}
BUDGET = {"accountant": "pure", "epsilon": "10000"}
AGES = [index % 100 for index in range(400)]


def _declared(server: Server, **changes: object) -> dict[str, Any]:
    return server.declared(
        **{"schema": SCHEMA, "budget": BUDGET, "partitions": [], **changes}
    )


def _uploaded(server: Server, **changes: object) -> dict[str, Any]:
    """A fifth of the rows has no stay, and another fifth no word about age."""
    dataset = _declared(server, **changes)
    lines = ["los_days,age,old"]
    for index, age in enumerate(AGES):
        days = "" if index % 5 == 0 else age / 10
        old = "" if index % 5 == 1 else ["no", "yes"][age >= 50]
        lines.append(f"{days},{age},{old}")
    answer = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows?accept_unknown=true",
        content="\n".join([*lines, ""]),
        headers=CSV,
    )
    assert answer.status_code == 201, answer.text
    report = answer.json()
    assert report["rows"] == len(AGES)
    assert [column["name"] for column in report["columns"]] == [
        "age",
        "old",
        "los_days",
    ]
    assert [column["unknown"] for column in report["columns"]] == [0, 80, 80]
    return dataset


def test_a_declaration_shows_every_label(server: Server) -> None:
    dataset = _declared(server)
    shown = server.admin.http.get(f"/datasets/{dataset['id']}").json()
    labels = [OLD, {**DAYS, "classes": CLASSES["los_days"]}]
    assert shown["schema"] == {
        "features": [{**FEATURES[0], "missing": False}],
        "labels": labels,
    }
    again = _declared(server, schema=shown["schema"])
    assert again["schema"] == shown["schema"]
    alone = _declared(server, schema={"features": FEATURES, "labels": [OLD]})
    assert alone["schema"]["label"] == OLD
    page = signed_in(server, server.admin).get(f"/ui/datasets/{dataset['id']}")
    assert "below 3, 3 to below 7, 7 or more" in text_of(page)


def test_the_form_declares_several_labels(server: Server) -> None:
    browser = signed_in(server, server.caller("owner"))
    path = "/ui/datasets/new"
    body = declaration(schema=SCHEMA, partitions=[])
    read = {"go": "read", "dictionary": json.dumps(body), "once": "d" * 22}
    form = form_fields(browser.post(path, data=read).text)
    assert (form["l0.classes"], form["l1.cuts"]) == ("no\nyes", "3, 7")

    added = form_fields(browser.post(path, data={**form, "go": "add:l"}).text)
    blank = browser.post(path, data={**added, "go": "budget"})
    assert (blank.status_code, "l2.name" in blank.text) == (422, True)
    stay = {"l2.name": "stay", "l2.lower": "0", "l2.upper": "60", "l2.whole": "yes"}
    twice = browser.post(path, data={**added, **stay, "l2.name": "old", "go": "budget"})
    assert 'id="l2.name-problem" data-part>Occurs twice.' in twice.text
    removed = {**added, **stay, "go": "remove:l1"}
    form = form_fields(browser.post(path, data=removed).text)
    budget = browser.post(path, data={**form, "go": "budget"})
    review = browser.post(path, data={**form_fields(budget.text), "go": "review"})
    shown = " ".join(text_of(review).split())
    assert "old to predict no, yes" in shown
    assert "stay to predict a whole number from 0 to 60" in shown
    declared = browser.post(path, data={**hidden(review.text), "go": "declare"})
    assert declared.status_code == 303, declared.text
    dataset = declared.headers["Location"].removeprefix("/ui")
    schema = server.admin.http.get(dataset).json()["schema"]
    whole = {"name": "stay", "type": "integer", "lower": 0, "upper": 60}
    assert schema["labels"] == [OLD, whole]


def test_a_label_is_added_before_the_first_upload_and_none_after_it(
    server: Server,
) -> None:
    one = {"features": FEATURES, "label": OLD}
    dataset = _declared(server, schema=one)
    path = f"/datasets/{dataset['id']}"
    changed = server.admin.http.patch(path, json={"schema": SCHEMA})
    assert changed.status_code == 200, changed.text
    assert [label["name"] for label in changed.json()["schema"]["labels"]] == [
        "old",
        "los_days",
    ]
    uploaded = server.admin.http.post(
        f"{path}/rows", content="age,old,los_days\n5,no,4\n", headers=CSV
    )
    assert uploaded.status_code == 201, uploaded.text
    refused = server.admin.http.patch(path, json={"schema": one})
    assert refused.status_code == 409
    document = server.admin.http.get(f"/ledger/{dataset['id']}/deployment")
    assert document.status_code == 200
    assert "the labels old and los_days" in document.text


@pytest.mark.parametrize(
    ("stated", "at", "problem"),
    [
        ({}, "label", "required"),
        ({"label": OLD, "labels": [DAYS]}, "label", "one-of-label-labels"),
        ({"labels": []}, "labels", "too-few"),
        ({"labels": [{**OLD, "classes": ["no"]}]}, "labels/0/classes", "too-few"),
        ({"labels": [OLD, {**DAYS, "name": "old"}]}, "labels/1/name", "not-distinct"),
        ({"labels": [OLD, {**DAYS, "name": "age"}]}, "labels/1/name", "not-distinct"),
        ({"labels": [OLD, {**DAYS, "cuts": [7, 3]}]}, "labels/1/cuts", "not-ascending"),
        ({"labels": [OLD] * 17}, "labels", "too-many"),
    ],
)
def test_other_labels_are_refused(
    server: Server, stated: dict[str, Any], at: str, problem: str
) -> None:
    body = declaration(schema={"features": FEATURES, **stated}, partitions=[])
    answer = server.admin.http.post("/declarations", json=body)
    assert answer.status_code == 422, answer.text
    found = [(error["at"], error["problem"]) for error in answer.json()["errors"]]
    assert found == [(f"/schema/{at}", problem)]


def test_a_unit_and_a_partition_are_no_label(server: Server) -> None:
    of = {"name": "by", "kind": "column", "column": "los_days", "categories": ["a"]}
    body = declaration(
        schema=SCHEMA, partitions=[of], privacy_unit={"column": "old", "max_rows": 2}
    )
    answer = server.admin.http.post("/declarations", json=body)
    found = {(error["at"], error["problem"]) for error in answer.json()["errors"]}
    assert found == {
        ("/privacy_unit/column", "not-distinct"),
        ("/partitions/0/column", "not-distinct"),
    }


@pytest.mark.parametrize("label", [None, "old", "los_days"])
def test_a_model_predicts_the_label_that_its_job_names(
    server: Server, label: str | None
) -> None:
    dataset = _uploaded(server)
    name = label or "old"
    asked = {"algorithm": "rpf", "parameters": {}, "epsilon": "300", "label": label}
    quote = server.admin.http.post("/plans", json=training(dataset["id"], **asked))
    assert quote.json()["label"] == name
    job = server.trained(dataset["id"], **asked)
    assert job["label"] == name
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert card["schema"]["label"]["name"] == name
    assert card["schema"]["label"]["classes"] == CLASSES[name]
    assert [feature["name"] for feature in card["schema"]["features"]] == ["age"]
    listed = server.admin.http.get("/models", params={"dataset": dataset["id"]})
    assert [model["label"] for model in listed.json()["models"]] == [name]
    rows = [{"age": age} for age in (5, 95)]
    answer = server.admin.http.post(
        f"/models/{job['model_id']}/predict", json={"rows": rows}
    ).json()
    assert answer["labels"] == [CLASSES[name][0], CLASSES[name][-1]]

    # an evaluation compares with the same label, where it names none
    path = f"/models/{job['model_id']}/evaluations"
    submitted = server.admin.http.post(
        path,
        json={"epsilon": "200", "metrics": ["confusion"]},
        headers=new_idempotency_key(),
    )
    assert submitted.status_code == 202, submitted.text
    ended = server.ended(submitted.json()["job_id"])
    released = server.admin.http.get(f"/evaluations/{ended['evaluation_id']}").json()
    assert released["label"] == name
    assert released["confusion"]["classes"] == CLASSES[name]
    counted = sum(map(sum, released["confusion"]["counts"]))
    assert abs(counted - 320) < 8, (
        "rows without this label, and no others, are left out"
    )
    other = {"old": "los_days", "los_days": "old"}[name]
    refused = server.admin.http.post(
        f"{path}/quote", json={"epsilon": "1", "label": other}
    )
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert (error["at"], error["problem"]) == ("/dataset", "other-declaration")

    entries = server.admin.http.get(f"/ledger/{dataset['id']}/entries").json()
    details = [entry.get("details") for entry in entries["entries"]]
    assert details.count({"label": name}) == 4, "two jobs, each reserved and charged"
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    assert verify(io.BytesIO(export)).kinds["charge"] == 2
    table = server.admin.http.get(f"/ledger/{dataset['id']}/export?format=csv").text
    cells = [row["label"] for row in csv.DictReader(io.StringIO(table))]
    assert cells.count(name) == 4
    assert set(cells) == {"", name}
    browser = signed_in(server, server.admin)
    page = browser.get(f"/ui/jobs/{job['id']}")
    assert f"Label {name}" in " ".join(text_of(page).split())
    for part in ("", "/report"):
        page = browser.get(f"/ui/ledger/{dataset['id']}{part}")
        assert f", label {name}" in " ".join(text_of(page).split())


def test_a_profile_counts_the_classes_of_its_label(server: Server) -> None:
    dataset = _uploaded(server)
    released = []
    for label in (None, "los_days"):
        answer = server.admin.http.post(
            f"/datasets/{dataset['id']}/profiles",
            json={"epsilon": "300", "label": label},
            headers=new_idempotency_key(),
        )
        job = server.ended(answer.json()["job_id"])
        shown = server.admin.http.get(f"/profiles/{job['profile_id']}").json()
        released.append(shown)
        classes = [count["label"] for count in shown["class_counts"]]
        assert classes == CLASSES[shown["label"]]
        total = sum(count["count"] for count in shown["class_counts"])
        assert abs(total - 320) < 8
    assert [shown["label"] for shown in released] == ["old", "los_days"]
    reused = training(dataset["id"], algorithm="rpf", parameters={}, epsilon="1")
    reused |= {"profile": released[1]["id"]}
    quote = server.admin.http.post("/plans", json={**reused, "label": "los_days"})
    assert quote.status_code == 200, quote.text
    refused = server.admin.http.post("/plans", json=reused)
    assert refused.json()["errors"][0]["problem"] == "other-declaration"


@pytest.mark.parametrize("protects", ["row", "label"])
def test_statistics_count_by_every_label(server: Server, protects: str) -> None:
    dataset = _uploaded(server, protects=protects)
    tables = [
        {"statistic": "crosstab", "columns": ["old", "los_days"]},
        {
            "statistic": "count",
            "by": ["los_days"],
            "where": [{"column": "old", "in": ["yes"]}],
        },
        {"statistic": "median", "column": "age", "by": ["old", "los_days"]},
    ]
    shown = _released(server, dataset["id"], epsilon="3000", tables=tables)
    crossed, counted, median = shown["tables"]
    cells = {tuple(row["cells"]): row["value"] for row in crossed["rows"]}
    assert set(cells) == {
        (old, days)
        for old in (*CLASSES["old"], "OTHER")
        for days in (*CLASSES["los_days"], "MISSING")
    }
    assert abs(sum(cells.values()) - len(AGES)) < 5
    known = [age for index, age in enumerate(AGES) if index % 5 > 1]
    assert abs(cells["no", "below 3"] - sum(age < 30 for age in known)) < 3
    assert abs(cells["yes", "below 3"]) < 3
    of_old = {row["cells"][0]: row["value"] for row in counted["rows"]}
    assert abs(of_old["7 or more"] - cells["yes", "7 or more"]) < 5
    assert len(median["rows"]) == 12
    asked = {"epsilon": "1", "tables": [{"statistic": "mean", "column": "age"}]}
    answer = _submitted(server, dataset["id"], **asked)
    if protects == "row":
        assert answer.status_code == 202
        server.cancel_what_waits()
        return
    [error] = answer.json()["errors"]
    assert (error["at"], error["problem"]) == ("/tables/0", "needs-the-label")
    assert error["accepted"] == ["old", "los_days"]


def test_an_account_of_labels_protects_all_of_them_at_one_price(server: Server) -> None:
    dataset = _uploaded(server, protects="label")
    for label in ("old", "los_days"):
        asked = {"label": label, "algorithm": "sspe-2", "parameters": {}}
        body = training(dataset["id"], **asked)
        quote = server.admin.http.post("/plans", json=body).json()
        assert quote["price"]["amount"] == "1"
        job = server.trained(dataset["id"], **asked)
        card = server.admin.http.get(f"/models/{job['model_id']}").json()
        assert card["schema"]["label"]["name"] == label
    account = server.admin.http.get(f"/datasets/{dataset['id']}").json()["account"]
    assert account["charged"] == "2"


def test_a_label_that_was_not_declared_is_refused_with_the_names(
    server: Server,
) -> None:
    dataset, single = _declared(server), server.declared()
    name = single["schema"]["label"]["name"]
    for asked, accepted in ((dataset, ["old", "los_days"]), (single, [name])):
        for path, body in (
            ("/plans", training(asked["id"], label="age")),
            (
                f"/datasets/{asked['id']}/profiles/quote",
                {"epsilon": "1", "label": "age"},
            ),
        ):
            answer = server.admin.http.post(path, json=body)
            assert answer.status_code == 422, answer.text
            [error] = answer.json()["errors"]
            assert (error["at"], error["problem"]) == ("/label", "unknown")
            assert error["accepted"] == accepted
    quote = server.admin.http.post("/plans", json=training(single["id"], label=name))
    assert quote.status_code == 200
    assert "label" not in quote.json(), "as where no label is named"


def test_a_form_offers_the_labels(server: Server) -> None:
    dataset = _uploaded(server)
    browser = signed_in(server, server.admin)
    path = f"/ui/datasets/{dataset['id']}/train"
    page = browser.get(path, params={"epsilon": "1", "label": "los_days"})
    assert "<option selected>los_days</option>" in page.text
    assert "for los_days" in page.text
    form = form_fields(page.text)
    assert form["label"] == "los_days"
    sent = browser.post(path, data=form)
    assert sent.status_code == 303, sent.text
    job = sent.headers["Location"].removeprefix("/ui/jobs/")
    assert server.ended(job)["label"] == "los_days"
    columns = browser.get(f"/ui/datasets/{dataset['id']}/statistics/new")
    assert columns.status_code == 200
    assert "los_days" in columns.text


def test_the_client_names_a_label_and_draws_dummies_of_all(
    server: Server, tmp_path: Path
) -> None:
    dataset = _declared(server)
    with Grovekeeper(server.url, key=server.admin.key) as gk:
        own = gk.dataset(dataset["id"])
        assert "old, los_days" in own._repr_html_()
        dummies = own.dummy(300, seed=1)
        assert list(dummies.columns) == ["age", "old", "los_days"]
        file = tmp_path / "rows.csv"
        dummies.write(file)
        for source in (dummies.frame(), dummies.table(), file):
            report = own.upload(source, again=True)
            assert [column["unknown"] for column in report["columns"]] == [0, 0, 0]
        quote = own.plan("rdt-ta", epsilon="1", label="los_days")
        assert quote.answer["label"] == "los_days"
        options: dict[str, Any] = {"parameters": {"n_estimators": 2, "max_depth": 2}}
        job = own.train("rdt-ta", epsilon="9", label="los_days", **options)
        model = job.wait(progress=False)
        assert model.classes == CLASSES["los_days"]
        evaluated = model.evaluate("9", label="los_days").wait(progress=False)
        assert evaluated.answer["label"] == "los_days"


def test_the_part_without_labels_names_none(server: Server) -> None:
    dataset = _uploaded(
        server, partitions=[{"name": "half", "kind": "hash", "cells": 2}]
    )
    other = {"dataset": dataset["id"], "epsilon": "1", "scope": {"half": [1]}}
    asked = {
        "algorithm": "sspe-1",
        "parameters": {},
        "label": "los_days",
        "scope": {"half": [0]},
        "unlabelled": other,
    }
    quote = server.admin.http.post("/plans", json=training(dataset["id"], **asked))
    assert quote.json()["label"] == "los_days"
    assert "label" not in quote.json()["unlabelled"]
    job = server.trained(dataset["id"], **asked)
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert card["schema"]["label"]["name"] == "los_days"
    entries = server.admin.http.get(f"/ledger/{dataset['id']}/entries").json()
    details = [
        entry.get("details")
        for entry in entries["entries"]
        if entry["kind"] == "charge"
    ]
    assert len(details) == 2
    assert details.count({"label": "los_days"}) == 1
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    assert verify(io.BytesIO(export)).kinds["charge"] == 2

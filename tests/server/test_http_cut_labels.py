"""A label of numbers that public points cut into classes, over HTTP: declared, uploaded,
learned from, counted, and developed with dummy rows.
"""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grovekeeper_client import Grovekeeper
from tests.server.test_http_statistics import _released
from tests.support.pages import fields, hidden, signed_in, text_of
from tests.support.server import CSV, Server, declaration, new_idempotency_key

CLASSES = ["below 3", "3 to below 7", "7 or more"]
SCHEMA: dict[str, Any] = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 99}],
    "label": {"name": "los_days", "cuts": [3, 7]},
}
BUDGET = {"accountant": "pure", "epsilon": "1000"}
N_ROWS = 400
AGES = [index % 100 for index in range(N_ROWS)]
DAYS = [age / 10 for age in AGES]
"""0 to 9.9: 30 % below 3, 40 % in the middle."""


def _declared(server: Server, **changes: object) -> dict[str, Any]:
    return server.declared(schema=SCHEMA, budget=BUDGET, partitions=[], **changes)


def _uploaded(server: Server) -> dict[str, Any]:
    dataset = _declared(server)
    lines = [f"{age},{day}" for age, day in zip(AGES, DAYS, strict=True)]
    answer = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows",
        content="\n".join(["age,los_days", *lines, ""]),
        headers=CSV,
    )
    assert answer.status_code == 201, answer.text
    return dataset


def test_a_declaration_shows_the_classes_that_follow_from_its_points(
    server: Server,
) -> None:
    dataset = _declared(server)
    label = {"name": "los_days", "classes": CLASSES, "cuts": [3, 7]}
    shown = server.admin.http.get(f"/datasets/{dataset['id']}").json()
    assert shown["schema"]["label"] == label
    page = signed_in(server, server.admin).get(f"/ui/datasets/{dataset['id']}")
    assert "below 3, 3 to below 7, 7 or more" in text_of(page)
    # what is shown declares the same
    again = server.declared(schema=shown["schema"], budget=BUDGET, partitions=[])
    assert again["schema"] == shown["schema"]


@pytest.mark.parametrize(
    ("label", "at", "problem"),
    [
        ({"cuts": [7, 3]}, "cuts", "not-ascending"),
        ({"cuts": ["3"]}, "cuts/0", "not-a-number"),
        ({"cuts": [10**400]}, "cuts/0", "not-finite"),
        (
            {"cuts": [3], "classes": ["short", "long"]},
            "classes",
            "not-those-of-the-cuts",
        ),
        ({}, "classes", "too-few"),
    ],
)
def test_other_points_are_refused(
    server: Server, label: dict[str, Any], at: str, problem: str
) -> None:
    schema = {**SCHEMA, "label": {"name": "los_days", **label}}
    body = declaration(schema=schema, partitions=[])
    answer = server.admin.http.post("/declarations", json=body)
    assert answer.status_code == 422, answer.text
    found = [(error["at"], error["problem"]) for error in answer.json()["errors"]]
    assert found == [(f"/schema/label/{at}", problem)]


def test_jobs_read_the_classes(server: Server) -> None:
    dataset = _uploaded(server)
    table = {"statistic": "count", "by": ["los_days"]}
    where = [{"column": "los_days", "in": ["7 or more"]}]
    tables = [table, {"statistic": "count", "where": where}]
    shown = _released(server, dataset["id"], epsilon="200", tables=tables)
    counts = [row["value"] for row in shown["tables"][0]["rows"]]
    assert [row["cells"] for row in shown["tables"][0]["rows"]][:3] == [
        [name] for name in CLASSES
    ]
    for count, exact in zip(counts, [120, 160, 120, 0], strict=True):
        assert abs(count - exact) < 5
    assert abs(shown["tables"][1]["total"]["value"] - 120) < 5

    model = server.trained(dataset["id"], algorithm="rpf", parameters={}, epsilon="200")
    path = f"/models/{model['model_id']}"
    assert server.admin.http.get(path).json()["schema"]["label"]["classes"] == CLASSES
    rows = [{"age": age} for age in (5, 50, 95)]
    answer = server.admin.http.post(f"{path}/predict", json={"rows": rows}).json()
    assert answer["labels"] == CLASSES
    evaluation = server.admin.http.post(
        f"{path}/evaluations",
        json={"epsilon": "100", "metrics": ["accuracy"]},
        headers=new_idempotency_key(),
    )
    job = server.ended(evaluation.json()["job_id"])
    released = server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json()
    assert released["accuracy"]["estimate"] > 0.8


def test_text_in_a_column_that_is_cut_is_refused_with_its_row(server: Server) -> None:
    dataset = _declared(server)
    answer = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows",
        content="age,los_days\n4,3\n5,3 to below 7\n",
        headers=CSV,
    )
    assert answer.status_code == 422
    [column] = answer.json()["columns"]
    assert (column["name"], column["problem"]) == ("los_days", "not-a-number")
    assert (column["count"], column["row"]) == (1, 2)


def test_dummy_rows_and_tables_are_accepted(server: Server, tmp_path: Path) -> None:
    dataset = _declared(server)
    with Grovekeeper(server.url, key=server.admin.key) as gk:
        own = gk.dataset(dataset["id"])
        dummies = own.dummy(300, seed=1)
        file = tmp_path / "rows.csv"
        dummies.write(file)
        for source in (dummies.frame(), dummies.table(), file):
            report = own.upload(source, again=True)
            assert [column["unknown"] for column in report["columns"]] == [0, 0]
    body = io.BytesIO()
    empty = pa.array([None, 3.0, None], pa.float64())
    pq.write_table(pa.table({"age": [1, 2, 3], "los_days": empty}), body)
    answer = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows?accept_unknown=true",
        content=body.getvalue(),
        headers={"Content-Type": "application/vnd.apache.parquet"},
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["columns"][1]["unknown"] == 2


def test_the_form_declares_points(server: Server) -> None:
    browser = signed_in(server, server.caller("owner"))
    body = declaration(schema=SCHEMA, partitions=[])
    text = {"go": "read", "dictionary": json.dumps(body), "once": "c" * 22}
    columns = browser.post("/ui/datasets/new", data=text)
    form = fields(columns.text)
    assert form["l0.cuts"] == "3, 7"
    wrong = browser.post(
        "/ui/datasets/new", data={**form, "l0.cuts": "7, 3", "go": "budget"}
    )
    assert wrong.status_code == 422
    assert "Not ascending." in wrong.text
    budget = browser.post("/ui/datasets/new", data={**form, "go": "budget"})
    review = browser.post(
        "/ui/datasets/new", data={**fields(budget.text), "go": "review"}
    )
    assert "numbers, cut at 3, 7" in review.text
    declared = browser.post(
        "/ui/datasets/new", data={**hidden(review.text), "go": "declare"}
    )
    assert declared.status_code == 303, declared.text
    path = declared.headers["Location"].removeprefix("/ui")
    shown = server.admin.http.get(path).json()
    assert shown["schema"]["label"]["cuts"] == [3, 7]

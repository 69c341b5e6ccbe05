"""Unusual but legal data is accepted, trained on and charged like any other data."""

import json
from typing import Any

import pytest

from tests.support.databases import on_one_server
from tests.support.server import CSV, Server, declaration, new_idempotency_key, training

LABEL: dict[str, Any] = {"name": "y", "classes": ["no", "yes"]}
NUMBER: dict[str, Any] = {"name": "x", "type": "numeric", "lower": 0, "upper": 1}
HEADER = "x,y\n"
WIDE = [f"c{index}" for index in range(255)]

CASES: dict[str, tuple[list[dict[str, Any]], str, dict[str, Any]]] = {
    "a header and no rows": ([NUMBER], HEADER, {"rows": [{"x": 0.5}]}),
    "a header without a line end": ([NUMBER], HEADER.strip(), {"rows": []}),
    "one class only": ([NUMBER], HEADER + "0.5,no\n" * 20, {"rows": [{"x": 0.5}]}),
    "one row": ([NUMBER], HEADER + "0.5,no\n", {"rows": [{"x": 0.5}]}),
    "values out of bounds": ([NUMBER], HEADER + "-7,no\n1e300,yes\ninf,no\n-inf,yes\n", {"rows": [{"x": 10**400}]}),
    "unknown and empty labels only": ([NUMBER], HEADER + "0.5,perhaps\n0.5,\n", {"rows": [{"x": -3}]}),
    "equal bounds": ([NUMBER | {"upper": 0}], HEADER + "0,no\n5,yes\n", {"rows": [{"x": 9}]}),
    "the widest bounds": (
        [NUMBER | {"lower": -1.7e308, "upper": 1.7e308}], HEADER + "1e308,no\n", {"rows": [{"x": 0}]},
    ),
    "the smallest bounds": ([NUMBER | {"upper": 5e-324}], HEADER + "0,no\n5e-324,yes\n", {"rows": [{"x": 0}]}),
    "huge integers": (
        [NUMBER | {"type": "integer", "lower": -(10**18), "upper": 10**18}],
        HEADER + "123456789012345678,no\n",
        {"rows": [{"x": 10**17}]},
    ),
    "equal huge integers": (
        [NUMBER | {"type": "integer", "lower": 10**300, "upper": 10**300}], HEADER + "1,no\n", {"rows": [{"x": 1}]},
    ),
    "one category, and rows with others": (
        [{"name": "x", "type": "categorical", "categories": ["a"]}], HEADER + "b,no\nc,yes\n", {"rows": [{"x": "z"}]},
    ),
    "255 categories with missing": (
        [{"name": "x", "type": "categorical", "categories": WIDE, "missing": True}],
        HEADER + ",no\nc254,yes\nc0,no\nother,no\n",
        {"rows": [{"x": "c254"}, {"x": None}, {}, {"x": "c999"}]},
    ),
    "ordered categories with missing": (
        [{"name": "x", "type": "categorical", "categories": ["low", "high"], "ordered": True, "missing": True}],
        HEADER + "low,no\nhigh,yes\n,no\n",
        {"columns": {"x": ["low", None, "middle"]}},
    ),
    "only missing cells": ([NUMBER | {"missing": True}], HEADER + ",no\n" * 5, {"rows": [{}, {"x": None}]}),
    "names of every script": (
        [NUMBER | {"name": "größe ½/~ \"quoted\", 身長"}],
        '"größe ½/~ ""quoted"", 身長",y\n0.5,no\n',
        {"rows": [{"größe ½/~ \"quoted\", 身長": 1}]},
    ),
}  # fmt: skip


JUDGED = (
    *(
        "a header and no rows",
        "one class only",
        "unknown and empty labels only",
        "only missing cells",
    ),
    *("values out of bounds", "255 categories with missing"),
)
"""Cases whose rows are profiled, too, and on which a model is evaluated by every
metric.
"""

pytestmark = on_one_server
ALGORITHMS = ("mrf", "rdt-mv")
"""Splits that are selected by private counts, and random splits."""


@pytest.mark.parametrize("case", CASES)
def test_legal_data_is_accepted_trained_and_charged(server: Server, case: str) -> None:
    features, content, asked = CASES[case]
    http = server.admin.http
    dataset = server.declared(
        schema={"features": features, "label": LABEL}, public_size=None
    )["id"]
    uploaded = http.post(
        f"/datasets/{dataset}/rows?accept_unknown=true&accept_empty=true",
        content=content.encode(),
        headers=CSV,
    )
    assert uploaded.status_code == 201, uploaded.text
    for algorithm in ALGORITHMS:
        job = server.trained(
            dataset, algorithm=algorithm, epsilon="0.5", parameters={"n_estimators": 2}
        )
        answer = http.post(f"/models/{job['model_id']}/predict", json=asked)
        assert answer.status_code == 200, answer.text
        assert all(abs(sum(row) - 1) < 1e-9 for row in answer.json()["probabilities"])
    assert server.admin.http.get(f"/ledger/{dataset}").json()["charged"] == "1"
    if case in JUDGED:
        _profile_and_evaluate(server, dataset, str(job["model_id"]))
        assert server.admin.http.get(f"/ledger/{dataset}").json()["charged"] == "2"


def _profile_and_evaluate(server: Server, dataset: str, model: str) -> None:
    http = server.admin.http
    asked = {"epsilon": "0.5", "metrics": ["accuracy", "confusion", "auroc"]}
    for path, body, output in (
        (f"/datasets/{dataset}/profiles", {"epsilon": "0.5"}, "profile"),
        (f"/models/{model}/evaluations", asked, "evaluation"),
    ):
        accepted = http.post(path, json=body, headers=new_idempotency_key())
        assert accepted.status_code == 202, accepted.text
        job = server.ended(accepted.json()["job_id"])
        assert job["state"] == "succeeded", job
        card = http.get(f"/{output}s/{job[f'{output}_id']}")
        assert card.status_code == 200, card.text


def test_empty_cells_of_a_partition_are_cells(server: Server) -> None:
    many, one = (
        [{"name": "shard", "kind": "hash", "cells": 1_024}],
        [{"name": "shard", "kind": "hash", "cells": 1}],
    )
    for partitions, scope in (
        (many, {"shard": [7]}),
        (many, {"shard": list(range(1_024))}),
        (one, {"shard": [0]}),
    ):
        dataset = server.declared(partitions=partitions)["id"]
        content = "age,height,sex,income\n30,1.5,Male,<=50K\n"
        server.admin.http.post(
            f"/datasets/{dataset}/rows", content=content, headers=CSV
        )
        for algorithm in ALGORITHMS:
            server.trained(dataset, algorithm=algorithm, scope=scope)
        assert server.admin.http.get(f"/ledger/{dataset}").json()["charged"] == "2"


def test_the_smallest_and_the_largest_price_are_kept_to_the_nano(
    server: Server,
) -> None:
    dataset = server.uploaded(budget={"accountant": "pure", "epsilon": "1000000000"})[
        "id"
    ]
    ledger = f"/ledger/{dataset}"
    server.trained(
        dataset, epsilon="15e-10", parameters={"n_estimators": 1, "max_depth": 0}
    )
    assert server.admin.http.get(ledger).json()["charged"] == "0.000000002", (
        "rounded up"
    )
    server.trained(dataset, epsilon="999999999.999999998")
    assert server.admin.http.get(ledger).json()["remaining"] == "0"
    quote = server.admin.http.post(
        "/plans", json=training(dataset, epsilon="1e-8")
    ).json()
    assert (quote["fits"], quote["largest_that_fits"]) == (False, "0")
    unplannable = server.admin.http.post(
        "/plans", json=training(dataset, epsilon="1e-18")
    )
    assert unplannable.json()["errors"] == [
        {"at": "/epsilon", "problem": "too-small", "accepted": ["more, such as 0.001"]}
    ]


@pytest.mark.parametrize(
    "epsilon", ["1", "1.0", "1e0", "10E-1", "0.1e+1", "000000000001", 1, 1.0]
)
def test_an_amount_is_the_same_however_it_is_spelled(
    server: Server, epsilon: object
) -> None:
    dataset = server.declared(budget={"accountant": "pure", "epsilon": epsilon})
    assert dataset["account"]["cap"] == "1"
    quote = server.admin.http.post(
        "/plans", json=training(dataset["id"], epsilon=epsilon)
    ).json()
    assert (quote["price"]["amount"], quote["price"]["epsilon"], quote["fits"]) == (
        "1",
        "1",
        True,
    )


def test_a_quote_before_the_first_upload_is_answered(server: Server) -> None:
    quote = server.admin.http.post("/plans", json=training(server.declared()["id"]))
    assert quote.status_code == 200, "a price never touches rows"


def test_the_price_does_not_depend_on_the_rows(server: Server) -> None:
    few, many = server.uploaded(1), server.uploaded(3_000)
    body = [
        server.admin.http.post("/plans", json=training(it["id"], parameters={})).json()
        for it in (few, many)
    ]
    for answer in body:
        del answer["dataset"], answer["dataset_name"]
    assert body[0] == body[1]


def test_whole_numbers_may_have_a_point_or_an_exponent(server: Server) -> None:
    """As R's jsonlite writes round numbers."""
    http, json_body = server.admin.http, {"Content-Type": "application/json"}
    body = json.dumps(declaration(public_size=0)).replace(
        '"public_size": 0', '"public_size": 1e+05'
    )
    declared = http.post("/datasets", content=body, headers=json_body)
    assert (declared.status_code, declared.json()["public_size"]) == (201, 100_000)
    plan = json.dumps(training(declared.json()["id"])).replace(
        '"n_estimators": 2', '"n_estimators": 2.0'
    )
    quoted = http.post("/plans", content=plan, headers=json_body)
    assert (quoted.status_code, quoted.json()["parameters"]["n_estimators"]) == (200, 2)

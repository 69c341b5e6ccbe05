"""Parity data over HTTP: splits that carry information only jointly are quoted,
charged, learned and predicted.
"""

import itertools
from typing import Any

import pytest

from tests.support.databases import on_one_server
from tests.support.server import CSV, Server, new_idempotency_key, training

pytestmark = on_one_server

QUESTIONS = [f"q{index}" for index in range(6)]
ANSWERS = list(itertools.product(("no", "yes"), repeat=len(QUESTIONS)))


def parity(answers: tuple[str, ...], n_questions: int) -> str:
    return ("even", "odd")[answers[:n_questions].count("yes") % 2]


def uploaded(server: Server, n_questions: int) -> str:
    """Every combination of answers ten times; the class is the parity of the first
    columns.
    """
    questions = [
        {"name": name, "type": "categorical", "categories": ["no", "yes"]}
        for name in QUESTIONS
    ]
    schema = {
        "features": questions,
        "label": {"name": "kind", "classes": ["even", "odd"]},
    }
    dataset = str(server.declared(schema=schema, public_size=640)["id"])
    rows = [
        ",".join((*answers, parity(answers, n_questions))) for answers in ANSWERS
    ] * 10
    content = "\n".join((",".join((*QUESTIONS, "kind")), *rows, ""))
    assert (
        server.admin.http.post(
            f"/datasets/{dataset}/rows", content=content, headers=CSV
        ).status_code
        == 201
    )
    return dataset


@pytest.mark.parametrize("n_questions", [1, 2])
def test_a_joint_rule_of_columns_is_learned_at_the_quoted_price(
    server: Server, n_questions: int
) -> None:
    dataset = uploaded(server, n_questions)
    body: dict[str, Any] = {
        "algorithm": "rpf", "epsilon": "4", "parameters": {"n_estimators": 1, "max_depth": n_questions},
    }  # fmt: skip
    quote = server.admin.http.post("/plans", json=training(dataset, **body)).json()
    job = server.trained(dataset, **body)
    columns = {
        name: [answers[place] for answers in ANSWERS]
        for place, name in enumerate(QUESTIONS)
    }
    answer = server.admin.http.post(
        f"/models/{job['model_id']}/predict", json={"columns": columns}
    )

    assert quote["parameters"]["at_once"] == n_questions
    assert job["price"] == quote["price"]
    assert answer.json()["labels"] == [
        parity(answers, n_questions) for answers in ANSWERS
    ]


def test_a_selection_of_three_levels_is_refused_with_the_values_that_are_accepted(
    server: Server,
) -> None:
    dataset, before = uploaded(server, 2), server.footprint()
    body = training(
        dataset,
        algorithm="rpf",
        parameters={"n_estimators": 1, "max_depth": 3, "at_once": 3},
    )
    refused = server.admin.http.post("/train", json=body, headers=new_idempotency_key())
    (problem,) = refused.json()["errors"]
    assert refused.status_code == 422
    assert (problem["at"], problem["accepted"]) == ("/parameters/at_once", ["1 to 2"])
    assert server.footprint() == before, "nothing was reserved"

"""A model that answers one class says so: on its card, in the quote of an evaluation,
and in the evaluation.
"""

from tests.support.databases import on_one_server
from tests.support.pages import signed_in, text_of
from tests.support.server import Server, new_idempotency_key

pytestmark = on_one_server

PARTITIONS = [{"name": "shard", "kind": "hash", "cells": 2}]


def _model(server: Server, n_rows: int, **changes: object) -> str:
    dataset = server.uploaded(n_rows, partitions=PARTITIONS, public_size=200)["id"]
    return str(server.trained(dataset, scope={"shard": [1]}, **changes)["model_id"])


def test_a_model_that_learned_says_nothing_and_names_its_cells(server: Server) -> None:
    """Noise may hide what a small table has to say, but not in ten models."""
    models = (_model(server, 200, epsilon="40") for _ in range(10))
    cards = (server.admin.http.get(f"/models/{model}").json() for model in models)
    card = next(card for card in cards if card["only_answer"] is None)
    assert card["scope"] == {"shard": [1]}


def test_a_model_of_one_class_says_so_wherever_it_is_judged(server: Server) -> None:
    """The budget is so small that leaves are noise: of forty models with two leaves,
    some have one class in both.
    """
    forest = {"n_estimators": 1, "max_depth": 1, "n_bins": 2}
    models = (
        _model(server, 200, algorithm="mrf", epsilon="0.001", parameters=forest)
        for _ in range(40)
    )
    cards = (server.admin.http.get(f"/models/{model}").json() for model in models)
    card = next(card for card in cards if card["only_answer"] is not None)
    only, model = card["only_answer"], card["id"]
    rows = [
        {"age": age, "sex": sex} for age in (0, 60, 120) for sex in ("Female", "Male")
    ]
    answered = server.admin.http.post(f"/models/{model}/predict", json={"rows": rows})
    assert set(answered.json()["labels"]) == {only["label"]}
    for fact in (
        f"answers {only['label']} whatever the row is",
        "about 100 declared rows",
        "rows × ε is about 0",
    ):
        assert fact in only["text"], only["text"]

    body = {"epsilon": "0.1", "scope": {"shard": [0]}}
    quote = server.admin.http.post(
        f"/models/{model}/evaluations/quote", json=body
    ).json()
    assert quote["warnings"] == [f"Model {model}: {only['text']}"]
    path = f"/models/{model}/evaluations"
    job = server.admin.http.post(path, json=body, headers=new_idempotency_key()).json()[
        "job_id"
    ]
    evaluation = server.admin.http.get(
        f"/evaluations/{server.ended(job)['evaluation_id']}"
    ).json()
    assert quote["warnings"][0] in evaluation["warnings"]

    pages = signed_in(server, server.admin)
    shown = text_of(pages.get(f"/ui/models/{model}"))
    assert only["text"] in shown
    assert "Trained on shard=1" in shown
    assert only["text"] in text_of(
        pages.get(f"/ui/models/{model}/evaluate", params={"epsilon": "0.1"})
    )
    assert only["text"] in text_of(pages.get(f"/ui/evaluations/{evaluation['id']}"))

"""The forms of a model's page over HTTP: an evaluation, quoted and charged once, and
aliases with their moves.
"""

import re

import pytest

from grovekeeper_client.client import Client
from grovekeeper_client.errors import ApiProblem
from tests.support.databases import on_one_server
from tests.support.pages import hidden, section, signed_in, text_of
from tests.support.server import Server

pytestmark = on_one_server


@pytest.fixture(scope="module")
def trained(server: Server) -> tuple[Server, str, str]:
    """A server, a dataset with 1 ε of budget of which half is charged, and the
    dataset's model.
    """
    partitions = [{"name": "shard", "kind": "hash", "cells": 2}]
    dataset = server.uploaded(
        budget={"accountant": "pure", "epsilon": "1"}, partitions=partitions
    )["id"]
    # in a third of such trees no split gains anything: in all, once in 10¹⁰ runs
    trees = {"n_estimators": 20, "max_depth": 2}
    job = server.trained(dataset, epsilon="0.5", parameters=trees)
    return server, dataset, job["model_id"]


def test_an_evaluation_is_quoted_refused_with_what_fits_and_charged_once(
    trained: tuple[Server, str, str],
) -> None:
    server, dataset, model = trained
    browser, path = (
        signed_in(server, server.granted(dataset, "analyst")),
        f"/ui/models/{model}/evaluate",
    )
    assert path in browser.get(f"/ui/models/{model}").text
    looks_at = section(browser.get(f"/ui/models/{model}").text, "use")
    # which features the noise lets the trees split by is chance
    assert re.search(r"(age|height|sex) [0-9.]+ % ", looks_at)
    assert "Leaves by the class that they favour:" in looks_at
    # as `models show --tree 0` and the API name it
    tree = section(browser.get(f"/ui/models/{model}").text, "tree")
    assert re.search(r"Tree 0 of [0-9]+", tree)
    assert "Trees are counted from 0." in tree
    linked = f"/ui/models?dataset={dataset}"
    assert linked in browser.get(f"/ui/datasets/{dataset}").text
    assert model in browser.get(linked).text
    assert model not in browser.get("/ui/models?dataset=nothing").text
    query = {"epsilon": "0.25", "counts": "confusion", "cells": '["shard", 1]'}
    page = browser.get(path, params=query)
    assert "Evaluate and spend 0.25 ε" in page.text
    assert "rows that a model was trained on" in text_of(page)
    refused = browser.get(path, params=query | {"epsilon": "2"}).text
    assert "Evaluate and spend" not in refused
    assert "Ask for ε = 0.5 instead" in refused
    form = dict(hidden(page.text))
    answers = [browser.post(path, data=form) for _ in range(2)]
    assert answers[0].headers["Location"] == answers[1].headers["Location"]
    job = server.ended(answers[0].headers["Location"].removeprefix("/ui/jobs/"))
    evaluation = server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json()
    assert (evaluation["scope"], evaluation["releases"]) == (
        {"shard": [1]},
        ["confusion"],
    )
    listed = browser.get(linked).text
    assert f"/ui/evaluations/{job['evaluation_id']}" in listed
    assert "not released" not in listed
    charged = server.admin.http.get(
        f"/ledger/{dataset}", params={"scope": '{"shard": [1]}'}
    ).json()["charged"]
    assert charged == "0.75", "the form was sent twice"

    over = browser.post(path, data=form | {"epsilon": "0.5", "once": "b" * 22})
    assert over.status_code == 409
    assert "The largest ε that fits: <strong>0.25</strong>" in over.text
    for wrong in ({"counts": "everything"}, {"epsilon": "1_0"}, {"cells": "{"}):
        assert browser.get(path, params=query | wrong).status_code == 422, wrong
    unknown = browser.get(path, params=query | {"dataset": "nothing"})
    assert unknown.status_code == 404
    assert "Dataset whose rows are read" in unknown.text, "the form stays"


def test_chosen_models_stand_side_by_side(trained: tuple[Server, str, str]) -> None:
    server, dataset, model = trained
    browser = signed_in(server, server.granted(dataset, "analyst"))
    other = server.trained(
        dataset, epsilon="0.01", parameters={"n_estimators": 2, "max_depth": 1}
    )["model_id"]
    listed = browser.get(f"/ui/models?dataset={dataset}").text
    for model_id in (model, other):
        assert f'name="models" value="{model_id}"' in listed
    page = browser.get("/ui/models/comparison", params={"models": [model, other]})
    choice = f"/ui/datasets/{dataset}/choice?epsilon=0.1&amp;models={model}&amp;models={other}"
    assert f'href="{choice}"' in page.text
    asked = browser.get(choice.replace("&amp;", "&"))
    assert "Choice among 2 models at ε = 0.1" in text_of(asked)
    shown = text_of(page)
    assert "Compare 2 models" in shown
    assert "max_depth" in shown
    assert re.search("Looks at (age|height|sex) ", shown), "which of them is chance"
    assert page.text.count("<details>") == 2, "a receipt for each"
    for chosen in ("", f"?models={model}"):
        assert "Tick two models" in browser.get(f"/ui/models/comparison{chosen}").text
    stranger = signed_in(server, server.caller("owner"))
    unseen = stranger.get("/ui/models/comparison", params={"models": [model, other]})
    assert unseen.status_code == 404


def test_an_alias_is_given_moved_and_removed_by_form(
    trained: tuple[Server, str, str],
) -> None:
    server, dataset, model = trained
    analyst = server.granted(dataset, "analyst")
    browser, card = signed_in(server, analyst), f"/ui/models/{model}"
    given = browser.post(
        f"{card}/aliases", data={"alias": " production ", "go": "move"}
    )
    assert (given.status_code, given.headers["Location"]) == (
        303,
        f"{card}?alias=production#aliases",
    )
    assert server.admin.http.get(f"/models/{dataset}@production").json()["id"] == model
    shown = section(browser.get(f"{card}?alias=production").text, "aliases")
    assert "production this model" in shown
    assert re.search(rf"Moves of production .* this model test {analyst.id}", shown)
    colleague = signed_in(server, server.granted(dataset, "analyst"))
    shown = section(colleague.get(f"{card}?alias=production").text, "aliases")
    assert re.search(rf"Moves of production .* this model {analyst.id}", shown), (
        "an analyst knows the name of the own key alone"
    )
    owner = signed_in(server, server.granted(dataset, "owner"))
    shown = section(owner.get(f"{card}?alias=production").text, "aliases")
    assert re.search(rf"Moves of production .* this model test {analyst.id}", shown)
    assert (
        browser.post(
            f"{card}/aliases", data={"alias": "production", "go": "remove"}
        ).status_code
        == 303
    )
    assert server.admin.http.get(f"/models/{dataset}@production").status_code == 404
    shown = section(browser.get(f"{card}?alias=production").text, "aliases")
    assert "No model of" in shown
    assert "removed" in shown
    assert "this model" in shown.partition("Moves of production")[2], (
        "the history stays"
    )
    malformed = browser.post(f"{card}/aliases", data={"alias": "a b", "go": "move"})
    assert malformed.status_code == 422
    assert "alias: " in section(malformed.text, "aliases")


def test_an_alias_is_moved_under_a_condition(trained: tuple[Server, str, str]) -> None:
    server, dataset, model = trained
    path, http = f"/datasets/{dataset}/aliases/conditional", server.admin.http
    assert (
        http.put(path, json={"model": model}, headers={"If-Match": "*"}).json()["type"]
        == "changed-meanwhile"
    )
    new = {"If-None-Match": "*"}
    made = http.put(path, json={"model": model}, headers=new)
    assert (
        made.status_code,
        http.put(path, json={"model": model}, headers=new).status_code,
    ) == (200, 412)
    seen = http.get(path)
    assert made.headers["ETag"] == seen.headers["ETag"] == f'"{seen.json()["etag"]}"'
    with Client(server.url, server.admin.key) as client:
        with pytest.raises(ApiProblem, match="changed since"):
            client.delete_alias(dataset, "conditional", etag="earlier")
        client.delete_alias(
            dataset, "conditional", etag=client.alias(dataset, "conditional")["etag"]
        )
        with pytest.raises(ApiProblem, match="changed since"):
            client.put_alias(dataset, "conditional", model, etag=seen.json()["etag"])


def test_a_model_is_downloaded_by_those_who_may_take_it(
    trained: tuple[Server, str, str],
) -> None:
    server, dataset, model = trained
    browser, card = (
        signed_in(server, server.granted(dataset, "analyst")),
        f"/ui/models/{model}",
    )
    page = browser.get(card).text
    for query in ("", "?format=onnx"):
        assert f'href="{card}/file{query}"' in page
        downloaded = browser.get(f"{card}/file{query}")
        assert (
            downloaded.content
            == server.admin.http.get(f"/models/{model}/artifact{query}").content
        )
        assert downloaded.headers["Content-Disposition"].startswith(
            'attachment; filename="model.'
        )
    predictor = signed_in(server, server.granted(dataset, "predictor"))
    assert f"{card}/file" not in predictor.get(card).text
    assert predictor.get(f"{card}/file").status_code == 403


def test_a_model_is_deleted_by_form_unless_an_alias_names_it(
    trained: tuple[Server, str, str],
) -> None:
    server, dataset, _ = trained
    model = server.trained(dataset, epsilon="0.01")["model_id"]
    browser = signed_in(server, server.granted(dataset, "analyst"))
    path = f"/ui/models/{model}/delete"
    named = {"alias": "kept", "go": "move"}
    browser.post(f"/ui/models/{model}/aliases", data=named)
    refused = browser.post(path)
    assert refused.status_code == 409
    assert "alias" in section(refused.text, "delete")
    browser.post(f"/ui/models/{model}/aliases", data=named | {"go": "remove"})
    assert f'action="{path}#delete"' in browser.get(f"/ui/models/{model}").text
    predictor = signed_in(server, server.granted(dataset, "predictor"))
    assert path not in predictor.get(f"/ui/models/{model}").text
    assert predictor.post(path).status_code == 403
    assert browser.post(path).headers["Location"] == "/ui/models"
    assert browser.get(f"/ui/models/{model}").status_code == 404


@pytest.mark.parametrize("role", ["predictor", "auditor", None])
def test_the_forms_of_a_key_without_the_right_change_nothing(
    trained: tuple[Server, str, str], role: str | None
) -> None:
    server, dataset, model = trained
    caller = server.caller() if role is None else server.granted(dataset, role)
    browser, before = signed_in(server, caller), server.footprint()
    card, status = f"/ui/models/{model}", 404 if role is None else 403
    form = {"epsilon": "0.125", "once": "c" * 22}
    assert (
        browser.post(
            f"{card}/aliases", data={"alias": "staging", "go": "move"}
        ).status_code
        == status
    )
    assert (
        browser.post(
            f"{card}/aliases", data={"alias": "production", "go": "remove"}
        ).status_code
        == status
    )
    assert browser.post(f"{card}/evaluate", data=form).status_code == status
    assert browser.get(f"{card}/evaluate").status_code == status
    assert server.footprint() == before
    if role == "predictor":
        page = browser.get(card).text
        assert "/evaluate" not in page
        assert "Analysts and owners of the dataset move aliases." in section(
            page, "aliases"
        )

"""The pages of evaluations over HTTP: the numbers of the API, and the choice of the
best of several models.
"""

import re
from typing import Any

from tests.support.databases import on_one_server
from tests.support.pages import fields, section, signed_in, text_of
from tests.support.server import Server, new_idempotency_key

pytestmark = on_one_server


def _evaluated(server: Server, model: str, *metrics: str) -> dict[str, Any]:
    """Evaluates a model and returns the evaluation."""
    body = {"epsilon": "5", "metrics": list(metrics)}
    answer = server.admin.http.post(
        f"/models/{model}/evaluations", json=body, headers=new_idempotency_key()
    )
    assert answer.status_code == 202, answer.text
    job = server.ended(answer.json()["job_id"])
    return dict(server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def test_an_evaluation_is_shown_with_its_interval_and_the_largest_class(
    server: Server,
) -> None:
    dataset = server.uploaded()["id"]
    model = server.trained(dataset)["model_id"]
    alone = _evaluated(server, model, "accuracy")
    full = _evaluated(server, model, "confusion", "auroc")
    browser = signed_in(server, server.granted(dataset, "analyst"))
    pages = {
        shown["id"]: browser.get(f"/ui/evaluations/{shown['id']}")
        for shown in (alone, full)
    }
    for shown in (alone, full):
        accuracy = section(pages[shown["id"]].text, "accuracy")
        low, high = shown["accuracy"]["interval"].values()
        assert accuracy.startswith(
            f"Accuracy {_percent(shown['accuracy']['estimate'])}"
        )
        assert f"{_percent(low)} to {_percent(high)}, with probability 95 %" in accuracy
    assert "Largest class alone not released" in section(
        pages[alone["id"]].text, "accuracy"
    )
    told = f"{_percent(full['majority']['share'])} for always answering {full['majority']['label']}; noisy"
    assert told in section(pages[full["id"]].text, "accuracy")
    confusion = (
        pages[full["id"]]
        .text.partition('<table class="heat">')[2]
        .partition("</tbody>")[0]
    )
    counts = re.findall(r">(-?[0-9]+)</td>", confusion)
    assert counts == [
        f"{count:.0f}" for row in full["confusion"]["counts"] for count in row
    ]
    assert f"{full['auroc']['estimate']:.3f}" in section(
        pages[full["id"]].text, "auroc"
    )
    assert 'id="confusion"' not in pages[alone["id"]].text

    card = text_of(browser.get(f"/ui/models/{model}"))
    assert (
        f"{_percent(full['majority']['share'])} ({full['majority']['label']}), noisy"
        in card
    )
    job = browser.get(f"/ui/jobs/{full['job_id']}").text
    assert f'href="/ui/evaluations/{full["id"]}"' in job
    assert (
        signed_in(server, server.granted(dataset, "predictor"))
        .get(f"/ui/evaluations/{full['id']}")
        .status_code
        == 403
    )
    assert (
        signed_in(server, server.caller())
        .get(f"/ui/evaluations/{full['id']}")
        .status_code
        == 404
    )


def test_the_best_of_several_models_is_chosen_by_form(server: Server) -> None:
    dataset = server.uploaded()["id"]
    path, browser = (
        f"/ui/datasets/{dataset}/choice",
        signed_in(server, server.granted(dataset, "analyst")),
    )
    assert "A choice needs two models" in text_of(browser.get(path))
    chosen = [server.trained(dataset)["model_id"] for _ in range(2)]
    assert f'href="{path}"' in browser.get(f"/ui/models?dataset={dataset}").text
    assert "Choose two models or more" in text_of(
        browser.get(path, params={"models": chosen[0]})
    )
    query = {"models": chosen, "epsilon": "5", "winner_accuracy": "yes"}
    quoted = browser.get(path, params=query)
    assert "Choice among 2 models at ε = 5 on " in text_of(quoted)
    form = fields(quoted.text.rpartition("<form")[2]) | {"name": "the better one"}
    submitted = [browser.post(path, data=form) for _ in range(2)]
    assert {answer.status_code for answer in submitted} == {303}
    assert submitted[0].headers["Location"] == submitted[1].headers["Location"], (
        "a form that is sent twice is one job"
    )
    job = server.ended(submitted[0].headers["Location"].removeprefix("/ui/jobs/"))
    evaluation = server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json()
    assert (evaluation["name"], sorted(evaluation["models"])) == (
        "the better one",
        sorted(chosen),
    )
    shown = browser.get(f"/ui/evaluations/{evaluation['id']}")
    assert f'<a href="/ui/models/{evaluation["best"]}"><strong>' in shown.text
    too_much = browser.post(path, data=form | {"epsilon": "1000", "once": "c" * 22})
    assert too_much.status_code == 409
    assert "Ask for ε = " in too_much.text
    for other, status in (
        (server.granted(dataset, "predictor"), 403),
        (server.caller(), 404),
    ):
        assert signed_in(server, other).get(path, params=query).status_code == status

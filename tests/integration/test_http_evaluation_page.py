"""The page of an evaluation over HTTP: the numbers of the API, and the largest class where released numbers tell it."""

import re
from typing import Any

from tests.support.databases import on_one_server
from tests.support.pages import section, signed_in, text_of
from tests.support.server import Server, new_idempotency_key

pytestmark = on_one_server


def _evaluated(server: Server, model: str, *metrics: str) -> dict[str, Any]:
    """Evaluates a model and returns the evaluation."""
    body = {"epsilon": "5", "metrics": list(metrics)}
    answer = server.admin.http.post(f"/models/{model}/evaluations", json=body, headers=new_idempotency_key())
    assert answer.status_code == 202, answer.text
    job = server.ended(answer.json()["job_id"])
    return dict(server.admin.http.get(f"/evaluations/{job['evaluation_id']}").json())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def test_an_evaluation_is_shown_with_its_interval_and_the_largest_class(server: Server) -> None:
    dataset = server.uploaded()["id"]
    model = server.trained(dataset)["model_id"]
    alone = _evaluated(server, model, "accuracy")
    full = _evaluated(server, model, "confusion", "auroc")
    browser = signed_in(server, server.granted(dataset, "analyst"))
    pages = {shown["id"]: browser.get(f"/ui/evaluations/{shown['id']}") for shown in (alone, full)}
    for shown in (alone, full):
        accuracy = section(pages[shown["id"]].text, "accuracy")
        low, high = shown["accuracy"]["interval"].values()
        assert accuracy.startswith(f"Accuracy {_percent(shown['accuracy']['estimate'])}")
        assert f"{_percent(low)} to {_percent(high)}, with probability 95 %" in accuracy
    assert "Largest class alone not released" in section(pages[alone["id"]].text, "accuracy")
    told = f"{_percent(full['majority']['share'])} for always answering {full['majority']['label']}; noisy"
    assert told in section(pages[full["id"]].text, "accuracy")
    confusion = pages[full["id"]].text.partition('<tbody class="heat">')[2].partition("</tbody>")[0]
    counts = re.findall(r">(-?[0-9]+)</td>", confusion)
    assert counts == [f"{count:.0f}" for row in full["confusion"]["counts"] for count in row]
    assert f"{full['auroc']['estimate']:.3f}" in section(pages[full["id"]].text, "auroc")
    assert 'id="confusion"' not in pages[alone["id"]].text

    card = text_of(browser.get(f"/ui/models/{model}"))
    assert f"{_percent(full['majority']['share'])} ({full['majority']['label']}), noisy" in card
    job = browser.get(f"/ui/jobs/{full['job_id']}").text
    assert f'href="/ui/evaluations/{full["id"]}"' in job
    assert (
        signed_in(server, server.granted(dataset, "predictor")).get(f"/ui/evaluations/{full['id']}").status_code == 403
    )
    assert signed_in(server, server.caller()).get(f"/ui/evaluations/{full['id']}").status_code == 404

"""The pages of profiles over HTTP: the form with its price, the numbers of the API with
their intervals, and trainings that reuse them.
"""

import re
from typing import Any

from tests.support.databases import on_one_server
from tests.support.pages import fields, signed_in, text_of
from tests.support.server import SCHEMA, Server, new_idempotency_key

pytestmark = on_one_server

NUMBER = {"name": "weight", "lower": 0, "upper": 200}


def _released(server: Server, dataset: str, **body: object) -> dict[str, Any]:
    answer = server.admin.http.post(
        f"/datasets/{dataset}/profiles", json=body, headers=new_idempotency_key()
    )
    assert answer.status_code == 202, answer.text
    job = server.ended(answer.json()["job_id"])
    return dict(server.admin.http.get(f"/profiles/{job['profile_id']}").json())


def _rows(number: float) -> str:
    return f"{number:,.0f}".replace("-", "−")


def test_a_profile_is_quoted_released_listed_and_shown(server: Server) -> None:
    dataset = server.uploaded(400)["id"]
    path = f"/ui/datasets/{dataset}/profiles/new"
    browser = signed_in(server, server.granted(dataset, "analyst"))
    tab = browser.get(f"/ui/datasets/{dataset}/statistics").text
    assert f'href="{path}"' in tab
    assert "Choose an ε to see the price" in text_of(browser.get(path))
    query = {"epsilon": "4", "bins": "4", "size_share": "0.1"}
    before = server.footprint()
    quoted = browser.get(path, params=query)
    assert server.footprint() == before
    shown = text_of(quoted)
    assert "Profile at ε = 4" in shown
    assert "Bins of about equally many rows: height." in shown
    # at ε = 0.8 and 0.4, discrete Laplace noise is within 4 and 7 rows
    assert "The rows of each class: within ± 4 rows of the exact number" in shown
    assert "All rows: within ± 7 rows of the exact number" in shown

    form = fields(quoted.text.rpartition("<form")[2]) | {"name": "first look"}
    submitted = browser.post(path, data=form)
    assert submitted.status_code == 303, submitted.text
    location = submitted.headers["Location"]
    job = server.ended(location.removeprefix("/ui/jobs/"))
    released = server.admin.http.get(f"/profiles/{job['profile_id']}").json()
    assert released["parameters"]["bins"] == "4"
    page = f"/ui/profiles/{released['id']}"
    assert f'href="{page}"' in browser.get(location).text

    answer = browser.get(page)
    shown = text_of(answer)
    assert shown.startswith('id="content"> first look')
    for counted in released["class_counts"]:
        count = counted["count"]
        ends = (_rows(count - 4), _rows(count + 4))
        numbers = "{} {} to {}".format(_rows(count), *ends)
        assert f"{counted['label']} {numbers}" in shown
    size = released["size"]["count"]
    assert (
        f"all these rows {_rows(size)} {_rows(size - 7)} to {_rows(size + 7)}" in shown
    )
    assert answer.text.count('<svg class="plot interval-row"') == 3
    [feature] = released["features"]
    edges = ", ".join(f"{edge:g}" for edge in feature["edges"])
    assert f"height {edges}" in shown
    assert released["receipt"].splitlines()[0] in answer.text
    assert "This profile adds" in shown
    listed = text_of(browser.get(f"/ui/datasets/{dataset}/statistics"))
    assert "first look profile the whole dataset – 4 ε" in listed
    file = browser.get(f"{page}/file")
    assert file.json() == released
    assert f'filename="{released["id"]}.json"' in file.headers["Content-Disposition"]


def test_a_training_reuses_a_profile(server: Server) -> None:
    dataset = server.uploaded(400)["id"]
    profile = _released(server, dataset, epsilon="2")
    browser = signed_in(server, server.granted(dataset, "analyst"))
    train = f"/ui/datasets/{dataset}/train"
    path = f"{train}?profile={profile['id']}"
    assert f'href="{path}"' in browser.get(f"/ui/profiles/{profile['id']}").text
    form = browser.get(path).text
    assert re.search(f'<option value="{profile["id"]}" selected>', form)
    query = {"profile": profile["id"], "algorithm": "rpf", "epsilon": "1"}
    quoted = browser.get(train, params=query)
    assert quoted.status_code == 200, quoted.text
    assert "does not use the profile" not in text_of(quoted)
    submitted = browser.post(train, data=fields(quoted.text.rpartition("<form")[2]))
    job = server.ended(submitted.headers["Location"].removeprefix("/ui/jobs/"))
    model = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert profile["id"] in str(model)
    unknown = browser.get(train, params=query | {"profile": "prof_unknown"})
    assert unknown.status_code == 404


def test_a_profile_of_a_number_shows_its_mean_and_quantiles(server: Server) -> None:
    schema = {**SCHEMA, "label": NUMBER}
    dataset = server.declared(schema=schema)["id"]
    browser = signed_in(server, server.admin)
    query = {"epsilon": "2"}
    quoted = browser.get(f"/ui/datasets/{dataset}/profiles/new", params=query)
    shown = text_of(quoted)
    assert "All rows: within ± " in shown
    assert "Mean of weight. The number " in shown
    assert "Quantiles of weight. Each number is " in shown
    assert "The rows of each class:" not in shown


def test_wrong_fields_refusals_and_roles_are_those_of_other_forms(
    server: Server,
) -> None:
    budget = {"accountant": "pure", "epsilon": "1"}
    dataset = server.uploaded(20, budget=budget)["id"]
    profile = _released(server, dataset, epsilon="0.5")
    path = f"/ui/datasets/{dataset}/profiles/new"
    browser = signed_in(server, server.granted(dataset, "analyst"))
    wrong = browser.get(path, params={"epsilon": "1", "class_share": "2"})
    assert wrong.status_code == 422
    assert "class_share" in wrong.text.partition("<main")[2]
    too_much = browser.get(path, params={"epsilon": "0.75", "bins": "8"})
    assert "It does not fit." in text_of(too_much)
    offered = too_much.text.partition('<a class="button" href="?')[2].partition('"')[0]
    assert "bins=8" in offered
    assert "Release and spend" not in too_much.text
    for caller, status in (
        (server.granted(dataset, "predictor"), 403),
        (server.caller(), 404),
    ):
        other = signed_in(server, caller)
        page = f"/ui/profiles/{profile['id']}"
        assert {other.get(it).status_code for it in (path, page, f"{page}/file")} == {
            status
        }
    server.admin.http.delete(f"/datasets/{dataset}").raise_for_status()
    listed = browser.get(f"/ui/datasets/{dataset}/statistics").text
    assert f'href="/ui/profiles/{profile["id"]}"' in listed
    assert path not in listed
    assert browser.get(f"/ui/profiles/{profile['id']}").status_code == 200


def test_both_kinds_are_on_one_list_with_pages(server: Server) -> None:
    dataset = server.uploaded(20)["id"]
    table = {"statistic": "count"}
    answer = server.admin.http.post(
        f"/datasets/{dataset}/statistics",
        json={"epsilon": "1", "tables": [table]},
        headers=new_idempotency_key(),
    )
    server.ended(answer.json()["job_id"])
    _released(server, dataset, epsilon="1")
    browser = signed_in(server, server.admin)
    path = f"/ui/datasets/{dataset}/statistics"
    first = browser.get(path, params={"limit": 1})
    assert 'href="/ui/profiles/' in first.text
    following = re.search(r'href="\?([^"]*cursor=[^"]*)"', first.text)
    assert following is not None
    second = browser.get(f"{path}?{following[1].replace('&amp;', '&')}")
    assert 'href="/ui/statistics/' in second.text
    for kind in ("profiles", "statistics"):
        listed = server.admin.http.get(f"/datasets/{dataset}/{kind}").json()
        assert len(listed[kind]) == 1, "the API lists each kind by itself"

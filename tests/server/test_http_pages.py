"""The dashboard over HTTP: sessions, forms, the authority of each page, and pages that
obey no stored text.
"""

import re
import secrets
from dataclasses import replace
from html import escape, unescape
from urllib.parse import urlencode

import pytest
from fastapi.routing import APIRoute

from app.api.authentication import COOKIE
from app.api.pages.rendering import POLICY
from app.api.pages.routers import PAGES
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.pages import hidden, signed_in
from tests.support.server import CSV, Server
from tests.support.set_limits import SetLimit

HOSTILE = "<script>alert('x')</script>"


@on_one_idle_server
def test_without_a_session_every_page_leads_to_the_sign_in_and_back(
    idle_server: Server,
) -> None:
    browser = idle_server.client(None)
    asked = "/ui/jobs?state=failed&dataset=a%26b"
    for path in ("/", "/ui", "/ui/jobs", asked, "/ui/ledger/ds_x", "/ui/nothing"):
        answer = browser.get(path)
        assert (answer.status_code, answer.content) == (303, b"")
        assert answer.headers["Location"] == f"/ui/sign-in?{urlencode({'next': path})}"
    too_long = browser.get(f"/ui/jobs?cursor={'x' * 2_000}").headers["Location"]
    assert too_long == "/ui/sign-in?next=%2Fui%2Fjobs"
    form = browser.get(f"/ui/sign-in?{urlencode({'next': asked})}").text
    assert f'name="next" value="{escape(asked)}"' in form
    back = {"key": idle_server.admin.key, "next": asked}
    answer = browser.post("/ui/sign-in", data=back, headers={"Origin": idle_server.url})
    assert answer.headers["Location"] == asked
    assert browser.get("/ui/style.css").headers["Content-Type"].startswith("text/css")
    assert (
        browser.get("/ui/live.js").headers["Content-Type"].startswith("text/javascript")
    )


@on_one_idle_server
def test_the_address_of_a_form_opened_anew_leads_to_the_page_above_it(
    idle_server: Server,
) -> None:
    """Whether the record exists or not: the page above knows who may see it."""
    dataset = idle_server.declared()["id"]
    browser = signed_in(idle_server, idle_server.caller())
    for path in (
        "/ui/models/md_x/predictions", "/ui/models/md_x/aliases", "/ui/models/md_x/delete",
        "/ui/jobs/jb_x/cancel", "/ui/approvals/jb_x", "/ui/ledger/a name/cap",
        f"/ui/datasets/{dataset}/population",
    ):  # fmt: skip
        answer = browser.get(path)
        above = path.rpartition("/")[0].replace(" ", "%20")
        assert (answer.status_code, answer.headers["Location"]) == (303, above)
        if above != "/ui/approvals":
            assert browser.get(above).status_code == 404, "nothing of this caller's"
    for path in ("/ui/models/md_x/nothing", "/ui/datasets/ds_x/webhooks/wh_x"):
        assert browser.get(path).status_code == 404


@on_one_idle_server
def test_every_address_of_a_form_leads_to_a_page(idle_server: Server) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    of_forms = {
        re.sub(r"{.+?}", "x", route.path)
        for pages in PAGES[:-1]
        for route in pages.routes
        if isinstance(route, APIRoute) and "POST" in route.methods
    }
    assert len(of_forms) > 20
    for path in of_forms:
        answer = browser.get(path)
        if answer.status_code == 303:
            following = answer.headers["Location"]
            assert path.startswith(f"{following}/")
            assert browser.get(following).status_code in (200, 404)
    assert browser.get("/ui/datasets/x/webhooks/x/test").headers["Location"] == (
        "/ui/datasets/x/webhooks"
    )


@on_one_idle_server
def test_a_form_of_a_session_that_has_ended_is_said_to_have_no_effect(
    idle_server: Server,
) -> None:
    browser = idle_server.client(None)
    browser.headers["Origin"] = idle_server.url
    browser.cookies.set("grovekeeper", "ended")
    for path in ("/ui/admin/keys", "/ui/datasets/ds_x/rows"):
        answer = browser.post(path, data={"name": "x"})
        assert answer.status_code == 303
        page = browser.get(answer.headers["Location"]).text
        assert "the form that you sent had no effect" in page
    assert "had no effect" not in browser.get("/ui/sign-in").text


@on_one_idle_server
def test_a_session_needs_a_valid_key_and_never_holds_its_secret(
    idle_server: Server,
) -> None:
    browser = idle_server.client(None)
    browser.headers["Origin"] = idle_server.url
    assert (
        browser.post("/ui/sign-in", data={"key": "key_x." + "a" * 43}).status_code
        == 401
    )
    answer = browser.post(
        "/ui/sign-in", data={"key": f" {idle_server.admin.key} ", "next": "/ui/jobs"}
    )
    cookie = answer.headers["Set-Cookie"]
    assert answer.headers["Location"] == "/ui/jobs"
    assert idle_server.admin.key.partition(".")[2] not in cookie
    assert {"httponly", "samesite=lax", "path=/"} <= {
        part.strip().lower() for part in cookie.split(";")
    }
    assert (
        f'title="{idle_server.admin.id}">test admin (admin)<' in browser.get("/").text
    )
    for address in ("/ui", "/ui/"):
        shortened = browser.get(address)
        assert (shortened.status_code, shortened.headers["Location"]) == (303, "/")
    elsewhere = browser.post(
        "/ui/sign-in",
        data={"key": idle_server.admin.key},
        headers={"Host": "budget.example"},
    )
    assert elsewhere.status_code == 400, "the form's origin is another host"
    headers = {"Host": "budget.example", "Origin": "https://budget.example"}
    for port, status in (("443", 303), ("80", 400), ("4430", 400)):
        with_port = headers | {"Host": f"budget.example:{port}"}
        answer = browser.post(
            "/ui/sign-in", data={"key": idle_server.admin.key}, headers=with_port
        )
        assert answer.status_code == status, "a proxy may add the usual port of HTTPS"
    cookie = browser.post(
        "/ui/sign-in", data={"key": idle_server.admin.key}, headers=headers
    ).headers["Set-Cookie"]
    assert "secure" in cookie.lower(), (
        "beyond this machine, a browser transmits the cookie over HTTPS only"
    )
    assert cookie.startswith(f"__Host-{COOKIE}=")
    assert "domain" not in cookie.lower()
    name, value = cookie.partition(";")[0].split("=", 1)
    visit = idle_server.client(None)
    for sent, status in ((f"{name}={value}", 200), (f"{COOKIE}={value}", 303)):
        assert (
            visit.get(
                "/", headers={"Host": "budget.example", "Cookie": sent}
            ).status_code
            == status
        )


@on_one_idle_server
@pytest.mark.parametrize("forged", ["", "x", "WyJrZXlfYSIsbnVsbCxudWxsXQ.aaaaaa.bbbb"])
def test_a_forged_session_is_none(idle_server: Server, forged: str) -> None:
    assert (
        idle_server.client(None)
        .get("/", headers={"Cookie": f"{COOKIE}={forged}"})
        .status_code
        == 303
    )


@on_one_idle_server
@pytest.mark.parametrize("end", ["revoked", "rotated"])
def test_a_session_ends_with_its_key(idle_server: Server, end: str) -> None:
    caller = idle_server.caller("owner")
    browser = signed_in(idle_server, caller)
    assert browser.get("/").status_code == 200
    path = f"/keys/{caller.id}"
    admin = idle_server.admin.http
    ended = (
        admin.delete(path)
        if end == "revoked"
        else admin.post(f"{path}/secret", json={})
    )
    assert ended.is_success
    assert browser.get("/").status_code == 303
    if end == "rotated":
        with_new_secret = replace(caller, key=ended.json()["key"])
        again = signed_in(idle_server, with_new_secret)
        assert again.get("/").status_code == 200


@on_one_idle_server
def test_a_session_ends_after_its_time(
    idle_server: Server, set_limit: SetLimit
) -> None:
    """Whatever a browser does with the cookie: a copy of it may be anywhere."""
    browser = signed_in(idle_server, idle_server.admin)
    assert browser.get("/").status_code == 200
    set_limit("SIGN_IN_S", -1)
    assert browser.get("/").status_code == 303


@on_one_idle_server
def test_signing_out_removes_the_session(idle_server: Server) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    assert browser.post("/ui/sign-out").status_code == 303
    assert browser.get("/").status_code == 303


@on_one_idle_server
@pytest.mark.parametrize("path", ["/", "/ui/admin/keys", "/ui/acts"])
def test_a_search_for_a_text_that_no_database_stores_is_refused(
    idle_server: Server, path: str
) -> None:
    assert (
        signed_in(idle_server, idle_server.admin)
        .get(path, params={"name": "a\0b"})
        .status_code
        == 422
    )


@on_one_idle_server
def test_a_copy_of_a_session_ends_with_signing_out(idle_server: Server) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    other_browser = signed_in(idle_server, idle_server.admin)
    other_key = signed_in(idle_server, idle_server.caller("owner"))
    copy = idle_server.client(None)
    copy.cookies.update(browser.cookies)
    assert copy.get("/").status_code == 200
    assert browser.post("/ui/sign-out").status_code == 303
    assert [each.get("/").status_code for each in (copy, other_browser, other_key)] == [
        303,
        303,
        200,
    ]
    again = signed_in(idle_server, idle_server.admin)
    assert again.get("/").status_code == 200
    assert browser.post("/ui/sign-out").status_code == 303, (
        "a session that has ended ends no other"
    )
    assert again.get("/").status_code == 200


@on_one_idle_server
@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "https://elsewhere.example",
        "http://127.0.0.1:1",
        "http://[",
        "://",
    ],
)
def test_a_form_from_another_site_changes_nothing(
    idle_server: Server, origin: str | None
) -> None:
    dataset = idle_server.uploaded()["id"]
    browser = signed_in(idle_server, idle_server.admin)
    del browser.headers["Origin"]
    before = idle_server.footprint()
    headers = {} if origin is None else {"Origin": origin}
    form = {"algorithm": "mrf", "epsilon": "1", "once": "a" * 22}
    for path in (
        f"/ui/datasets/{dataset}/train",
        f"/ui/datasets/{dataset}/statistics/new",
        "/ui/jobs/jb_x/cancel",
        "/ui/sign-out",
        "/ui/models/md_x",
        "/ui/models/md_x/aliases",
        "/ui/models/md_x/evaluate",
        f"/ui/datasets/{dataset}/uploads/ep_x/erase",
        "/ui/datasets/new",
    ):
        assert browser.post(path, data=form, headers=headers).status_code == 400
    assert idle_server.footprint() == before


@on_one_idle_server
@pytest.mark.parametrize(
    "following",
    ["https://elsewhere.example", "//elsewhere.example", "/\\elsewhere", "/ui/sign-in"],
)
def test_signing_in_leads_to_no_other_site(idle_server: Server, following: str) -> None:
    browser = idle_server.client(None)
    answer = browser.post(
        "/ui/sign-in",
        data={"key": idle_server.admin.key, "next": following},
        headers={"Origin": idle_server.url},
    )
    assert answer.headers["Location"] == "/"


@on_one_idle_server
def test_a_session_is_no_key_of_the_api(idle_server: Server) -> None:
    """Otherwise a page of another site could call the API with the browser's cookie."""
    assert signed_in(idle_server, idle_server.admin).get("/datasets").status_code == 401


@on_one_server
def test_every_page_has_the_policy_and_what_the_api_would_answer(
    server: Server,
) -> None:
    dataset = server.uploaded(
        partitions=[{"name": "shard", "kind": "hash", "cells": 2}]
    )["id"]
    job = server.trained(dataset)
    pages = {
        "/": "/attention",
        "/ui/datasets": "/datasets",
        **{
            f"/ui/datasets/{dataset}{tab}": f"/datasets/{dataset}"
            for tab in ("", "/uploads", "/access", "/rules")
        },
        f"/ui/datasets/{dataset}/train?epsilon=1": None,
        f"/ui/datasets/{dataset}/statistics": f"/datasets/{dataset}/statistics",
        f"/ui/datasets/{dataset}/statistics/new?epsilon=1": None,
        "/ui/jobs": "/jobs",
        f"/ui/jobs/{job['id']}": f"/jobs/{job['id']}",
        "/ui/models": "/models",
        f"/ui/models/{job['model_id']}": f"/models/{job['model_id']}",
        "/ui/ledger": "/ledger",
        f"/ui/ledger/{dataset}": f"/ledger/{dataset}/entries",
        f"/ui/ledger/{dataset}/export": f"/ledger/{dataset}/export",
        f"/ui/ledger/{dataset}/checkpoint": f"/ledger/{dataset}/checkpoint",
        "/ui/signer.pem": "/signer",
    }
    roles = ("owner", "analyst", "predictor", "auditor")
    for caller in (
        server.admin,
        server.caller(),
        *(server.granted(dataset, role) for role in roles),
    ):
        browser = signed_in(server, caller)
        for page, call in pages.items():
            answer = browser.get(page)
            if call is not None:
                assert answer.status_code == caller.http.get(call).status_code, (
                    page,
                    answer.text,
                )
            if answer.headers["Content-Type"].startswith("text/html"):
                assert answer.headers["Content-Security-Policy"] == POLICY
                assert "style=" not in answer.text
                assert "onclick" not in answer.text


@on_one_idle_server
def test_the_list_is_searched_by_name_and_says_what_fits_and_who_one_is(
    idle_server: Server,
) -> None:
    word = secrets.token_hex(8)
    full, empty = (
        idle_server.uploaded(
            name=f"{word}-{name}", budget={"accountant": "pure", "epsilon": "2"}
        )["id"]
        for name in ("full", "empty")
    )
    caller = idle_server.granted(full, "analyst")
    idle_server.admin.http.put(
        f"/datasets/{empty}/grants/{caller.id}", json={"role": "auditor"}
    ).raise_for_status()
    rules = {
        "largest_job": "0.75",
        "approval_above": None,
        "quotas": [],
        "frozen": False,
        "erase_rows_at": None,
    }
    idle_server.admin.http.put(
        f"/datasets/{empty}/rules", json=rules
    ).raise_for_status()
    assert idle_server.submitted(full, epsilon="1.5").status_code == 202
    page = (
        signed_in(idle_server, caller)
        .get("/ui/datasets", params={"name": word.upper()})
        .text
    )
    first, second = page.split("<tr>")[2:]
    assert (f"{word}-full" in first, f"{word}-empty" in second) == (True, True), (
        "the fullest first"
    )
    assert (">analyst</td>" in first, "auditor <span" in second) == (
        True,
        True,
    )
    assert ("ε = 0.5</td>" in first, "ε = 0.75 <span" in second) == (
        True,
        True,
    )
    assert ("may not submit" in first, "may not submit" in second) == (False, True)
    named = caller.http.get("/datasets", params={"name": f"{word}-f"}).json()[
        "datasets"
    ]
    assert [dataset["id"] for dataset in named] == [full]
    nothing = (
        signed_in(idle_server, caller)
        .get("/ui/datasets", params={"name": "100%_"})
        .text
    )
    assert "No dataset that your key sees matches" in nothing


@on_one_idle_server
def test_a_job_is_quoted_submitted_once_and_refused_with_what_fits(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded(budget={"accountant": "pure", "epsilon": "1"})["id"]
    browser = signed_in(idle_server, idle_server.admin)
    page = browser.get(
        f"/ui/datasets/{dataset}/train", params={"algorithm": "mrf", "epsilon": "0.75"}
    ).text
    assert 'left, and 0.75 for this job">' in page, "the bar in words, without tags"
    assert "Train and spend 0.75 ε" in page
    form = hidden(page)
    answers = [
        browser.post(f"/ui/datasets/{dataset}/train", data=form) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [303, 303]
    assert answers[0].headers["Location"] == answers[1].headers["Location"]
    assert idle_server.admin.http.get(f"/ledger/{dataset}").json()["reserved"] == "0.75"
    analyst = signed_in(idle_server, idle_server.granted(dataset, "analyst"))
    own = analyst.post(f"/ui/datasets/{dataset}/train", data=form)
    assert own.status_code == 409, "the same form of another key is another request"
    job = browser.get(answers[0].headers["Location"]).text
    assert "queued" in job
    assert "0.75 ε" in job

    refused = browser.post(
        f"/ui/datasets/{dataset}/train", data={**form, "once": "b" * 22}
    )
    assert refused.status_code == 409
    assert "The largest ε that fits: <strong>0.25</strong>" in refused.text
    ended = answers[0].headers["Location"]
    assert browser.post(f"{ended}/cancel").status_code == 303
    again = f"/ui/datasets/{dataset}/train?algorithm=mrf&amp;epsilon=0.75"
    assert f'href="{again}"' in browser.get(ended).text
    assert idle_server.admin.http.get(f"/ledger/{dataset}").json()["reserved"] == "0"


@on_one_idle_server
def test_chosen_cells_are_the_scope_of_the_quote_and_of_the_job(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded(
        partitions=[{"name": "shard", "kind": "hash", "cells": 4}]
    )["id"]
    browser, path = (
        signed_in(idle_server, idle_server.admin),
        f"/ui/datasets/{dataset}/train",
    )
    page = browser.get(
        path,
        params={
            "algorithm": "mrf",
            "epsilon": "0.5",
            "cells": ['["shard", 1]', '["shard", 3]'],
        },
    )
    assert ", shard=1, 3</h2>" in page.text.partition("mrf at ε = 0.5 on ")[2]
    assert page.text.count(" checked>") == 2
    job = browser.post(path, data=hidden(page.text)).headers["Location"]
    assert job.startswith("/ui/jobs/")
    entry = idle_server.admin.http.get(f"/ledger/{dataset}/entries").json()["entries"][
        -1
    ]
    assert (entry["kind"], entry["scope"]) == ("reserve", {"shard": [1, 3]})
    for wrong in ('["shard", 4]', '["shard"]', "shard"):
        assert (
            browser.get(path, params={"epsilon": "1", "cells": wrong}).status_code
            == 422
        )


@on_one_idle_server
def test_the_largest_job_that_fits_is_one_click_away(idle_server: Server) -> None:
    dataset = idle_server.uploaded(budget={"accountant": "pure", "epsilon": "1"})["id"]
    browser, path = (
        signed_in(idle_server, idle_server.admin),
        f"/ui/datasets/{dataset}/train",
    )
    refused = browser.get(path, params={"algorithm": "mrf", "epsilon": "2"}).text
    assert "Train and spend" not in refused
    link = re.search(r'<a class="button" href="([^"]+)">Ask for ε = 1 instead', refused)
    assert link is not None
    assert "Train and spend 1 ε" in browser.get(f"{path}{unescape(link[1])}").text


@on_one_idle_server
def test_a_quote_shows_the_population_that_refuses_and_the_odds_of_the_job(
    idle_server: Server,
) -> None:
    name = f"patients-{secrets.token_hex(6)}"
    body = {"name": name, "budget": {"accountant": "pure", "epsilon": "1"}}
    assert idle_server.admin.http.post("/populations", json=body).status_code == 201
    dataset = idle_server.uploaded(population=name)["id"]
    browser, path = (
        signed_in(idle_server, idle_server.admin),
        f"/ui/datasets/{dataset}/train",
    )
    page = browser.get(path, params={"algorithm": "mrf", "epsilon": "2"}).text
    assert f"Limited by the cap of the population {name}, which leaves less" in page
    assert "0 of 1 ε charged" in page
    assert "Ask for ε = 1 instead" in page
    assert "guesses right at most 89 % of the time" in page, "1 / (1 + exp(-2))"


@on_one_idle_server
def test_a_quote_shows_what_public_tables_recovered_and_the_epsilon_of_a_needed_share(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded(public_size=30_000)["id"]
    browser, path = (
        signed_in(idle_server, idle_server.admin),
        f"/ui/datasets/{dataset}/train",
    )
    request = {"dataset": dataset, "algorithm": "rpf", "epsilon": "0.5"}
    expected = idle_server.admin.http.post("/plans", json=request).json()[
        "expected_accuracy"
    ]
    needed = next(at["epsilon"] for at in expected["curve"] if at["middle"] >= 0.85)
    page = browser.get(
        path, params={"algorithm": "rpf", "epsilon": "0.5", "recover": "85"}
    ).text
    assert all(f">{table['table']}</text>" in page for table in expected["tables"])
    assert f"recovered 85 % from ε = {needed} on" in page
    shown = " ".join(page.split())
    assert expected["sentence"] in shown
    assert (
        f"recovered {round(100 * expected['band']['middle'])} % in the middle"
        in expected["spread"]
    )
    assert shown.count(expected["spread"]) == 2, (
        "as a sentence, and as the words of the picture"
    )
    assert expected["sentence"].startswith("Expect about ")
    assert all(name in expected["sentence"] for name in expected["without_gain"])
    assert f"{expected['auroc']['middle']:.2f} in the middle" in expected["sentence"]
    assert (
        browser.get(
            path, params={"algorithm": "rpf", "epsilon": "0.5", "recover": "x"}
        ).status_code
        == 422
    )
    unknown = idle_server.uploaded(public_size=None)["id"]
    page = browser.get(
        f"/ui/datasets/{unknown}/train", params={"algorithm": "rpf", "epsilon": "0.5"}
    ).text
    assert "declares no public size" in page
    assert (
        "Nearest measured: rpf on pure accounts, 12 public tables at ε = 0.1 to 10"
        in page
    )


@on_one_idle_server
def test_a_job_that_needs_an_approval_is_announced_and_waits(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded()["id"]
    rules = {
        "largest_job": None,
        "approval_above": "0.5",
        "quotas": [],
        "frozen": False,
        "erase_rows_at": None,
    }
    assert (
        idle_server.admin.http.put(f"/datasets/{dataset}/rules", json=rules).status_code
        == 200
    )
    browser = signed_in(idle_server, idle_server.admin)
    path = f"/ui/datasets/{dataset}/train"
    within, above = (
        browser.get(path, params={"algorithm": "mrf", "epsilon": epsilon}).text
        for epsilon in ("0.5", "1")
    )
    assert "The job waits until an owner other than you approves it" in above
    assert "approves it" not in within
    job = browser.get(browser.post(path, data=hidden(above)).headers["Location"]).text
    assert "It waits for the approval of an owner" in job


@on_one_idle_server
@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("epsilon", "1_0", "epsilon"),
        ("epsilon", "-1", "epsilon"),
        ("scope", "{", "scope"),
        ("algorithm", "x", "algorithm"),
    ],
)
def test_a_wrong_field_is_named_and_costs_nothing(
    idle_server: Server, field: str, text: str, said: str
) -> None:
    dataset = idle_server.uploaded()["id"]
    browser = signed_in(idle_server, idle_server.admin)
    answer = browser.get(
        f"/ui/datasets/{dataset}/train",
        params={"algorithm": "mrf", "epsilon": "1", field: text},
    )
    assert answer.status_code == 422
    assert f"<li>{said}: " in answer.text


@on_one_server
def test_the_list_of_models_has_the_cells_and_the_price_of_each(server: Server) -> None:
    dataset = server.uploaded(
        partitions=[{"name": "shard", "kind": "hash", "cells": 2}]
    )["id"]
    whole = server.trained(dataset, epsilon="0.5")
    part = server.trained(dataset, epsilon="0.25", scope={"shard": [1]})
    predictor = server.granted(dataset, "predictor")
    listed = predictor.http.get(f"/models?dataset={dataset}").json()["models"]
    assert [model["id"] for model in listed] == [part["model_id"], whole["model_id"]]
    assert [model["scope"] for model in listed] == [{"shard": [1]}, {}]
    assert [model["price"] for model in listed] == [part["price"], whole["price"]]
    for model in listed:
        card = predictor.http.get(f"/models/{model['id']}").json()
        assert card["scope"] == model["scope"]
    page = signed_in(server, predictor).get(f"/ui/models?dataset={dataset}").text
    assert page.index('title="0.25 ε"') < page.index('title="0.5 ε"')
    assert page.index("shard=1") < page.index("the whole dataset")


@on_one_server
def test_a_prediction_is_that_of_the_api(server: Server) -> None:
    dataset = server.uploaded()["id"]
    model = server.trained(dataset)["model_id"]
    row = {"age": 39, "height": 1.5, "sex": "Male"}
    expected = server.admin.http.post(
        f"/models/{model}/predict", json={"rows": [row]}
    ).json()
    browser = signed_in(server, server.granted(dataset, "predictor"))
    page = browser.post(
        f"/ui/models/{model}",
        data={f"feature.{name}": value for name, value in row.items()},
    ).text
    assert (
        f'<tr class="chosen"><th scope="row">{expected["labels"][0].replace("<", "&lt;").replace(">", "&gt;")}'
        in page
    )
    assert f"{100 * max(expected['probabilities'][0]):.1f} %" in page
    wrong = browser.post(
        f"/ui/models/{model}",
        data={"feature.age": "old", "feature.height": "", "feature.sex": ""},
    )
    assert wrong.status_code == 422


@on_one_server
def test_the_form_of_a_row_reads_texts_as_files_are_read(server: Server) -> None:
    bounds = {"lower": 0, "upper": 100, "missing": True}
    days = {"lower": "2020-01-01", "upper": "2024-12-31", "missing": True}
    schema = {
        "features": [
            {"name": "n_days", "type": "numeric", **bounds},
            {"name": "d", "type": "date", **days},
        ],
        "label": {"name": "y", "classes": ["a", "b"]},
        "missing_values": ["NA", "."],
    }
    dataset = server.declared(schema=schema)["id"]
    uploaded = server.admin.http.post(
        f"/datasets/{dataset}/rows", content="n_days,d,y\n1,2024-02-29,a\n", headers=CSV
    )
    assert uploaded.status_code == 201
    model = server.trained(dataset)["model_id"]
    browser = signed_in(server, server.granted(dataset, "predictor"))

    def page_of(n_days: str, d: str) -> tuple[int, str]:
        sent = {"feature.n_days": n_days, "feature.d": d}
        answer = browser.post(f"/ui/models/{model}", data=sent)
        return answer.status_code, unescape(answer.text)

    status, page = page_of(" NA ", ".")
    assert status == 200, page
    status, page = page_of("80,5", "29.02.2024")
    assert status == 422
    assert "n_days: Not a number: a comma in a number; a decimal point" in page
    assert "d: Not a date such as 2024-02-29: dates in another form" in page
    assert "rows 0" not in page


@on_one_server
def test_stored_texts_are_shown_and_not_obeyed(server: Server) -> None:
    schema = {
        "features": [
            {
                "name": HOSTILE,
                "type": "categorical",
                "categories": [HOSTILE, "'\"><img src=x onerror=y>"],
            },
            {"name": "n", "type": "numeric", "lower": 0, "upper": 1, "missing": True},
        ],
        "label": {"name": "income", "classes": [HOSTILE, ">50K"]},
    }
    dataset = server.declared(schema=schema)["id"]
    rows = f'"{HOSTILE}",n,income\r\n"{HOSTILE}",0.5,>50K\r\n'
    assert (
        server.admin.http.post(
            f"/datasets/{dataset}/rows",
            content=rows,
            headers={"Content-Type": "text/csv"},
        ).status_code
        == 201
    )
    job = server.trained(dataset, name=HOSTILE)
    browser = signed_in(server, server.admin)
    paths = (
        f"/ui/datasets/{dataset}",
        "/ui/jobs",
        f"/ui/jobs/{job['id']}",
        f"/ui/models/{job['model_id']}",
    )
    for path in paths:
        page = browser.get(path).text
        assert "&lt;script&gt;" in page
        assert HOSTILE not in page
        assert "<img" not in page


def test_the_parts_of_a_dataset_are_tabs_of_one_page(idle_server: Server) -> None:
    """Also those whose pages show all datasets, or a population."""
    dataset = idle_server.declared()["id"]
    browser = signed_in(idle_server, idle_server.granted(dataset, "owner"))
    overview = _tabs(browser.get(f"/ui/datasets/{dataset}").text)
    assert len(overview) == 9
    for path, label in overview.items():
        shown = browser.get(path).text
        assert _tabs(shown) == overview, label
        assert f'href="{path}" aria-current="page">{label}</a>' in shown


def _tabs(page: str) -> dict[str, str]:
    tabs = page.partition('<nav class="tabs"')[2].partition("</nav>")[0]
    return dict(re.findall(r'<a href="([^"]+)"[^>]*>([^<]+)</a>', tabs))


@on_one_idle_server
def test_datasets_are_listed_by_population_and_by_the_role_of_the_key(
    idle_server: Server,
) -> None:
    people = f"people-{secrets.token_hex(4)}"
    body = {"name": people, "budget": {"accountant": "pure", "epsilon": "9"}}
    opened = idle_server.admin.http.post("/populations", json=body)
    assert opened.status_code == 201, opened.text
    member = idle_server.declared(population=people)
    alone = idle_server.declared()
    reader = idle_server.granted(member["id"], "analyst")
    as_auditor = f"/datasets/{alone['id']}/grants/{reader.id}"
    idle_server.admin.http.put(as_auditor, json={"role": "auditor"})
    browser = signed_in(idle_server, reader)
    cases: list[tuple[dict[str, str], set[str]]] = [
        ({}, {member["id"], alone["id"]}),
        ({"population": people}, {member["id"]}),
        ({"population": opened.json()["id"]}, {member["id"]}),
        ({"population": "nobody"}, set()),
        ({"role": "auditor"}, {alone["id"]}),
        ({"role": "auditor", "population": people}, set()),
        ({"role": "owner"}, set()),
    ]
    for fields, expected in cases:
        listed = reader.http.get("/datasets", params=fields).json()["datasets"]
        assert {dataset["id"] for dataset in listed} == expected
        page = browser.get("/ui/datasets", params=fields).text
        assert set(re.findall(r"/ui/datasets/(ds_[a-z0-9]+)", page)) == expected
    refused = reader.http.get("/datasets", params={"role": "king"})
    assert refused.status_code == 422

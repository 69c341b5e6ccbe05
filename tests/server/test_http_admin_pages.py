"""The pages of administration over HTTP: keys, approvals, populations and caps, with
the permissions of the API.
"""

import re
import secrets
from importlib.metadata import version
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from app.access.tables import AnswerRow
from app.db.revisions import head_revision
from tests.support.databases import on_one_idle_server
from tests.support.estate import with_person
from tests.support.pages import section, signed_in, text_of
from tests.support.server import (
    Caller,
    Server,
    declaration,
    new_idempotency_key,
    training,
)
from tests.support.set_limits import SetLimit

pytestmark = on_one_idle_server

ADMINISTRATION = ("/ui/admin", "/ui/admin/keys")


def _acts_of(server: Server, fact: str, value: str) -> list[dict[str, Any]]:
    """The administrative acts with a fact among their details, in order."""
    acts, cursor = [], None
    while True:
        parameters = {"limit": "500"} | ({} if cursor is None else {"cursor": cursor})
        answer = server.admin.http.get("/audit", params=parameters).json()
        acts += [act for act in answer["acts"] if act["details"].get(fact) == value]
        cursor = answer["next"]
        if cursor is None:
            return acts


def _secret(page: httpx.Response) -> str:
    matched = re.search(r'<pre id="secret">([^<]+)</pre>', page.text)
    assert matched is not None, page.text
    return matched[1]


def _waiting(server: Server) -> tuple[str, Caller, str]:
    """A dataset that asks for approvals, an analyst, and a job of the analyst that
    waits.
    """
    dataset = server.uploaded()["id"]
    rules = {
        "largest_job": None,
        "approval_above": "0.5",
        "quotas": [],
        "frozen": False,
        "erase_rows_at": None,
    }
    server.admin.http.put(f"/datasets/{dataset}/rules", json=rules).raise_for_status()
    analyst = server.granted(dataset, "analyst")
    answer = analyst.http.post(
        "/train", json=training(dataset, epsilon="1"), headers=new_idempotency_key()
    )
    assert answer.status_code == 202, answer.text
    return dataset, analyst, answer.json()["job_id"]


def test_administration_says_which_version_runs_and_whether_uploads_find_room(
    idle_server: Server, set_limit: SetLimit
) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    shown = text_of(browser.get("/ui/admin"))
    running = (
        f"Version {version('grovekeeper')}, database at revision {head_revision()}"
    )
    assert running in shown
    assert "has room for uploads" in shown
    set_limit("MIN_FREE_UPLOAD_BYTES", 2**62)
    assert "too full: uploads are refused" in text_of(browser.get("/ui/admin"))


@pytest.mark.parametrize(
    ("accountant", "unit", "cap"), [("zcdp", "rho", "0.25"), ("gdp", "mu_squared", "4")]
)
def test_a_cap_is_typed_in_the_unit_of_its_account(
    idle_server: Server, accountant: str, unit: str, cap: str
) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    typed = {"zcdp": "0.25", "gdp": "2"}[accountant]
    name = f"people-{secrets.token_hex(4)}"
    form = {"name": name, "accountant": accountant, "epsilon": typed, "delta": "1e-6"}
    sent = (
        form
        | {"cap_unit": "own"}
        | _once(browser.get("/ui/populations"), "/ui/populations")
    )
    assert browser.post("/ui/populations", data=sent).status_code == 303
    listed = idle_server.admin.http.get("/populations?limit=500").json()["populations"]
    (opened,) = [item for item in listed if item["name"] == name]
    assert (opened["unit"], opened["cap"]) == (unit, cap)

    page = f"/ui/ledger/{opened['id']}"
    lower = {
        "cap": "0.125",
        "cap_unit": "own",
        "accountant": accountant,
        "reason": "less",
    }
    sent = lower | _once(browser.get(page), f"{page}/cap")
    assert browser.post(f"{page}/cap", data=sent).status_code == 303
    balance = idle_server.admin.http.get(f"/ledger/{opened['id']}").json()
    assert balance["cap"] == {"zcdp": "0.125", "gdp": "0.015625"}[accountant]


def test_a_population_with_a_pure_account_takes_no_cap_in_another_unit(
    idle_server: Server,
) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    name = f"people-{secrets.token_hex(4)}"
    form = {"name": name, "accountant": "pure", "epsilon": "2", "cap_unit": "own"}
    refused = browser.post("/ui/populations", data=form)
    assert refused.status_code == 422
    assert "ρ is of zcdp accounts and μ of gdp accounts" in refused.text
    assert name not in browser.get("/ui/populations").text


def test_administration_is_for_admins_alone(idle_server: Server) -> None:
    other = idle_server.caller("owner", "auditor")
    browser, admin = (
        signed_in(idle_server, other),
        signed_in(idle_server, idle_server.admin),
    )
    for path in ADMINISTRATION:
        assert admin.get(path).status_code == 200
        assert browser.get(path).status_code == 403
    assert 'href="/ui/admin"' in admin.get("/").text
    assert 'href="/ui/admin"' not in browser.get("/").text
    before = idle_server.footprint()
    for path in (
        "/ui/admin/keys",
        f"/ui/admin/keys/{other.id}/rotate",
        f"/ui/admin/keys/{other.id}/revoke",
    ):
        assert (
            browser.post(
                path, data={"name": "another", "role.admin": "yes"}
            ).status_code
            == 403
        )
    assert idle_server.footprint() == before


def test_a_form_that_is_sent_twice_shows_its_secret_again_and_the_database_has_none(
    idle_server: Server,
) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    once = {"once": secrets.token_urlsafe(16)}
    form = once | {"name": f"churn {secrets.token_hex(8)}"}
    shown = {_secret(browser.post("/ui/admin/keys", data=form)) for _ in range(2)}
    rotate = f"/ui/admin/keys/{min(shown).partition('.')[0]}/rotate"
    shown |= {_secret(browser.post(rotate, data=once)) for _ in range(2)}
    assert len(shown) == 2
    with idle_server.database.read() as session:
        stored = list(session.scalars(select(AnswerRow.body)))
    for key in shown:
        secret = key.partition(".")[2].encode()
        assert not [body for body in stored if secret in bytes(body)]


def test_a_key_is_issued_rotated_and_revoked_by_form(idle_server: Server) -> None:
    browser, name = (
        signed_in(idle_server, idle_server.admin),
        f"churn {secrets.token_hex(8)}",
    )
    form = {"name": name, "role.auditor": "yes", "expires_at": "2030-01-02T03:04"}
    issued = browser.post("/ui/admin/keys", data=form)
    first = _secret(issued)
    key_id = first.partition(".")[0]
    assert issued.headers["Cache-Control"] == "no-store"
    key = idle_server.client(first)
    assert key.get("/audit").status_code == 200
    rotated = browser.post(f"/ui/admin/keys/{key_id}/rotate", data={"expires_at": ""})
    second = _secret(rotated)
    assert key.get("/audit").status_code == 401
    assert idle_server.client(second).get("/audit").status_code == 200
    revocation = f"/ui/admin/keys/{key_id}/revoke"
    assert name in browser.get(revocation).text
    assert idle_server.client(second).get("/audit").status_code == 200, (
        "the page asks, and changes nothing"
    )
    assert browser.post(revocation).headers["Location"] == "/ui/admin/keys"
    assert "was revoked on" in browser.get(revocation).text
    assert idle_server.client(second).get("/audit").status_code == 401
    acts = _acts_of(idle_server, "key", key_id)
    assert [act["kind"] for act in acts] == ["key-made", "key-rotated", "key-revoked"]
    assert {act["actor"] for act in acts} == {idle_server.admin.id}
    assert acts[0]["details"]["expires_at"] == "2030-01-02T03:04:00.000000Z"
    pages, path = "", "/ui/admin/keys?limit=500"
    while path:
        page = browser.get(path).text
        pages += page
        following = re.search(r'<a href="([^"]+)">Next page<', page)
        path = f"/ui/admin/keys{following[1]}&limit=500" if following else ""
    assert name in pages
    found = browser.get("/ui/admin/keys", params={"name": name.upper()}).text
    assert re.findall(r"/ui/admin/keys/([^/]+)/revoke", found) == [], (
        "a revoked key has no form"
    )
    assert re.findall(
        r'<tr><th scope="row"><bdi>([^<]+)</bdi> <code>([^<]+)</code>', found
    ) == [(name, key_id)]
    for secret in (first, second):
        assert secret.partition(".")[2] not in pages, "no later page shows a secret"


def _once(page: httpx.Response, action: str) -> dict[str, str]:
    """The hidden field that makes a form that is sent twice one request."""
    matched = re.search(
        rf'action="{action}(?:#\w+)?"[^>]*>\s*<input type="hidden" name="once" value="([^"]+)">',
        page.text,
    )
    assert matched is not None, page.text
    return {"once": matched[1]}


def test_a_form_that_is_sent_twice_makes_one_key_and_shows_its_secret_twice(
    idle_server: Server,
) -> None:
    """A browser shows the answer to the second of two clicks, and reloads an answer by
    sending its form again.
    """
    browser, name = (
        signed_in(idle_server, idle_server.admin),
        f"twice {secrets.token_hex(8)}",
    )
    form = {"name": name} | _once(browser.get("/ui/admin/keys"), "/ui/admin/keys")
    first, again = (
        _secret(browser.post("/ui/admin/keys", data=form)) for _ in range(2)
    )
    assert first == again
    assert (
        len(
            re.findall(
                rf'<th scope="row"><bdi>{name}</bdi> ',
                browser.get("/ui/admin/keys", params={"name": name}).text,
            )
        )
        == 1
    )
    other = browser.post("/ui/admin/keys", data=form | {"name": f"{name} b"})
    assert other.status_code == 422, "another form is not answered by a stored answer"
    path = f"/ui/admin/keys/{first.partition('.')[0]}/rotate"
    rotation = {"expires_at": ""} | _once(
        browser.get("/ui/admin/keys", params={"name": name}), path
    )
    second, again = (_secret(browser.post(path, data=rotation)) for _ in range(2))
    assert second == again != first
    assert idle_server.client(second).get("/datasets").status_code == 200
    kinds = [
        act["kind"] for act in _acts_of(idle_server, "key", first.partition(".")[0])
    ]
    assert kinds == ["key-made", "key-rotated"]


def test_the_page_that_revokes_a_key_names_the_datasets_that_will_have_no_owner(
    idle_server: Server,
) -> None:
    owner, browser = (
        idle_server.caller("owner"),
        signed_in(idle_server, idle_server.admin),
    )
    alone, shared = (
        owner.http.post("/datasets", json=declaration()).json()["id"],
        owner.http.post("/datasets", json=declaration()).json()["id"],
    )
    idle_server.granted(shared, "owner")
    page = browser.get(f"/ui/admin/keys/{owner.id}/revoke").text
    assert "will have no owner" in page
    assert (alone in page, shared in page) == (True, False)
    assert browser.post(f"/ui/admin/keys/{owner.id}/revoke").status_code == 303, (
        "a revocation is for security"
    )
    assert owner.http.get("/datasets").status_code == 401


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"expires_at": "2001-01-01T00:00"}, {"expires_at": "soon"}]
)
def test_a_key_that_breaks_a_rule_is_not_made(
    idle_server: Server, wrong: dict[str, str]
) -> None:
    browser, before = signed_in(idle_server, idle_server.admin), idle_server.footprint()
    answer = browser.post("/ui/admin/keys", data={"name": "x"} | wrong)
    assert answer.status_code == 422
    assert f"<li>{'expires at' if 'expires_at' in wrong else 'name'}: " in answer.text
    assert f'name="name" value="{({"name": "x"} | wrong)["name"]}"' in answer.text, (
        "the form stays as it was sent"
    )
    assert idle_server.footprint() == before


def test_a_name_of_letters_from_right_to_left_turns_no_text_beside_it(
    idle_server: Server,
) -> None:
    """Without the element, a number that follows such a name stands before it."""
    browser = signed_in(idle_server, idle_server.admin)
    name = f"\u05de\u05e4\u05ea\u05d7 {secrets.token_hex(8)}"
    made = browser.post("/ui/admin/keys", data={"name": name, "role.owner": "yes"})
    assert f"The secret of <bdi>{name}</bdi>" in made.text
    [key_id] = re.findall(r"<dd><code>(key_\w+)</code>", made.text)
    for path in ("/ui/admin/keys", f"/ui/admin/keys/{key_id}/revoke"):
        shown = f"<bdi>{name}</bdi> <code>{key_id}</code>"
        assert shown in browser.get(path).text, path


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_owner_decides_about_a_waiting_job_by_form(
    idle_server: Server, decision: str
) -> None:
    dataset, analyst, job = _waiting(idle_server)
    owner = idle_server.granted(dataset, "owner")
    browser, path = signed_in(idle_server, owner), f"/ui/approvals/{job}"
    assert (
        f"submitted by <bdi>test</bdi> <code>{analyst.id}</code>"
        in browser.get("/ui/approvals").text
    )
    assert "/ui/approvals" in browser.get("/ui/jobs").text
    named = idle_server.admin.http.get(f"/datasets/{dataset}").json()["name"]
    home = browser.get("/").text
    assert "/ui/approvals" in home
    assert f"test asked for rdt-ta on {named}" in section(home, "today")
    assert job in section(
        signed_in(idle_server, idle_server.admin).get("/ui/admin").text, "approvals"
    )
    assert (
        signed_in(idle_server, analyst)
        .post(path, data={"decision": decision, "reason": "x"})
        .status_code
        == 403
    )
    unreasoned = browser.post(path, data={"decision": decision, "reason": " "})
    assert unreasoned.status_code == 422
    assert "<li>reason: " in unreasoned.text
    decided = browser.post(
        path, data={"decision": decision, "reason": "the study ends"}
    )
    shown = f"/ui/approvals?decided={job}"
    assert (decided.status_code, decided.headers["Location"]) == (303, shown)
    state, kind = {
        "approve": ("queued", "job-approved"),
        "reject": ("cancelled", "job-rejected"),
    }[decision]
    assert idle_server.admin.http.get(f"/jobs/{job}").json()["state"] == state
    (act,) = _acts_of(idle_server, "job", job)
    assert (act["kind"], act["actor"]) == (kind, owner.id)
    assert act["details"]["reason"] == "the study ends"
    page = browser.get(shown).text
    assert f'action="{path}"' not in page
    said, after = {
        "approve": ("Approved", "The job is queued: a worker charges its price before"),
        "reject": ("Rejected", "Its reservation was given back."),
    }[decision]
    answer = f'{said}: <a href="/ui/jobs/{job}">rdt-ta</a>, <span title="1 ε">1 ε</span> of {named}. {after}'
    assert answer in page
    assert said not in browser.get("/ui/approvals").text
    history = section(page, "decided")
    for fact in ("rdt-ta", analyst.id, said.lower(), owner.id, "the study ends"):
        assert fact in history
    # an analyst owns no dataset: decisions are not for her
    assert job not in signed_in(idle_server, analyst).get(shown).text
    again = browser.post(path, data={"decision": decision, "reason": "x"})
    assert again.status_code == 409
    assert "does not wait" in again.text


def test_an_approval_of_a_job_whose_submitter_lost_its_role_says_so(
    idle_server: Server,
) -> None:
    dataset, analyst, job = _waiting(idle_server)
    browser = signed_in(idle_server, idle_server.granted(dataset, "owner"))
    idle_server.admin.http.delete(
        f"/datasets/{dataset}/grants/{analyst.id}"
    ).raise_for_status()
    refused = browser.post(
        f"/ui/approvals/{job}", data={"decision": "approve", "reason": "x"}
    )
    assert refused.status_code == 409
    assert "the job has ended, and its reservation is void" in refused.text
    why = "The key that submitted it was revoked, or lost its role, before the charge."
    for path in ("/ui/jobs", f"/ui/jobs/{job}"):
        page = browser.get(path).text
        assert why in page
        assert "failed: revoked" not in page


def test_the_submitter_of_a_job_is_shown_no_form(idle_server: Server) -> None:
    dataset = _waiting(idle_server)[0]
    owner = idle_server.granted(dataset, "owner")
    answer = owner.http.post(
        "/train", json=training(dataset, epsilon="1"), headers=new_idempotency_key()
    )
    job = answer.json()["job_id"]
    browser = signed_in(idle_server, owner)
    page = browser.get("/ui/approvals").text
    assert job in page
    assert f'action="/ui/approvals/{job}"' not in page
    assert (
        browser.post(
            f"/ui/approvals/{job}", data={"decision": "approve", "reason": "mine"}
        ).status_code
        == 403
    )


def test_frozen_datasets_are_listed(idle_server: Server) -> None:
    declared, browser = (
        idle_server.declared(),
        signed_in(idle_server, idle_server.admin),
    )
    dataset = declared["id"]
    assert dataset not in section(browser.get("/ui/admin").text, "frozen")
    browser.post(f"/ui/datasets/{dataset}/rules", data={"frozen": "yes"})
    assert dataset in section(browser.get("/ui/admin").text, "frozen")
    assert "nothing limited by the freeze of the dataset frozen" in text_of(
        browser.get("/ui/datasets", params={"name": declared["name"]})
    )
    browser.post(f"/ui/datasets/{dataset}/rules", data={})
    assert dataset not in section(browser.get("/ui/admin").text, "frozen")


def test_populations_are_opened_and_listed(idle_server: Server) -> None:
    owner, name = idle_server.caller("owner"), f"people-{secrets.token_hex(4)}"
    browser = signed_in(idle_server, owner)
    assert (
        browser.post(
            "/ui/populations", data={"name": name, "accountant": "pure", "epsilon": "2"}
        ).status_code
        == 303
    )
    page = browser.get("/ui/populations").text
    assert name in page
    assert "No member yet." in page
    population = owner.http.get(f"/populations/{name}").json()["id"]
    assert [act["kind"] for act in _acts_of(idle_server, "population", population)] == [
        "population-opened"
    ]
    taken = browser.post(
        "/ui/populations", data={"name": name, "accountant": "pure", "epsilon": "2"}
    )
    assert taken.status_code == 409
    no_delta = browser.post(
        "/ui/populations",
        data={"name": f"{name}-2", "accountant": "gdp", "epsilon": "2"},
    )
    assert no_delta.status_code == 422
    assert "needs a δ" in no_delta.text
    assert (
        signed_in(idle_server, idle_server.caller("auditor"))
        .get("/ui/populations")
        .status_code
        == 200
    )
    assert (
        signed_in(idle_server, idle_server.caller()).get("/ui/populations").status_code
        == 403
    )


def test_a_person_is_erased_from_the_chosen_members_and_the_page_is_the_receipt(
    idle_server: Server,
) -> None:
    population = with_person(idle_server)
    browser = signed_in(idle_server, idle_server.admin)
    form = f"/ui/populations/{population}/erase-unit"
    assert form in browser.get("/ui/populations").text
    asked = browser.get(form).text
    (field,) = re.findall(r'name="(dataset\.[^"]+)"', asked)

    unchecked = browser.post(form, data={"unit": "ann", field: "yes"})
    assert unchecked.status_code == 422
    assert "Tick that the identity of the person was checked." in unchecked.text
    checked = {"identity": "yes"}
    misspelt = browser.post(form, data={"unit": " ", field: "yes"} | checked)
    assert misspelt.status_code == 422
    nothing_chosen = browser.post(form, data={"unit": "secret-name"} | checked)
    assert nothing_chosen.status_code == 422
    assert "secret-name" not in nothing_chosen.text
    receipt = browser.post(
        form, data={"unit": "ann", field: "yes", "reference": "request 118"} | checked
    )
    assert receipt.status_code == 200
    assert "request 118" in receipt.text
    assert "ann" not in re.findall(r"\w+", receipt.text)
    dataset = field.removeprefix("dataset.")
    (act,) = [
        it
        for it in _acts_of(idle_server, "dataset", dataset)
        if it["kind"] == "unit-erased"
    ]
    assert act["details"]["reference"] == "request 118"
    assert "(reference: request 118)" in browser.get("/ui/acts").text
    auditor = signed_in(idle_server, idle_server.caller("auditor"))
    assert "No dataset of this population is yours" in auditor.get(form).text


def test_a_cap_and_a_population_whose_form_is_sent_twice_are_changed_and_opened_once(
    idle_server: Server,
) -> None:
    browser, dataset = (
        signed_in(idle_server, idle_server.admin),
        idle_server.declared()["id"],
    )
    name = f"people-{secrets.token_hex(4)}"
    cap, population = (
        {"cap": "1", "reason": "less"},
        {"name": name, "accountant": "pure", "epsilon": "2"},
    )
    for page, action, form in (
        (f"/ui/ledger/{dataset}", f"/ui/ledger/{dataset}/cap", cap),
        ("/ui/populations", "/ui/populations", population),
    ):
        sent = form | _once(browser.get(page), action)
        assert [browser.post(action, data=sent).status_code for _ in range(2)] == [
            303,
            303,
        ]
    assert [act["kind"] for act in _acts_of(idle_server, "account", dataset)] == [
        "cap-changed"
    ]


def test_a_cap_is_lowered_by_its_owner_and_raised_by_an_admin(
    idle_server: Server,
) -> None:
    dataset = idle_server.declared(budget={"accountant": "pure", "epsilon": "5"})["id"]
    path = f"/ui/ledger/{dataset}"
    owner, auditor = (
        signed_in(idle_server, idle_server.granted(dataset, role))
        for role in ("owner", "auditor")
    )
    assert "Your key may not change it" in section(auditor.get(path).text, "cap")
    assert (
        auditor.post(f"{path}/cap", data={"cap": "1", "reason": "x"}).status_code == 403
    )
    lowered = owner.post(
        f"{path}/cap", data={"cap": "2", "reason": "the board asked for less"}
    )
    assert (lowered.status_code, lowered.headers["Location"]) == (303, path)
    refused = owner.post(f"{path}/cap", data={"cap": "3", "reason": "more"})
    assert refused.status_code == 403
    assert "lacks a role" in refused.text
    admin = signed_in(idle_server, idle_server.admin)
    assert (
        admin.post(
            f"{path}/cap", data={"cap": "3", "reason": "the board agreed"}
        ).status_code
        == 303
    )
    assert admin.post(f"{path}/cap", data={"cap": "4", "reason": ""}).status_code == 422
    assert idle_server.admin.http.get(f"/ledger/{dataset}").json()["cap"] == "3"
    assert [act["kind"] for act in _acts_of(idle_server, "account", dataset)] == [
        "cap-changed",
        "cap-changed",
    ]
    shown = auditor.get(f"{path}/entries/3").text
    assert "The cap was changed to 3 ε. Reason: the board agreed" in shown

"""Grants, cancellations, cursors, paths and headers, for callers with and without a
role.
"""

import httpx
import pytest

from app.core import stamps
from tests.support.databases import on_one_idle_server
from tests.support.server import Server, declaration, new_idempotency_key, training

pytestmark = pytest.mark.in_turn("idle_server")

TYPES = {401: "unauthenticated", 403: "role-missing", 404: "not-found"}


def _is_refusal(answer: httpx.Response, status: int) -> bool:
    assert answer.status_code == status, answer.text
    assert answer.json()["type"] == TYPES[status]
    return True


def test_the_declaring_key_becomes_owner_and_grants_and_revokes_roles(
    idle_server: Server,
) -> None:
    owner, friend = idle_server.caller("owner"), idle_server.caller()
    dataset = owner.http.post("/datasets", json=declaration()).json()["id"]
    grant = f"/datasets/{dataset}/grants/{friend.id}"
    assert friend.http.get(f"/datasets/{dataset}").status_code == 404
    granted = owner.http.put(grant, json={"role": "predictor"})
    assert (
        granted.json().items()
        >= {"dataset": dataset, "key_id": friend.id, "role": "predictor"}.items()
    )
    assert friend.http.post("/plans", json=training(dataset)).status_code == 403
    assert owner.http.put(grant, json={"role": "analyst"}).status_code == 200, (
        "one role, in place of the other"
    )
    assert friend.http.post("/plans", json=training(dataset)).status_code == 200
    assert friend.http.put(grant, json={"role": "owner"}).status_code == 403, (
        "nobody raises themselves"
    )
    listed = owner.http.get(f"/datasets/{dataset}/grants").json()["grants"]
    assert {
        (it["key_id"], it["role"], it["granted_by"], it["revoked_at"]) for it in listed
    } == {
        (owner.id, "owner", owner.id, None),
        (friend.id, "analyst", owner.id, None),
    }
    first = owner.http.get(f"/datasets/{dataset}/grants", params={"limit": 1}).json()
    rest = owner.http.get(
        f"/datasets/{dataset}/grants", params={"cursor": first["next"]}
    ).json()
    assert [*first["grants"], *rest["grants"]] == listed
    for _ in range(2):
        assert owner.http.delete(grant).status_code == 204
        assert friend.http.get(f"/datasets/{dataset}").status_code == 404
    assert idle_server.admin.http.delete(f"/keys/{friend.id}").status_code == 204
    assert owner.http.put(grant, json={"role": "analyst"}).status_code == 404, (
        "a revoked key is granted nothing"
    )


def test_an_analyst_cancels_their_own_job_and_no_other(idle_server: Server) -> None:
    dataset = idle_server.uploaded()["id"]
    first, second = (idle_server.granted(dataset, "analyst") for _ in range(2))
    job_id = first.http.post(
        "/train", json=training(dataset), headers=new_idempotency_key()
    ).json()["job_id"]
    assert _is_refusal(second.http.delete(f"/jobs/{job_id}"), 403)
    assert first.http.delete(f"/jobs/{job_id}").json()["state"] == "cancelled"


def test_a_cursor_says_nothing_about_jobs_of_others(idle_server: Server) -> None:
    own, other = (idle_server.uploaded()["id"] for _ in range(2))
    theirs = idle_server.submitted(other).json()["job_id"]
    analyst = idle_server.granted(own, "analyst").http
    answers = [
        analyst.get("/jobs", params={"cursor": cursor})
        for cursor in (theirs, stamps.new(stamps.JOB))
    ]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json() == answers[1].json()


@on_one_idle_server
@pytest.mark.parametrize(
    "path", ["/nothing", "/datasets/", "/ledger/a/b/c", "/docs", "/redoc", "/metrics/x"]
)
def test_an_unknown_path_is_401_without_a_key(idle_server: Server, path: str) -> None:
    assert _is_refusal(idle_server.client(None).get(path), 401)
    assert _is_refusal(idle_server.admin.http.get(path), 404)


@on_one_idle_server
def test_the_document_of_the_api_needs_no_key(idle_server: Server) -> None:
    answer = idle_server.client(None).get("/openapi.json")
    assert answer.status_code == 200
    assert set(answer.json()["paths"]) >= {"/train", "/ledger"}


@on_one_idle_server
def test_of_several_authorizations_none_counts(idle_server: Server) -> None:
    """A proxy may have checked the other header."""
    good, other = (f"Bearer {idle_server.caller('admin').key}" for _ in range(2))
    for several in (
        (good, other),
        (good, "Bearer nobody"),
        ("Bearer nobody", good),
        (good, good),
    ):
        answer = idle_server.client(None).get(
            "/ledger", headers=[("Authorization", each) for each in several]
        )
        assert answer.status_code == 401, several
        assert answer.headers["WWW-Authenticate"] == "Bearer"

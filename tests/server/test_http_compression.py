"""Large answers are compressed for clients that accept it, but no page and no answer
near a secret is.
"""

import gzip

import httpx
import pytest

from app.core import limits
from tests.support.databases import on_one_idle_server
from tests.support.pages import signed_in
from tests.support.server import Server

GZIP = {"Accept-Encoding": "br, gzip"}
PLAIN = {"Accept-Encoding": "identity"}


def _raw(
    client: httpx.Client, path: str, headers: dict[str, str]
) -> tuple[httpx.Headers, bytes]:
    """Headers of an answer, and its body as it was sent."""
    with client.stream("GET", path, headers=headers) as answer:
        body = b"".join(answer.iter_raw())
        assert answer.status_code == 200, body
        return answer.headers, body


@on_one_idle_server
@pytest.mark.parametrize(
    "path", ["/openapi.json", "/ui/style.css", "/ui/live.js", "/ledger/{}/export"]
)
def test_a_large_answer_is_compressed_for_clients_that_accept_it(
    idle_server: Server, path: str
) -> None:
    http, path = idle_server.admin.http, path.format(_spent(idle_server))
    headers, plain = _raw(http, path, PLAIN)
    assert len(plain) > limits.MIN_COMPRESSED_BYTES
    assert "Content-Encoding" not in headers
    assert "Accept-Encoding" in headers["Vary"]
    assert _raw(http, path, {"Accept-Encoding": "gzip;q=0"})[1] == plain
    headers, packed = _raw(http, path, GZIP)
    assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert (
        int(headers.get("Content-Length", len(packed))) == len(packed) < len(plain) / 2
    )
    assert gzip.decompress(packed) == plain
    head = http.head(path, headers=GZIP)
    assert head.headers["Content-Encoding"] == "gzip"


def _spent(server: Server) -> str:
    """A dataset with entries of its ledger."""
    dataset = str(server.declared()["id"])
    for number in range(10):
        changed = {
            "cap": f"{99 - number}",
            "reason": "a reason that fills the ledger " * 8,
        }
        headers = {"Idempotency-Key": f"cap-{number}"}
        assert server.admin.http.post(
            f"/ledger/{dataset}/cap", json=changed, headers=headers
        ).is_success
    return dataset


@on_one_idle_server
def test_answers_near_a_secret_or_with_a_tag_stay_as_they_are(
    idle_server: Server,
) -> None:
    dataset, http = idle_server.declared()["id"], idle_server.admin.http
    keys = [idle_server.caller().id for _ in range(40)]
    quotas = [{"keys": keys, "cap": f"0.{number}"} for number in range(1, 4)]
    rules = {
        "largest_job": None,
        "approval_above": None,
        "frozen": False,
        "erase_rows_at": None,
        "quotas": quotas,
    }
    assert http.put(f"/datasets/{dataset}/rules", json=rules).status_code == 200
    for number in range(10):
        hook = {
            "url": f"https://example.org/{'path' * 40}/{number}",
            "events": ["job.ended"],
        }
        assert http.post(f"/datasets/{dataset}/webhooks", json=hook).status_code == 201
    page = signed_in(idle_server, idle_server.admin)
    # the bytes as they were sent, not laid out
    page.event_hooks = {"request": [], "response": []}
    for client, path in (
        (http, "/keys?limit=100"), (http, f"/datasets/{dataset}/rules"), (http, f"/datasets/{dataset}/webhooks"),
        (page, "/"), (page, f"/ui/datasets/{dataset}"), (page, "/ui/sign-in"),
    ):  # fmt: skip
        headers, body = _raw(client, path, GZIP)
        assert "Content-Encoding" not in headers, path
        assert len(body) > limits.MIN_COMPRESSED_BYTES or path in (
            "/",
            "/ui/sign-in",
        ), path


@on_one_idle_server
def test_small_answers_and_answers_to_posts_stay_as_they_are(
    idle_server: Server,
) -> None:
    http = idle_server.admin.http
    assert "Content-Encoding" not in http.get("/healthz", headers=GZIP).headers
    answer = http.post("/datasets/nothing/quotes", json={}, headers=GZIP)
    assert "Content-Encoding" not in answer.headers

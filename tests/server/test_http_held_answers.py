"""A client that has an answer already, and names its ``ETag`` in ``If-None-Match``, gets
304 without a body, for as long as nothing in the answer has changed.
"""

from typing import Any

import httpx
import pytest

from tests.support.databases import on_one_server
from tests.support.openapi import DOCUMENT
from tests.support.server import CSV, Server, csv_rows, new_idempotency_key, training

TAGGED = {
    "/datasets/{dataset}", "/datasets/{dataset}/rules", "/datasets/{dataset}/aliases/{alias}",
    "/openapi.json", "/ui/style.css", "/ui/live.js",
}  # fmt: skip
"""The paths whose GET sends an ``ETag``."""

RULES: dict[str, Any] = {
    "largest_job": "1", "approval_above": None, "quotas": [], "frozen": False, "erase_rows_at": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def names(server: Server) -> dict[str, str]:
    """The parameters of paths, by name."""
    dataset = server.uploaded()["id"]
    job = server.trained(dataset)
    model = {"model": job["model_id"]}
    path = f"/datasets/{dataset}/aliases/production"
    assert server.admin.http.put(path, json=model).status_code == 200
    return {
        "dataset": dataset, "account": dataset, "job_id": job["id"], "model_id": job["model_id"],
        "model": job["model_id"], "sequence": "1", "alias": "production",
    }  # fmt: skip


def _asked_again(http: httpx.Client, address: str, held: str) -> httpx.Response:
    return http.get(address, headers={"If-None-Match": held})


@on_one_server
def test_every_get_with_a_tag_is_304_to_whoever_has_the_answer(
    server: Server, names: dict[str, str]
) -> None:
    http, tagged = server.admin.http, set()
    paths = [path for path, methods in DOCUMENT["paths"].items() if "get" in methods]
    for path in [*paths, *TAGGED - set(paths), "/", "/ui/datasets/{dataset}"]:
        known = names | dict.fromkeys(_parameters(path) - names.keys(), "unknown")
        address = path.format_map(known)
        if address.endswith("/events"):
            continue
        first = http.get(address)
        tag = first.headers.get("ETag")
        if tag is None:
            continue
        tagged.add(path)
        for held in (tag, f'"other", W/{tag}', "*"):
            again = _asked_again(http, address, held)
            assert (again.status_code, again.content) == (304, b""), (address, held)
            assert again.headers["ETag"] == tag
            assert again.headers.get("Vary") == first.headers.get("Vary")
            assert "Content-Type" not in again.headers
        other = _asked_again(http, address, '"other"')
        assert (other.status_code, other.content) == (200, first.content), address
        head = http.head(address, headers={"If-None-Match": tag})
        assert (head.status_code, head.headers["ETag"]) == (304, tag)
    assert tagged == TAGGED


def _parameters(path: str) -> set[str]:
    return {part.partition("}")[0] for part in path.split("{")[1:]}


@on_one_server
def test_whatever_an_answer_shows_ends_what_a_client_has(server: Server) -> None:
    """A stale balance would promise budget that is spent."""
    http, dataset = server.admin.http, server.declared()["id"]
    path = f"/datasets/{dataset}"
    quota = {"keys": [server.admin.id], "cap": "1"}
    answer = http.put(f"{path}/rules", json=RULES | {"quotas": [quota]})
    assert answer.status_code == 200, answer.text
    shown = {address: http.get(address) for address in (path, f"{path}/rules")}
    assert http.post(f"{path}/rows", content=csv_rows(99), headers=CSV).is_success
    assert _asked_again(http, path, shown[path].headers["ETag"]).status_code == 200
    held = {address: http.get(address) for address in shown}
    job = http.post(
        "/train", json=training(dataset, epsilon="0.1"), headers=new_idempotency_key()
    )
    assert job.status_code == 202
    for address, earlier in held.items():
        now = _asked_again(http, address, earlier.headers["ETag"])
        assert now.status_code == 200
        assert now.json() != earlier.json()
    # A condition of a change compares what the change replaces, and nothing else.
    for earlier in (shown, held):
        fields = {"If-Match": earlier[f"{path}/rules"].headers["ETag"]}
        assert http.put(f"{path}/rules", json=RULES, headers=fields).is_success

"""HEAD answers wherever GET does, with the headers of GET and no body; streams send
comments and files have names.
"""

import pytest

from app.api import streams
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.openapi import DOCUMENT
from tests.support.server import Server
from tests.support.set_limits import SetLimit

_OF_ONE_ANSWER = {"x-request-id", "date", "transfer-encoding", "set-cookie"}


@pytest.fixture(scope="module")
def names(server: Server) -> dict[str, str]:
    """The parameters of paths, by name."""
    dataset = server.uploaded()["id"]
    job = server.trained(dataset)
    return {
        "dataset": dataset, "account": dataset, "job_id": job["id"], "model_id": job["model_id"],
        "model": job["model_id"], "sequence": "1",
    }  # fmt: skip


PAGES = [
    "/",
    "/docs",
    "/ui/sign-in",
    "/ui/style.css",
    "/ui/script.js",
    "/ui/keys",
    "/ui/datasets/{dataset}",
]


def _gets() -> list[str]:
    return (
        sorted(path for path, methods in DOCUMENT["paths"].items() if "get" in methods)
        + PAGES
    )


@on_one_server
def test_head_is_answered_as_get_is_on_every_path(
    server: Server, names: dict[str, str]
) -> None:
    n_found = 0
    for path in _gets():
        address = path.format_map(
            {**dict.fromkeys(_parameters(path), "unknown"), **names}
        )
        if address.endswith("/events"):
            continue
        get, head = server.admin.http.get(address), server.admin.http.head(address)
        assert (head.status_code, head.content) == (get.status_code, b""), address
        assert (
            head.headers.keys() - _OF_ONE_ANSWER == get.headers.keys() - _OF_ONE_ANSWER
        ), address
        n_found += head.status_code == 200
    assert n_found > 30


def _parameters(path: str) -> list[str]:
    return [part.partition("}")[0].partition(":")[0] for part in path.split("{")[1:]]


@on_one_server
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json"])
def test_probes_by_head_need_no_key(server: Server, path: str) -> None:
    answer = server.client(None).head(path)
    assert (answer.status_code, answer.content) == (200, b"")


@on_one_server
def test_head_where_get_is_not_is_refused(server: Server) -> None:
    assert server.admin.http.head("/train").status_code == 405


@on_one_idle_server
def test_head_of_a_stream_ends_and_the_connection_goes_on(idle_server: Server) -> None:
    job_id = idle_server.submitted(idle_server.uploaded()["id"]).json()["job_id"]
    client = idle_server.admin.http
    answer = client.head(f"/jobs/{job_id}/events", timeout=30)
    assert (answer.status_code, answer.headers["content-type"]) == (
        200,
        "text/event-stream; charset=utf-8",
    )
    assert client.get("/healthz").status_code == 200


@on_one_idle_server
def test_a_stream_without_events_sends_comments(
    idle_server: Server, set_limit: SetLimit
) -> None:
    """Balancers cut connections that are silent for a minute, and a queued job may wait
    for hours.
    """
    set_limit("EVENT_SILENCE_S", 3 * streams.POLL_INTERVAL_S)
    job_id = idle_server.submitted(idle_server.uploaded()["id"]).json()["job_id"]
    with idle_server.admin.http.stream(
        "GET", f"/jobs/{job_id}/events", timeout=60
    ) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: job"
        comments = (line for line in lines if line.startswith(":"))
        assert [next(comments), next(comments)] == [": nothing has changed"] * 2


@on_one_server
def test_the_artifact_has_its_length_in_the_head(
    server: Server, names: dict[str, str]
) -> None:
    path = f"/models/{names['model_id']}/artifact"
    whole = server.admin.http.get(path)
    assert server.admin.http.head(path).headers["content-length"] == str(
        len(whole.content)
    )


@on_one_server
def test_a_webhook_and_a_key_say_where_they_are(
    server: Server, names: dict[str, str]
) -> None:
    address = f"/datasets/{names['dataset']}/webhooks"
    made = server.admin.http.post(
        address, json={"url": "https://example.org/x", "events": ["job.ended"]}
    )
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"{address}/{made.json()['id']}"
    assert server.admin.http.delete(made.headers["location"]).status_code == 204
    key = server.admin.http.post("/keys", json={"name": "k", "roles": []})
    assert server.admin.http.delete(key.headers["location"]).status_code == 204


@on_one_server
def test_files_are_saved_under_a_name(server: Server, names: dict[str, str]) -> None:
    account, model = names["account"], names["model_id"]
    for path, name in (
        (f"/models/{model}/artifact", "model.safetensors"),
        (f"/models/{model}/artifact?format=onnx", "model.onnx"),
        (f"/ledger/{account}/export", "ledger.jsonl"),
        (f"/ledger/{account}/export?format=csv", "ledger.csv"),
        ("/audit/export", "acts.jsonl"),
    ):
        answer = server.admin.http.get(path)
        assert (
            answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        ), path


@on_one_server
def test_a_compressed_body_is_refused_with_the_header_that_says_so(
    server: Server, names: dict[str, str]
) -> None:
    for path, kind in (
        (f"/models/{names['model_id']}/predict", "application/json"),
        ("/train", "application/json"),
    ):
        headers = {
            "Content-Type": kind,
            "Content-Encoding": "gzip",
            "Idempotency-Key": "k",
        }
        answer = server.admin.http.post(path, content=b"x", headers=headers)
        assert answer.status_code == 415
        assert "Content-Encoding" in answer.json()["detail"]

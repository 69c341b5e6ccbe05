"""Answers that a client does not read: they count against its key while they take
memory, and end in time.
"""

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.api.http_protocol import BoundedHttp
from app.api.routes import ledger
from tests.support.databases import on_one_server
from tests.support.raw_requests import received
from tests.support.server import Server
from tests.support.set_limits import SetLimit

pytestmark = on_one_server
PREDICTION = {"rows": [{"age": 1}] * 10_000}
"""A request whose answer has 300 KB."""


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return str(server.trained(server.uploaded()["id"])["model_id"])


class Connections:
    """The connections of servers in this process, whose system keeps a few kilobytes of
    an answer.
    """

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.made = list[BoundedHttp]()
        self.open = set[BoundedHttp]()
        made, lost = BoundedHttp.connection_made, BoundedHttp.connection_lost

        def connection_made(protocol: BoundedHttp, transport: Any) -> None:
            with socket.socket(
                fileno=transport.get_extra_info("socket").dup().detach()
            ) as accepted:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
            self.made.append(protocol)
            self.open.add(protocol)
            made(protocol, transport)

        def connection_lost(protocol: BoundedHttp, exc: Exception | None) -> None:
            self.open.discard(protocol)
            lost(protocol, exc)

        patched.setattr(BoundedHttp, "connection_made", connection_made)
        patched.setattr(BoundedHttp, "connection_lost", connection_lost)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return Connections(monkeypatch)


@contextmanager
def unread(
    server: Server, key: str, path: str, body: object = None, *, keeps: bool = True
) -> Iterator[socket.socket]:
    """Requests whose answers have begun to arrive, on a connection that takes a few
    kilobytes without reading.
    """
    content = (
        b""
        if body is None
        else body
        if isinstance(body, bytes)
        else json.dumps(body).encode()
    )
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        f"Authorization: Bearer {key}",
        *([] if keeps else ["Connection: close"]),
    ]
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        client.settimeout(60)
        client.connect(("127.0.0.1", httpx.URL(server.url).port or 0))
        client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        assert client.recv(13) == b"HTTP/1.1 200 "
        yield client


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_whole(rest: bytes) -> bool:
    """Whether an answer has the body that its head announces; its first 13 bytes are
    missing.
    """
    head, _, body = rest.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: ([0-9]+)", head)
    return (
        body.endswith(b"\r\n0\r\n\r\n")
        if length is None
        else len(body) == int(length[1])
    )


@pytest.mark.parametrize("what", ["prediction", "dataset", "export"])
def test_a_request_counts_until_its_client_has_read_the_answer(
    server: Server,
    model: str,
    connections: Connections,
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
    what: str,
) -> None:
    set_limit("MAX_REQUESTS_PER_KEY", 1)
    dataset = (
        _wide(server)
        if what == "dataset"
        else server.admin.http.get(f"/models/{model}").json()["dataset"]
    )
    reader = server.granted(dataset, "auditor" if what == "export" else "predictor")
    path, body = {
        "prediction": (f"/models/{model}/predict", PREDICTION),
        "dataset": (f"/datasets/{dataset}", None),
        "export": (f"/ledger/{dataset}/export", None),
    }[what]
    monkeypatch.setattr(
        ledger.history, "export_json_lines", lambda *_, **__: iter([b"x" * 300_000])
    )
    with unread(server, reader.key, path, body, keeps=False) as client:
        assert reader.http.get("/datasets").status_code == 429
        assert server.admin.http.get("/datasets").status_code == 200
        assert is_whole(received(client))
    until(lambda: reader.http.get("/datasets").status_code == 200)


def _wide(server: Server) -> str:
    """A dataset whose description is long."""
    categories = [f"{'c' * 100}{index}" for index in range(200)]
    features = [
        {"name": f"f{index}", "type": "categorical", "categories": categories}
        for index in range(20)
    ]
    schema = {"features": features, "label": {"name": "y", "classes": ["a", "b"]}}
    return str(server.declared(schema=schema)["id"])


@pytest.mark.parametrize("keeps", [True, False], ids=["keep-alive", "close"])
@pytest.mark.parametrize("is_large", [True, False], ids=["large", "small"])
def test_a_client_that_reads_nothing_is_cut_off(
    server: Server,
    model: str,
    connections: Connections,
    set_limit: SetLimit,
    keeps: bool,
    is_large: bool,
) -> None:
    """A small answer is complete while it waits, so the keep-alive timeout and a close
    find it unread.
    """
    set_limit("ANSWER_WAIT_S", 0.3)
    body = PREDICTION if is_large else {"rows": [{"age": 1}] * 1_500}
    with unread(
        server, server.admin.key, f"/models/{model}/predict", body, keeps=keeps
    ) as client:
        (protocol,) = connections.made  # which may have ended by now
        until(lambda: protocol not in connections.open)
        assert not is_whole(received(client))


def test_an_unread_answer_holds_up_no_other_large_body(
    server: Server, model: str, connections: Connections
) -> None:
    path, large = (
        f"/models/{model}/predict",
        json.dumps(PREDICTION).encode() + b" " * 300_000,
    )
    with unread(server, server.admin.key, path, large, keeps=False) as client:
        other = server.admin.http.post(
            path, content=large, headers={"Content-Type": "application/json"}
        )
        assert other.status_code == 200
        assert is_whole(received(client))


def test_a_key_whose_clients_do_not_read_gets_no_further_answers(
    server: Server,
    model: str,
    connections: Connections,
    set_limit: SetLimit,
) -> None:
    set_limit("MAX_UNREAD_BYTES_PER_KEY", 100_000)
    path = f"/models/{model}/predict"
    reader = server.granted(
        server.admin.http.get(f"/models/{model}").json()["dataset"], "predictor"
    )
    small = {"rows": [{"age": 1}]}
    # What predictions have read stays valid: one that reads its key again takes a
    # thread, and is refused.
    set_limit("REVOCATION_S", 3_600)
    until(lambda: reader.http.post(path, json=small).status_code == 200)
    with unread(server, reader.key, path, PREDICTION, keeps=False) as client:
        refused = [
            reader.http.post(path, json=PREDICTION),
            reader.http.get("/datasets"),
        ]
        assert [(it.status_code, it.json()["type"]) for it in refused] == [
            (429, "too-many-requests")
        ] * 2
        assert reader.http.post(path, json=small).status_code == 200, (
            "its answer is small"
        )
        assert server.admin.http.post(path, json=small).status_code == 200
        assert is_whole(received(client))
    until(lambda: reader.http.get("/datasets").status_code == 200)

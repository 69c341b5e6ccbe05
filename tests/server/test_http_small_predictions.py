"""Small predictions that the server's protocol answers without a task, however their
bytes arrive.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import httpx
import pytest

from app.api import predictions
from app.core import limits
from tests.support.databases import on_one_server
from tests.support.server import Server
from tests.support.set_limits import SetLimit

BODY = json.dumps({"rows": [{"age": 39, "height": 1.5, "sex": "Male"}]}).encode()
PLAIN = f"Content-Length: {len(BODY)}\r\n"
CHUNKED = (
    b"5\r\n" + BODY[:5] + b"\r\n%x\r\n" % len(BODY[5:]) + BODY[5:] + b"\r\n0\r\n\r\n"
)
IN_PIECES = {
    "one packet": (PLAIN, [BODY]),
    "head and body apart": (PLAIN, [b"", BODY]),
    "a body in parts": (PLAIN, [BODY[:5], BODY[5:20], BODY[20:]]),
    "chunks": ("Transfer-Encoding: chunked\r\n", [CHUNKED[:9], CHUNKED[9:]]),
    "another accepted form": (
        f"{PLAIN}Accept: */*\r\nContent-Type: application/json; charset=utf-8\r\n",
        [BODY],
    ),
}


@pytest.fixture(scope="module")
def trained(server: Server) -> dict[str, Any]:
    return server.trained(server.uploaded()["id"])


@pytest.fixture
def path(server: Server, trained: dict[str, Any], set_limit: SetLimit) -> str:
    """The path of predictions of a model that the process has loaded for the admin,
    whose key stays cached.
    """
    set_limit("REVOCATION_S", 3_600)
    path = f"/models/{trained['model_id']}/predict"
    for _ in range(2):
        assert server.admin.http.post(path, content=BODY).status_code == 200
    return path


@contextmanager
def _without_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread predicts, and the body may take its time however busy the machine is."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a thread predicts")

    with monkeypatch.context() as patched:
        patched.setattr(limits, "BODY_AFTER_HEAD_S", 60)
        patched.setattr(predictions, "predict", refuse)
        yield


@contextmanager
def _connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(server.url).port or 0), timeout=60
    ) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def _head(path: str, key: str, fields: str = PLAIN, version: str = "1.1") -> bytes:
    return f"POST {path} HTTP/{version}\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{fields}\r\n".encode()


def _answer(connection: socket.socket) -> tuple[int, dict[str, str], Any]:
    received = connection.makefile("rb")
    status = int(received.readline().split()[1])
    lines = iter(lambda: received.readline().decode().rstrip("\r\n"), "")
    fields = dict(line.split(": ", 1) for line in lines)
    return status, fields, json.loads(received.read(int(fields["content-length"])))


@on_one_server
@pytest.mark.parametrize(("fields", "parts"), IN_PIECES.values(), ids=IN_PIECES)
def test_it_is_answered_however_its_bytes_arrive(
    server: Server,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    fields: str,
    parts: list[bytes],
) -> None:
    expected = server.admin.http.post(path, content=BODY)
    with _without_tasks(monkeypatch), _connected(server) as connection:
        for _ in range(2):  # the connection stays
            connection.sendall(_head(path, server.admin.key, fields) + parts[0])
            for part in parts[1:]:
                connection.sendall(part)
            status, answered, body = _answer(connection)
            assert (status, body) == (200, expected.json())
            assert answered.keys() == expected.headers.keys()


@on_one_server
@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("1.0", PLAIN),
        ("1.1", f"{PLAIN}Connection: close\r\n"),
        (
            "1.1",
            f"{PLAIN}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n",
        ),
    ],
    ids=["1.0", "close", "an offer of another protocol"],
)
def test_a_connection_ends_after_its_answer_where_the_client_says_so(
    server: Server,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    fields: str,
) -> None:
    with _without_tasks(monkeypatch), _connected(server) as connection:
        connection.sendall(_head(path, server.admin.key, fields, version) + BODY)
        status, answered, _ = _answer(connection)
        assert (status, answered["connection"]) == (200, "close")
        assert connection.recv(1) == b""


@on_one_server
def test_requests_that_arrive_together_are_answered_in_their_order_and_take_no_thread(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have tasks, as those of a key have that was not cached; the one thread of a
    key would fall behind.
    """
    monkeypatch.delattr(predictions, "predict")
    bodies = [
        json.dumps({"rows": [{"age": 39, "height": 1.5, "sex": "Male"}] * n}).encode()
        for n in (1, 2, 3)
    ]
    requests = [
        _head(path, server.admin.key, f"Content-Length: {len(body)}\r\n") + body
        for body in bodies
    ]
    with _connected(server) as connection:
        connection.sendall(b"".join(requests) * 2)
        received = connection.makefile("rb")
        numbers = []
        for _ in range(6):
            head = b"".join(iter(received.readline, b"\r\n"))
            length = int(
                head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            )
            numbers.append(len(json.loads(received.read(length))["labels"]))
    assert numbers == [1, 2, 3] * 2


@on_one_server
def test_a_head_without_its_body_is_judged_as_that_of_any_request(
    server: Server, path: str
) -> None:
    with _connected(server) as connection:
        connection.sendall(_head(path, "gk_wrong"))
        status, _, problem = _answer(connection)
    assert (status, problem["type"]) == (401, "unauthenticated")


@on_one_server
def test_a_head_is_judged_after_its_own_time_behind_an_answered_request(
    server: Server, path: str, set_limit: SetLimit
) -> None:
    """The timer of the request before ends first."""
    set_limit("BODY_AFTER_HEAD_S", 0.2)
    with _connected(server) as connection:
        connection.sendall(_head(path, server.admin.key) + BODY)
        assert _answer(connection)[0] == 200
        connection.sendall(_head(path, "gk_wrong"))
        assert _answer(connection)[0] == 401


@on_one_server
def test_a_client_that_asks_before_it_sends_its_body_is_told_at_once(
    server: Server, path: str, set_limit: SetLimit
) -> None:
    set_limit("BODY_AFTER_HEAD_S", 60)
    with _connected(server) as connection:
        connection.sendall(
            _head(path, server.admin.key, f"{PLAIN}Expect: 100-continue\r\n")
        )
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert _answer(connection)[0] == 200


@on_one_server
def test_the_limits_of_a_key_hold(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MAX_REQUESTS_PER_KEY", "MAX_REQUESTS_IN_FLIGHT"):
        with monkeypatch.context() as patched:
            patched.setattr(limits, limit, 0)
            assert server.admin.http.post(path, content=BODY).status_code == 429


@on_one_server
@pytest.mark.parametrize(
    ("query", "fields", "body", "status", "problem"),
    [
        ("?limit=1", {}, BODY, 422, "invalid-request"),
        ("", {"Content-Type": "text/csv"}, BODY, 415, "unsupported-media-type"),
        ("", {"Content-Encoding": "gzip"}, BODY, 415, "unsupported-media-type"),
        ("", {}, b"{", 400, "malformed-request"),
        ("", {}, b'{"rows": [{"age": "x"}]}', 422, "invalid-request"),
    ],
)
def test_what_is_refused_is_refused_as_everywhere(
    server: Server,
    path: str,
    query: str,
    fields: dict[str, str],
    body: bytes,
    status: int,
    problem: str,
) -> None:
    answer = server.admin.http.post(path + query, content=body, headers=fields)
    assert (answer.status_code, answer.json()["type"]) == (status, problem)
    assert len(answer.headers["x-request-id"]) == 16


@on_one_server
def test_it_is_counted_and_noted_as_any_request(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 'grovekeeper_requests_total{method="POST",route="/models/{model_id}/predict",status="200"} '
    duration = 'grovekeeper_duration_seconds_count{kind="prediction"} '

    def counted() -> list[float]:
        lines = server.admin.http.get("/metrics").text.splitlines()
        return [
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((count, duration))
        ]

    before = counted()
    with _without_tasks(monkeypatch):
        for _ in range(3):
            assert server.admin.http.post(path, content=BODY).status_code == 200
    assert counted() == [number + 3 for number in before]
    assert len(before) == 2

"""Limits of connections, of the head of a request, and of one key: what they refuse is
a problem, too.
"""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import httpx
import pytest

from app.api.routes import keys
from app.core import limits
from tests.support.databases import on_one_server
from tests.support.raw_requests import (
    ACCEPTED,
    BODY,
    FOLLOWING,
    REFUSED,
    received,
    send,
    wait_until_read,
)
from tests.support.server import CSV, Server, csv_rows
from tests.support.set_limits import SetLimit
from tests.support.waiting import PATIENCE_S, wait_for


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(server.url).port or 0), timeout=PATIENCE_S
    ) as connection:
        yield connection


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and body of the only answer on a connection, which the server
    then closes.
    """
    head, _, body = received(connection).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body)


def head_of(server: Server, method: str, path: str, **headers: object) -> bytes:
    lines = {"Host": "x", "Authorization": f"Bearer {server.admin.key}"} | headers
    return "\r\n".join(
        (
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in lines.items()),
        )
    ).encode()


@on_one_server
def test_a_request_that_two_readers_may_read_differently_is_refused(
    server: Server,
) -> None:
    """The connection is closed: nothing after the request is read as another request."""
    failures = []
    before = server.footprint()
    for name, raw in REFUSED.items():
        statuses, text = _answers(server, _with_key(server, raw) + FOLLOWING)
        if (
            statuses != [400]
            or b"\r\nconnection: close\r\n" not in text
            or b'"malformed-request"' not in text
        ):
            failures.append(f"{name}: {statuses}")
    assert failures == []
    assert server.footprint() == before


@on_one_server
def test_an_unusual_request_is_read_in_one_way(server: Server) -> None:
    failures = []
    for name, (raw, expected) in ACCEPTED.items():
        statuses, _ = _answers(server, _with_key(server, raw) + FOLLOWING)
        if statuses != expected:
            failures.append(f"{name}: {statuses}, not {expected}")
    assert failures == []


@on_one_server
@pytest.mark.parametrize(
    "framing", [b"Content-Length: %d" % len(FOLLOWING), b"Transfer-Encoding: chunked"]
)
def test_the_body_of_an_upgrade_is_not_read_as_a_request(
    server: Server, framing: bytes
) -> None:
    head = (
        b"POST /keys HTTP/1.1\r\nHost: x\r\n{key}Connection: Upgrade\r\nUpgrade: x\r\n"
        + framing
        + b"\r\n\r\n"
    )
    assert _answers(server, _with_key(server, head), FOLLOWING)[0] == [400]


@on_one_server
@pytest.mark.parametrize("ends", [(), (40, 200), (-30, -10), (-1,), (-len(BODY),)])
def test_an_offer_of_another_protocol_is_ignored_and_the_body_read(
    server: Server, ends: tuple[int, ...]
) -> None:
    """However the bytes arrive, and no request behind it is answered: a proxy may
    believe that they are a tunnel's.
    """
    framing = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        BODY
    )
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    raw = _with_key(
        server, b"POST /keys HTTP/1.1\r\nHost: x\r\n{key}" + offer + framing + BODY
    )
    sent = raw + FOLLOWING
    cuts = [0, *sorted(len(raw) + end if end < 0 else end for end in ends), len(sent)]
    statuses, text = _answers(
        server, *(sent[start:end] for start, end in pairwise(cuts))
    )
    assert (
        statuses,
        b"\r\nconnection: close\r\n" in text,
        b'"name":"raw"' in text,
    ) == ([201], True, True)


@on_one_server
def test_a_refusal_is_not_taken_for_the_answer_to_an_earlier_request(
    server: Server,
) -> None:
    """The connection ends without an answer where an earlier request has none, or a
    part of one.
    """
    statuses, _ = _answers(
        server,
        _with_key(server, b"GET /keys HTTP/1.1\r\nHost: x\r\n{key}\r\n")
        + b"bad\r\n\r\n",
    )
    assert statuses == []


def _answers(server: Server, *sent: bytes) -> tuple[list[int], bytes]:
    """Statuses and bytes of all answers on a connection, which the server or the last
    request closes.
    """
    with connected(server) as connection:
        for piece in sent:
            send(connection, piece)
            if piece is not sent[-1]:
                wait_until_read(connection)
        text = received(connection)
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", text)], text


def _with_key(server: Server, raw: bytes) -> bytes:
    return raw.replace(
        b"{key}", b"Authorization: Bearer " + server.admin.key.encode() + b"\r\n"
    )


@on_one_server
def test_a_head_that_is_too_long_is_a_problem(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        wait_until_read(connection)
        send(connection, b"x" * (limits.MAX_REQUEST_HEAD_BYTES + 1))
        status, headers, problem = answer_of(connection)
    assert (status, problem["type"], headers["connection"]) == (
        400,
        "malformed-request",
        "close",
    )


@on_one_server
@pytest.mark.parametrize(
    ("line", "field", "detail"),
    [
        (
            "/" + "%41" * 1_400,
            "",
            f"the path has more than {limits.MAX_PATH_BYTES} bytes",
        ),
        (
            "/",
            "X: " + "a" * 17_000 + "\r\n",
            f"a header field has more than {limits.MAX_REQUEST_FIELD_BYTES} bytes",
        ),
        (
            "/",
            "X: a\r\n" * 200,
            f"the request has more than {limits.MAX_REQUEST_FIELDS} header fields",
        ),
    ],
)
def test_a_part_of_a_head_that_is_too_long_is_named(
    server: Server, line: str, field: str, detail: str
) -> None:
    with connected(server) as connection:
        send(connection, f"GET {line} HTTP/1.1\r\nHost: x\r\n{field}\r\n".encode())
        status, _, problem = answer_of(connection)
    assert (status, problem["type"], problem["detail"]) == (
        400,
        "malformed-request",
        detail,
    )


@on_one_server
def test_what_the_parser_has_taken_of_a_head_counts_also_where_all_of_it_arrives_at_once(
    server: Server,
) -> None:
    """1,000 unfinished heads of 9,000 fields took 240 MB."""
    statuses, text = _answers(
        server,
        b"GET / HTTP/1.1\r\nHost: x\r\nX: "
        + b"a" * (2 * limits.MAX_REQUEST_HEAD_BYTES),
    )
    assert (statuses, b"the head of the request has more than" in text) in (
        ([400], True),
        ([], False),
    ), "or cut off"
    statuses, text = _answers(
        server, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 9_000
    )
    assert (statuses, b"header fields" in text) in (([400], True), ([], False)), (
        "or cut off"
    )


@on_one_server
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"]
)
def test_a_connection_without_a_request_is_closed_in_time(
    server: Server, set_limit: SetLimit, sent: bytes
) -> None:
    set_limit("REQUEST_HEAD_S", 0.5)

    def is_closed() -> bool:
        try:
            connection.sendall(b"\r\n")  # a sign of life, but no request
            return not connection.recv(65_536)
        except TimeoutError:
            return False
        except OSError:
            return True

    with connected(server) as connection:
        connection.sendall(sent)
        connection.settimeout(0.05)
        wait_for("the service closes the connection", is_closed)


@on_one_server
def test_a_slow_body_is_no_slow_head(server: Server, set_limit: SetLimit) -> None:
    set_limit("REQUEST_HEAD_S", 0.2)
    dataset = server.declared()["id"]
    content = csv_rows(3).encode()
    head = head_of(
        server,
        "POST",
        f"/datasets/{dataset}/rows",
        **CSV,
        **{
            "Content-Length": len(content),
            "Connection": "close",
            "Expect": "100-continue",
        },
    )
    asked = b""
    # a busy machine may take longer than that for the head
    while not asked:
        with connected(server) as connection:
            send(connection, head + b"\r\n\r\n")
            with suppress(ConnectionResetError):
                asked = connection.recv(25)
            if asked:
                for byte in range(0, len(content), 20):
                    connection.sendall(content[byte : byte + 20])
                    time.sleep(0.15)
                assert answer_of(connection)[0] == 201


@on_one_server
def test_connections_have_a_limit(server: Server, set_limit: SetLimit) -> None:
    set_limit("MAX_CONNECTIONS", 0)
    with connected(server) as connection:
        status, headers, problem = answer_of(connection)
    assert (status, problem["type"], headers["retry-after"]) == (
        429,
        "too-many-requests",
        "1",
    )


def test_requests_of_one_key_have_a_limit_of_their_own(
    server: Server, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    set_limit("MAX_REQUESTS_PER_KEY", 1)
    other, started, release = (
        server.caller("auditor").http,
        threading.Event(),
        threading.Event(),
    )

    def wait(*arguments: Any) -> Any:
        started.set()
        release.wait(PATIENCE_S)
        return list_keys(*arguments)

    list_keys = keys.keys.list_keys
    monkeypatch.setattr(keys.keys, "list_keys", wait)
    with ThreadPoolExecutor(1) as caller:
        first = caller.submit(server.admin.http.get, "/keys")
        assert started.wait(PATIENCE_S), "the first request does not begin"
        second = server.admin.http.get("/keys")
        elsewhere = other.get("/ledger")
        release.set()
        assert first.result().status_code == 200
    assert (second.status_code, second.json()["type"]) == (429, "too-many-requests")
    assert second.headers["Retry-After"] == "1"
    assert elsewhere.status_code == 200
    assert server.admin.http.get("/keys").status_code == 200

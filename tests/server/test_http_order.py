"""The order of checks for a request with several faults: key, role, size, form, grants,
replay, state, budget.

Bodies that never end are also refused.
"""

import gzip
import json
import socket
import struct
import time
from collections.abc import Callable

import httpx
import pytest

from app.core import limits
from tests.support.server import CSV, Server, csv_rows, new_idempotency_key, training

pytestmark = pytest.mark.in_turn("server")

AS_JSON = {"Content-Type": "application/json"}


def _type(answer: httpx.Response) -> str:
    return str(answer.json()["type"])


def test_checks_come_in_their_published_order(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = server.declared(budget={"accountant": "pure", "epsilon": "1"})["id"]
    stranger, headers = server.caller().http, AS_JSON | new_idempotency_key()
    over_budget = training(dataset, epsilon="7")
    faulty = json.dumps(over_budget | {"epsilon": "none"}).encode()

    with monkeypatch.context() as lowered:
        lowered.setattr(limits, "MAX_JSON_BODY_BYTES", 10)
        assert (
            _type(server.client(None).post("/train", content=faulty, headers=headers))
            == "unauthenticated"
        )
        assert (
            _type(stranger.post("/datasets", content=faulty, headers=headers))
            == "role-missing"
        )
        assert (
            _type(stranger.post("/train", content=faulty, headers=headers))
            == "too-large"
        )
    assert (
        _type(stranger.post("/train", content=faulty, headers=headers))
        == "invalid-request"
    )
    assert (
        _type(stranger.post("/train", json=over_budget, headers=headers)) == "not-found"
    )
    assert (
        _type(server.admin.http.post("/train", json=over_budget, headers=headers))
        == "no-rows-yet"
    )
    server.admin.http.post(
        f"/datasets/{dataset}/rows", content=csv_rows(3), headers=CSV
    )
    assert (
        _type(server.admin.http.post("/train", json=over_budget, headers=headers))
        == "budget-exceeded"
    )
    first = server.admin.http.post("/train", json=training(dataset), headers=headers)
    assert first.status_code == 202
    server.ended(first.json()["job_id"])
    server.admin.http.delete(f"/datasets/{dataset}")
    assert (
        _type(server.admin.http.post("/train", json=over_budget, headers=headers))
        == "idempotency-key-reused"
    )
    other = new_idempotency_key()
    assert (
        _type(server.admin.http.post("/train", json=over_budget, headers=other))
        == "dataset-deleted"
    )
    replay = server.admin.http.post("/train", json=training(dataset), headers=headers)
    assert (replay.status_code, replay.content) == (202, first.content)


@pytest.mark.parametrize("path", ["/datasets", "/populations", "/keys"])
def test_no_byte_of_a_body_is_awaited_from_those_without_the_role(
    server: Server, path: str
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.caller('auditor').key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(server.url).port or 0), timeout=60
    ) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 403 ")


def test_no_byte_of_an_upload_is_taken_from_those_who_may_not(server: Server) -> None:
    dataset = server.declared()["id"]
    predictor = server.granted(dataset, "predictor").http
    packed = {
        "content": gzip.compress(b"not even a header"),
        "headers": CSV | {"Content-Encoding": "gzip"},
    }
    stranger = server.caller().http
    before = server.footprint()
    assert predictor.post(f"/datasets/{dataset}/rows", **packed).status_code == 403
    assert stranger.post(f"/datasets/{dataset}/rows", **packed).status_code == 404
    assert server.footprint() == before


@pytest.mark.parametrize("abrupt", [False, True], ids=["closed", "reset"])
def test_an_upload_whose_sender_goes_away_leaves_nothing(
    server: Server, abrupt: bool
) -> None:
    dataset = server.declared()["id"]
    before = server.footprint()
    logged = len(server.log())
    head = (
        f"POST /datasets/{dataset}/rows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin.key}\r\n"
        "Content-Type: text/csv\r\nContent-Length: 100000\r\n\r\n"
    )
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(server.url).port or 0), timeout=60
    ) as connection:
        connection.sendall(head.encode() + csv_rows(100).encode())
        _wait_until(lambda: bool(server.sizes_of_spools()))
        if abrupt:
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
    _wait_until(lambda: not server.sizes_of_spools())
    assert server.footprint() == before
    assert "a request failed" not in server.log()[logged:], (
        "a sender that goes away is no fault of ours"
    )


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

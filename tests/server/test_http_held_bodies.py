"""Bodies that a client holds back: the request ends in time, and a key that was revoked
meanwhile has no effect.

A client that sends ``Expect: 100-continue`` is asked for its body when the service
begins to read the body, which is after the key was checked.
"""

import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.api import requests
from app.core import limits
from tests.support.databases import on_one_idle_server
from tests.support.raw_requests import received, send
from tests.support.server import Caller, Server, csv_rows, training
from tests.support.set_limits import SetLimit
from tests.support.waiting import PATIENCE_S, wait_for

JSON, CSV = "application/json", "text/csv"


class Held:
    """A request whose body was asked for and is not sent yet."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, part: bytes) -> None:
        send(self._connection, part)

    def is_answered(self, *, within_s: float) -> bool:
        return bool(select.select([self._connection], [], [], within_s)[0])

    def trickle(self, *, pause_s: float) -> None:
        """Sends a byte after each pause until the request is answered."""

        def is_answered() -> bool:
            if self.is_answered(within_s=pause_s):
                return True
            self.send(b"a")
            return False

        wait_for("a body that trickles is answered", is_answered)

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer, after which the connection is closed."""
        head, _, body = received(self._connection).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


@contextmanager
def _held(
    server: Server,
    key: str,
    path: str,
    *,
    length: int,
    media: str = JSON,
    idempotency: str | None = "k",
) -> Iterator[Held]:
    once = "" if idempotency is None else f"Idempotency-Key: {idempotency}\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: {media}\r\n"
        f"{once}Content-Length: {length}\r\nConnection: close\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(server.url).port or 0), timeout=PATIENCE_S
    ) as connection:
        connection.sendall(head.encode())
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield Held(connection)


def _revoke(server: Server, caller: Caller) -> None:
    assert server.admin.http.delete(f"/keys/{caller.id}").status_code == 204


@pytest.mark.parametrize("what", ["train", "rows", "keys"])
def test_a_body_that_arrives_after_the_revocation_has_no_effect(
    idle_server: Server, what: str
) -> None:
    dataset, caller = idle_server.uploaded()["id"], idle_server.caller("admin")
    path, media, body = {
        "train": ("/train", JSON, json.dumps(training(dataset)).encode()),
        "rows": (f"/datasets/{dataset}/rows", CSV, csv_rows(5).encode()),
        "keys": (
            "/keys",
            JSON,
            json.dumps({"name": "mine", "roles": ["admin"]}).encode(),
        ),
    }[what]
    once = None if what == "keys" else "k"
    with _held(
        idle_server, caller.key, path, length=len(body), media=media, idempotency=once
    ) as request:
        request.send(body[:7])
        _revoke(idle_server, caller)
        before = idle_server.footprint()
        request.send(body[7:])
        status, problem = request.answer()
    assert (status, problem["type"]) == (401, "unauthenticated")
    assert idle_server.footprint() == before


@on_one_idle_server
def test_the_text_of_an_upload_that_arrives_has_no_name_in_the_home(
    idle_server: Server,
) -> None:
    rows = f"/datasets/{idle_server.uploaded()['id']}/rows"
    text = csv_rows(50_000).encode()
    with _held(
        idle_server, idle_server.admin.key, rows, length=len(text) + 1, media=CSV
    ) as request:
        request.send(text)
        wait_for("the text is spooled", lambda: any(idle_server.sizes_of_spools()))
        files = [
            path for path in idle_server.settings.home.rglob("*") if path.is_file()
        ]
        assert [path for path in files if text[:40] in path.read_bytes()] == []


def test_a_revoked_key_gets_no_stored_answer(idle_server: Server) -> None:
    dataset, caller = idle_server.uploaded()["id"], idle_server.caller("admin")
    body = json.dumps(training(dataset)).encode()
    headers = {"Idempotency-Key": "first", "Content-Type": JSON}
    assert caller.http.post("/train", content=body, headers=headers).status_code == 202
    with _held(
        idle_server, caller.key, "/train", length=len(body), idempotency="first"
    ) as request:
        _revoke(idle_server, caller)
        request.send(body)
        assert request.answer()[0] == 401


def test_a_key_is_read_again_after_a_long_wait_also_where_a_request_only_reads(
    idle_server: Server, set_limit: SetLimit
) -> None:
    set_limit("KEY_AGE_S", 0)
    dataset, caller = idle_server.uploaded()["id"], idle_server.caller("admin")
    body = json.dumps(training(dataset)).encode()
    with _held(idle_server, caller.key, "/plans", length=len(body)) as request:
        _revoke(idle_server, caller)
        request.send(body)
        assert request.answer()[0] == 401


@on_one_idle_server
@pytest.mark.parametrize(
    ("path", "media"),
    [("/train", JSON), ("/datasets/{}/rows", CSV), ("/models/x/predict", JSON)],
)
@pytest.mark.parametrize("trickles", [False, True], ids=["silent", "trickling"])
def test_a_body_that_does_not_arrive_in_time_ends_the_request(
    idle_server: Server,
    set_limit: SetLimit,
    path: str,
    media: str,
    trickles: bool,
) -> None:
    set_limit("BODY_WAIT_S", 0.5)
    dataset = idle_server.declared()["id"]
    before = idle_server.footprint()
    with _held(
        idle_server,
        idle_server.admin.key,
        path.format(dataset),
        length=100_000,
        media=media,
    ) as request:
        if trickles:
            request.trickle(pause_s=0.2)
        status, problem = request.answer()
    assert (status, problem["type"]) == (408, "body-too-slow")
    assert idle_server.footprint() == before


@on_one_idle_server
def test_a_long_body_at_a_good_rate_has_more_time(
    idle_server: Server, set_limit: SetLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its parts arrives after 10 s, by a clock that no busy machine delays."""
    set_limit("MIN_BODY_BYTES_PER_S", 10)
    readings = list[float]()

    def read_clock() -> float:
        readings.append(10.0 * len(readings))
        return readings[-1]

    monkeypatch.setattr(requests, "monotonic", read_clock)
    dataset = idle_server.declared()["id"]
    readings.clear()
    body = csv_rows(40).encode()
    with _held(
        idle_server,
        idle_server.admin.key,
        f"/datasets/{dataset}/rows",
        length=len(body),
        media=CSV,
    ) as request:
        size = len(body) // 6
        for number, start in enumerate(range(0, len(body), size)):
            wait_for(
                "the service waits for the next part, or has answered",
                lambda number=number: (
                    len(readings) > 2 * number or request.is_answered(within_s=0)
                ),
            )
            request.send(body[start : start + size])
        assert request.answer()[0] == 201
    assert readings[-1] > 2 * limits.BODY_WAIT_S


@on_one_idle_server
def test_a_fast_beginning_saves_up_no_more_than_a_window(
    idle_server: Server, set_limit: SetLimit
) -> None:
    set_limit("MIN_BODY_BYTES_PER_S", 10)
    set_limit("BODY_WINDOW_S", 1)
    dataset = idle_server.declared()["id"]
    beginning = csv_rows(4_000).encode()  # worth hours at the least rate
    rows = f"/datasets/{dataset}/rows"
    with _held(
        idle_server, idle_server.admin.key, rows, length=10**6, media=CSV
    ) as request:
        request.send(beginning)
        request.trickle(pause_s=0.3)
        assert request.answer()[0] == 408


@pytest.mark.parametrize("media", [JSON, CSV])
def test_a_key_is_read_again_while_its_body_arrives_slowly(
    idle_server: Server, set_limit: SetLimit, media: str
) -> None:
    set_limit("SLOW_KEY_AGE_S", 0)
    dataset, caller = idle_server.uploaded()["id"], idle_server.caller("admin")
    path = "/train" if media == JSON else f"/datasets/{dataset}/rows"
    with _held(idle_server, caller.key, path, length=1_000, media=media) as request:
        request.send(b"a")
        _revoke(idle_server, caller)
        request.trickle(pause_s=0.05)
        assert request.answer()[0] == 401


@on_one_idle_server
def test_a_key_has_few_unfinished_uploads(
    idle_server: Server, set_limit: SetLimit
) -> None:
    set_limit("MAX_UNFINISHED_UPLOADS_PER_KEY", 1)
    dataset, admin = idle_server.declared()["id"], idle_server.admin
    rows, text = f"/datasets/{dataset}/rows", csv_rows(5).encode()
    other = idle_server.granted(dataset, "owner")
    with _held(
        idle_server, admin.key, rows, length=len(text), media=CSV, idempotency="first"
    ) as request:
        request.send(text[:7])
        refused = admin.http.post(rows, content=text, headers={"Content-Type": CSV})
        assert (refused.status_code, refused.json()["type"]) == (
            429,
            "too-many-requests",
        )
        assert "uploads of this key that have not ended" in refused.text
        further = csv_rows(6).encode()
        assert (
            other.http.post(
                rows, content=further, headers={"Content-Type": CSV}
            ).status_code
            == 201
        )
        request.send(text[7:])
        assert request.answer()[0] == 201
    assert (
        admin.http.post(
            rows, content=csv_rows(7), headers={"Content-Type": CSV}
        ).status_code
        == 201
    )


def test_no_part_of_an_upload_takes_the_space_that_jobs_need(
    idle_server: Server, set_limit: SetLimit
) -> None:
    rows = f"/datasets/{idle_server.declared()['id']}/rows"
    before = idle_server.footprint()
    set_limit("MIN_FREE_UPLOAD_BYTES", 2**62)
    refused = idle_server.admin.http.post(
        rows, content=csv_rows(5), headers={"Content-Type": CSV}
    )
    assert refused.status_code == 503
    assert refused.json()["detail"] == (
        f"the disk is full: an upload needs {2**42} MiB free in the home of the service"
    )
    assert int(refused.headers["Retry-After"]) == limits.DISK_RETRY_S
    assert idle_server.footprint() == before


@pytest.mark.parametrize("loss", ["key", "grant"])
def test_an_event_stream_ends_when_the_key_may_not_see_the_job_any_more(
    idle_server: Server, loss: str
) -> None:
    dataset = idle_server.uploaded()["id"]
    job_id = idle_server.submitted(dataset).json()["job_id"]
    analyst = idle_server.granted(dataset, "analyst")
    with analyst.http.stream("GET", f"/jobs/{job_id}/events") as stream:
        lines = stream.iter_text()
        assert '"state":"queued"' in next(lines)
        path = (
            f"/keys/{analyst.id}"
            if loss == "key"
            else f"/datasets/{dataset}/grants/{analyst.id}"
        )
        assert idle_server.admin.http.delete(path).status_code == 204
        assert not "".join(lines), "nothing follows"
    assert idle_server.admin.http.get(f"/jobs/{job_id}").json()["state"] == "queued"

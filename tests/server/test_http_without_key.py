"""What callers without a key hold takes no connection and no request from a key, and
keeps no newcomer out.
"""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse

import httpx
import pytest

from app.api import authentication
from app.core import limits
from tests.support.databases import on_one_idle_server
from tests.support.pages import signed_in
from tests.support.raw_requests import received, send, wait_until_read
from tests.support.server import Server
from tests.support.set_limits import SetLimit
from tests.support.waiting import PATIENCE_S

pytestmark = on_one_idle_server

N_HELD, N_WRONG = 6, 200
_FORM = (
    b"POST /ui/sign-in HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nConnection: close\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
)


def _connection(server: Server) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", httpx.URL(server.url).port or 0), timeout=PATIENCE_S
    )


def _status(connection: socket.socket) -> int:
    """The status of one answer, of which nothing is left on the connection: its parts
    may arrive one by one.
    """
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


@contextmanager
def _held_forms(server: Server, n_forms: int) -> Iterator[list[socket.socket]]:
    """Forms of sign-ins whose bodies the service asked for, and does not get."""
    with ExitStack() as held:
        forms = [held.enter_context(_connection(server)) for _ in range(n_forms)]
        for form in forms:
            form.sendall(_FORM % 100)
            assert form.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield forms


def test_held_forms_of_sign_ins_take_no_seat_of_a_key(
    idle_server: Server, set_limit: SetLimit
) -> None:
    set_limit("MAX_REQUESTS_IN_FLIGHT", N_HELD - 1)
    with _held_forms(idle_server, N_HELD):
        assert idle_server.admin.http.get("/ledger").status_code == 200
        assert (
            idle_server.client(idle_server.caller("auditor").key)
            .get("/ledger")
            .status_code
            == 200
        )
        key = idle_server.caller("auditor")
        assert idle_server.admin.http.delete(f"/keys/{key.id}").status_code == 204


@pytest.mark.parametrize("n_forms", [200])
def test_held_forms_of_sign_ins_keep_nobody_out(
    idle_server: Server, n_forms: int
) -> None:
    """They refused style sheet, script and sign-in of everybody else."""
    new_key = idle_server.caller("auditor").key
    with _held_forms(idle_server, n_forms):
        stranger = idle_server.client(None)
        for path in (
            "/ui/sign-in",
            "/ui/style.css",
            "/ui/live.js",
            "/healthz",
            "/openapi.json",
        ):
            assert stranger.get(path).status_code == 200, path
        assert idle_server.client(new_key).get("/ledger").status_code == 200
        signed_in(idle_server, idle_server.admin)


def test_the_form_of_a_sign_in_is_short_and_arrives_soon(
    idle_server: Server, set_limit: SetLimit
) -> None:
    with _connection(idle_server) as long:
        n_bytes = limits.MAX_SIGN_IN_BODY_BYTES + 1
        send(long, _FORM % n_bytes + b"k" * n_bytes)
        assert b"HTTP/1.1 413 " in received(long)
    set_limit("SIGN_IN_BODY_S", 0.5)
    with _held_forms(idle_server, 1) as (silent,):
        assert received(silent).startswith(b"HTTP/1.1 408 ")


def test_a_slow_form_of_a_sign_in_is_answered(
    idle_server: Server, set_limit: SetLimit
) -> None:
    """A wait for a body reads the caller's key again; a sign-in has none."""
    set_limit("KEY_AGE_S", 0)
    set_limit("SIGN_IN_BODY_S", 60)
    with _connection(idle_server) as connection:
        connection.sendall(_FORM % 5)
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ke")
        wait_until_read(connection)
        connection.sendall(b"y=x")
        assert received(connection).startswith(b"HTTP/1.1 401 ")


def test_callers_whose_key_is_not_known_wait_apart_from_keys(
    idle_server: Server, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    """A flood of wrong keys takes no seat and no turn of a key, and a valid key that is
    new is not refused for them.
    """
    new = idle_server.client(idle_server.caller("auditor").key)
    known, entered, release = (
        idle_server.admin.http,
        threading.Semaphore(0),
        threading.Event(),
    )
    assert known.get("/ledger").status_code == 200
    authenticate = authentication.authenticate

    def slow(installation: object, text: str, **options: object) -> object:
        if "wrong" in text:
            entered.release()
            release.wait(PATIENCE_S)
        return authenticate(installation, text, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(authentication, "authenticate", slow)
    set_limit("MAX_REQUESTS_IN_FLIGHT", 1)
    with ExitStack() as held, ThreadPoolExecutor(1) as waiting:
        callers = [held.enter_context(_connection(idle_server)) for _ in range(N_WRONG)]
        try:
            for caller in callers:
                caller.sendall(
                    b"GET /ledger HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\nConnection: close\r\n\r\n"
                )
            for _ in range(
                limits.MAX_AUTHENTICATIONS_AT_ONCE - limits.MAX_THREADS_PER_KEY
            ):
                assert entered.acquire(timeout=60)
            assert known.get("/ledger").status_code == 200
            assert not entered.acquire(blocking=False), (
                "strangers leave a thread to known keys"
            )
            newcomer = waiting.submit(new.get, "/ledger")
        finally:
            release.set()
        assert newcomer.result().status_code == 200
        assert {received(caller)[:13] for caller in callers} == {b"HTTP/1.1 401 "}


def test_idle_connections_close_for_newcomers_and_never_those_of_keys(
    idle_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = f"GET /ledger HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {idle_server.admin.key}\r\n\r\n".encode()
    with ExitStack() as held:
        of_a_key = held.enter_context(_connection(idle_server))
        of_a_key.sendall(request)
        assert _status(of_a_key) == 200
        for limit in ("MAX_CONNECTIONS", "MAX_CONNECTIONS_WITHOUT_KEY"):
            with monkeypatch.context() as lowered:
                lowered.setattr(limits, limit, 40)
                idle = [held.enter_context(_connection(idle_server)) for _ in range(50)]
                with _connection(idle_server) as newcomer:
                    newcomer.sendall(request)
                    assert _status(newcomer) == 200, limit
                idle[0].settimeout(60)
                assert not received(idle[0]), "the oldest ended without an answer"
        of_a_key.sendall(request)
        assert _status(of_a_key) == 200


def test_connections_beyond_the_share_of_a_key_count_as_those_without_one(
    idle_server: Server, set_limit: SetLimit
) -> None:
    set_limit("MAX_CONNECTIONS_PER_KEY", 1)
    key = idle_server.caller("auditor").key
    request = f"GET /ledger HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with ExitStack() as held:
        mine = [held.enter_context(_connection(idle_server)) for _ in range(3)]
        for connection in mine:
            connection.sendall(request)
            assert _status(connection) == 200
        set_limit("MAX_CONNECTIONS_WITHOUT_KEY", 1)
        newcomers = [held.enter_context(_connection(idle_server)) for _ in range(3)]
        newcomers[-1].sendall(request)
        assert _status(newcomers[-1]) == 200
        assert [received(connection) for connection in mine[1:]] == [b"", b""]
        mine[0].sendall(request)
        assert _status(mine[0]) == 200

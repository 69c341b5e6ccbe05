"""Tokens of an identity provider over HTTP: a refused token is answered like an unknown
key, and leaves no trace.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import httpx
import pytest

from app.access.tokens import SigningKeys
from app.api.capacity import THREADS, Work
from app.api.main import create_app
from app.core import limits, stamps
from tests.support.identity_provider import ATTACKS, KeySetFile, token
from tests.support.in_process import InProcess, in_process
from tests.support.server import Server

UNKNOWN_KEY = f"key_unknown.{'s' * 43}"


@contextmanager
def _with_provider(server: Server, settings: dict[str, Any]) -> Iterator[InProcess]:
    """The API of a server's installation, with an identity provider."""
    app = create_app(replace(server.settings, **settings))
    try:
        with in_process(app) as api:
            yield api
    finally:
        app.state.installation.close()


@pytest.fixture(scope="module")
def api(
    idle_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InProcess]:
    with _with_provider(
        idle_server, KeySetFile(tmp_path_factory.mktemp("keys") / "keys.json").settings
    ) as api:
        yield api


def _comparable(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    headers = [
        (name, value)
        for name, value in answer.headers.multi_items()
        if name != "x-request-id"
    ]
    return answer.status_code, headers, answer.content


def test_a_token_opens_what_its_roles_open(api: InProcess) -> None:
    assert api.request("GET", "/datasets", key=token()).status_code == 200
    assert (
        api.request(
            "GET", "/keys", key=token(roles=["stewards"], sub="bob")
        ).status_code
        == 403
    )
    listed = api.request(
        "GET", "/keys?limit=500", key=token(roles=["operators"], sub="eve")
    )
    assert listed.status_code == 200
    named = {
        key["name"]: key for key in listed.json()["keys"] if key["issuer"] is not None
    }
    assert (named["eve"]["roles"], named["bob"]["roles"], named["ann"]["roles"]) == (
        ["admin"],
        ["owner"],
        [],
    )


def test_a_refused_token_is_answered_like_an_unknown_key_and_leaves_no_trace(
    api: InProcess, idle_server: Server
) -> None:
    expected = _comparable(api.request("GET", "/datasets", key=UNKNOWN_KEY))
    assert expected[0] == 401
    before = idle_server.footprint()
    for attack, forged in ATTACKS.items():
        text = forged()
        answer = api.request("GET", "/datasets", key=text)
        if attack == "a huge token":  # its length is what its holder can see
            detail = answer.json()["detail"]
            assert (answer.status_code, "more than 8192 char" in detail) == (401, True)
        else:
            assert _comparable(answer) == expected, attack
        parts = [part for part in text.split(".") if len(part) > 8]
        assert not [part for part in parts if part in idle_server.log()], attack
    assert idle_server.footprint() == before


def test_a_revoked_subject_is_answered_like_an_unknown_key(
    api: InProcess, idle_server: Server
) -> None:
    sent = token(sub="mallory")
    assert api.request("GET", "/datasets", key=sent).status_code == 200
    listed = idle_server.admin.http.get("/keys", params={"limit": 500}).json()["keys"]
    subject = next(key["id"] for key in listed if key["name"] == "mallory")
    assert idle_server.admin.http.delete(f"/keys/{subject}").status_code == 204
    refused = api.request("GET", "/datasets", key=sent)
    assert _comparable(refused) == _comparable(
        api.request("GET", "/datasets", key=UNKNOWN_KEY)
    )


def test_a_token_signs_in_to_the_dashboard_until_it_ends(api: InProcess) -> None:
    form = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": "http://here",
    }
    ends_at = int(time.time()) + 300
    sent = {"headers": form, "content": f"key={token(exp=ends_at)}&next=/"}
    begun = api.request("POST", "/ui/sign-in", **sent)
    assert begun.status_code == 303
    cookie = begun.headers["set-cookie"].partition(";")[0]
    assert api.request("GET", "/ui/jobs", headers={"Cookie": cookie}).status_code == 200
    with pytest.MonkeyPatch.context() as later:
        later.setattr(stamps, "now", lambda: datetime.fromtimestamp(ends_at, UTC))
        assert (
            api.request("GET", "/ui/jobs", headers={"Cookie": cookie}).status_code
            == 303
        )
    forged = api.request(
        "POST", "/ui/sign-in", headers=form, content=f"key={ATTACKS['a foreign key']()}"
    )
    assert forged.status_code == 401


def test_without_the_keys_of_the_provider_tokens_wait_and_keys_work(
    idle_server: Server, tmp_path: Path
) -> None:
    settings = KeySetFile(tmp_path / "keys.json").settings | {
        "oidc_jwks": tmp_path / "missing.json"
    }
    with _with_provider(idle_server, settings) as api:
        for _ in range(2):
            answer = api.request("GET", "/datasets", key=token())
            assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
            assert int(answer.headers["Retry-After"]) in range(
                1, limits.KEY_SET_PAUSE_S + 1
            )
            assert (
                api.request("GET", "/datasets", key=idle_server.admin.key).status_code
                == 200
            )
        assert api.request("GET", "/datasets", key=UNKNOWN_KEY).status_code == 401


def test_a_slow_provider_delays_tokens_alone(
    api: InProcess, idle_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release, find = Semaphore(0), Event(), SigningKeys.find

    def wait(keys: SigningKeys, key_id: str) -> Any:
        entered.release()
        release.wait(120)
        return find(keys, key_id)

    monkeypatch.setattr(SigningKeys, "find", wait)

    def send() -> httpx.Response:
        return api.request("GET", "/datasets", key=token())

    with ThreadPoolExecutor(THREADS[Work.PROVIDER] + 2) as pool:
        waiting = [pool.submit(send) for _ in range(THREADS[Work.PROVIDER] + 2)]
        try:
            for _ in range(THREADS[Work.PROVIDER] - limits.MAX_THREADS_PER_KEY):
                assert entered.acquire(timeout=60)
            assert (
                api.request("GET", "/datasets", key=idle_server.admin.key).status_code
                == 200
            )
            assert api.request("GET", "/healthz", key=None).status_code == 200
        finally:
            release.set()
        assert {answer.result(60).status_code for answer in waiting} == {200}

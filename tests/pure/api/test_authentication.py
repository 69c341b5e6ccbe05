"""A check of readiness that hangs is reported in time, by one check for all; a
credential has one name in memory.
"""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message, Scope

from app.access.grants import Principal, Role
from app.access.keys import CachedAuthority
from app.api import authentication, requests
from app.api.authentication import Authentication, Readiness, take_session
from app.api.capacity import Capacities
from app.core.errors import LedgerRewound, Unauthenticated, Unavailable
from app.core.settings import Settings
from app.services import authorization
from app.services.authorization import cached, credential_of
from tests.support.set_limits import SetLimit

HEADS: Any = SimpleNamespace(read_revision=lambda: True)


def test_a_check_that_hangs_is_unavailable_in_time(
    monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit, tmp_path: Path
) -> None:
    started, release = threading.Semaphore(0), threading.Event()

    def hang(_heads: object) -> None:
        started.release()
        release.wait(timeout=60)

    monkeypatch.setattr(authentication, "confirm_ready", hang)
    set_limit("READINESS_WAIT_S", 0.05)

    async def ask() -> None:
        settings = Settings.from_environment({"GROVEKEEPER_HOME": str(tmp_path)})
        ready = Readiness(settings, HEADS, Capacities())
        for _ in range(2):
            answers = await asyncio.gather(
                *(ready.confirm() for _ in range(50)), return_exceptions=True
            )
            assert {type(answer) for answer in answers} == {Unavailable}
        release.set()
        set_limit("READINESS_WAIT_S", 60)
        await ready.confirm()

    asyncio.run(ask())
    assert started.acquire(blocking=False)
    assert not started.acquire(blocking=False), (
        "one check for all hundred requests and the last"
    )


def _scope(path: str, **fields: str) -> Scope:
    headers = [
        (name.encode(), value.encode("latin-1"))
        for name, value in {"host": "x", **fields}.items()
    ]
    scope: Scope = {
        "type": "http", "method": "GET", "path": path, "headers": headers, "query_string": b"", "scheme": "http",
    }  # fmt: skip
    scope["state"] = {"session": take_session(scope)}
    return scope


class _Caller:
    """An authentication whose callers are whoever their credentials say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def named(_installation: Any, text: Any, **_: Any) -> Principal:
            return Principal(credential_of(text) or "")

        def signed_in(_installation: Any, _signer: Any, request: Any) -> Principal:
            return Principal(request.state.session)

        for name, function in (
            ("authenticate", named),
            ("signed_in", signed_in),
            ("confirm_ready", lambda _: None),
        ):
            monkeypatch.setattr(authentication, name, function)
        heads: Any = SimpleNamespace(signer=None)
        self._of: Any = Authentication(SimpleNamespace(), heads, Capacities(), None)  # type: ignore[arg-type]

    def read(self, scope: Scope) -> None:
        asyncio.run(self._of.principal(scope))

    def seen(self, scope: Scope) -> str | None:
        key_id: str | None = self._of.seen(scope)
        return key_id


def test_one_credential_has_one_name_in_the_memory_of_a_process(
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
) -> None:
    """Each spelling was a caller of its own: 10,000 of them emptied the memory of all
    others.
    """
    set_limit("MAX_CACHED_AUTHORITIES", 2)
    callers = _Caller(monkeypatch)
    callers.read(_scope("/ledger", authorization="Bearer other"))
    for spelling in (
        "Bearer key",
        "bearer key",
        "BEARER   key ",
        "Bearer key\t",
        "Bearer \xa0key",
        "Bearer \x1fkey",
    ):
        callers.read(_scope("/ledger", authorization=spelling))
        assert callers.seen(_scope("/ledger", authorization="Bearer key")) == "key"
    assert callers.seen(_scope("/ledger", authorization="Bearer other")) == "other"

    callers.read(_scope("/", cookie="__Host-grovekeeper=session"))
    for number in range(9):
        cookie = f"a={number}; __Host-grovekeeper=session ; b"
        assert callers.seen(_scope("/ui/keys", cookie=cookie)) == "session"
        callers.read(_scope("/", cookie=cookie))
    assert callers.seen(_scope("/ledger", authorization="Bearer key")) == "key", (
        "the oldest alone is forgotten"
    )


def test_a_credential_that_was_refused_is_not_seen_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key that was revoked takes the turns of strangers, and leaves those of keys."""
    callers = _Caller(monkeypatch)
    request = _scope("/ledger", authorization="Bearer key")
    callers.read(request)

    def refused(*_: object, **__: object) -> Principal:
        raise Unauthenticated

    monkeypatch.setattr(authentication, "authenticate", refused)
    with pytest.raises(Unauthenticated):
        callers.read(request)
    assert callers.seen(request) is None


def test_a_caller_whose_body_was_slow_acts_with_its_present_roles(
    monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    set_limit("KEY_AGE_S", 0)
    monkeypatch.setattr(requests, "confirm", lambda _, caller: Principal(caller.key_id))
    state = SimpleNamespace(capacities=Capacities(), installation=None)
    before = Principal("key", frozenset({Role.ADMIN}))
    scope: Scope = {
        "app": SimpleNamespace(state=state),
        "state": {"principal": before},
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    asyncio.run(requests.whole(requests.Incoming(scope, receive, 10)))
    assert scope["state"]["principal"] == Principal("key")


@pytest.mark.parametrize(
    ("cookie", "session"),
    [
        ("__Host-grovekeeper=ab.c_d-1", "ab.c_d-1"),
        ("a=1;__Host-grovekeeper=x\t;b", "x"),
        ("__Host-grovekeeper=old; __Host-grovekeeper=new", "new"),
        ('__Host-grovekeeper="x"', ""),
        ("__Host-grovekeeper=x~~~~", ""),
        ("__Host-grovekeeper=x=", ""),
        ("a__Host-grovekeeper=x", ""),
        ("__Host-grovekeeper", ""),
        ('a="' + '\\"' * 8_000 + '"', ""),
    ],
)
def test_the_session_is_taken_from_the_head_and_no_cookie_is_left_to_the_framework(
    cookie: str, session: str
) -> None:
    scope = _scope("/ui/keys", cookie=cookie)
    assert scope["state"]["session"] == session
    assert Request(scope).cookies == {}
    other = _scope("/ledger", cookie=cookie, authorization="Bearer key")
    assert (other["state"]["session"], Request(other).cookies) == ("", {})


def test_the_cache_of_predictions_has_one_name_for_a_credential() -> None:
    authority = CachedAuthority()
    installation: Any = SimpleNamespace(authority=authority)
    authority.read(
        authorization.credential_digest("key"), lambda: (Principal("key"), 60.0)
    )
    for spelling in ("Bearer key", "bearer  key", "Bearer key\t"):
        assert cached(installation, spelling) == Principal("key")
    for stranger in ("key", "Basic key", "Bearer other", "Bearer", None):
        assert cached(installation, stranger) is None


def test_an_older_copy_reads_no_caller_of_a_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It accepts keys that were revoked later."""
    reads = list[str]()
    monkeypatch.setattr(
        authentication,
        "authenticate_and_keep",
        lambda *_asked, **_more: reads.append("read") or Principal("key"),
    )
    heads: Any = SimpleNamespace(is_current=True, rewound=None)
    callers = Authentication(SimpleNamespace(), heads, Capacities(), None)  # type: ignore[arg-type]
    prediction = _scope("/models/md_a/predict", authorization="Bearer key")
    prediction["method"] = "POST"
    assert asyncio.run(callers.principal(prediction)) == Principal("key")
    heads.rewound = LedgerRewound("ds_a")
    with pytest.raises(Unavailable, match="contradicts the heads"):
        asyncio.run(callers.principal(prediction))
    assert reads == ["read"]


def test_a_caller_of_an_older_copy_is_known_no_more() -> None:
    """The copy accepts keys that were revoked later, so predictions end with the rest."""
    authority, heads = CachedAuthority(), SimpleNamespace(rewound=None)
    authority.read(
        authorization.credential_digest("key"), lambda: (Principal("key"), 60.0)
    )
    installation: Any = SimpleNamespace(authority=authority)
    callers = Authentication(installation, heads, Capacities(), None)  # type: ignore[arg-type]
    prediction = _scope("/models/md_a/predict", authorization="Bearer key")
    assert callers.known(prediction) == Principal("key")
    heads.rewound = LedgerRewound("ds_a")
    assert callers.known(prediction) is None


@pytest.mark.parametrize("path", ["/", "/ui/jobs", "/ui/admin/keys", "/ledger"])
def test_a_ledger_that_contradicts_its_heads_answers_no_page_and_no_call(
    path: str,
) -> None:
    """A form of a page spends budget as a call does."""

    def contradicts() -> None:
        raise LedgerRewound("ds_a")

    heads: Any = SimpleNamespace(
        is_current=True, rewound=None, confirm=contradicts, signer=None
    )
    of: Any = Authentication(SimpleNamespace(), heads, Capacities(), None)  # type: ignore[arg-type]
    scope = _scope(path, cookie="grovekeeper=session", authorization="Bearer key")
    with pytest.raises(Unavailable, match="contradicts the heads"):
        asyncio.run(of.principal(scope))

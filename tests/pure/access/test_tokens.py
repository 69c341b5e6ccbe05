"""Tests how the keys of an identity provider are read, kept and read again.

Tests which tokens of an identity provider are believed.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jwt
import pytest

from app.access import tokens
from app.access.grants import Role
from app.access.tokens import NotAKeySet, SigningKeys, Token, TokenRules, parse_key_set
from app.core import limits, stamps
from app.core.errors import Unauthenticated, Unavailable
from app.core.logging import JsonFormatter
from tests.support.identity_provider import (
    ATTACKS,
    AUDIENCE,
    ISSUER,
    KEY_SET,
    MAX_LIFETIME_S,
    ROLES,
    claims,
    encoded,
    private_key,
    public_jwk,
    signed,
    token,
)
from tests.support.set_limits import SetLimit

TEXT = json.dumps(KEY_SET).encode()


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at_s = 1_000.0

    def __call__(self) -> float:
        return self.at_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(tokens, "monotonic", moved)
    return moved


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(TEXT)
    return path


def test_keys_are_read_once_and_then_known(file: Path, clock: Clock) -> None:
    keys = SigningKeys(file)
    assert keys.find("es256") is not None
    file.unlink()
    clock.at_s += limits.KEY_SET_AGE_S - 1
    assert keys.find("rs256") is not None


def test_old_keys_are_not_believed(file: Path, clock: Clock) -> None:
    keys = SigningKeys(file)
    assert keys.find("es256") is not None
    file.unlink()
    clock.at_s += limits.KEY_SET_AGE_S
    with pytest.raises(Unavailable) as refused:
        keys.find("es256")
    assert refused.value.retry_after_s == limits.KEY_SET_PAUSE_S


def test_an_unknown_key_is_read_after_a_pause_and_known_keys_work_meanwhile(
    file: Path, clock: Clock
) -> None:
    keys = SigningKeys(file)
    assert keys.find("later") is None
    file.write_text(json.dumps({"keys": [public_jwk(private_key("ES256"), "later")]}))
    clock.at_s += limits.KEY_SET_PAUSE_S - 1
    assert keys.find("later") is None, (
        "strangers cannot make the service ask more often"
    )
    assert keys.find("es256") is not None
    clock.at_s += 1
    assert keys.find("later") is not None
    assert keys.find("es256") is None, "the provider has withdrawn the key"


def test_an_unreachable_provider_leaves_known_keys_and_is_asked_after_a_pause(
    file: Path, clock: Clock
) -> None:
    keys = SigningKeys(file)
    assert keys.find("es256") is not None
    file.unlink()
    clock.at_s += limits.KEY_SET_PAUSE_S
    for _ in range(2):
        with pytest.raises(Unavailable):
            keys.find("later")
        assert keys.find("es256") is not None
        file.write_bytes(TEXT)
    clock.at_s += limits.KEY_SET_PAUSE_S
    assert keys.find("later") is None


@contextmanager
def _provider(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Writes nothing: the server's log on standard error is no part of the
            test.
            """

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join()


def _send(
    handler: BaseHTTPRequestHandler, body: bytes, *, status: int = 200, **headers: str
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_keys_are_read_from_an_address() -> None:
    with _provider(lambda handler: _send(handler, TEXT)) as address:
        assert SigningKeys(address).find("eddsa") is not None


@pytest.mark.parametrize(
    "answer",
    [
        lambda handler: _send(handler, TEXT, status=500),
        lambda handler: _send(
            handler, b"", status=302, Location="http://127.0.0.1:1/keys"
        ),
        lambda handler: _send(handler, TEXT + b" " * limits.MAX_KEY_SET_BYTES),
        lambda handler: _send(handler, b"<html>"),
        lambda handler: handler.wfile.write(b"not http\r\n\r\n"),
    ],
)
def test_another_answer_is_not_believed(
    answer: Callable[[BaseHTTPRequestHandler], None],
) -> None:
    with _provider(answer) as address, pytest.raises(Unavailable):
        SigningKeys(address).find("es256")


@pytest.mark.parametrize("piece", [b"X-Slow: 1\r\n", b"\r\n{}"])
def test_a_provider_that_never_ends_its_answer_is_left_in_time(
    set_limit: SetLimit, piece: bytes
) -> None:
    """Each piece comes in time; the head, or the body, never ends."""
    set_limit("KEY_SET_WAIT_S", 0.5)
    released = Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n")
        with suppress(OSError):
            while not released.wait(0.1):
                handler.wfile.write(piece)

    with _provider(trickle) as address:
        keys = SigningKeys(address)

        def find() -> None:
            with pytest.raises(Unavailable):
                keys.find("es256")

        finder = Thread(target=find, daemon=True)
        finder.start()
        finder.join(60)
        is_left = not finder.is_alive()
        released.set()
        finder.join(60)
    assert is_left


def test_a_silent_provider_holds_up_one_thread_and_for_a_limited_time(
    set_limit: SetLimit,
) -> None:
    set_limit("KEY_SET_WAIT_S", 120)
    asked, released, ended = Event(), Event(), list[None]()

    def wait(_: BaseHTTPRequestHandler) -> None:
        asked.set()
        released.wait(60)
        ended.append(None)

    with _provider(wait) as address:
        keys, refusals = SigningKeys(address), []

        def find() -> None:
            with pytest.raises(Unavailable) as refused:
                keys.find("es256")
            refusals.append(refused.value.retry_after_s)

        first = Thread(target=find)
        first.start()
        assert asked.wait(60)
        find()
        assert refusals == [1], "the second thread does not wait for the first"
        released.set()
        first.join(60)
        assert refusals == [1, limits.KEY_SET_PAUSE_S]
        released.clear()
        set_limit("KEY_SET_WAIT_S", 0.5)
        keys = SigningKeys(address)
        find()
        assert len(ended) == 1, "the provider is still silent"
        released.set()
    assert refusals == [1, limits.KEY_SET_PAUSE_S, limits.KEY_SET_PAUSE_S]


RSA = public_jwk(private_key("RS256"), "a")
PRIVATE = {"d": "AQAB"}


@pytest.mark.parametrize(
    "item",
    [
        RSA | {"use": "enc"}, RSA | {"alg": "RS512"}, RSA | {"alg": "RSA-OAEP"}, RSA | {"alg": "ES256"}, RSA | PRIVATE,
        RSA | {"kid": 7}, RSA | {"n": "AA"}, RSA | {"n": None}, RSA | {"crv": "P-256"}, {"kid": "a"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"}, {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        public_jwk(private_key("RS256", bits=1_024), "a"), public_jwk(private_key("ES256"), "a", crv="P-521"),
        "text", None, [RSA],
    ],
)  # fmt: skip
def test_a_key_that_may_not_sign_tokens_is_passed_over(item: Any) -> None:
    other = public_jwk(private_key("ES256"), "b")
    assert parse_key_set(json.dumps({"keys": [item, other]}).encode()).keys() == {"b"}


def test_a_key_has_one_algorithm() -> None:
    listed = [
        RSA,
        RSA | {"kid": "b", "alg": "PS256"},
        public_jwk(private_key("EdDSA"), "c"),
    ]
    keys = parse_key_set(json.dumps({"keys": listed}).encode())
    assert {key_id: key.algorithm for key_id, key in keys.items()} == {
        "a": "RS256",
        "b": "PS256",
        "c": "EdDSA",
    }


def test_null_is_no_statement_about_a_key_and_ed25519_is_another_name_of_eddsa() -> (
    None
):
    nulls = {"use": None, "alg": None, "key_ops": None}
    newer = public_jwk(private_key("EdDSA"), "c", alg="Ed25519")
    keys = parse_key_set(
        json.dumps(
            {"keys": [RSA | nulls, newer, RSA | {"kid": "d", "alg": "Ed25519"}]}
        ).encode()
    )
    assert {key_id: key.algorithm for key_id, key in keys.items()} == {
        "a": "RS256",
        "c": "EdDSA",
    }


def test_a_token_of_ed25519_is_believed_under_both_names() -> None:
    header = encoded(json.dumps({"alg": "Ed25519", "kid": "eddsa"}).encode())
    text = f"{header}.{encoded(json.dumps(claims()).encode())}"
    signature = private_key("EdDSA").sign(text.encode())
    assert _verified(f"{text}.{encoded(signature)}").subject == "ann"
    with pytest.raises(Unauthenticated):
        _verified(f"{text}.{encoded(bytes(len(signature)))}")


def test_a_time_may_have_a_fraction_and_a_claim_may_be_null() -> None:
    now = int(time.time())
    nulls = {"nbf": None, "roles": None}
    text = signed(
        b'{"alg": "ES256", "kid": "es256"}',
        json.dumps(claims(iat=now + 0.75, exp=now + 300.5) | nulls).encode(),
    )
    believed = _verified(text)
    assert (believed.issued_at.timestamp(), believed.expires_at.timestamp()) == (
        now,
        now + 300,
    )
    assert believed.roles == frozenset()


def test_an_id_of_two_keys_names_none() -> None:
    listed = [RSA, RSA, public_jwk(private_key("ES256"), "b")]
    assert parse_key_set(json.dumps({"keys": listed}).encode()).keys() == {"b"}


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b"\xff", b"[" * 10_000],
)
def test_another_text_is_no_key_set(text: bytes) -> None:
    with pytest.raises(NotAKeySet):
        parse_key_set(text)


KEYS = tokens.parse_key_set(json.dumps(KEY_SET).encode())
RULES = TokenRules(
    ISSUER,
    AUDIENCE,
    "roles",
    {value: Role(role) for value, role in ROLES.items()},
    MAX_LIFETIME_S,
)


def _verified(text: str) -> Token:
    return tokens.verify(text, RULES, find_key=KEYS.get, at=stamps.now())


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_of_the_provider_is_believed(algorithm: str) -> None:
    issued = int(time.time())
    believed = _verified(
        token(
            algorithm,
            sub="ann",
            roles=["stewards", "readers"],
            iat=issued,
            exp=issued + 300,
        )
    )
    assert believed == Token(
        ISSUER,
        "ann",
        frozenset({Role.OWNER}),
        datetime.fromtimestamp(issued, UTC),
        datetime.fromtimestamp(issued + 300, UTC),
    )


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reasons in the lines that are written for tokens that were refused."""
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    return [
        line["problem"] for line in lines if line["message"] == "a token was refused"
    ]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_other_token_is_believed_and_the_error_says_nothing(
    attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why, by one of the constant texts."""
    caplog.set_level("INFO")
    with pytest.raises(Unauthenticated) as refused:
        _verified(ATTACKS[attack]())
    (reason,) = _logged(caplog)
    assert reason in tokens.REFUSALS.values()
    told = str(Unauthenticated())
    if reason == tokens.REFUSALS["too-long"]:  # which its holder can see
        told = f"the token is refused: {reason}"
    assert str(refused.value) == told
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("claim", "roles"),
    [
        (None, set()), ([], set()), ("", set()), (["readers"], set()), ("operators", {Role.ADMIN}),
        (["Operators", "admin", "owner"], set()), (["stewards", "operators"], {Role.OWNER, Role.ADMIN}),
    ],
)  # fmt: skip
def test_only_mapped_values_give_roles(claim: object, roles: set[Role]) -> None:
    assert _verified(token(roles=claim)).roles == roles


def test_the_limits_of_a_token_are_reached_and_not_passed() -> None:
    now = int(time.time())
    _verified(token(exp=now + MAX_LIFETIME_S, iat=now))
    _verified(
        token(
            iat=now + limits.TOKEN_LEEWAY_S,
            nbf=now + limits.TOKEN_LEEWAY_S,
            exp=now + 300,
        )
    )
    _verified(token(aud=[AUDIENCE], nbf=None))
    _verified(token(sub="a" * limits.MAX_SUBJECT_CHARS))


def test_a_key_has_not_the_form_of_a_token() -> None:
    assert not tokens.has_form(f"key_a.{'s' * 43}")
    assert tokens.has_form(token())


FAR_AHEAD = 4_000_000_000
"""In the year 2096. A time that is counted from the import comes while long runs last."""

REASONS: dict[str, dict[str, Any]] = {
    "issuer": {"iss": "https://evil.example.org"}, "audience": {"aud": "other"}, "subject": {"sub": ""},
    "times": {"exp": "1"}, "lifetime": {"exp": FAR_AHEAD}, "expired": {"iat": 1, "exp": 2},
    "early": {"nbf": FAR_AHEAD}, "roles": {"roles": 7},
    "too-long": {"groups": [f"group-{number:036}" for number in range(200)]},
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_the_log_names_the_claim_that_is_wrong(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with pytest.raises(Unauthenticated) as refused:
        _verified(token(**REASONS[reason]))
    assert _logged(caplog) == [tokens.REFUSALS[reason]]
    # the length is the one thing of a token that its holder can see
    is_told = tokens.REFUSALS[reason] in str(refused.value)
    assert is_told == (reason == "too-long")


def _without_id() -> str:
    return jwt.encode(claims(), private_key("RS256"), "RS256")


def test_a_token_without_an_id_means_the_only_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the key has an id or not, and beside keys for other uses. With two keys,
    the token is refused.
    """
    caplog.set_level("INFO")
    path, other = tmp_path / "keys.json", public_jwk(private_key("ES256"), "b")
    nameless = {name: value for name, value in RSA.items() if name != "kid"}
    for listed in ([RSA], [nameless], [RSA, other | {"use": "enc"}]):
        path.write_text(json.dumps({"keys": listed}))
        assert (
            tokens.verify(
                _without_id(), RULES, find_key=SigningKeys(path).find, at=stamps.now()
            ).subject
            == "ann"
        )
    assert caplog.messages == []
    path.write_text(json.dumps({"keys": [RSA, other]}))
    with pytest.raises(Unauthenticated):
        tokens.verify(
            _without_id(), RULES, find_key=SigningKeys(path).find, at=stamps.now()
        )
    assert _logged(caplog) == [tokens.REFUSALS["kid-missing"]]


@contextmanager
def _publishing(**changes: str) -> Iterator[str]:
    """An issuer with a discovery document; ``changes`` may contain ``{origin}``."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        origin = f"http://{handler.headers['Host']}"
        document = {"issuer": f"{origin}/keys", "jwks_uri": f"{origin}/certs"}
        document |= {
            name: value.format(origin=origin) for name, value in changes.items()
        }
        answers = {
            "/keys/.well-known/openid-configuration": json.dumps(document).encode(),
            "/certs": TEXT,
        }
        _send(
            handler,
            answers.get(handler.path, b""),
            status=200 if handler.path in answers else 404,
        )

    with _provider(answer) as issuer:
        yield issuer


def test_the_issuer_s_document_names_the_keys() -> None:
    with _publishing() as issuer:
        assert SigningKeys(None, issuer=issuer).find("es256") is not None


_OF_ADDRESS, _OF_DOCUMENT = "no TLS, and is not of the issuer", "is no JSON object with"


def test_keys_of_an_issuer_with_tls_are_not_fetched_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issuer = "https://idp.example.org"
    document = {"issuer": issuer, "jwks_uri": "http://idp.example.org/certs"}
    monkeypatch.setattr(tokens, "_fetched", lambda _: json.dumps(document).encode())
    with pytest.raises(tokens.NotAKeySet, match=_OF_ADDRESS):
        tokens._discovered(issuer)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"issuer": "https://evil.example.org"}, "GROVEKEEPER_OIDC_ISSUER"),
        ({"issuer": "{origin}/keys/"}, "GROVEKEEPER_OIDC_ISSUER"),
        ({"jwks_uri": "http://127.0.0.1:1/certs"}, _OF_ADDRESS),
        ({"jwks_uri": "file:///etc/passwd"}, _OF_ADDRESS),
        ({"jwks_uri": "/certs"}, _OF_ADDRESS),
        ({"jwks_uri": "https://[/"}, _OF_DOCUMENT),
        ({"jwks_uri": ""}, _OF_ADDRESS),
        ({"jwks_uri": "{origin}/absent"}, "status 404"),
        (
            {"jwks_uri": "{origin}/keys/.well-known/openid-configuration"},
            "list of `keys`",
        ),
    ],
)
def test_another_document_of_an_issuer_is_not_believed(
    changes: dict[str, str], cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    with _publishing(**changes) as issuer, pytest.raises(Unavailable):
        SigningKeys(None, issuer=issuer).find("es256")
    assert cause in caplog.records[0].__dict__["problem"]


def test_an_issuer_without_a_document_is_named_by_its_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with _publishing() as issuer, pytest.raises(Unavailable):
        SigningKeys(None, issuer=f"{issuer}/other").find("es256")
    assert "status 404" in caplog.records[0].__dict__["problem"]


def _logged_of(listed: list[Any], path: Path, text: str) -> None:
    path.write_text(json.dumps({"keys": listed}))
    tokens.verify(text, RULES, find_key=SigningKeys(path).find, at=stamps.now())


def test_an_id_of_several_keys_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    headers = {"kid": RSA["kid"]}
    text = jwt.encode(claims(), private_key("RS256"), "RS256", headers=headers)
    with pytest.raises(Unauthenticated):
        _logged_of(
            [RSA, public_jwk(private_key("ES256"), RSA["kid"])],
            tmp_path / "keys.json",
            text,
        )
    (reason,) = _logged(caplog)
    assert "no key, or several, with its `kid`" in reason


def test_a_signing_key_may_share_its_id_with_a_key_for_another_use(
    tmp_path: Path,
) -> None:
    text = jwt.encode(
        claims(), private_key("RS256"), "RS256", headers={"kid": RSA["kid"]}
    )
    encryption = public_jwk(private_key("ES256"), RSA["kid"], use="enc")
    _logged_of([encryption, RSA], tmp_path / "keys.json", text)


@pytest.mark.parametrize("beside", [[], [public_jwk(private_key("ES256"), "b")]])
def test_a_key_with_another_algorithm_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, beside: list[Any]
) -> None:
    """The provider has the key, so its keys were read, and it is not unknown."""
    caplog.set_level("INFO")
    listed = [RSA | {"alg": "RS512"}, *beside]
    headers = {"kid": RSA["kid"]}
    text = jwt.encode(claims(), private_key("RS256"), "RS256", headers=headers)
    for tried in [text] if beside else [text, _without_id()]:
        caplog.clear()
        with pytest.raises(Unauthenticated):
            _logged_of(listed, tmp_path / "keys.json", tried)
        assert _logged(caplog) == [tokens.REFUSALS["key-unsuited"]]
    assert "RS256, PS256, ES256, EdDSA" in tokens.REFUSALS["key-unsuited"]

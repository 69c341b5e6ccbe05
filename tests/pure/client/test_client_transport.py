"""Retries of the client never pay twice, errors keep the whole problem document, and
addresses and keys are found.
"""

import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.settings import Settings
from grovekeeper_client import settings
from grovekeeper_client.client import Client
from grovekeeper_client.errors import (
    ApiProblem,
    FieldError,
    NoKey,
    SecretForId,
    Unreachable,
)
from grovekeeper_client.transport import is_loopback
from tests.support.tls_proxy import make_certificates

KEY = "key_test." + "s" * 43
Handler = Callable[[httpx.Request], httpx.Response]
PROBLEM = {"Content-Type": "application/problem+json"}


class Service:
    """Answers from a script, and records the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers: Iterator[httpx.Response | Exception] = iter(answers)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []
        self.waits: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self) -> Client:
        return Client(
            "http://grove.test/",
            KEY,
            transport=httpx.MockTransport(self),
            sleep=self.waits.append,
        )

    def keys(self) -> list[str | None]:
        return [request.headers.get("Idempotency-Key") for request in self.requests]


def _problem(
    status: int, slug: str, headers: dict[str, str] | None = None, **members: Any
) -> httpx.Response:
    body = {"type": slug, "title": "t", "status": status, "detail": "d", **members}
    return httpx.Response(
        status, content=json.dumps(body), headers=PROBLEM | (headers or {})
    )


TRAINED = httpx.Response(202, json={"job_id": "jb_1"})


@pytest.mark.parametrize(
    "lost",
    [httpx.ReadError("x"), httpx.RemoteProtocolError("x"), httpx.ReadTimeout("x")],
)
def test_a_lost_connection_is_tried_again_with_the_same_key_and_body(
    lost: Exception,
) -> None:
    service = Service(lost, lost, TRAINED)
    assert service.client().train({"epsilon": "1"}) == {"job_id": "jb_1"}
    assert len(service.requests) == 3
    assert len(set(service.keys())) == 1
    assert service.keys()[0] is not None
    assert set(service.bodies) == {b'{"epsilon": "1"}'}


def test_an_answer_that_a_later_version_does_not_give_warns_of_its_end() -> None:
    headers = {
        "Deprecation": "@1767225600",
        "Sunset": "Fri, 01 Jan 2027 00:00:00 GMT",
    }
    service = Service(
        httpx.Response(200, json={"id": "md_1"}, headers=headers),
        httpx.Response(200, json={"id": "md_1"}, headers={"Deprecation": "@1"}),
        httpx.Response(200, json={"id": "md_1"}),
    )
    client = service.client()
    with pytest.warns(FutureWarning, match=r"GET /models/md_1 .* 01 Jan 2027"):
        assert client.model("md_1") == {"id": "md_1"}
    with pytest.warns(FutureWarning, match="a day that is not set yet"):
        client.model("md_1")
    assert client.model("md_1") == {"id": "md_1"}, "warnings are errors here"


def test_two_calls_have_two_keys_and_a_given_key_is_used() -> None:
    service = Service(
        TRAINED, httpx.Response(202, json={}), httpx.Response(202, json={})
    )
    client = service.client()
    client.train({})
    client.train({})
    client.train({}, idempotency_key="mine")
    first, second, third = service.keys()
    assert first != second
    assert third == "mine"


def test_a_request_without_a_key_is_not_sent_again_once_it_may_have_arrived() -> None:
    service = Service(httpx.ReadError("x"))
    with pytest.raises(Unreachable, match="broke off"):
        service.client().create_key("analyst", [])
    assert len(service.requests) == 1


def test_an_answer_that_breaks_off_is_asked_for_again_with_the_same_key() -> None:
    def broken() -> Iterator[bytes]:
        yield b'{"job_id": '
        raise httpx.ReadError("x")

    service = Service(httpx.Response(202, content=broken()), TRAINED)
    assert service.client().train({}) == TRAINED.json()
    first, second = service.keys()
    assert first == second
    service = Service(httpx.Response(201, content=broken()))
    with pytest.raises(Unreachable, match="broke off"):
        service.client().create_key("analyst", [])
    assert len(service.requests) == 1, "a key would be made twice"


def test_a_request_without_a_key_is_sent_again_if_it_never_left() -> None:
    service = Service(
        httpx.ConnectError("x"), httpx.Response(201, json={"id": "key_1"})
    )
    assert service.client().create_key("analyst", []) == {"id": "key_1"}


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_asked_again_when_it_says(status: int) -> None:
    service = Service(_problem(status, "unavailable", {"Retry-After": "7"}), TRAINED)
    service.client().train({})
    assert service.waits == [7.0]
    assert len(set(service.keys())) == 1


def test_a_proxy_says_a_time_until_which_to_wait() -> None:
    in_an_hour = formatdate(time.time() + 3600, usegmt=True)
    service = Service(
        _problem(503, "unavailable", {"Retry-After": in_an_hour}), TRAINED
    )
    service.client().train({})
    assert service.waits == [30.0]
    refusal = _problem(429, "too-many-requests", {"Retry-After": in_an_hour})
    with pytest.raises(ApiProblem):
        Service(refusal).client().train({})


@pytest.mark.parametrize(
    "text", ["Thu, 01 Jan 1970 00:00:00 GMT", "soon", "-1", "", "9" * 400]
)
def test_a_wait_that_is_over_or_cannot_be_read_takes_the_usual_one(text: str) -> None:
    refusal = _problem(503, "unavailable", {"Retry-After": text})
    service = Service(refusal, TRAINED)
    service.client().train({})
    (waited,) = service.waits
    assert waited < 1 or text.startswith("9")


def test_whoever_waits_for_a_busy_service_is_told_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = _problem(
        503, "unavailable", {"Retry-After": "30"}, detail="the disk is full"
    )
    Service(full, full, TRAINED).client().train({})
    Service(_problem(503, "unavailable", {"Retry-After": "1"}), TRAINED).client().train(
        {}
    )
    assert caplog.messages == ["the disk is full; trying again in 30 s"] * 2


def test_no_service_can_make_the_client_wait_for_ever() -> None:
    service = Service(_problem(503, "unavailable", {"Retry-After": "86400"}), TRAINED)
    service.client().train({})
    assert service.waits == [30.0]


def test_a_state_that_a_person_ends_is_not_waited_for() -> None:
    """Too many jobs wait for an approval, which may take days."""
    service = Service(_problem(429, "too-many-requests", {"Retry-After": "3600"}))
    with pytest.raises(ApiProblem):
        service.client().train({})
    assert service.waits == []


def test_waits_grow_and_end_with_the_attempts() -> None:
    service = Service(*[httpx.ConnectError("x")] * 5)
    with pytest.raises(Unreachable, match="nothing listens there"):
        service.client().dataset("census")
    assert len(service.requests) == 5
    assert [
        low <= wait <= 1.5 * low
        for low, wait in zip((0.2, 0.4, 0.8, 1.6), service.waits, strict=True)
    ] == [True] * 4


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def _refused_certificate() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("x")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
def test_a_port_that_no_machine_has_is_named(port: int) -> None:
    with pytest.raises(ValueError, match=r"the port .* is a number from 1 to 65535"):
        Client(f"http://127.0.0.1:{port}", KEY)


@pytest.mark.parametrize("host", ["127.0.0.1", "grove.test"])
def test_the_authorities_that_the_environment_names_are_trusted_on_loopback_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The error about a certificate says so."""
    certificates = make_certificates(tmp_path / "tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    with Client(f"https://{host}", KEY) as client:
        pool: Any = client._transport._http._transport
        assert len(pool._pool._ssl_context.get_ca_certs()) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "grove.test"])
def test_authorities_that_cannot_be_read_are_named_and_matter_to_https_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    file = tmp_path / "authorities.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    Client(f"http://{host}", KEY).close()
    with pytest.raises(ValueError, match=rf"SSL_CERT_FILE .*{file}.*: No such file"):
        Client(f"https://{host}", KEY)
    file.write_text("no certificate")
    with pytest.raises(ValueError, match=r"SSL_CERT_FILE .*no certificate or crl"):
        Client(f"https://{host}", KEY)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (
            _refused_certificate(),
            r"not accepted \(self-signed certificate\); SSL_CERT_FILE",
        ),
        (ssl.SSLError("wrong version number"), "begins with http://"),
        (socket.gaierror("x"), "no machine of that name"),
        (ConnectionRefusedError(111, "refused"), "nothing listens there$"),
        (TimeoutError("timed out"), "no connection was made in time"),
        (OSError(113, "No route to host"), r"\(No route to host\)$"),
    ],
)
def test_what_kept_a_connection_from_being_made_is_said(
    cause: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    service = Service(*[_caused(httpx.ConnectError("x"), cause)] * 5)
    with pytest.raises(Unreachable, match=said):
        service.client().dataset("census")


def test_a_proxy_that_the_environment_names_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        urllib.request, "getproxies", lambda: {"http": "http://127.0.0.1:9"}
    )
    service = Service(*[httpx.ConnectError("x")] * 5)
    with pytest.raises(
        Unreachable, match="or the proxy that HTTP_PROXY names does not answer"
    ):
        service.client().dataset("census")


def test_the_first_arrival_that_still_runs_is_waited_for() -> None:
    service = Service(
        httpx.ReadError("x"), _problem(409, "idempotency-in-flight"), TRAINED
    )
    assert service.client().train({}) == {"job_id": "jb_1"}


def test_a_refusal_is_a_normal_answer_and_is_not_asked_again() -> None:
    service = Service(
        _problem(
            409, "budget-exceeded", {"X-Request-Id": "rq_1"}, largest_that_fits="0.7"
        )
    )
    with pytest.raises(ApiProblem) as caught:
        service.client().train({})
    problem = caught.value
    assert (problem.status, problem.type, problem.detail, problem.request_id) == (
        409,
        "budget-exceeded",
        "d",
        "rq_1",
    )
    assert problem.body["largest_that_fits"] == "0.7"
    assert len(service.requests) == 1


def test_a_problem_of_fields_has_its_columns_and_counts() -> None:
    rows = {
        "at": "/rows/0/sex",
        "problem": "missing",
        "column": "sex",
        "count": 90,
        "accepted": ["Female", "Male"],
    }
    later = {
        "at": "/epsilon",
        "problem": "too-large",
        "limit": 3,
        "unknown to this client": 1,
    }
    service = Service(_problem(422, "invalid-request", errors=[rows, later]))
    with pytest.raises(ApiProblem) as caught:
        service.client().predict("md_1", {})
    assert caught.value.errors == [
        FieldError(
            "/rows/0/sex",
            "missing",
            column="sex",
            count=90,
            accepted=("Female", "Male"),
        ),
        FieldError("/epsilon", "too-large", limit=3),
    ]
    assert str(caught.value) == (
        "column sex: missing in 90 rows, accepted: Female, Male; /epsilon: too-large, at most 3 (invalid-request, 422)"
    )


@pytest.mark.parametrize(
    ("type_", "column", "words"),
    [
        ("rows-invalid", {"name": "height", "problem": "not-a-number", "count": 7, "row": 12, "suspected": "commas"},
         "height: not a number, 7 times, first in row 12; commas"),
        ("rows-invalid", {"name": "", "problem": "separator", "count": 1, "line": 1}, "the file: separator, line 1"),
        ("rows-invalid", {"name": "", "problem": "unknown-column", "count": 1, "positions": [2]},
         "number 2 of the header: unknown column"),
        ("cells-unread", {"name": "sex", "problem": "unknown", "count": 40, "percent": 8.0},
         "sex: unknown, 40 times (8.0 %)"),
    ],
)  # fmt: skip
def test_a_refused_upload_names_column_reason_and_row(
    type_: str, column: dict[str, object], words: str
) -> None:
    service = Service(_problem(422, type_, columns=[column]))
    with pytest.raises(ApiProblem) as caught:
        service.client().train({})
    assert str(caught.value) == f"d: {words} ({type_}, 422)"
    assert caught.value.columns == [column]


def test_a_service_that_stays_busy_is_a_problem_in_the_end() -> None:
    service = Service(*(_problem(503, "unavailable") for _ in range(5)))
    with pytest.raises(ApiProblem) as caught:
        service.client().train({})
    assert caught.value.status == 503


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(403, html="<h1>Forbidden</h1>"),
        httpx.Response(404, json={"type": "not-found"}),
        httpx.Response(400, content=b"{", headers=PROBLEM),
        httpx.Response(400, content=b"[]", headers=PROBLEM),
        httpx.Response(400, content=b'{"type": 7}', headers=PROBLEM),
        httpx.Response(200, html="<h1>It works!</h1>"),
        httpx.Response(200, json=["a"]),
    ],
)
def test_an_answer_of_another_program_is_reported_as_such(
    answer: httpx.Response,
) -> None:
    with pytest.raises(ApiProblem) as caught:
        Service(answer).client().dataset("census")
    assert caught.value.type == "unexpected-answer"
    assert caught.value.status == answer.status_code


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_whose_service_does_not_answer_is_asked_again_and_the_request_can_be_continued(
    status: int,
) -> None:
    """The request may have arrived before the proxy gave up: another key would pay a
    second time.
    """
    gateway = httpx.Response(status, html="<h1>Gateway</h1>")
    service = Service(gateway, TRAINED)
    assert service.client().train({}) == {"job_id": "jb_1"}
    assert len(set(service.keys())) == 1
    service = Service(*[gateway] * 5)
    with pytest.raises(Unreachable, match=f"does not answer .{status}.") as caught:
        service.client().train({})
    assert {caught.value.idempotency_key} == set(service.keys())


@pytest.mark.parametrize(
    ("answers", "may_have_arrived"),
    [
        ([httpx.ConnectError("x")] * 5, False),
        ([httpx.ReadTimeout("x"), *[httpx.ConnectError("x")] * 4], True),
        ([httpx.Response(502, html="x"), *[httpx.ConnectError("x")] * 4], True),
    ],
)
def test_a_request_that_was_never_sent_has_not_arrived(
    answers: list[Any], may_have_arrived: bool
) -> None:
    with pytest.raises(Unreachable) as caught:
        Service(*answers).client().train({})
    assert caught.value.may_have_arrived == may_have_arrived


def test_a_request_that_must_not_arrive_twice_is_not_sent_again_behind_a_proxy() -> (
    None
):
    service = Service(httpx.Response(504, html="<h1>Gateway</h1>"))
    with pytest.raises(Unreachable):
        service.client().create_key("ann", [])
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            httpx.Response(413, html="<h1>Request Entity Too Large</h1>"),
            "a proxy before the service refuses bodies",
        ),
        (
            httpx.Response(
                301, headers={"Location": "https://u:p@grove.test/x?key=canary"}
            ),
            "leads to https://grove.test;",
        ),
        (
            httpx.Response(308, headers={"Location": "/other"}),
            "leads to http://grove.test;",
        ),
        (httpx.Response(302), "leads to"),
        (httpx.Response(403, html="<h1>Forbidden</h1>"), "and the proxies on the way"),
    ],
)
def test_what_a_proxy_answers_itself_is_told_by_its_status(
    answer: httpx.Response, says: str
) -> None:
    with pytest.raises(ApiProblem, match=says) as caught:
        Service(answer).client().dataset("census")
    assert "canary" not in str(caught.value)


def test_an_object_of_another_service_is_told_by_what_it_lacks() -> None:
    client = Service(httpx.Response(200, json={"hello": 1})).client()
    with pytest.raises(ApiProblem, match="not Grovekeeper's; check the address"):
        list(client.datasets())


def test_a_page_is_not_stored_as_a_download(tmp_path: Path) -> None:
    service = Service(httpx.Response(200, html="<h1>Sign in</h1>"))
    with pytest.raises(ApiProblem, match="not Grovekeeper's"):
        service.client().export_ledger("census", tmp_path / "census.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["", "grove.test", "ftp://grove.test", "http://", "http://[::1", "http://a b\n/"],
)
def test_an_address_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Client(url, KEY)


@pytest.mark.parametrize(
    "user", ["u:SECRETPW", "SECRETPW", ":SECRETPW", "u:SECRETPW@x", "SECRETPW:"]
)
def test_an_address_with_a_password_is_refused_and_not_repeated(user: str) -> None:
    with pytest.raises(ValueError, match="address") as caught:
        Client(f"http://{user}@grove.test/", KEY)
    assert "SECRETPW" not in str(caught.value)


def test_a_secret_never_stands_in_a_path() -> None:
    service = Service(httpx.Response(200, json={}))
    with pytest.raises(ValueError, match="before its dot") as caught:
        service.client().revoke_key(KEY)
    assert "sss" not in str(caught.value)
    assert service.requests == []
    service.client().dataset(f"name.{'n' * 43}")  # of a dataset
    assert len(service.requests) == 1


_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJTRUNSRVQifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "secret", [f"key_{'a' * 16}.{'S' * 43}", f"whsec_{'S' * 43}=", f" {_TOKEN}\n", KEY]
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda client, text: client.revoke_key(text),
        lambda client, text: client.grant("census", text, "analyst"),
        lambda client, text: client.dataset(text),
        lambda client, text: list(client.entries("census", actor=text)),
        lambda client, text: list(client.entries("census", job=text)),
        lambda client, text: list(client.datasets(name=text)),
        lambda client, text: list(client.jobs(dataset=text)),
        lambda client, text: list(client.models(dataset=text)),
    ],
)
def test_a_secret_stands_in_no_path_and_in_no_filter(
    secret: str, ask: Callable[[Client, str], object]
) -> None:
    service = Service()
    with pytest.raises(SecretForId) as caught:
        ask(service.client(), secret)
    assert secret.strip() not in str(caught.value)
    assert service.requests == []


def test_a_key_whose_text_an_operator_chose_is_no_filter() -> None:
    service = Service()
    with pytest.raises(SecretForId):
        list(service.client().entries("census", actor=f"boss.{'s' * 43}"))
    assert service.requests == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "a b",
        "a\nb",
        "ключ",
        '"key_a.b"',
        "'key_a.b'",
        "GROVEKEEPER_API_KEY=key_a.b",
    ],
)
def test_a_key_of_another_form_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError) as caught:
        Client("http://grove.test", key)
    said = "the key is not of the form <id>.<secret>: no quotes, no blanks, nothing before it"
    assert str(caught.value) == said


def test_a_proxy_of_the_environment_is_not_asked_for_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proxy's port is closed too: the error message shows which of the two ports
    was called.
    """
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:1")
    for url in ("http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9"):
        with Client(url, KEY) as client:
            assert client._transport._http._mounts == {}
    with Client("http://grove.test:9", KEY) as client:
        assert client._transport._http._mounts != {}


def test_a_request_without_a_key_is_not_sent_again_after_unavailable_which_may_hide_a_commit() -> (
    None
):
    service = Service(
        _problem(503, "unavailable"), httpx.Response(201, json={"id": "key_1"})
    )
    with pytest.raises(ApiProblem):
        service.client().create_key("analyst", [])
    assert len(service.requests) == 1


def test_an_invalid_request_says_which_fields_break_which_rules() -> None:
    errors = [
        {"at": "/epsilon", "problem": "not-positive"},
        {"at": "", "problem": "unknown-field"},
    ]
    with pytest.raises(ApiProblem) as caught:
        Service(_problem(422, "invalid-request", errors=errors)).client().plan({})
    assert (
        str(caught.value)
        == "/epsilon: not-positive; /: unknown-field (invalid-request, 422)"
    )


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("grove.test", False), ("127.0.0.1.grove.test", False),
    ],
)  # fmt: skip
def test_only_loopback_addresses_are_unreachable_from_other_machines(
    host: str, expected: bool
) -> None:
    assert is_loopback(host) is expected


ADMIN_KEY = "key_test." + "s" * 43


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an admin key, and a file with another key."""
    home = tmp_path / ".grovekeeper"
    home.mkdir()
    (home / "admin.key").write_text("admin." + "a" * 43 + "\n")
    (tmp_path / "my.key").write_text(ADMIN_KEY + "\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    return home


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"GROVEKEEPER_URL": "http://grove.test"},
        {
            "GROVEKEEPER_URL": "",
            "GROVEKEEPER_API_KEY": ADMIN_KEY,
            "GROVEKEEPER_API_KEY_FILE": "",
        },
        {"GROVEKEEPER_API_KEY_FILE": "{folder}/my.key"},
        {"GROVEKEEPER_HOME": "~/.grovekeeper"},
    ],
)
def test_address_and_key_are_those_of_the_settings_of_the_service(
    environ: dict[str, str], home: Path
) -> None:
    environ = {name: text.format(folder=home.parent) for name, text in environ.items()}
    of_service = Settings.from_environment(environ)
    assert settings.url_of(environ) == of_service.url
    assert settings.home_of(environ) == of_service.home
    key_of_home = (of_service.home / "admin.key").read_text().strip()
    assert settings.key_of(environ) == (of_service.api_key or key_of_home)


@pytest.mark.parametrize(
    "name",
    [
        "GROVEKEEPER_URL",
        "GROVEKEEPER_HOME",
        "GROVEKEEPER_API_KEY",
        "GROVEKEEPER_API_KEY_FILE",
    ],
)
def test_a_variable_of_blanks_is_none(name: str, home: Path) -> None:
    """The service refuses them; a client of a shell script goes on without."""
    environ = {name: " \t"}
    assert settings.url_of(environ) == settings.url_of({})
    assert settings.home_of(environ) == home
    assert settings.key_of(environ) == settings.key_of({})
    assert settings.source_of_key(environ) == settings.source_of_key({})
    assert (
        settings.key_of({"GROVEKEEPER_API_KEY_FILE": f" {home.parent}/my.key\n"})
        == ADMIN_KEY
    )


def test_without_a_key_the_error_says_how_to_give_one(home: Path) -> None:
    with pytest.raises(NoKey, match="GROVEKEEPER_API_KEY"):
        settings.key_of({"GROVEKEEPER_HOME": str(home / "elsewhere")})


@pytest.mark.parametrize(
    "environ",
    [
        {
            "GROVEKEEPER_API_KEY": ADMIN_KEY,
            "GROVEKEEPER_API_KEY_FILE": "{folder}/my.key",
        },
        {"GROVEKEEPER_API_KEY_FILE": "{folder}/absent.key"},
        {"GROVEKEEPER_API_KEY_FILE": "{folder}/empty.key"},
    ],
)
def test_an_unusable_key_is_refused_and_not_shown(
    environ: dict[str, str], home: Path
) -> None:
    (home.parent / "empty.key").write_text("\n")
    with pytest.raises(ValueError) as caught:
        settings.key_of(
            {name: text.format(folder=home.parent) for name, text in environ.items()}
        )
    assert ADMIN_KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("absent.key", "cannot be read: No such file"),
        ("", "cannot be read: Is a directory"),
        ("utf16.key", "is not UTF-8 text; .* UTF-16"),
    ],
)
def test_the_cause_is_said_why_a_key_file_gives_no_key(
    name: str, cause: str, tmp_path: Path
) -> None:
    (tmp_path / "utf16.key").write_text(ADMIN_KEY, encoding="utf-16")
    with pytest.raises(ValueError, match=cause):
        settings.key_of({"GROVEKEEPER_API_KEY_FILE": str(tmp_path / name)})


def test_a_tilde_in_the_name_of_a_key_file_is_the_home_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my.key").write_text(ADMIN_KEY)
    assert settings.key_of({"GROVEKEEPER_API_KEY_FILE": "~/my.key"}) == ADMIN_KEY

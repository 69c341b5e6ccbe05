"""Finds the address and the key of a service, and sends HTTP requests with retries that
never spend budget twice.

After a lost connection or a 503, and where a proxy says that the service does not
answer, a request is sent again only if its repetition has no second effect: ``GET``,
``PUT``, ``DELETE``, and every request with an ``Idempotency-Key``, which stays the same
over all attempts. Any request is sent again if no connection was made, or after a 429,
by which the service refused to begin. A wait of two seconds or more is logged as a
warning, with its reason.
"""

import hashlib
import ipaddress
import json
import logging
import os
import re
import secrets
import socket
import ssl
import time
import urllib.request
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import quote

import httpx

from grovekeeper_client.errors import ApiProblem, Refused, SecretForId, Unreachable
from grovekeeper_common.durable_files import new_file
from grovekeeper_common.json_types import JsonObject

ATTEMPTS = 5
"""Largest number of attempts for a request that may be repeated."""

MAX_WAIT_S = 30.0
_FIRST_WAIT_S = 0.2
_TOLD_WAIT_S = 2.0
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_TOO_LARGE = 413
_TOO_MANY = 429
_UNAVAILABLE = 503
_OF_GATEWAYS = (502, _UNAVAILABLE, 504)
_UNEXPECTED = "unexpected-answer"
_REPEATABLE_METHODS = ("GET", "PUT", "DELETE")
_KEY_FORM = re.compile(r"[a-z0-9_]{4,32}\.[A-Za-z0-9_-]{43,512}")
"""A key. The name of a dataset may have this form, too, so only ids of keys are
compared with it.
"""

_MADE_SECRET = re.compile(
    r"key_[a-z2-7]{16}\..+|whsec_[A-Za-z0-9+/_-]{43}=?|eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",
    re.DOTALL,
)
"""A key that a service has made, also a part of it; the secret of a webhook; or a token
of an identity provider.
"""

_log = logging.getLogger(__name__)
_LARGEST_PORT = 65_535
CHUNK_BYTES = 256 * 1024
"""Bytes per read of a file or an answer."""

PAGE_SIZE = 500
"""Items that a request for a list names as its limit: the largest number that the
service accepts.
"""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name that is not ``localhost``
    counts as reachable.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Request:
    """One call.

    Attributes:
        method: HTTP method.
        path: below the service's address, already quoted.
        params: query; ``None`` values are left out.
        headers: besides ``Authorization``.
        content: returns the body, anew for each attempt.
        repeatable: repeating the request has no second effect.
        read_timeout_s: longest wait for the answer.
        attempts: largest number of attempts.
    """

    method: str
    path: str
    params: Mapping[str, str | int | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Callable[[], bytes | Iterator[bytes]] | None = None
    repeatable: bool = False
    read_timeout_s: float = 60.0
    attempts: int = ATTEMPTS

    @property
    def may_arrive_twice(self) -> bool:
        return (
            self.repeatable
            or self.method in _REPEATABLE_METHODS
            or "Idempotency-Key" in self.headers
        )


class Transport:
    """A connection pool to one service, with one key."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        transport: httpx.BaseTransport | None,
        sleep: Callable[[float], None],
    ) -> None:
        self.url = url.rstrip("/")
        self._sleep = sleep
        self._key = key
        host = _host(self.url)
        if not re.fullmatch(r"[A-Za-z0-9._-]+", key):
            raise ValueError(
                "the key is not of the form <id>.<secret>: no quotes, no blanks, nothing before it"
            )
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(60.0, connect=10.0),
            transport=transport,
            # a proxy cannot reach this machine's loopback
            trust_env=not is_loopback(host),
            verify=_authorities(self.url),
        )
        # a notebook seldom closes what it opens
        weakref.finalize(self, self._http.close)

    def close(self) -> None:
        """Closes the pool."""
        self._http.close()

    def send(self, request: Request) -> httpx.Response:
        """The answer, read completely.

        Raises:
            ApiProblem: the service refused or failed.
            Unreachable: no answer after all attempts.
        """
        return self._answered(request, stream=False)

    @contextmanager
    def stream(self, request: Request) -> Iterator[httpx.Response]:
        """The answer, whose body the caller reads, for downloads.

        Raises:
            ApiProblem: the service refused or failed.
            Unreachable: no answer after all attempts.
        """
        response = self._answered(request, stream=True)
        try:
            yield response
        except httpx.TransportError as error:
            raise Unreachable(
                self.url, "the answer broke off", request.headers.get("Idempotency-Key")
            ) from error
        finally:
            response.close()

    def _answered(self, request: Request, *, stream: bool) -> httpx.Response:
        may_have_arrived = False
        for attempt in range(1, request.attempts + 1):
            last = attempt == request.attempts
            try:
                response = self._http.send(self._build(request), stream=stream)
                if response.is_success and not _is_page(response):
                    _warn_of_an_end(response)
                    return response
                problem = _problem(response)
            except httpx.TransportError as error:
                is_sent = not isinstance(error, _NEVER_SENT)
                may_have_arrived = may_have_arrived or is_sent
                if last or (is_sent and not request.may_arrive_twice):
                    raise Unreachable(
                        self.url,
                        _reason(error, self.url),
                        request.headers.get("Idempotency-Key"),
                        may_have_arrived,
                    ) from error
                self._wait(_backoff_s(attempt), _reason(error, self.url))
                continue
            may_have_arrived = True
            is_long = (
                problem.status == _TOO_MANY and _stated_wait_s(response) > MAX_WAIT_S
            )
            if last or is_long or not _is_worth_repeating(problem, request):
                # the request may have arrived, as with a lost connection
                if _is_of_gateway(problem):
                    raise Unreachable(
                        self.url, problem.detail, request.headers.get("Idempotency-Key")
                    )
                raise problem
            wait_s = _retry_after_s(response) or _backoff_s(attempt)
            self._wait(wait_s, problem.detail)
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, wait_s: float, why: str) -> None:
        # whoever sits before a terminal or a notebook takes silence for a hang
        if wait_s >= _TOLD_WAIT_S:
            _log.warning("%s; trying again in %.0f s", why, wait_s)
        self._sleep(wait_s)

    def _build(self, request: Request) -> httpx.Request:
        texts = [str(value).strip() for value in request.params.values()]
        if self._key in (*request.path.split("/"), *texts) or any(
            map(_MADE_SECRET.fullmatch, texts)
        ):
            raise SecretForId
        return self._http.build_request(
            request.method,
            self.url + request.path,
            params={
                name: value
                for name, value in request.params.items()
                if value is not None
            },
            headers=dict(request.headers),
            content=request.content() if request.content else None,
            timeout=httpx.Timeout(request.read_timeout_s, connect=10.0),
        )


def new_idempotency_key() -> str:
    """A key of 128 random bits, for one request and its retries."""
    return secrets.token_hex(16)


def _warn_of_an_end(response: httpx.Response) -> None:
    """Warns of a request that a later version of the service refuses (RFC 9745 and
    RFC 8594; docs/versioning.md).
    """
    if "deprecation" not in response.headers:
        return
    request = response.request
    end = response.headers.get("sunset", "a day that is not set yet")
    # shown by default, once for each text, unlike DeprecationWarning
    warnings.warn(
        f"{request.method} {request.url.path} is deprecated: a later version of the service removes it, "
        f"not before {end}; the changelog names the replacement",
        FutureWarning,
        stacklevel=2,
    )


def _problem(response: httpx.Response) -> ApiProblem:
    """The problem details of an answer; any other answer (of a proxy, say) is
    ``unexpected-answer``.
    """
    response.read()
    response.close()
    body: Any = None
    if (
        response.headers.get("content-type", "").split(";")[0].strip()
        == "application/problem+json"
    ):
        try:
            body = response.json()
        except ValueError:
            body = None
    request_id = response.headers.get("x-request-id")
    if isinstance(body, dict) and isinstance(body.get("type"), str):
        detail = str(body.get("detail") or body.get("title") or body["type"])
        problem = Refused if "largest_that_fits" in body else ApiProblem
        return problem(response.status_code, body["type"], detail, body, request_id)
    return not_grovekeeper(response)


def not_grovekeeper(response: httpx.Response) -> ApiProblem:
    """The error for an answer that is not of this API. What a proxy answers itself is
    told by its status.
    """
    status = response.status_code
    detail = "the answer is not Grovekeeper's; check the address"
    if status in _OF_GATEWAYS:
        detail = f"a proxy there says that the service does not answer ({status})"
    elif status == _TOO_LARGE:
        detail = f"a proxy before the service refuses bodies of this size ({status}); its operator can admit them"
    elif response.is_redirect:
        detail = f"the address leads to {_origin(response)}; name the address of the service itself"
    elif response.is_error:
        detail = f"the answer ({status}) is not Grovekeeper's; check the address, and the proxies on the way"
    body = {"type": _UNEXPECTED, "title": detail, "status": status, "detail": detail}
    return ApiProblem(status, _UNEXPECTED, detail, body)


def _origin(response: httpx.Response) -> str:
    """Where an answer leads, without a path and a query, which may hold a secret."""
    try:
        target = response.request.url.join(response.headers.get("location", ""))
    except httpx.InvalidURL:
        return "another place"
    return f"{target.scheme}://{target.netloc.decode('ascii', 'replace').rpartition('@')[2]}"


def _is_page(response: httpx.Response) -> bool:
    """Whether a success is a page, as a proxy shows it that asks people to sign in:
    this API has none.
    """
    media_type = str(response.headers.get("content-type", "")).split(";")[0]
    return media_type.strip().lower() == "text/html"


def _is_of_gateway(problem: ApiProblem) -> bool:
    """Whether a proxy says that the service behind it does not answer."""
    return problem.type == _UNEXPECTED and problem.status in _OF_GATEWAYS


def _is_worth_repeating(problem: ApiProblem, request: Request) -> bool:
    """Whether another attempt may succeed.

    ``idempotency-in-flight``: an earlier attempt of this request is still running. A
    503 may follow a commit whose answer was lost, so only a request that may arrive
    twice is sent again.
    """
    if problem.status == _UNAVAILABLE or _is_of_gateway(problem):
        return request.may_arrive_twice
    return problem.status == _TOO_MANY or problem.type == "idempotency-in-flight"


def _retry_after_s(response: httpx.Response) -> float | None:
    stated = _stated_wait_s(response)
    return min(stated, MAX_WAIT_S) if stated else None


def _stated_wait_s(response: httpx.Response) -> float:
    """The wait that an answer asks for, in seconds, or until a time as proxies write
    it; 0 for none.
    """
    text = response.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return 0.0


def _backoff_s(attempt: int) -> float:
    """0.2 s, doubled with each attempt, plus up to a half at random, so that clients do
    not retry in step.
    """
    step: float = _FIRST_WAIT_S * 2 ** (attempt - 1)
    return min(step * (1 + secrets.randbelow(512) / 1024), MAX_WAIT_S)


def _cause(error: BaseException) -> BaseException:
    """The error of the system below an error of the HTTP library."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return cause or error


def _reason(error: httpx.TransportError, url: str) -> str:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return _reason_of_no_connection(_cause(error)) + _through_proxy(url)
    match error:
        case httpx.TimeoutException():
            return "it took too long"
        case _:
            return "the connection broke off"


def _reason_of_no_connection(cause: BaseException) -> str:
    match cause:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not accepted ({cause.verify_message}); SSL_CERT_FILE can name the certificate of "
                "a private authority"
            )
        case ssl.SSLError():
            return "no TLS connection could be made: an address of a service without TLS begins with http://"
        case socket.gaierror():
            return "no machine of that name is known here"
        case TimeoutError():
            return "no connection was made in time: is a firewall or another network between?"
        case OSError(strerror=str() as why) if not isinstance(
            cause, ConnectionRefusedError
        ):
            return f"no connection can be made ({why})"
        case _:
            return "nothing listens there"


def _through_proxy(url: str) -> str:
    """A clause where the environment names a proxy for an address: what does not answer
    may be the proxy.
    """
    address = httpx.URL(url)
    proxies = urllib.request.getproxies()
    name = next((name for name in (address.scheme, "all") if name in proxies), None)
    if name is None or urllib.request.proxy_bypass(address.host):
        return ""
    return f", or the proxy that {name.upper()}_PROXY names does not answer"


def _authorities(url: str) -> ssl.SSLContext | bool:
    """The authorities that ``SSL_CERT_FILE`` names, which httpx would not read for
    loopback; else those of httpx. Without TLS, none.

    Raises:
        ValueError: the file cannot be read.
    """
    if httpx.URL(url).scheme == "http":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=file) if file else True
    except OSError as error:
        raise ValueError(
            f"SSL_CERT_FILE names {file}, which cannot be read: {error.strerror}"
        ) from error


def _host(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("the address of the service must be http://… or https://…")
    # httpx would send it in place of the key, and errors name the address
    if parsed.userinfo:
        raise ValueError(
            "the address of the service must have no user name and no password; the key is given apart"
        )
    if parsed.port is not None and not 0 < parsed.port <= _LARGEST_PORT:
        raise ValueError(
            f"the port of the service's address is a number from 1 to {_LARGEST_PORT}"
        )
    return parsed.host


class Calls:
    """A connection to one service with one key."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = Transport(url, key, transport=transport, sleep=sleep)
        self._sleep = sleep

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def _json(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | bytes | None = None,
        params: Mapping[str, str | int | None] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> JsonObject:
        of_body = {} if body is None else {"Content-Type": "application/json"}
        content = (
            body
            if isinstance(body, bytes | None)
            else json.dumps(body, allow_nan=False).encode()
        )
        request = Request(
            method,
            path,
            params=params or {},
            headers=of_body | dict(headers or {}),
            content=None if content is None else lambda: content,
            repeatable=repeatable,
        )
        return read_object(self._transport.send(request))

    def _pages(
        self, path: str, member: str, **filters: str | None
    ) -> Iterator[JsonObject]:
        for page in self._whole_pages(path, **filters):
            yield from page[member]

    def _whole_pages(self, path: str, **filters: str | None) -> Iterator[JsonObject]:
        cursor: str | None = None
        while True:
            page = self._json(
                "GET", path, params={"limit": PAGE_SIZE, "cursor": cursor, **filters}
            )
            yield page
            cursor = page["next"]
            if cursor is None:
                return

    def _events(self, path: str) -> Iterator[JsonObject]:
        """The objects of a stream of server-sent events; an event that broke off is
        left out.
        """
        with self._transport.stream(Request("GET", path, attempts=1)) as response:
            text = ""
            for line in response.iter_lines():
                if line.startswith("data:"):
                    text += line.removeprefix("data:")
                elif not line and text:
                    yield json.loads(text)
                    text = ""

    def _download(self, request: Request, file: Path) -> str:
        digest = hashlib.sha256()
        with (
            self._transport.stream(request) as response,
            new_file(file, existing="replace") as target,
        ):
            for chunk in response.iter_bytes(CHUNK_BYTES):
                digest.update(chunk)
                target.write(chunk)
        return digest.hexdigest()


def segment(reference: str) -> str:
    """A reference, quoted as one segment of a path.

    Raises:
        SecretForId: the reference is a secret that a service has made.
    """
    if _MADE_SECRET.fullmatch(reference.strip()):
        raise SecretForId
    return quote(reference, safe="")


def key_segment(key_id: str) -> str:
    """The id of a key, quoted as one segment of a path.

    Raises:
        SecretForId: it is the whole key.
    """
    return segment(key_reference(key_id))


def key_reference(key: str) -> str:
    """The id or name of a key.

    Raises:
        SecretForId: it is the whole key, also one whose text an operator chose.
    """
    if _KEY_FORM.fullmatch(key.strip()):
        raise SecretForId
    return key


class _Answer(dict[str, Any]):
    """The object of an answer. The members of another service's show when one is read."""

    def __missing__(self, name: str) -> NoReturn:
        detail = (
            f"the answer has no {name!r}, so it is not Grovekeeper's; check the address"
        )
        body = {"type": _UNEXPECTED, "title": detail, "status": 200, "detail": detail}
        raise ApiProblem(200, _UNEXPECTED, detail, body)


def read_object(response: httpx.Response) -> JsonObject:
    """The JSON object of an answer; empty for an answer without a body (204)."""
    if not response.content:
        return {}
    try:
        return _Answer(response.json())
    except (ValueError, TypeError):
        raise not_grovekeeper(response) from None

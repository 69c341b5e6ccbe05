"""Sends HTTP requests with retries that never spend budget twice.

After a lost connection or a 503, a request is sent again only if its repetition has no second effect: ``GET``, ``PUT``,
``DELETE``, and every request with an ``Idempotency-Key``, which stays the same over all attempts. Any request is sent
again if no connection was made, or after a 429, by which the service refused to begin.
"""

import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from grovekeeper_client.addresses import is_loopback
from grovekeeper_client.errors import ApiProblem, Refused, Unreachable

ATTEMPTS = 5
"""Largest number of attempts for a request that may be repeated."""
MAX_WAIT_S = 30.0
_FIRST_WAIT_S = 0.2
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_TOO_MANY, _UNAVAILABLE = 429, 503
_REPEATABLE_METHODS = ("GET", "PUT", "DELETE")


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
        return self.repeatable or self.method in _REPEATABLE_METHODS or "Idempotency-Key" in self.headers


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
        host = _host(self.url)
        if not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ValueError("the key is not of the form <id>.<secret>")
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(60.0, connect=10.0),
            transport=transport,
            trust_env=not is_loopback(host),  # a proxy cannot reach this machine's loopback
        )
        weakref.finalize(self, self._http.close)  # a notebook seldom closes what it opens

    def close(self) -> None:
        """Closes the pool."""
        self._http.close()

    def send(self, request: Request) -> httpx.Response:
        """The answer, read completely.

        Raises:
            ApiProblem: the service refused or failed.
            Unreachable: no answer after all attempts.
        """
        with self.stream(request) as response:
            response.read()
        return response

    @contextmanager
    def stream(self, request: Request) -> Iterator[httpx.Response]:
        """The answer, whose body the caller reads, for downloads.

        Raises:
            ApiProblem: the service refused or failed.
            Unreachable: no answer after all attempts.
        """
        response = self._answered(request)
        try:
            yield response
        except httpx.TransportError as error:
            raise Unreachable(self.url, "the answer broke off", request.headers.get("Idempotency-Key")) from error
        finally:
            response.close()

    def _answered(self, request: Request) -> httpx.Response:
        for attempt in range(1, request.attempts + 1):
            last = attempt == request.attempts
            try:
                response = self._http.send(self._build(request), stream=True)
                if response.is_success:
                    return response
                problem = _problem(response)
            except httpx.TransportError as error:
                if last or not (isinstance(error, _NEVER_SENT) or request.may_arrive_twice):
                    raise Unreachable(self.url, _reason(error), request.headers.get("Idempotency-Key")) from error
                self._sleep(_backoff_s(attempt))
                continue
            if last or not _is_worth_repeating(problem, request):
                raise problem
            self._sleep(_retry_after_s(response) or _backoff_s(attempt))
        raise AssertionError("the last attempt returns or raises")

    def _build(self, request: Request) -> httpx.Request:
        return self._http.build_request(
            request.method,
            self.url + request.path,
            params={name: value for name, value in request.params.items() if value is not None},
            headers=dict(request.headers),
            content=request.content() if request.content else None,
            timeout=httpx.Timeout(request.read_timeout_s, connect=10.0),
        )


def new_idempotency_key() -> str:
    """A key of 128 random bits, for one request and its retries."""
    return secrets.token_hex(16)


def _problem(response: httpx.Response) -> ApiProblem:
    """The problem details of an answer; any other answer (of a proxy, say) is ``unexpected-answer``."""
    response.read()
    response.close()
    body: Any = None
    if response.headers.get("content-type", "").split(";")[0].strip() == "application/problem+json":
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
    """The error for an answer that is not of this API."""
    detail = "the answer is not Grovekeeper's; check the address"
    body = {"type": "unexpected-answer", "title": detail, "status": response.status_code, "detail": detail}
    return ApiProblem(response.status_code, "unexpected-answer", detail, body)


def _is_worth_repeating(problem: ApiProblem, request: Request) -> bool:
    """Whether another attempt may succeed.

    ``idempotency-in-flight``: an earlier attempt of this request is still running. A 503 may follow a commit whose
    answer was lost, so only a request that may arrive twice is sent again.
    """
    if problem.status == _UNAVAILABLE:
        return request.may_arrive_twice
    return problem.status == _TOO_MANY or problem.type == "idempotency-in-flight"


def _retry_after_s(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return min(float(text), MAX_WAIT_S) if text.isascii() and text.isdigit() else None


def _backoff_s(attempt: int) -> float:
    """0.2 s, doubled with each attempt, plus up to a half at random, so that clients do not retry in step."""
    step: float = _FIRST_WAIT_S * 2 ** (attempt - 1)
    return min(step * (1 + secrets.randbelow(512) / 1024), MAX_WAIT_S)


def _reason(error: httpx.TransportError) -> str:
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return "nothing listens there"
        case httpx.TimeoutException():
            return "it took too long"
        case _:
            return "the connection broke off"


def _host(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("the address of the service must be http://… or https://…")
    return parsed.host

"""Reads what a route takes from a request: the body, the caller, pages, the idempotency
key, query parameters.

Of a request with a body, role, size and media type are checked in this order; then a
thread parses and validates it.
"""

import re
from asyncio import timeout
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from inspect import iscoroutinefunction, signature
from time import monotonic
from typing import Annotated, Any, TypeVar, cast

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response, Security
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from app.access.grants import Principal, Role
from app.access.idempotency import Answer, IdempotentRequest
from app.api import problems
from app.api.capacity import Work, capacities, is_administration
from app.core import json_text, limits
from app.core.errors import (
    BodyTooSlow,
    ChangedMeanwhile,
    FieldProblem,
    IdempotencyKeyMissing,
    InvalidRequest,
    NotFound,
    RoleMissing,
    TooLarge,
    UnsupportedMediaType,
)
from app.core.preconditions import Condition, condition_of, etag_of
from app.services.authorization import confirm
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from app.services.pagination import PageRequest
from app.wire.base import NO_CONTROLS, is_secret
from app.wire.datasets import PUBLIC_NAME
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.errors import GrovekeeperError

CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_JSON_TYPES = ["application/json, with charset=utf-8 or without a charset"]
_JSON = re.compile(r"application/(.*\+)?json")
_CHARSET = re.compile(r""";[ \t]*charset[ \t]*=[ \t]*["']?([^"';]*)""")
_LENGTH_DIGITS = 20
_KEY = re.compile(rf"[\x21-\x7e]{{1,{limits.MAX_IDEMPOTENCY_KEY_CHARS}}}")
# The middleware authenticates; this documents it.
_bearer = HTTPBearer(
    auto_error=False, description="`Authorization: Bearer <key or token>`"
)
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
Shown = TypeVar("Shown")
Checked = TypeVar("Checked", bound=BaseModel)


class Body(StrEnum):
    """The kind of a body, which decides its limits."""

    JSON = "json"
    DECLARATION = "declaration"
    ERASURE = "erasure"
    ROWS = "rows"
    UPLOAD = "upload"

    @property
    def max_bytes(self) -> int:
        return {
            Body.JSON: limits.MAX_JSON_BODY_BYTES,
            Body.DECLARATION: limits.MAX_DECLARATION_BODY_BYTES,
            Body.ERASURE: limits.MAX_ERASURE_BODY_BYTES,
            Body.ROWS: limits.MAX_PREDICTION_FILE_BYTES,
            Body.UPLOAD: limits.MAX_UPLOAD_BODY_BYTES,
        }[self]

    @property
    def max_nodes(self) -> int:
        if self is Body.DECLARATION:
            return limits.MAX_DECLARATION_BODY_NODES
        return limits.MAX_JSON_BODY_NODES


@dataclass(frozen=True)
class _Limits:
    body: Body = Body.JSON
    needs: Role | None = None
    work: Work | None = None


def limited(
    *, body: Body = Body.JSON, needs: Role | None = None, work: Work | None = None
) -> Callable[[_Endpoint], _Endpoint]:
    """Declare the limits of an endpoint.

    Args:
        needs: the global role without which no byte of the body is read.
        work: whose threads the endpoint uses; by default those of reads or writes, by
            method.
    """

    def declare(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["_limits"] = _Limits(body, needs, work)
        return endpoint

    return declare


@dataclass(frozen=True)
class _Problems:
    kinds: tuple[type[GrovekeeperError], ...] = ()
    any_role: bool = False


def raises(
    *kinds: type[GrovekeeperError], any_role: bool = False
) -> Callable[[_Endpoint], _Endpoint]:
    """Document problems of an endpoint that neither its path nor its arguments tell.

    Args:
        any_role: whoever may know what the path names may call the endpoint.
    """

    def declare(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["_problems"] = _Problems(kinds, any_role)
        return endpoint

    return declare


class BodyRequest(Request):
    """A request whose body arrives by an :class:`Incoming`.

    Attributes:
        value: the JSON value of the body, with ``Decimal`` where the text has a
            fraction or an exponent.
        model: the body as the endpoint's type, validated.
    """

    value: Any = None
    model: BaseModel | None = None

    async def body(self) -> bytes:
        """The whole body."""
        if not hasattr(self, "_body"):
            self._body = await whole(self._receive)
        return self._body

    async def json(self) -> BaseModel | None:
        """The validated body: FastAPI takes an instance of the endpoint's type as it
        is.
        """
        return self.model


class BodyRoute(APIRoute):
    """A route whose body is read only for callers who may send it, within the limits of
    its kind. Documents the problems of the route.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        responses: dict[int | str, JsonObject],
        **options: Any,
    ) -> None:
        documented = _documented(path, endpoint)
        super().__init__(
            path, endpoint, responses={**responses, **documented}, **options
        )

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        limits_here: _Limits = self.endpoint.__dict__.get("_limits", _Limits())
        body = limits_here.body
        if limits_here.work is not None:
            work = limits_here.work
        elif is_administration(self.path):
            work = Work.ADMINISTRATION
        else:
            work = Work.READ if self.methods == {"GET"} else Work.WRITE
        model: Any = None
        if self.body_field is not None:
            model = self.body_field.field_info.annotation
        # An async endpoint chooses the threads for each of its steps, and may wait for
        # its client between them.
        is_async = iscoroutinefunction(self.endpoint)

        async def handle(request: Request) -> Response:
            if limits_here.needs is not None:
                request.state.principal.require(limits_here.needs)
            _check_length(request.headers.get("content-length"), body.max_bytes)
            keeps = body is not Body.UPLOAD  # which goes to a file as it arrives
            incoming = Incoming(
                request.scope, request.receive, body.max_bytes, keeps=keeps
            )
            counted = BodyRequest(request.scope, incoming)
            if model is not None:
                check_media_type(request.scope)
                text = await counted.body()
            async with nullcontext() if is_async else capacities(request).turn(work):
                if model is not None:
                    counted.value, counted.model = await to_thread.run_sync(
                        lambda: _read(model, text, body.max_nodes)
                    )
                return await handler(counted)

        return handle


def _documented(path: str, endpoint: Callable[..., Any]) -> dict[int | str, JsonObject]:
    """The problems of a route: those that its path and its arguments tell, and those
    that the endpoint states.
    """
    stated: _Problems = endpoint.__dict__.get("_problems", _Problems())
    limits_here: _Limits = endpoint.__dict__.get("_limits", _Limits())
    parameters = signature(endpoint).parameters
    taken = [parameter.annotation for parameter in parameters.values()]
    kinds = list(stated.kinds)
    if "{" in path:
        kinds.append(NotFound)
    if limits_here.needs or ("{" in path and not stated.any_role):
        kinds.append(RoleMissing)
    if By in taken or Caller in taken:
        kinds += problems.OF_A_KEY
    if "body" in parameters:
        kinds += problems.JSON_BODY
    if Precondition in taken:
        kinds.append(ChangedMeanwhile)
    if OptionalIdempotency in taken:
        kinds += problems.REPEATABLE
    if Idempotency in taken:
        kinds += problems.SPENDING
    return problems.documented(kinds)


Router = partial(APIRouter, route_class=BodyRoute)
"""Makes the routers of the API and the dashboard."""


async def read_body(
    scope: Scope, receive: Receive, max_bytes: int, other_types: tuple[str, ...] = ()
) -> tuple[str, bytes]:
    """Reads media type and body of a request that has no route of the framework.

    Args:
        scope: of the request.
        receive: of the request.
        max_bytes: of the body.
        other_types: accepted media types besides JSON.

    Raises:
        TooLarge: the body has too many bytes.
        UnsupportedMediaType: the body is neither plain JSON nor of another accepted
            type.
    """
    _check_length(Headers(scope=scope).get("content-length"), max_bytes)
    media_type = check_media_type(scope, other_types)
    return media_type, await whole(Incoming(scope, receive, max_bytes))


def check_media_type(scope: Scope, other_types: tuple[str, ...] = ()) -> str:
    """Checks that a body is plain JSON or of another accepted type, and returns its
    type.

    Raises:
        UnsupportedMediaType: another type, or an encoded body.
    """
    # Starlette's Headers and Request take longer than a prediction. As there, the first
    # field of a name counts.
    fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))
    media_type = _media_type(fields.get(b"content-type", b"application/json"))
    if media_type not in other_types and not _JSON.fullmatch(media_type):
        raise UnsupportedMediaType([*_JSON_TYPES, *other_types])
    encoding = fields.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise UnsupportedMediaType([*_JSON_TYPES, *other_types], is_encoded=True)
    return media_type


async def whole(receive: Receive) -> bytes:
    """A body from its messages. A large one stays in the array in which it arrived: no
    thread runs during a copy.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        if not message.get("more_body", False) and not body:
            return part
        body += part
        if not message.get("more_body", False):
            if len(body) > limits.LARGE_BODY_BYTES:
                return cast(bytes, body)
            return bytes(body)


def _check_length(declared: str | None, max_bytes: int) -> None:
    # Python refuses to read thousands of digits; the server's parser has refused what is
    # no number.
    if declared is None or not declared.isdecimal() or len(declared) > _LENGTH_DIGITS:
        return
    if int(declared) > max_bytes:
        raise TooLarge("the body", max_bytes)


@lru_cache(maxsize=64)
def _media_type(field: bytes) -> str:
    """The type in a field ``Content-Type``; empty where its text is not in UTF-8."""
    text = field.decode("latin-1").lower()
    charset = _CHARSET.search(text)
    is_read = charset is None or charset[1].strip() in CHARSETS
    return text.partition(";")[0].strip() if is_read else ""


def _read(model: type[BaseModel], text: bytes, max_nodes: int) -> tuple[Any, BaseModel]:
    value = json_text.loads_exactly(text, max_nodes=max_nodes)
    return value, checked(model, value)


def checked(model: type[Checked], value: object) -> Checked:
    """A body as its model.

    Raises:
        InvalidRequest: a field breaks a rule of the API.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        invalid = problems.invalid_request(
            error.errors(include_url=False, include_input=False), model
        )
    raise invalid  # out of the handler: the library's error holds the input


class Incoming:
    """Receives the messages of one request, whose body has a largest size and a time to
    arrive; the time that the service needs for a message does not count. After a long
    wait the key is read again.

    Args:
        wait_s: seconds for the whole body; by default those of ``limits.BODY_WAIT_S``
            and of a least rate.
        keeps: whether the body stays in memory, so that a large one waits for its turn.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        max_bytes: int,
        *,
        wait_s: float | None = None,
        keeps: bool = True,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._max_bytes = max_bytes
        self._wait_s = wait_s
        self._keeps = keeps
        self._n_bytes = 0
        self._left_s = wait_s or limits.BODY_WAIT_S
        self._key_age_s = 0.0
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()  # tells when the client goes away
        begun = monotonic()
        try:
            async with timeout(min(limits.BODY_WAIT_S, self._left_s)):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow from None
        waited_s = monotonic() - begun
        self._left_s -= waited_s
        self._key_age_s += waited_s
        n_new = len(message.get("body", b""))
        self._n_bytes += n_new
        if self._n_bytes > self._max_bytes:
            raise TooLarge("the body", self._max_bytes)
        if self._wait_s is None:
            # A fast beginning saves up minutes, not days: the rows of a slow upload
            # take space on the disk.
            self._left_s = min(
                self._left_s + n_new / limits.MIN_BODY_BYTES_PER_S, limits.BODY_WINDOW_S
            )
        if self._keeps and self._n_bytes > limits.LARGE_BODY_BYTES:
            self._keeps = False
            await self._scope["app"].state.capacities.begin_large_body()
        self._is_complete = not message.get("more_body", False)
        # After a long wait the key may have been revoked; only the last message leads to
        # work for it.
        most_s = limits.KEY_AGE_S if self._is_complete else limits.SLOW_KEY_AGE_S
        if self._key_age_s > most_s:
            await self._confirm_key()
        return message

    async def _confirm_key(self) -> None:
        process = self._scope["app"].state
        request = self._scope["state"]
        self._key_age_s = 0.0
        if "principal" in request:
            request["principal"] = await process.capacities.run(
                Work.AUTHENTICATION,
                lambda: confirm(process.installation, request["principal"]),
            )


async def heads(request: Request) -> Heads:
    return cast(Heads, request.app.state.heads)


async def principal(
    request: Request, _: Annotated[object, Security(_bearer)]
) -> Principal:
    return cast(Principal, request.state.principal)


Caller = Annotated[Principal, Depends(principal)]


async def by(
    request: Request, _: Annotated[object, Security(_bearer)]
) -> tuple[Installation, Principal]:
    return request.app.state.installation, request.state.principal


async def page(
    limit: Annotated[
        int, Query(ge=1, le=limits.MAX_PAGE_SIZE)
    ] = limits.DEFAULT_PAGE_SIZE,
    cursor: Annotated[str | None, Query(max_length=limits.MAX_REFERENCE_CHARS)] = None,
) -> PageRequest:
    return PageRequest(limit, cursor)


async def precondition(
    if_match: Annotated[str | None, Header(alias="If-Match")] = None,
    if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None,
) -> Condition:
    return condition_of(if_match, if_none_match)


def with_etag(
    response: Response, answer: Shown, state: str, rest: object = None
) -> Shown:
    """Name an answer in its field ``ETag``: the state that a change replaces, and
    behind a dash what else the answer shows, which no condition of a change compares.
    """
    response.headers["ETag"] = f'"{state}{f"-{etag_of(rest)}" if rest else ""}"'
    return answer


async def optional_idempotency(
    request: BodyRequest,
    key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> IdempotentRequest | None:
    """Read the request's idempotency key, with a digest of the body's canonical form;
    ``None`` without a key.
    """
    key = checked_key(request, key)
    if key is None:
        return None
    digest = await to_thread.run_sync(json_text.digest, request.value)
    return IdempotentRequest(
        request.state.principal.key_id, route_of(request), key, digest
    )


async def no_idempotency(request: Request) -> None:
    """Refuse an idempotency key where an answer shows a secret: no answer is kept, so a
    repetition acts again.

    Raises:
        InvalidRequest: the request has such a key.
    """
    if "Idempotency-Key" in request.headers:
        raise InvalidRequest.at(
            "/Idempotency-Key",
            "not-here",
            accepted=["none: a repetition makes another secret"],
        )


async def idempotency(
    request: Annotated[IdempotentRequest | None, Depends(optional_idempotency)],
) -> IdempotentRequest:
    """Read the idempotency key of a request that spends budget; such a request must
    have a key.

    Raises:
        IdempotencyKeyMissing: no key was sent.
    """
    if request is None:
        raise IdempotencyKeyMissing
    return request


def checked_key(request: Request, key: str | None) -> str | None:
    """Read and check the ``Idempotency-Key`` of a request; ``None`` if the request has
    none.

    Raises:
        InvalidRequest: the key is empty, too long or not visible ASCII; it is a secret,
            which backups would keep; or the request has several keys: a proxy could
            reorder them in a retry, which would spend again.
    """
    if key is None:
        return None
    form = f"one key of 1 to {limits.MAX_IDEMPOTENCY_KEY_CHARS} visible characters of ASCII"
    if len(request.headers.getlist("Idempotency-Key")) > 1 or not _KEY.fullmatch(key):
        raise InvalidRequest.at("/Idempotency-Key", "malformed", accepted=[form])
    if is_secret(key):
        raise InvalidRequest.at(
            "/Idempotency-Key",
            "like-a-secret",
            accepted=["a text without a key or token"],
        )
    return key


def route_of(request: Request) -> str:
    """Return method and path of a request: an idempotency key belongs to a principal
    and a route.
    """
    return f"{request.method} {request.url.path}"


def sent(answer: Answer) -> Response:
    """Return the HTTP response with the stored bytes of an answer."""
    headers = {} if answer.location is None else {"Location": answer.location}
    media_type = "application/json" if answer.body else None
    return Response(
        answer.body, status_code=answer.status, headers=headers, media_type=media_type
    )


NameFilter = Annotated[
    str | None, Query(max_length=limits.MAX_DATASET_NAME_CHARS, pattern=PUBLIC_NAME)
]
"""A name or an id by which a list is filtered."""

KeyFilter = Annotated[
    str | None, Query(max_length=limits.MAX_KEY_NAME_CHARS, pattern=NO_CONTROLS)
]
"""The name or the id of a key by which a list is filtered."""

KeptHeads = Annotated[Heads, Depends(heads)]
By = Annotated[tuple[Installation, Principal], Depends(by)]
"""The first two arguments of a use case: the installation, and who asks."""

Page = Annotated[PageRequest, Depends(page)]
Precondition = Annotated[Condition, Depends(precondition)]
SHOWS_SECRET = [Depends(no_idempotency)]
"""Dependencies of a route whose answer has a new secret."""

OptionalIdempotency = Annotated[IdempotentRequest | None, Depends(optional_idempotency)]
Idempotency = Annotated[IdempotentRequest, Depends(idempotency)]


async def check_query(request: Request) -> None:
    """Check the names of the query parameters of a request. A misspelt filter would
    otherwise filter nothing.

    No route of the API declares a parameter with several values.

    Raises:
        InvalidRequest: a parameter is unknown, or occurs twice.
    """
    if request.scope["query_string"]:
        _refuse_wrong_names(request)


def _refuse_wrong_names(request: Request) -> None:
    route: APIRoute = request.scope["route"]
    declared = sorted(set(_declared(route.dependant)))
    n_sent = Counter(name for name, _ in request.query_params.multi_items())
    wrong = [
        FieldProblem(f"/{name}", "repeated") for name in declared if n_sent[name] > 1
    ]
    unknown = sorted(n_sent.keys() - set(declared))
    # those whose names are not shown are one problem
    for shown in dict.fromkeys(map(problems.shown_name, unknown)):
        wrong.append(
            FieldProblem("", "unknown-parameter", accepted=tuple(declared), field=shown)
        )
    if wrong:
        raise InvalidRequest(wrong)


def _declared(dependant: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of a route, and of what the route depends
    on.
    """
    for parameter in dependant.query_params:
        yield parameter.alias
    for dependency in dependant.dependencies:
        yield from _declared(dependency)

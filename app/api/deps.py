"""Defines the dependencies of routes: the installation, the caller, pages, the idempotency key, query parameters."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, TypeAlias, cast

from anyio import to_thread
from fastapi import Depends, Header, Query, Request, Response, Security
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from app.access.grants import Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.api.bodies import BodyRequest
from app.core import json_text, limits
from app.core.errors import FieldProblem, IdempotencyKeyMissing, InvalidRequest
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from app.services.pages import PageRequest
from app.wire.datasets import PUBLIC_NAME

_KEY = re.compile(rf"[\x21-\x7e]{{1,{limits.MAX_IDEMPOTENCY_KEY_CHARS}}}")
# The middleware authenticates; this documents it.
_bearer = HTTPBearer(auto_error=False, description="`Authorization: Bearer <key or token>`")


def installation(request: Request) -> Installation:
    return cast(Installation, request.app.state.installation)


def heads(request: Request) -> Heads:
    return cast(Heads, request.app.state.heads)


def principal(request: Request, _: Annotated[object, Security(_bearer)]) -> Principal:
    return cast(Principal, request.state.principal)


def page(
    limit: Annotated[int, Query(ge=1, le=limits.MAX_PAGE_SIZE)] = limits.DEFAULT_PAGE_SIZE,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> PageRequest:
    return PageRequest(limit, cursor)


async def optional_idempotency(
    request: BodyRequest,
    caller: Annotated[Principal, Depends(principal)],
    key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> IdempotentRequest | None:
    """Read the request's idempotency key, with a digest of the body's canonical form; ``None`` without a key."""
    checked = checked_key(request, key)
    if checked is None:
        return None
    digest = await to_thread.run_sync(json_text.digest, request.value)
    return IdempotentRequest(caller.key_id, route_of(request), checked, digest)


async def idempotency(
    request: Annotated[IdempotentRequest | None, Depends(optional_idempotency)],
) -> IdempotentRequest:
    """Read the idempotency key of a request that spends budget; such a request must have a key.

    Raises:
        IdempotencyKeyMissing: no key was sent.
    """
    if request is None:
        raise IdempotencyKeyMissing
    return request


def checked_key(request: Request, key: str | None) -> str | None:
    """Read and check the ``Idempotency-Key`` of a request; ``None`` if the request has none.

    Raises:
        InvalidRequest: the key is empty, too long or not visible ASCII, or the request has several keys: a proxy could
            reorder them in a retry, which would spend again.
    """
    if key is not None and (len(request.headers.getlist("Idempotency-Key")) > 1 or not _KEY.fullmatch(key)):
        raise InvalidRequest.at("/Idempotency-Key", "malformed")
    return key


def route_of(request: Request) -> str:
    """Return method and path of a request: an idempotency key belongs to a principal and a route."""
    return f"{request.method} {request.url.path}"


def sent(answer: Answer) -> Response:
    """Return the HTTP response with the stored bytes of an answer."""
    headers = {} if answer.location is None else {"Location": answer.location}
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")


NameFilter: TypeAlias = Annotated[str | None, Query(max_length=limits.MAX_DATASET_NAME_CHARS, pattern=PUBLIC_NAME)]
"""A name or an id by which a list is filtered."""

CurrentInstallation = Annotated[Installation, Depends(installation)]
KeptHeads = Annotated[Heads, Depends(heads)]
Caller = Annotated[Principal, Depends(principal)]
Page = Annotated[PageRequest, Depends(page)]
OptionalIdempotency = Annotated[IdempotentRequest | None, Depends(optional_idempotency)]
Idempotency = Annotated[IdempotentRequest, Depends(idempotency)]


async def check_query(request: Request) -> None:
    """Check the names of the query parameters of a request. A misspelt filter would otherwise filter nothing.

    No route of the API declares a parameter with several values.

    Raises:
        InvalidRequest: a parameter is unknown, or occurs twice.
    """
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    declared = sorted(set(_declared(route.dependant)))
    sent = Counter(name for name, _ in request.query_params.multi_items())
    problems = [FieldProblem(f"/{name}", "repeated") for name in declared if sent[name] > 1]
    if not sent.keys() <= set(declared):
        problems.append(FieldProblem("", "unknown-parameter", accepted=tuple(declared)))
    if problems:
        raise InvalidRequest(problems)


def _declared(dependant: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of a route, and of what the route depends on."""
    for parameter in dependant.query_params:
        yield parameter.alias
    for dependency in dependant.dependencies:
        yield from _declared(dependency)

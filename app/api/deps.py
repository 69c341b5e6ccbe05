"""Defines the dependencies of FastAPI routes: the installation, the caller, pagination and the idempotency key."""

import re
from typing import Annotated, TypeAlias, cast

from anyio import to_thread
from fastapi import Depends, Header, Query, Request, Response, Security
from fastapi.security import HTTPBearer

from app.access.idempotency import Answer, IdempotentRequest
from app.access.roles import Principal
from app.api import exact_json
from app.api.bodies import BodyRequest
from app.core import limits
from app.core.errors import IdempotencyKeyMissing, InvalidRequest
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
    digest = await to_thread.run_sync(exact_json.digest, request.value)
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

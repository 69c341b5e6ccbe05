"""Signs people in to the dashboard: a cookie names their key for some hours, and never holds its secret or a token."""

import hashlib
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request, Response
from itsdangerous import BadSignature, URLSafeTimedSerializer

from app.access.grants import Principal
from app.core import limits, stamps
from app.core.errors import MalformedRequest, Unauthenticated
from app.ledger.checkpoints import Signer
from app.services.authorization import confirm
from app.services.installation import Installation
from app.services.keys import end_sessions

COOKIE = "grovekeeper"
"""The name of the cookie on this machine. Elsewhere it has the prefix ``__Host-``: a browser then takes it over HTTPS
from this host alone, so that no neighbour below the same domain signs a person in as somebody else."""
_PURPOSE = b"grovekeeper/dashboard-session/1"


def sign_in(response: Response, request: Request, signer: Signer, principal: Principal) -> None:
    """Add a session's cookie to an answer. Scripts cannot read it, and only HTTPS or this machine transmits it."""
    value = _serializer(signer).dumps(
        [principal.key_id, _text(principal.rotated_at), _text(principal.token_expires_at), principal.sign_outs],
    )
    response.set_cookie(
        _name(request), value, max_age=limits.SIGN_IN_S, httponly=True, samesite="lax", secure=not _is_loopback(request)
    )


def sign_out(response: Response, request: Request, installation: Installation, signer: Signer) -> None:
    """End all sessions of the caller's key, of which copies may exist, and remove the cookie."""
    with suppress(Unauthenticated):
        end_sessions(installation, authenticate(installation, signer, request))
    response.delete_cookie(_name(request), secure=not _is_loopback(request), httponly=True, samesite="lax")


def authenticate(installation: Installation, signer: Signer, request: Request) -> Principal:
    """Find the caller of a session, with its present roles.

    Raises:
        Unauthenticated: no session, or it has ended; or the key was revoked, rotated or has expired.
    """
    cookie = request.cookies.get(_name(request), "")
    try:
        key_id, rotated_at, token_expires_at, sign_outs = _serializer(signer).loads(cookie, max_age=limits.SIGN_IN_S)
    except (BadSignature, ValueError):  # or a session of an earlier version, which cannot be ended
        raise Unauthenticated from None
    began = Principal(key_id, rotated_at=_time(rotated_at), token_expires_at=_time(token_expires_at))
    caller = confirm(installation, began)
    if caller.sign_outs != sign_outs:
        raise Unauthenticated
    return caller


def require_same_origin(request: Request) -> None:
    """Check that a form was sent by a page of this service and not by a page of another site.

    Raises:
        MalformedRequest: a page of another site sent the form, or a program that does not name its origin.
    """
    origin = request.headers.get("origin", "")
    if not origin or urlsplit(origin).netloc != request.headers.get("host"):
        raise MalformedRequest("the form was not sent by a page of this service")


def _serializer(signer: Signer) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(signer.derived(_PURPOSE), signer_kwargs={"digest_method": hashlib.sha256})


def _text(time: datetime | None) -> str | None:
    return None if time is None else stamps.to_text(time)


def _time(text: str | None) -> datetime | None:
    return None if text is None else stamps.from_text(text)


def _name(request: Request) -> str:
    return COOKIE if _is_loopback(request) else f"__Host-{COOKIE}"


def _is_loopback(request: Request) -> bool:
    host = request.url.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

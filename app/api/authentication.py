"""Checks that the service is ready, and authenticates requests by key, token or
session.

Callers that predict often are found in a cache. A session of the dashboard is a cookie
that names the key of a person for some hours, and never holds its secret or a token.
"""

import asyncio
import hashlib
import re
import shutil
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from fastapi import Request, Response
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.types import Scope

from app.access.grants import Principal
from app.api.addresses import base
from app.api.capacity import Capacities, Work, work_of_authentication
from app.core import limits, stamps
from app.core.dask_cluster import is_loopback
from app.core.errors import (
    InstallationError,
    LedgerRewound,
    MalformedRequest,
    NotWritable,
    Unauthenticated,
    Unavailable,
)
from app.core.settings import Settings
from app.ledger.checkpoints import Signer
from app.services.authorization import (
    IdentityProvider,
    authenticate,
    authenticate_and_keep,
    cached,
    confirm,
    credential_digest,
    credential_of,
)
from app.services.installation import Installation, require_writable
from app.services.keys import end_sessions
from app.services.ledger.heads import Heads

_REWOUND = "the ledger contradicts the heads that were written outside the database"
_NO_HEADS = "heads outside the database cannot be read or written, or a key is missing"
_NOT_WRITABLE = "the service cannot write to one of its folders; the log names it"

SIGN_IN = "/ui/sign-in"
WITHOUT_SESSION = frozenset({SIGN_IN, "/ui/style.css", "/ui/live.js"})
"""Paths of the dashboard that need no session. They show no data of the installation."""

_RELEASED_MODEL = re.compile(
    r"/models/[^/]+(/artifact|/predict)?|/v2/models/[^/]+(/versions/[^/]+)?(/ready|/infer)?"
)
"""Released models: post-processing, served even if the ledger contradicts its heads."""

PREDICT = "/models/{model_id}/predict"
INFER = "/v2/models/{model_id}/infer"
INFER_BY_VERSION = "/v2/models/{model_id}/versions/{version_id}/infer"
COOKIE = "grovekeeper"
"""The name of the cookie on this machine. Elsewhere it has the prefix ``__Host-``: a
browser then takes it over HTTPS from this host alone, so that no neighbour below the
same domain signs a person in as somebody else.
"""

_USUAL_PORTS = {"http": ":80", "https": ":443"}
_SESSION = b"grovekeeper/dashboard-session/1"


class Prediction(NamedTuple):
    """What a request for predictions addresses: route, model, and for the Open
    Inference Protocol the version.
    """

    route: str
    model: str
    version: str | None


def prediction_of(scope: Scope) -> Prediction | None:
    """What a request addresses; ``None`` if it asks for no predictions."""
    if scope["method"] != "POST":
        return None
    match scope["path"].split("/"):  # several times as fast as the framework's routing
        case ["", "models", model, "predict"] if model:
            return Prediction(PREDICT, model, None)
        case ["", "v2", "models", model, "infer"] if model:
            return Prediction(INFER, model, None)
        case ["", "v2", "models", model, "versions", version, "infer"] if (
            model and version
        ):
            return Prediction(INFER_BY_VERSION, model, version)
    return None


@dataclass(eq=False)
class Readiness:
    """Runs one check of readiness at a time, in a separate thread, for all requests
    that wait for the result.
    """

    _settings: Settings
    _heads: Heads
    _capacities: Capacities
    _check: asyncio.Task[None] | None = None

    async def confirm(self) -> None:
        """Check as :func:`confirm_ready` does, and the disk, for at most
        ``limits.READINESS_WAIT_S`` seconds.

        Raises:
            Unavailable: the service is not ready, its disk is full or cannot be
                written, or the check takes too long.
        """
        if self._check is None or self._check.done():
            check = self._capacities.run(Work.READINESS, self._confirm)
            # the check of no client, who may go away
            self._check = asyncio.create_task(check, context=Context())
            # Nobody may be left to see the error of a check that took too long.
            self._check.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )
        try:
            async with asyncio.timeout(limits.READINESS_WAIT_S):
                await asyncio.shield(self._check)
        except TimeoutError:
            raise Unavailable("the database does not answer in time") from None

    def _confirm(self) -> None:
        # asks the database now: requests go by an answer from before an outage
        self._heads.read_revision()
        confirm_ready(self._heads)
        home = self._settings.home
        if shutil.disk_usage(home).free < limits.MIN_FREE_DISK_BYTES:
            raise Unavailable("the disk is full", limits.DISK_RETRY_S)
        try:
            require_writable(self._settings)
        except InstallationError:
            raise NotWritable(_NOT_WRITABLE, limits.DISK_RETRY_S) from None


def confirm_ready(heads: Heads) -> None:
    """Check the revision of the database, and the ledger against the heads outside the
    database.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or contradicts a
            head; or heads cannot be read or written. The log says which.
    """
    confirm_upgraded(heads)
    try:
        heads.confirm()
    except LedgerRewound:
        raise Unavailable(_REWOUND) from None
    except InstallationError:
        raise Unavailable(_NO_HEADS) from None


def confirm_upgraded(heads: Heads) -> None:
    """Check the revision of the database alone, for requests that only read released
    models.

    A database that is known to be an older copy answers nothing, because it accepts
    keys that were revoked later.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or contradicts a
            head.
    """
    if not heads.is_current:
        raise Unavailable("the database was not upgraded; run: grovekeeper db upgrade")
    if heads.rewound is not None:
        raise Unavailable(_REWOUND)


@dataclass(eq=False)
class Authentication:
    """Authenticates the callers of one process."""

    _installation: Installation
    _heads: Heads
    _capacities: Capacities
    _provider: IdentityProvider | None
    _seen: dict[bytes, str] = field(default_factory=dict)

    def seen(self, scope: Scope) -> str | None:
        """Return the key with which this process saw the credentials of a request to be
        valid, if ever.

        It decides only whose turns the request takes; whether the key is valid now,
        :meth:`principal` reads.
        """
        return self._seen.get(_credentials_name(scope))

    def known(self, scope: Scope) -> Principal | None:
        """Return the caller of a prediction, if the process has read it just now. Reads
        no database.
        """
        if self._heads.rewound is not None:
            return None
        return cached(self._installation, _authorization(scope))

    async def principal(self, scope: Scope) -> Principal:
        """Return the caller of a request.

        Raises:
            Unauthenticated: no valid key, token or session.
            Unavailable: the service is not ready, or cannot read the key now.
        """
        name = _credentials_name(scope)
        try:
            principal = await self._principal(scope)
        except Unauthenticated:
            self._seen.pop(name, None)
            raise
        if name not in self._seen and len(self._seen) >= limits.MAX_CACHED_AUTHORITIES:
            # the oldest alone: one caller's sessions make no newcomer of others
            del self._seen[next(iter(self._seen))]
        self._seen[name] = principal.key_id
        return principal

    async def _principal(self, scope: Scope) -> Principal:
        if is_page(scope["path"]):
            return await self._capacities.run(
                Work.AUTHENTICATION, lambda: self._signed_in(Request(scope))
            )
        text = _authorization(scope)
        predicts = prediction_of(scope) is not None
        work = work_of_authentication(text, provider=self._provider)
        return await self._capacities.run(
            work, lambda: self._read(text, scope["path"], predicts=predicts)
        )

    def _signed_in(self, request: Request) -> Principal:
        confirm_ready(self._heads)
        return signed_in(self._installation, self._heads.signer, request)

    def _read(
        self, authorization: str | None, path: str, *, predicts: bool
    ) -> Principal:
        (confirm_upgraded if _RELEASED_MODEL.fullmatch(path) else confirm_ready)(
            self._heads
        )
        read = authenticate_and_keep if predicts else authenticate
        return read(self._installation, authorization, provider=self._provider)


def is_page(path: str) -> bool:
    """Whether a path belongs to the dashboard."""
    return path in ("/", "/ui") or path.startswith("/ui/")


def _credentials_name(scope: Scope) -> bytes:
    """The name of the credentials of a request, which holds no secret: one name for all
    spellings of the fields.
    """
    text = (
        _session(Request(scope))
        if is_page(scope["path"])
        else credential_of(_authorization(scope))
    )
    return credential_digest(text or "")


def _authorization(scope: Scope) -> str | None:
    """The field ``Authorization``; ``None`` if there are two, because then the caller
    is ambiguous.
    """
    keys = [value for name, value in scope["headers"] if name == b"authorization"]
    return keys[0].decode("latin-1") if len(keys) == 1 else None


def sign_in(
    response: Response, request: Request, signer: Signer, principal: Principal
) -> None:
    """Add a session's cookie to an answer. Scripts cannot read it, and only HTTPS or
    this machine transmits it.
    """
    times = (principal.rotated_at, principal.token_expires_at)
    texts = [None if time is None else stamps.to_text(time) for time in times]
    value = _serializer(signer).dumps([principal.key_id, *texts, principal.sign_outs])
    response.set_cookie(
        _cookie_name(request),
        value,
        max_age=limits.SIGN_IN_S,
        httponly=True,
        samesite="lax",
        secure=not _is_loopback(request),
    )


def sign_out(
    response: Response, request: Request, installation: Installation, signer: Signer
) -> None:
    """End all sessions of the caller's key, of which copies may exist, and remove the
    cookie.
    """
    with suppress(Unauthenticated):
        end_sessions(installation, signed_in(installation, signer, request))
    response.delete_cookie(
        _cookie_name(request),
        secure=not _is_loopback(request),
        httponly=True,
        samesite="lax",
    )


def signed_in(
    installation: Installation, signer: Signer, request: Request
) -> Principal:
    """Find the caller of a session, with its present roles.

    Raises:
        Unauthenticated: no session, or it has ended; or the key was revoked, rotated or
            has expired.
    """
    try:
        key_id, rotated_at, token_expires_at, sign_outs = _serializer(signer).loads(
            _session(request), max_age=limits.SIGN_IN_S
        )
    except BadSignature:
        raise Unauthenticated from None
    began = Principal(
        key_id, rotated_at=_time(rotated_at), token_expires_at=_time(token_expires_at)
    )
    caller = confirm(installation, began)
    if caller.sign_outs != sign_outs:
        raise Unauthenticated
    return caller


def require_same_origin(request: Request) -> None:
    """Check that a form was sent by a page of this service and not by a page of another
    site.

    Raises:
        MalformedRequest: a page of another site sent the form, or a program that does
            not name its origin.
    """
    scheme, _, host = request.headers.get("origin", "").partition("://")
    # a browser leaves the usual port out of an origin, and some proxies add it to a host
    hosts = (host, host + _USUAL_PORTS.get(scheme, ""))
    if not scheme or not host or request.headers.get("host") not in hosts:
        raise MalformedRequest("the form was not sent by a page of this service")


def take_session(scope: Scope) -> str:
    """Takes the cookies out of the head of a request, and returns the text of a
    session, or no text.

    The framework unquotes the cookies of every request, also of those without a key.
    Some versions of Python need quadratic time for that: a second for 16 KiB.
    """
    fields = [value for name, value in scope["headers"] if name == b"cookie"]
    if not fields:
        return ""
    scope["headers"] = [field for field in scope["headers"] if field[0] != b"cookie"]
    if not is_page(scope["path"]):
        return ""
    name = re.escape(_cookie_name(Request(scope)).encode("ascii"))
    texts = re.findall(
        rb"(?:^|;)[ \t]*" + name + rb"=([\w.-]+)[ \t]*(?=;|$)",
        b";".join(fields),
        re.ASCII,
    )
    return str(texts[-1], "ascii") if texts else ""


def _session(request: Request) -> str:
    return str(request.scope["state"].get("session", ""))


def _serializer(signer: Signer) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(
        signer.derived(_SESSION), signer_kwargs={"digest_method": hashlib.sha256}
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else stamps.from_text(text)


def _cookie_name(request: Request) -> str:
    """The name of the cookie of a session.

    With ``__Host-``, a browser takes a cookie for the whole host only. So its path is
    ``/`` also below a path prefix, and the name tells the services of one host apart:
    signing in to one of them ends no session of another.
    """
    name = COOKIE + base().replace("/", ".")
    return name if _is_loopback(request) else f"__Host-{name}"


def _is_loopback(request: Request) -> bool:
    return is_loopback(request.url.hostname or "")

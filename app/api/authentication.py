"""Checks that the service is ready, and authenticates requests by key, token or session.

Callers that predict often are found in a cache.
"""

import asyncio
import hashlib
import re
import shutil
from contextvars import Context
from pathlib import Path

from starlette.requests import Request
from starlette.types import Scope

from app.access.grants import Principal
from app.api.capacity import Capacities, Work, work_of_authentication
from app.api.pages import sessions
from app.core import limits
from app.core.errors import InstallationError, LedgerRewound, Unauthenticated, Unavailable
from app.services.authorization import IdentityProvider, authenticate, authenticate_and_keep, cached
from app.services.installation import Installation
from app.services.ledger.heads import Heads

DISK_RETRY_S = 60
"""Seconds after which a request that met a full disk may be sent again."""
_REWOUND = "the ledger contradicts the heads that were written outside the database"
_NO_HEADS = "heads outside the database cannot be read or written, or a key is missing"


class Readiness:
    """Runs one check of readiness at a time, in a separate thread, for all requests that wait for the result."""

    def __init__(self, home: Path, heads: Heads, capacities: Capacities) -> None:
        self._home = home
        self._heads = heads
        self._capacities = capacities
        self._check: asyncio.Task[None] | None = None

    async def confirm(self) -> None:
        """Check as :func:`confirm_ready` does, and the disk, for at most ``limits.READINESS_WAIT_S`` seconds.

        Raises:
            Unavailable: the service is not ready, its disk is full, or the check takes too long.
        """
        if self._check is None or self._check.done():
            check = self._capacities.run(Work.READINESS, self._confirm)
            self._check = asyncio.create_task(check, context=Context())  # the check of no client, who may go away
            # Nobody may be left to see the error of a check that took too long.
            self._check.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(limits.READINESS_WAIT_S):
                await asyncio.shield(self._check)
        except TimeoutError:
            raise Unavailable("the database does not answer in time") from None

    def _confirm(self) -> None:
        self._heads.read_revision()  # asks the database now: requests go by an answer from before an outage
        confirm_ready(self._heads)
        if shutil.disk_usage(self._home).free < limits.MIN_FREE_DISK_BYTES:
            raise Unavailable("the disk is full", DISK_RETRY_S)


def confirm_ready(heads: Heads) -> None:
    """Check the revision of the database, and the ledger against the heads outside the database.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or contradicts a head; or heads cannot be read or
            written. The log says which.
    """
    confirm_upgraded(heads)
    try:
        heads.confirm()
    except LedgerRewound:
        raise Unavailable(_REWOUND) from None
    except InstallationError:
        raise Unavailable(_NO_HEADS) from None


def confirm_upgraded(heads: Heads) -> None:
    """Check the revision of the database alone, for requests that only read released models.

    A database that is known to be an older copy answers nothing, because it accepts keys that were revoked later.

    Raises:
        Unavailable: the database does not answer, was not upgraded, or contradicts a head.
    """
    if not heads.is_current:
        raise Unavailable("the database was not upgraded; run: grovekeeper db upgrade")
    if heads.is_rewound:
        raise Unavailable(_REWOUND)


SIGN_IN = "/ui/sign-in"
WITHOUT_SESSION = frozenset({SIGN_IN, "/ui/style.css", "/ui/live.js"})
"""Paths of the dashboard that need no session. They show no data of the installation."""

_RELEASED_MODEL = re.compile(r"/models/[^/]+(/artifact|/predict)?|/v2/models/[^/]+(/versions/[^/]+)?(/ready|/infer)?")
"""Released models: post-processing, served even if the ledger contradicts its heads."""

_PREDICTION = re.compile(r"/models/[^/]+/predict|/v2/models/[^/]+(/versions/[^/]+)?/infer")


class Authentication:
    """Authenticates the callers of one process."""

    def __init__(
        self, installation: Installation, heads: Heads, capacities: Capacities, provider: IdentityProvider | None
    ) -> None:
        self._installation = installation
        self._heads = heads
        self._capacities = capacities
        self._provider = provider

        self._seen: dict[bytes, str] = {}

    def seen(self, scope: Scope) -> str | None:
        """Return the key with which this process saw the credentials of a request to be valid, if ever.

        It decides only whose turns the request takes; whether the key is valid now, :meth:`principal` reads.
        """
        return self._seen.get(_name(scope))

    def known(self, scope: Scope) -> Principal | None:
        """Return the caller of a prediction, if the process has read it just now. Reads no database."""
        if scope["method"] != "POST" or self._heads.is_rewound or not _PREDICTION.fullmatch(scope["path"]):
            return None
        return cached(self._installation, _authorization(scope))

    async def principal(self, scope: Scope) -> Principal:
        """Return the caller of a request.

        Raises:
            Unauthenticated: no valid key, token or session.
            Unavailable: the service is not ready, or cannot read the key now.
        """
        name = _name(scope)
        try:
            principal = await self._principal(scope)
        except Unauthenticated:
            self._seen.pop(name, None)
            raise
        if len(self._seen) >= limits.MAX_CACHED_AUTHORITIES:
            self._seen = {}
        self._seen[name] = principal.key_id
        return principal

    async def _principal(self, scope: Scope) -> Principal:
        if is_page(scope["path"]):
            return await self._capacities.run(Work.AUTHENTICATION, lambda: self._signed_in(Request(scope)))
        text = _authorization(scope)
        predicts = scope["method"] == "POST" and _PREDICTION.fullmatch(scope["path"]) is not None
        work = work_of_authentication(text, provider=self._provider)
        return await self._capacities.run(work, lambda: self._read(text, scope["path"], predicts=predicts))

    def _signed_in(self, request: Request) -> Principal:

        confirm_ready(self._heads)
        return sessions.authenticate(self._installation, self._heads.signer, request)

    def _read(self, authorization: str | None, path: str, *, predicts: bool) -> Principal:
        (confirm_upgraded if _RELEASED_MODEL.fullmatch(path) else confirm_ready)(self._heads)
        read = authenticate_and_keep if predicts else authenticate
        return read(self._installation, authorization, provider=self._provider)


def is_page(path: str) -> bool:
    """Whether a path belongs to the dashboard."""
    return path == "/" or path.startswith("/ui/")


def _name(scope: Scope) -> bytes:
    """The name of the credentials of a request, which holds no secret."""
    field = b"cookie" if is_page(scope["path"]) else b"authorization"
    values = [value for name, value in scope["headers"] if name == field]
    return hashlib.sha256(b"\n".join((field, *values))).digest()


def _authorization(scope: Scope) -> str | None:
    """The field ``Authorization``; ``None`` if there are two, because then the caller is ambiguous."""
    keys = [value for name, value in scope["headers"] if name == b"authorization"]
    return keys[0].decode("latin-1") if len(keys) == 1 else None

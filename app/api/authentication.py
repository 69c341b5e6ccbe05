"""Authenticates requests by key, token or session; callers that predict often are found in a cache."""

import hashlib
import re

from starlette.requests import Request
from starlette.types import Scope

from app.access.grants import Principal
from app.api.capacity import Capacities, Work, work_of_authentication
from app.api.readiness import confirm_ready, confirm_upgraded
from app.core import limits
from app.core.errors import Unauthenticated
from app.services.authorization import IdentityProvider, authenticate, authenticate_and_keep, cached
from app.services.installation import Installation
from app.services.ledger.heads import Heads

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
        from app.api.pages import sessions  # loaded with the dashboard

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

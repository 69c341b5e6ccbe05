"""Authenticates the caller of a request, in transactions that end before any service opens a transaction.

A caller sends a key, or a token of the identity provider. The subject of a token is a principal like a key: it has a
row with an id, to which grants, jobs, stored answers and limits belong, and which an admin revokes.
"""

import hashlib
import math
from dataclasses import dataclass, replace

from app.access import grants, keys, subjects, tokens
from app.access.cached_authority import wait_for_revocation
from app.access.roles import Principal, Role
from app.access.signing_keys import SigningKeys
from app.access.tokens import Rules, Token
from app.core import stamps
from app.core.errors import Unauthenticated
from app.core.settings import Settings
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.authorization import present
from app.services.installation import Installation

_SCHEME = "bearer "


@dataclass(frozen=True)
class IdentityProvider:
    """The provider whose tokens are accepted: its keys, and what its tokens have to say."""

    rules: Rules
    signing_keys: SigningKeys

    @classmethod
    def of(cls, settings: Settings) -> "IdentityProvider | None":
        """The provider of the settings, if they name one."""
        if settings.oidc_issuer is None:
            return None
        assert settings.oidc_audience is not None, "checked with the settings"
        assert settings.oidc_jwks is not None, "checked with the settings"
        roles = {value: Role(role) for value, role in settings.oidc_roles.items()}
        rules = Rules(settings.oidc_issuer, settings.oidc_audience, settings.oidc_roles_claim, roles)
        return cls(rules, SigningKeys(settings.oidc_jwks))


def confirm(installation: Installation, principal: Principal) -> Principal:
    """The principal of a request that began some time ago, with its present roles.

    Raises:
        Unauthenticated: the key was revoked or rotated meanwhile, or has expired.
    """
    with installation.database.read() as session:
        return present(installation, session, principal)


def is_token(authorization: str | None) -> bool:
    """Whether an ``Authorization`` header has a text with the form of a token."""
    credential = _credential(authorization)
    return credential is not None and tokens.has_form(credential)


def authenticate(
    installation: Installation, authorization: str | None, *, provider: IdentityProvider | None = None
) -> Principal:
    """Finds the principal of an ``Authorization`` header, which has a key or a token.

    Raises:
        Unauthenticated: the key or the token is missing, malformed, unknown, wrong, expired or revoked; the error does
            not say which.
        Unavailable: a token needs the provider's keys, which cannot be read now.
    """
    credential = _credential(authorization)
    if credential is None:
        raise Unauthenticated
    if provider is not None and tokens.has_form(credential):
        find_key = provider.signing_keys.find
        token = tokens.verify(credential, provider.rules, find_key=find_key, at=stamps.now())
        return replace(_subject(installation, token), token_expires_at=token.expires_at)
    with installation.database.read() as session:
        return keys.authenticate(session, credential, now=installation.database.now)


def cached(installation: Installation, authorization: str | None) -> Principal | None:
    """The principal of an ``Authorization`` header, if this process has read it just now. Reads no database."""
    principal: Principal | None = None
    if authorization is not None:
        principal = installation.authority.get(_name(authorization))
    return principal


def authenticate_and_keep(
    installation: Installation, authorization: str | None, *, provider: IdentityProvider | None = None
) -> Principal:
    """Authenticates as :func:`authenticate`, and keeps the principal for :func:`cached`."""
    if authorization is None:
        raise Unauthenticated

    def read() -> tuple[Principal, float]:
        principal = authenticate(installation, authorization, provider=provider)
        return principal, _valid_s(installation, principal)

    return installation.authority.read(_name(authorization), read)


def _name(authorization: str) -> bytes:
    """The name of a header in the cache, which holds no secret."""
    return hashlib.sha256(authorization.encode("utf-8", "surrogatepass")).digest()


def _valid_s(installation: Installation, principal: Principal) -> float:
    """Seconds until the key or the token of a principal ends."""
    ends = [math.inf]
    if principal.token_expires_at is not None:
        ends.append((principal.token_expires_at - stamps.now()).total_seconds())
    if principal.expires_at is not None:
        with installation.database.read() as session:
            ends.append((principal.expires_at - installation.database.now(session)).total_seconds())
    return min(ends)


def _credential(authorization: str | None) -> str | None:
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        return None
    return authorization[len(_SCHEME) :].strip()


def _subject(installation: Installation, token: Token) -> Principal:
    """The principal of a token's subject, whose roles are those of its newest token.

    Only the first token of a subject and a token with other roles write.
    """
    database = installation.database
    with database.read() as session:
        row = subjects.find(session, token)
        if row is not None and subjects.is_current(row, token):
            return grants.read(session, row.id, now=database.now)
    key_id = subjects.id_of(token.issuer, token.subject)
    with database.write() as session:
        grants.lock(session, key_id, changing=key_id)
        row = subjects.find(session, token)
        is_first = row is None
        if row is None:
            row = subjects.add(session, token, at=database.now(session))
            control.record(session, EntryKind.SUBJECT_ADMITTED, actor=key_id, key=key_id, roles=row.roles)
        elif row.revoked_at is None and not subjects.is_current(row, token):
            subjects.change_roles(row, token)
            control.record(session, EntryKind.SUBJECT_ROLES, actor=key_id, key=key_id, roles=row.roles)
        principal = grants.read(session, key_id, now=database.now)
    if not is_first:
        wait_for_revocation()  # an earlier token may have had more roles
    return principal

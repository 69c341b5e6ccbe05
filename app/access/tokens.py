"""Verifies the bearer tokens of an identity provider: JSON Web Tokens, signed with a key of the provider.

The provider's key decides which algorithm verifies a signature; the token's header never does (RFC 8725, 3.1). A token
is short-lived, because nobody can take it back. No error, log line or answer contains a part of a token.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jwt

from app.access.roles import Role
from app.access.signing_keys import SigningKey
from app.core import json_text, limits
from app.core.errors import Unauthenticated

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SUBJECT = re.compile(rf"[\x20-\x7e]{{1,{limits.MAX_SUBJECT_CHARS}}}")


@dataclass(frozen=True)
class Rules:
    """What a token has to say.

    Attributes:
        issuer: the ``iss`` claim, character by character.
        audience: the only audience in the ``aud`` claim.
        roles_claim: name of the claim with the values that ``roles`` maps.
        roles: global roles by value of that claim. Other values give no role.
    """

    issuer: str
    audience: str
    roles_claim: str
    roles: Mapping[str, Role]


@dataclass(frozen=True)
class Token:
    """The claims of a verified token."""

    issuer: str
    subject: str
    roles: frozenset[Role]
    issued_at: datetime
    expires_at: datetime


def has_form(text: str) -> bool:
    """Whether a credential has the form of a token. No key has it: a key has one dot."""
    return _FORM.fullmatch(text) is not None


def verify(text: str, rules: Rules, *, find_key: Callable[[str], SigningKey | None], at: datetime) -> Token:
    """Verifies signature, times, issuer and audience of a token, and maps its roles.

    Args:
        text: the token.
        rules: what the token has to say.
        find_key: the provider's key with an id (``kid``), if any.
        at: now.

    Raises:
        Unauthenticated: any check fails; the error does not say which.
        Unavailable: the provider's keys are needed and cannot be read.
    """
    if len(text) > limits.MAX_TOKEN_CHARS or not has_form(text):
        raise Unauthenticated
    header = _object(_decoded(text.partition(".")[0]))
    key_id = header.get("kid")
    key = find_key(key_id) if isinstance(key_id, str) else None
    if key is None:
        raise Unauthenticated

    try:
        payload = jwt.PyJWS().decode(text, key.key, algorithms=[key.algorithm])
    except jwt.PyJWTError:
        raise Unauthenticated from None
    return _token(_object(payload), rules, at=at)


def _token(claims: Mapping[str, Any], rules: Rules, *, at: datetime) -> Token:
    subject = claims.get("sub")
    if claims.get("iss") != rules.issuer or claims.get("aud") not in (rules.audience, [rules.audience]):
        raise Unauthenticated
    if not isinstance(subject, str) or _SUBJECT.fullmatch(subject) is None:
        raise Unauthenticated
    issued_s, expires_s = _seconds(claims.get("iat")), _seconds(claims.get("exp"))
    latest_s = at.timestamp() + limits.TOKEN_LEEWAY_S
    if not 0 < expires_s - issued_s <= limits.MAX_TOKEN_LIFETIME_S:
        raise Unauthenticated
    if expires_s <= at.timestamp() or issued_s > latest_s or _seconds(claims.get("nbf", issued_s)) > latest_s:
        raise Unauthenticated
    return Token(
        issuer=rules.issuer,
        subject=subject,
        roles=_roles(claims.get(rules.roles_claim, []), rules.roles),
        issued_at=datetime.fromtimestamp(issued_s, UTC),
        expires_at=datetime.fromtimestamp(expires_s, UTC),
    )


def _roles(claim: object, roles: Mapping[str, Role]) -> frozenset[Role]:
    """The roles that a claim names: a text, or a list of texts."""
    values = [claim] if isinstance(claim, str) else claim
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise Unauthenticated
    return frozenset(roles[value] for value in values if value in roles)


def _seconds(claim: object) -> int:
    """A time in a claim, as whole seconds."""
    if isinstance(claim, bool) or not isinstance(claim, int):
        raise Unauthenticated
    return claim


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise Unauthenticated from None


def _object(text: bytes) -> dict[str, Any]:
    """A JSON object without duplicate names, at any depth."""
    try:
        value = json_text.loads(text)
    except (ValueError, RecursionError):
        raise Unauthenticated from None
    if not isinstance(value, dict):
        raise Unauthenticated
    return value

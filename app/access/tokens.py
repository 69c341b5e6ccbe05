"""Verifies the bearer tokens of an identity provider, reads the provider's keys, and
stores the subjects of tokens.

A token is a JSON Web Token, signed with a key of the provider. The provider's key
decides which algorithm verifies a signature; the token's header never does (RFC 8725,
3.1). The life of a token is bounded, because nobody can take it back. The log says by a
constant text why a token was refused (:data:`REFUSALS`); the caller is not told. No
error, log line or answer contains a part of a token.

The keys are a JSON Web Key Set (RFC 7517). They are believed for a limited time and
read again at the first token after it, or at a token that names an unknown key; a pause
between two attempts bounds what strangers can cause. One thread reads, and others do
not wait for it.

A subject is a principal, with an id like a key's. The id follows from issuer and
subject alone, so every process and every auditor computes the same id, and the control
chain does not contain the subject itself.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from sqlalchemy.orm import Session

from app.access.grants import Role
from app.access.tables import KeyRow
from app.core import limits, stamps
from app.core.errors import Unauthenticated, Unavailable
from app.db.database import transaction_time
from grovekeeper_common import strict_json
from grovekeeper_common.json_types import JsonMapping, JsonObject

_log = logging.getLogger(__name__)

ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Every algorithm that may sign a token, with type and curve of its keys. A key without
``alg`` is used with the first algorithm of its type.
"""

_ED25519 = "Ed25519"
"""The newer name of EdDSA with this curve (RFC 9864)."""

REFUSALS: Mapping[str, str] = {
    "too-long": f"it has more than {limits.MAX_TOKEN_CHARS} characters: does the provider list all groups of a person?",
    "malformed": "its parts are no base64 or no JSON objects with each name once",
    "key-unknown": "the provider has no key with its `kid`",
    "key-unsuited": f"the provider has no key, or several, with its `kid` for signatures with {', '.join(ALGORITHMS)}",
    "kid-missing": "it has no `kid`, and the provider has several keys",
    "signature": "its signature does not hold under the provider's key and the algorithm of the key, or it has `crit`",
    "issuer": "`iss` is not GROVEKEEPER_OIDC_ISSUER, character by character",
    "audience": "`aud` is not GROVEKEEPER_OIDC_AUDIENCE alone",
    "subject": f"`sub` is no text of 1 to {limits.MAX_SUBJECT_CHARS} printable characters of ASCII",
    "times": "`iat`, `exp` or `nbf` is no number of seconds",
    "lifetime": "from `iat` to `exp` is more than GROVEKEEPER_OIDC_MAX_LIFETIME_S, or nothing",
    "expired": "`exp` is past",
    "early": f"`iat` or `nbf` is more than {limits.TOKEN_LEEWAY_S} seconds in the future: do the clocks agree?",
    "roles": "the claim GROVEKEEPER_OIDC_ROLES_CLAIM is neither a text nor a list of texts",
}
"""Why a token was refused, for the operator. The texts are constants, so nothing of a
token gets into the log.
"""

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SUBJECT = re.compile(rf"[\x20-\x7e]{{1,{limits.MAX_SUBJECT_CHARS}}}")


@dataclass(frozen=True)
class SigningKey:
    """A public key of the provider, and the one algorithm that it is used with."""

    algorithm: str
    key: "jwt.PyJWK"


class NotAKeySet(ValueError):
    """What the provider sent is no JSON Web Key Set with a key. ``str()`` says why, in
    words that hold nothing of what was sent.
    """


@dataclass(frozen=True)
class _KeySet:
    keys: Mapping[str, SigningKey]
    read_at_s: float
    listed: Collection[object] = ()
    """Ids of all keys of the provider, those that cannot be used among them."""

    def is_unsuited(self, key_id: str | None) -> bool:
        """Whether the provider has a key for a token, and it cannot be used."""
        if key_id is None:
            return bool(self.listed) and not self.keys
        return key_id in self.listed and key_id not in self.keys


class SigningKeys:
    """The keys of one provider, for the threads of a process."""

    def __init__(self, location: str | Path | None, *, issuer: str = "") -> None:
        """``location`` is an address or a file; without it, the issuer's discovery
        document names an address.
        """
        self._location = location
        self._issuer = issuer
        self._reading = Lock()
        self._known = _KeySet({}, -limits.KEY_SET_AGE_S)
        self._attempted_at_s = -float(limits.KEY_SET_PAUSE_S)

    def find(self, key_id: str | None) -> SigningKey | None:
        """Finds a key as :func:`named` does; ``None`` if the provider has no such key.

        Raises:
            Unavailable: the keys are too old, or the key is unknown, and the provider
                cannot be asked now.
            Unauthenticated: the provider has the key, which cannot be used.
        """
        key = named(self._fresh(), key_id)
        if key is not None:
            return key
        # Without a wait: a slow provider would occupy every thread for tokens.
        if not self._reading.acquire(blocking=False):
            raise _unavailable(retry_after_s=1)
        try:
            if monotonic() - self._attempted_at_s >= limits.KEY_SET_PAUSE_S:
                self._read()
            if self._known.read_at_s < self._attempted_at_s:  # the last attempt failed
                raise _unavailable(retry_after_s=limits.KEY_SET_PAUSE_S)
        finally:
            self._reading.release()
        if self._known.is_unsuited(key_id):
            raise _refused("key-unsuited")
        return named(self._fresh(), key_id)

    def _fresh(self) -> Mapping[str, SigningKey]:
        """The keys, unless they are too old."""
        # read once: another thread may put new keys there
        known = self._known
        if monotonic() - known.read_at_s >= limits.KEY_SET_AGE_S:
            return {}
        return known.keys

    def _read(self) -> None:
        """Reads the keys once. A failure leaves the known keys as they are."""
        self._attempted_at_s = monotonic()
        try:
            text = self._key_set()
            keys = parse_key_set(text)
        except (OSError, NotAKeySet) as error:
            _log.warning(
                "the keys of the identity provider cannot be read",
                extra={"problem": str(error)},
                exc_info=True,
            )
        else:
            listed = [item.get("kid", "") for item in _listed(text)]
            self._known = _KeySet(keys, monotonic(), listed)

    def _key_set(self) -> bytes:
        if isinstance(self._location, Path):
            return _read_file(self._location)
        return _fetched(self._location or _discovered(self._issuer))


def named(keys: Mapping[str, SigningKey], key_id: str | None) -> SigningKey | None:
    """The key with an id. A token without an id means the only key, if there is one
    (OpenID Connect Core, 10.1).
    """
    if key_id is None:
        if len(keys) == 1:
            return next(iter(keys.values()))
        return None
    return keys.get(key_id)


def parse_key_set(text: bytes) -> dict[str, SigningKey]:
    """The keys of a JSON Web Key Set that may sign tokens, by id. An id that two of
    them have names none of them.

    A single key may have no id; it is listed under an empty one.

    Raises:
        NotAKeySet: another text, or no key of any kind.
    """
    usable: dict[str, list[SigningKey]] = defaultdict(list)
    for item in _listed(text):
        key_id, key = item.get("kid", ""), _signing_key(item)
        if isinstance(key_id, str) and key is not None:
            usable[key_id].append(key)
    keys = {key_id: same[0] for key_id, same in usable.items() if len(same) == 1}
    if len(keys) > 1:
        keys.pop("", None)
    return keys


def _listed(text: bytes) -> list[JsonObject]:
    try:
        listed = strict_json.loads(text)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        listed = None
    if not isinstance(listed, list):
        listed = []
    items = [item for item in listed if isinstance(item, dict)]
    if not items:
        raise NotAKeySet("the text is no JSON object with a list of `keys`")
    return items


def _signing_key(item: JsonObject) -> SigningKey | None:
    """The key of an item; ``None`` if it is for encryption, private, symmetric, weak or
    of an unknown kind.
    """
    kind = (item.get("kty"), item.get("crv"))
    suited = [name for name, of_key in ALGORITHMS.items() if of_key == kind]
    stated = item.get("alg")
    if stated is None:
        stated = next(iter(suited), None)
    algorithm = "EdDSA" if stated == _ED25519 else stated
    if algorithm not in suited or item.get("use") not in (None, "sig") or "d" in item:
        return None

    try:
        key = jwt.PyJWK(item, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < limits.MIN_RSA_BITS:
        return None
    return SigningKey(algorithm, key)


def _discovered(issuer: str) -> str:
    """The address of the keys, from the document that the issuer publishes (OpenID
    Connect Discovery, 4).

    The document may name an address with TLS, or one of the issuer's own origin: it
    leads the service to no other program on this machine.
    """
    well_known = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    text = _fetched(well_known)
    try:
        document = strict_json.loads(text)
        named_issuer, address = document["issuer"], document["jwks_uri"]
        origin, own = urlsplit(address)[:2], urlsplit(issuer)[:2]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise NotAKeySet(
            "the issuer's document is no JSON object with `issuer` and `jwks_uri`"
        ) from None
    if named_issuer != issuer:
        raise NotAKeySet(
            "the issuer's document does not name GROVEKEEPER_OIDC_ISSUER, character by character"
        )
    is_trusted = origin[0] == "https" or origin == own
    if not is_trusted or not isinstance(address, str):
        raise NotAKeySet(
            "`jwks_uri` in the issuer's document has no TLS, and is not of the issuer's origin"
        )
    return address


def _fetched(address: str) -> bytes:
    """The body of an answer, within a limit of bytes and of time. Redirects are not
    followed.
    """
    # takes 0.1 s of CPU, which a service without an identity provider need not spend
    import httpx

    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}

    async def receive() -> bytes:
        text = b""
        # The client's limit is for each piece that arrives, of the head, too.
        async with (
            asyncio.timeout(limits.KEY_SET_WAIT_S),
            httpx.AsyncClient(timeout=limits.KEY_SET_WAIT_S) as client,
            client.stream("GET", address, headers=headers) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise NotAKeySet(
                    f"the provider answered with status {answer.status_code}"
                )
            async for chunk in answer.aiter_raw():
                text += chunk
                _check_length(text)
        return text

    try:
        return asyncio.run(receive())
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectionError("the identity provider did not answer") from error


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(limits.MAX_KEY_SET_BYTES + 1)
    _check_length(text)
    return text


def _check_length(text: bytes) -> None:
    if len(text) > limits.MAX_KEY_SET_BYTES:
        raise NotAKeySet(f"more than {limits.MAX_KEY_SET_BYTES} bytes")


def _unavailable(*, retry_after_s: int) -> Unavailable:
    return Unavailable(
        "the keys of the identity provider cannot be read", retry_after_s
    )


@dataclass(frozen=True)
class TokenRules:
    """What a token has to say.

    Attributes:
        issuer: the ``iss`` claim, character by character.
        audience: the only audience in the ``aud`` claim.
        roles_claim: name of the claim with the values that ``roles`` maps.
        roles: global roles by value of that claim. Other values give no role.
        max_lifetime_s: largest number of seconds from the issue of a token to its
            expiry.
    """

    issuer: str
    audience: str
    roles_claim: str
    roles: Mapping[str, Role]
    max_lifetime_s: int


@dataclass(frozen=True)
class Token:
    """The claims of a verified token."""

    issuer: str
    subject: str
    roles: frozenset[Role]
    issued_at: datetime
    expires_at: datetime

    @property
    def role_names(self) -> list[str]:
        """The roles as a row stores them."""
        return sorted(role.value for role in self.roles)


def has_form(text: str) -> bool:
    """Whether a credential has the form of a token. No key has it: a key has one dot."""
    return _FORM.fullmatch(text) is not None


def _refused(reason: str) -> Unauthenticated:
    """Writes to the log why a token is refused, and makes the error, which says it of a
    token that is too long alone.
    """
    _log.info("a token was refused", extra={"problem": REFUSALS[reason]})
    if reason == "too-long":  # which the caller can see
        return Unauthenticated(f"the token is refused: {REFUSALS[reason]}")
    return Unauthenticated()


def verify(
    text: str,
    rules: TokenRules,
    *,
    find_key: Callable[[str | None], SigningKey | None],
    at: datetime,
) -> Token:
    """Verifies signature, times, issuer and audience of a token, and maps its roles.

    Args:
        find_key: the provider's key with an id (``kid``), if any; without an id the
            only key.

    Raises:
        Unauthenticated: any check fails; the error does not say which, the log does.
    """
    if len(text) > limits.MAX_TOKEN_CHARS:
        raise _refused("too-long")
    if not has_form(text):
        raise _refused("malformed")
    header = _object(_decoded(text.partition(".")[0]))
    key_id = header.get("kid")
    if "kid" in header and not isinstance(key_id, str):
        raise _refused("key-unknown")
    key = find_key(key_id)
    if key is None:
        raise _refused("kid-missing" if key_id is None else "key-unknown")

    # the names of the key's algorithm alone: the header of a token chooses none
    names = _names(key.algorithm)
    try:
        payload = _signatures().decode(text, key.key.key, algorithms=names)
    except jwt.PyJWTError:
        raise _refused("signature") from None
    return _token(_object(payload), rules, at=at)


@cache
def _signatures() -> "jwt.PyJWS":
    """Verifies signatures, under both names of EdDSA."""
    signatures = jwt.PyJWS()
    if _ED25519 not in signatures.get_algorithms():
        signatures.register_algorithm(_ED25519, jwt.algorithms.OKPAlgorithm())
    return signatures


def _names(algorithm: str) -> list[str]:
    """The names in a header that mean the one algorithm of a key."""
    return [algorithm, _ED25519] if algorithm == "EdDSA" else [algorithm]


def _token(claims: JsonMapping, rules: TokenRules, *, at: datetime) -> Token:
    subject = claims.get("sub")
    if claims.get("iss") != rules.issuer:
        raise _refused("issuer")
    if claims.get("aud") not in (rules.audience, [rules.audience]):
        raise _refused("audience")
    if not isinstance(subject, str) or _SUBJECT.fullmatch(subject) is None:
        raise _refused("subject")
    issued_s = _seconds(claims.get("iat"))
    expires_s = _seconds(claims.get("exp"))
    latest_s = at.timestamp() + limits.TOKEN_LEEWAY_S
    if not 0 < expires_s - issued_s <= rules.max_lifetime_s:
        raise _refused("lifetime")
    if expires_s <= at.timestamp():
        raise _refused("expired")
    not_before = claims.get("nbf")
    if issued_s > latest_s:
        raise _refused("early")
    if not_before is not None and _seconds(not_before) > latest_s:
        raise _refused("early")
    return Token(
        issuer=rules.issuer,
        subject=subject,
        roles=_roles(claims.get(rules.roles_claim), rules.roles),
        issued_at=datetime.fromtimestamp(issued_s, UTC),
        expires_at=datetime.fromtimestamp(expires_s, UTC),
    )


def _roles(claim: object, roles: Mapping[str, Role]) -> frozenset[Role]:
    """The roles that a claim names: a text, a list of texts, or null."""
    values = claim
    if claim is None:
        values = []
    elif isinstance(claim, str):
        values = [claim]
    if not isinstance(values, list) or not all(
        isinstance(value, str) for value in values
    ):
        raise _refused("roles")
    return frozenset(roles[value] for value in values if value in roles)


def _seconds(claim: object) -> int:
    """A time in a claim, in whole seconds; a fraction (RFC 7519, 2) is cut off."""
    if (
        isinstance(claim, bool)
        or not isinstance(claim, int | float)
        or claim in (math.inf, -math.inf)
    ):
        raise _refused("times")
    return math.floor(claim)


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise _refused("malformed") from None


def _object(text: bytes) -> JsonObject:
    """A JSON object without duplicate names, at any depth."""
    try:
        value = strict_json.loads(text)
    except (ValueError, RecursionError):
        raise _refused("malformed") from None
    if not isinstance(value, dict):
        raise _refused("malformed")
    return value


def subject_id(issuer: str, subject: str) -> str:
    """The id of a subject: a prefix and 160 bits of SHA-256. It is longer than any id
    of a key.
    """
    digest = hashlib.sha256(json.dumps([issuer, subject]).encode("ascii")).digest()
    return f"{stamps.SUBJECT}_{base64.b32encode(digest[:20]).decode('ascii').lower()}"


def find_subject(session: Session, token: Token) -> KeyRow | None:
    """The row of a token's subject, if the subject was admitted before.

    Raises:
        Unauthenticated: the row belongs to another subject with an equal digest.
    """
    row = session.get(KeyRow, subject_id(token.issuer, token.subject))
    if row is not None and (row.issuer, row.name) != (token.issuer, token.subject):
        raise Unauthenticated
    return row


def is_current(row: KeyRow, token: Token) -> bool:
    """Whether the stored roles are those of the token, or of a token that was issued
    later.
    """
    assert row.roles_at is not None, "the row of a subject has the time of its roles"
    return row.roles == token.role_names or token.issued_at <= row.roles_at


def add_subject(session: Session, token: Token) -> KeyRow:
    """Stores a subject with the roles of its first token."""
    row = KeyRow(
        id=subject_id(token.issuer, token.subject),
        name=token.subject,
        issuer=token.issuer,
        roles=token.role_names,
        roles_at=token.issued_at,
        created_at=transaction_time(session),
    )
    session.add(row)
    session.flush()
    return row

"""Reads the public keys with which an identity provider signs tokens, from an address or a file, and caches them.

The keys are a JSON Web Key Set (RFC 7517). They are believed for a limited time and read again at the first token after
it, or at a token that names an unknown key; a pause between two attempts bounds what strangers can cause. One thread
reads, and others do not wait for it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from app.core import json_text, limits
from app.core.errors import Unavailable

_log = logging.getLogger(__name__)

ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Every algorithm that may sign a token, with type and curve of its keys. A key without ``alg`` is used with the first
algorithm of its type."""


@dataclass(frozen=True)
class SigningKey:
    """A public key of the provider, and the one algorithm that it is used with."""

    algorithm: str
    key: "jwt.PyJWK"


class NotAKeySet(ValueError):
    """What the provider sent is no JSON Web Key Set with a key that can be used."""


@dataclass(frozen=True)
class _KeySet:
    keys: Mapping[str, SigningKey]
    read_at_s: float


class SigningKeys:
    """The keys of one provider, for the threads of a process."""

    def __init__(self, location: str | Path) -> None:
        self._location = location
        self._reading = Lock()
        self._known = _KeySet({}, -limits.KEY_SET_AGE_S)
        self._attempted_at_s = -float(limits.KEY_SET_PAUSE_S)

    def find(self, key_id: str) -> SigningKey | None:
        """Finds a key by its id; ``None`` if the provider has no such key.

        Raises:
            Unavailable: the keys are too old, or the key is unknown, and the provider cannot be asked now.
        """
        key = self._fresh().get(key_id)
        if key is not None:
            return key
        if not self._reading.acquire(blocking=False):
            raise _unavailable(retry_after_s=1)
        try:
            if monotonic() - self._attempted_at_s >= limits.KEY_SET_PAUSE_S:
                self._read()
            if self._known.read_at_s < self._attempted_at_s:  # the last attempt failed
                raise _unavailable(retry_after_s=limits.KEY_SET_PAUSE_S)
        finally:
            self._reading.release()
        return self._fresh().get(key_id)

    def _fresh(self) -> Mapping[str, SigningKey]:
        """The keys, unless they are too old."""
        known = self._known
        return known.keys if monotonic() - known.read_at_s < limits.KEY_SET_AGE_S else {}

    def _read(self) -> None:
        """Reads the keys once. A failure leaves the known keys as they are."""
        self._attempted_at_s = monotonic()
        try:
            keys = parse(_fetched(self._location) if isinstance(self._location, str) else _read_file(self._location))
        except (OSError, NotAKeySet):
            _log.warning("the keys of the identity provider cannot be read", exc_info=True)
        else:
            self._known = _KeySet(keys, monotonic())


def parse(text: bytes) -> dict[str, SigningKey]:
    """The keys of a JSON Web Key Set that may sign tokens, by id. An id that two keys have names none of them.

    Raises:
        NotAKeySet: another text, or no such key.
    """
    try:
        listed = json_text.loads(text)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise NotAKeySet from None
    if not isinstance(listed, list):
        raise NotAKeySet
    ids = [item.get("kid") for item in listed if isinstance(item, dict)]
    keys = {
        item["kid"]: key
        for item in listed
        if isinstance(item, dict) and isinstance(item.get("kid"), str) and ids.count(item["kid"]) == 1
        if (key := _signing_key(item)) is not None
    }
    if not keys:
        raise NotAKeySet
    return keys


def _signing_key(item: dict[str, Any]) -> SigningKey | None:
    """The key of an item; ``None`` if it is for encryption, private, symmetric, weak or of an unknown kind."""
    kind = (item.get("kty"), item.get("crv"))
    suited = [name for name, of_key in ALGORITHMS.items() if of_key == kind]
    algorithm = item.get("alg", suited[0] if suited else None)
    if algorithm not in suited or item.get("use", "sig") != "sig" or "d" in item:
        return None

    try:
        key = jwt.PyJWK(item, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < limits.MIN_RSA_BITS:
        return None
    return SigningKey(algorithm, key)


def _fetched(address: str) -> bytes:
    """The body of an answer, within a limit of bytes and of time. Redirects are not followed."""
    import httpx  # takes 0.1 s of CPU, which a service without an identity provider need not spend

    text, until_s = b"", monotonic() + limits.KEY_SET_WAIT_S
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        with httpx.stream("GET", address, headers=headers, timeout=limits.KEY_SET_WAIT_S) as answer:
            if answer.status_code != httpx.codes.OK:
                raise NotAKeySet
            for chunk in answer.iter_raw():
                text += chunk
                if len(text) > limits.MAX_KEY_SET_BYTES or monotonic() > until_s:
                    raise NotAKeySet
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectionError("the identity provider did not answer") from error
    return text


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(limits.MAX_KEY_SET_BYTES + 1)
    if len(text) > limits.MAX_KEY_SET_BYTES:
        raise NotAKeySet
    return text


def _unavailable(*, retry_after_s: int) -> Unavailable:
    return Unavailable("the keys of the identity provider cannot be read", retry_after_s)

"""Signs tokens as an identity provider does, and as attackers do."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from app.core import limits

ISSUER = "https://login.example.org/realms/grovekeeper"
AUDIENCE = "grovekeeper"
ROLES = {"stewards": "owner", "operators": "admin"}
MAX_LIFETIME_S = 3_600
"""The default of the setting."""
_KIND = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}


@cache
def private_key(algorithm: str, *, bits: int = limits.MIN_RSA_BITS) -> Any:
    """A private key of the kind that an algorithm uses."""
    if _KIND[algorithm] == "RSA":
        return rsa.generate_private_key(public_exponent=65_537, key_size=bits)
    return (
        ec.generate_private_key(ec.SECP256R1())
        if algorithm == "ES256"
        else ed25519.Ed25519PrivateKey.generate()
    )


def public_jwk(key: Any, key_id: str, **changes: Any) -> dict[str, Any]:
    """The public half of a key, as a member of a JSON Web Key Set."""
    writers: dict[type[Any], Any] = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
    }
    writer = next(
        (it for kind, it in writers.items() if isinstance(key, kind)),
        jwt.algorithms.OKPAlgorithm,
    )
    return {**writer.to_jwk(key.public_key(), as_dict=True), "kid": key_id, **changes}


KEY_SET = {
    "keys": [
        public_jwk(private_key(name), name.lower(), alg=name)
        for name in ("RS256", "ES256", "EdDSA")
    ]
}
"""Three keys; each id is the algorithm in lower case."""


def claims(**changes: Any) -> dict[str, Any]:
    """Valid claims of ann, who has no role; ``None`` removes a claim."""
    now = int(time.time())
    valid = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "iat": now,
        "nbf": now,
        "exp": now + 300,
    }
    return {
        name: value for name, value in (valid | changes).items() if value is not None
    }


def token(
    algorithm: str = "ES256", *, headers: dict[str, Any] | None = None, **changes: Any
) -> str:
    """A token with a valid signature; ``changes`` are those of the claims."""
    key_id = {"kid": algorithm.lower()}
    return jwt.encode(
        claims(**changes),
        private_key(algorithm),
        algorithm,
        headers=key_id | (headers or {}),
    )


def encoded(value: bytes) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def signed(header: bytes, payload: bytes, *, key: Any = None) -> str:
    """A token with these bytes, signed with the provider's ES256 key or another key."""
    text = f"{encoded(header)}.{encoded(payload)}"
    algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    return f"{text}.{encoded(algorithm.sign(text.encode('ascii'), key or private_key('ES256')))}"


def _by_public_key(algorithm: str) -> str:
    """HS256 under the text of the provider's public key, which everybody has."""
    pem = (
        private_key(algorithm)
        .public_key()
        .public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    header = encoded(json.dumps({"alg": "HS256", "kid": algorithm.lower()}).encode())
    text = f"{header}.{encoded(json.dumps(claims()).encode())}"
    return f"{text}.{encoded(hmac.new(pem, text.encode('ascii'), hashlib.sha256).digest())}"


def _payload(**changes: Any) -> bytes:
    return json.dumps(claims(**changes)).encode()


def _of(algorithm: str, **changes: Any) -> bytes:
    return json.dumps({"alg": algorithm, "kid": algorithm.lower(), **changes}).encode()


def _now() -> int:
    return int(time.time())


_FOREIGN = ec.generate_private_key(ec.SECP256R1())
_EMBEDDED = public_jwk(_FOREIGN, "es256")
ATTACKS: dict[str, Callable[[], str]] = {
    "no algorithm": lambda: f"{encoded(_of('none', kid='es256'))}.{encoded(_payload())}.",
    "no algorithm, with a signature": lambda: signed(_of("none", kid="es256"), _payload()),
    "no signature": lambda: token().rpartition(".")[0] + ".",
    "signature removed": lambda: token().rpartition(".")[0],
    "hs256 with the public rsa key": lambda: _by_public_key("RS256"),
    "hs256 with the public ec key": lambda: _by_public_key("ES256"),
    "another algorithm of the same key": lambda: jwt.encode(
        claims(), private_key("RS256"), "PS256", headers={"kid": "rs256"}
    ),
    "a weaker algorithm of the same key": lambda: jwt.encode(
        claims(), private_key("RS256"), "RS512", headers={"kid": "rs256"}
    ),
    "the id of another key": lambda: token(headers={"kid": "rs256"}),
    "the id and the algorithm of another key": lambda: signed(_of("RS256"), _payload()),
    "an unknown id": lambda: token(headers={"kid": "other"}),
    "an id that is a path": lambda: token(headers={"kid": "../../etc/passwd"}),
    "no id": lambda: signed(json.dumps({"alg": "ES256"}).encode(), _payload()),
    "an id that is no text": lambda: signed(_of("ES256", kid=["es256"]), _payload()),
    "a foreign key": lambda: signed(_of("ES256"), _payload(), key=_FOREIGN),
    "a foreign key in the header": lambda: signed(_of("ES256", jwk=_EMBEDDED), _payload(), key=_FOREIGN),
    "a foreign address of keys": lambda: signed(
        _of("ES256", jku="https://evil.example.org/keys"), _payload(), key=_FOREIGN
    ),
    "critical extensions": lambda: token(headers={"crit": ["exp"]}),
    "an unencoded payload": lambda: token(headers={"b64": False}),
    "another payload": lambda: ".".join(
        (*token().split(".")[:1], encoded(_payload(sub="bob")), token().rpartition(".")[2])
    ),
    "expired": lambda: token(iat=_now() - 300, nbf=None, exp=_now() - 1),
    "no expiry": lambda: token(exp=None),
    "no time of issue": lambda: token(iat=None),
    "too long a life": lambda: token(exp=_now() + MAX_LIFETIME_S + 60),
    "an end before its issue": lambda: token(iat=_now() + 20, exp=_now() + 10),
    "issued in the future": lambda: token(iat=_now() + 120, exp=_now() + 300),
    "not valid yet": lambda: token(nbf=_now() + 120),
    "an expiry that is a text": lambda: token(exp=str(_now() + 300)),
    "a time that is true": lambda: token(nbf=True),
    "an expiry with a fraction that is past": lambda: token(iat=_now() - 300, nbf=None, exp=_now() - 0.5),
    "an expiry that is no number": lambda: signed(_of("ES256"), _payload(exp=1).replace(b'"exp": 1', b'"exp": NaN')),
    "an expiry beyond all numbers": lambda: signed(_of("ES256"), _payload(exp=1).replace(b'"exp": 1', b'"exp": 1e999')),
    "no expiry but null": lambda: signed(_of("ES256"), json.dumps(claims() | {"exp": None}).encode()),
    "the newer name of another algorithm": lambda: signed(_of("Ed25519", kid="es256"), _payload()),
    "an expiry beyond all times": lambda: token(iat=10**40 - 1, nbf=None, exp=10**40),
    "an expiry of infinity": lambda: signed(_of("ES256"), _payload(exp=1).replace(b'"exp": 1', b'"exp": Infinity')),
    "another issuer": lambda: token(iss="https://evil.example.org"),
    "an issuer with a slash more": lambda: token(iss=f"{ISSUER}/"),
    "an issuer in other capitals": lambda: token(iss=ISSUER.upper()),
    "several issuers": lambda: signed(_of("ES256"), json.dumps(claims() | {"iss": [ISSUER]}).encode()),
    "another audience": lambda: token(aud="other"),
    "several audiences": lambda: token(aud=[AUDIENCE, "other"]),
    "no audience": lambda: token(aud=None),
    "no subject": lambda: token(sub=None),
    "an empty subject": lambda: token(sub=""),
    "a subject that is no text": lambda: signed(_of("ES256"), json.dumps(claims() | {"sub": 7}).encode()),
    "a subject with controls": lambda: token(sub="ann\n"),
    "a subject in other letters": lambda: token(sub="\u0430nn"),
    "too long a subject": lambda: token(sub="a" * (limits.MAX_SUBJECT_CHARS + 1)),
    "roles that are no texts": lambda: token(roles=[{"operators": True}]),
    "a claim twice": lambda: signed(_of("ES256"), _payload()[:-1] + b', "sub": "bob"}'),
    "a claim twice inside another": lambda: signed(_of("ES256"), _payload()[:-1] + b', "x": {"a": 1, "a": 2}}'),
    "an id twice": lambda: signed(_of("ES256")[:-1] + b', "kid": "es256"}', _payload()),
    "a payload that is a list": lambda: signed(_of("ES256"), b"[]"),
    "a payload that is no json": lambda: signed(_of("ES256"), b"{"),
    "a payload that is not utf-8": lambda: signed(_of("ES256"), b'{"sub": "\xff"}'),
    "a deep payload": lambda: signed(_of("ES256"), b"[" * 5_000),
    "a header that is a list": lambda: signed(b"[]", _payload()),
    "a header that is no base64": lambda: f"A.{encoded(_payload())}.AAAA",
    "a huge token": lambda: token(filler="x" * limits.MAX_TOKEN_CHARS),
    "a huge token of dots": lambda: "." * 50_000,
    "an encrypted token": lambda: f"{token()}.AAAA.AAAA",
}  # fmt: skip
"""Tokens that nobody may use, by what is wrong. Every other part of each token is
right.
"""


@dataclass
class KeySetFile:
    """The provider's keys in a file, as the settings name it."""

    path: Path
    settings: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.path.write_text(json.dumps(KEY_SET), encoding="utf-8")
        self.settings = {
            "oidc_issuer": ISSUER,
            "oidc_audience": AUDIENCE,
            "oidc_jwks": self.path,
            "oidc_roles": ROLES,
        }

"""Checks Ed25519 signatures and reads keys in PEM, with ``cryptography``.

The only module of the verifier that needs more than the standard library, so it is
imported at a checkpoint.
"""

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def holds(public_key: bytes, signature: bytes, text: bytes) -> bool:
    """Whether a signature of a text is valid."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def raw_key(pem: bytes) -> bytes | None:
    """The 32 bytes of a public key in PEM; ``None`` if it is a key of another kind.

    Raises:
        ValueError: the text is not PEM, or holds no public key.
    """
    try:
        key = serialization.load_pem_public_key(pem)
    except UnsupportedAlgorithm as error:
        raise ValueError("an unknown kind of key") from error
    if not isinstance(key, Ed25519PublicKey):
        return None
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

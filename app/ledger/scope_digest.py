"""Computes the digest that identifies a scope in the database, where its text can be too long for a key."""

import hashlib

import rfc8785

from app.privacy.composition import Scope


def digest_of(scope: Scope) -> str:
    """SHA-256 of a scope's canonical JSON, in lower-case hexadecimal."""
    return hashlib.sha256(rfc8785.dumps({name: list(cells) for name, cells in scope.items()})).hexdigest()

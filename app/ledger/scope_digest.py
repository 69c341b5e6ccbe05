"""Computes the SHA-256 digest that stands for a scope in keys of the database, for which its text can be too long."""

import hashlib
import sys

import rfc8785

from app.privacy.composition import Scope


def digest_of(scope: Scope) -> str:
    """SHA-256 of a scope's canonical JSON, in lower-case hexadecimal.

    Equal digests are one object, because sets of thousands of them are compared at every admission.
    """
    canonical = rfc8785.dumps({name: list(cells) for name, cells in scope.items()})
    return sys.intern(hashlib.sha256(canonical).hexdigest())

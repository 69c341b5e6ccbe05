"""Makes distinctive private values, and searches bytes for every form in which such a
value could leave the service.

Every text canary of a set contains the set's token, so one search finds all of them.
Numbers and hashes are searched for one by one.
"""

import base64
import hashlib
import secrets
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

_HASHES = ("sha256", "sha1", "md5", "blake2b")
_HASH_BYTES = 8
"""Bytes of a hash that are searched for: an id that is cut off from a hash is found,
too.
"""
_BEGINNING = 8
"""Bytes of the shortest form."""
_KEY_BYTES = 16
"""Bytes of a form of a key that are searched for."""
_TEXT = "text"


class Canaries:
    """A set of private values that occur nowhere else."""

    def __init__(self) -> None:
        self._token = f"cnry{secrets.token_hex(5)}"
        self._numbers = count(1)
        self._planted: dict[str, str] = {}
        self._bodies: dict[str, bytes] = {}
        self._keys: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._planted) + len(self._bodies) + len(self._keys)

    def text(self, kind: str) -> str:
        """Makes a text, the same for each call with the same kind."""
        return self._planted.setdefault(kind, f"{self._token}{next(self._numbers)}")

    def integer(self, kind: str) -> int:
        """Makes an integer of 16 digits, the same for each call with the same kind. One
        of ten may be a part of a hash, or the seconds of a time.
        """
        return int(
            self._planted.setdefault(
                kind,
                str(1_100_000_000_000_000 + secrets.randbelow(800_000_000_000_000)),
            )
        )

    def number(self, kind: str) -> float:
        """Makes a number between 1 and 2 with 16 digits, the same for each call with
        the same kind.
        """
        return float(
            self._planted.setdefault(kind, repr(1 + secrets.randbelow(2**52) / 2**52))
        )

    def body(self, kind: str, body: bytes) -> bytes:
        """Registers a private body, whose hashes are searched for; returns the body."""
        self._bodies[kind] = body
        return body

    def key(self, kind: str, key: bytes) -> None:
        """Registers a secret key of the service, whose forms are searched for."""
        self._keys[kind] = key

    def numbers(self) -> list[float]:
        """All numbers and integers."""
        return [
            float(planted)
            for planted in self._planted.values()
            if self._token not in planted
        ]

    def found_in(self, searched: bytes) -> list[str]:
        """Names the canaries that occur in some bytes, each with the form in which it
        occurs.
        """
        lowered = searched.lower()
        is_text = [
            name
            for name, form in self._token_forms
            if form in lowered or form in searched
        ]
        if not self._may_hold_single_forms(searched):
            return is_text
        return is_text + [name for name, form in self._single_forms if form in searched]

    def _may_hold_single_forms(self, searched: bytes) -> bool:
        """Whether the beginning of any form occurs: all forms at once, because there
        are thousands.
        """
        for start in range(min(_BEGINNING, max(len(searched) - _BEGINNING + 1, 0))):
            n_words = (len(searched) - start) // _BEGINNING
            words = np.frombuffer(searched, dtype="<u8", offset=start, count=n_words)
            nearest = np.searchsorted(self._beginnings, words).clip(
                max=len(self._beginnings) - 1
            )
            if (self._beginnings[nearest] == words).any():
                return True
        return False

    @cached_property
    def _beginnings(self) -> NDArray[np.uint64]:
        beginnings = b"".join(form[:_BEGINNING] for _, form in self._single_forms)
        return np.unique(np.frombuffer(beginnings, dtype="<u8"))

    @cached_property
    def _token_forms(self) -> list[tuple[str, bytes]]:
        token = self._token.encode()
        forms = [
            (_TEXT, token),
            ("UTF-16", self._token.encode("utf-16-le")),
            ("hexadecimal", token.hex().encode()),
        ]
        for n_before in range(3):  # a text has three forms in base64, by its place
            encoded = base64.b64encode(bytes(n_before) + token)
            forms.append(("base64", encoded[4 if n_before else 0 : -4]))
        return forms

    @cached_property
    def _single_forms(self) -> list[tuple[str, bytes]]:
        """Forms of numbers and hashes. Read first after everything was planted."""
        return [(f"{kind}: {name}", form) for kind, name, form in self._each_form()]

    def _each_form(self) -> Iterator[tuple[str, str, bytes]]:
        for kind, planted in self._planted.items():
            if self._token not in planted:
                for name, form in _forms_of_number(planted):
                    yield kind, name, form
            for name, form in _forms_of_hashes(planted.encode()):
                yield kind, name, form
        for kind, body in self._bodies.items():
            for name, form in _forms_of_hashes(body):
                yield kind, name, form
        for kind, key in self._keys.items():
            for name, form in (
                ("bytes", key),
                ("hexadecimal", key.hex().encode()),
                ("base64", base64.b64encode(key)),
            ):
                yield kind, name, form[:_KEY_BYTES]


def _forms_of_number(text: str) -> Iterable[tuple[str, bytes]]:
    yield _TEXT, text.encode()[:16]
    for order in "<>":
        yield f"float64 {order}", struct.pack(f"{order}d", float(text))
        if "." not in text:
            yield f"int64 {order}", struct.pack(f"{order}q", int(text))


def _forms_of_hashes(value: bytes) -> Iterable[tuple[str, bytes]]:
    for name in _HASHES:
        digest = hashlib.new(name, value).digest()[:_HASH_BYTES]
        yield name, digest
        yield f"{name} hexadecimal", digest.hex().encode()
        yield f"{name} base64", base64.b64encode(digest)[: _HASH_BYTES + 2]

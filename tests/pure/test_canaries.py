"""Tests that the search for canaries finds every form in which a private value could
leave the service.
"""

import base64
import hashlib
import secrets
import struct

from tests.support.canaries import Canaries


def test_the_search_finds_every_form_of_a_canary() -> None:
    it = Canaries()
    name, amount, height = it.text("name"), it.integer("amount"), it.number("height")
    body = it.body("body", b"amount\n5\n")
    key = secrets.token_bytes(32)
    it.key("key", key)
    forms = {
        "key": key,
        "key, hexadecimal": key.hex().encode(),
        "key, base64": base64.b64encode(key),
        "text": f"x{name}".encode(),
        "capitals": name.upper().encode(),
        "UTF-16": name.encode("utf-16-le"),
        "hexadecimal": name.encode().hex().encode(),
        "base64": base64.b64encode(b"ab" + name.encode()),
        "hash of a text": hashlib.sha256(name.encode()).digest()[:16],
        "hash of a number": hashlib.new("md5", str(amount).encode())
        .hexdigest()
        .encode(),
        "hash of a body": hashlib.sha256(body).hexdigest().encode(),
        "integer": str(amount).encode(),
        "int64": struct.pack(">q", amount),
        "float64 of an integer": struct.pack("<d", amount),
        "number": str(height).encode(),
        "float64": struct.pack("<d", height),
    }
    for n_before in range(8):
        for form, content in forms.items():
            assert it.found_in(bytes(n_before) + content + b"\0"), form
    assert it.found_in(b"nothing " + secrets.token_bytes(1000)) == []


def test_a_canary_is_the_same_for_each_call_with_its_kind() -> None:
    it = Canaries()
    assert it.text("a") == it.text("a") != it.text("b")
    assert len(it) == 2

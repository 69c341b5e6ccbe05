"""Writes Arrow streams of a schema alone in which many references lead to one place, as
no library writes them.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Member: TypeAlias = str | bytes
"""Of a table: the name of what it refers to, or its bytes."""

_SCHEMA_MESSAGE: Final = b"\1"
_INT, _STRUCT, _TIMESTAMP = b"\2", b"\x0d", b"\x0a"
_END: Final = struct.pack("<2i", -1, 0)


class _Written:
    """A FlatBuffer, in which whatever is referred to follows what refers to it."""

    def __init__(self) -> None:
        self._text = bytearray(4)
        self._places: dict[str, int] = {}
        self._references = [(0, "message")]

    def table(self, name: str, members: Mapping[int, Member]) -> None:
        n_members = max(members, default=-1) + 1
        places = [4 + 8 * number for number in range(n_members)]
        offsets = [places[slot] if slot in members else 0 for slot in range(n_members)]
        self._align()
        begin = len(self._text)
        head = (4 + 2 * n_members, 4 + 8 * n_members, *offsets)
        self._text += struct.pack(f"<{len(head)}H", *head)
        self._align()
        at = self._places[name] = len(self._text)
        self._text += struct.pack("<i", at - begin)
        for slot in range(n_members):
            member = members.get(slot, b"")
            if isinstance(member, str):
                self._references.append((len(self._text), member))
                member = b""
            self._text += member.ljust(8, b"\0")

    def list(self, name: str, items: Sequence[str]) -> None:
        self._align()
        self._places[name] = len(self._text)
        self._text += struct.pack("<I", len(items))
        for item in items:
            self._references.append((len(self._text), item))
            self._text += bytes(4)

    def text(self, name: str, n_bytes: int) -> None:
        self._align()
        self._places[name] = len(self._text)
        self._text += struct.pack("<I", n_bytes) + b"a" * n_bytes + b"\0"

    def stream(self) -> bytes:
        self._align()
        for at, name in self._references:
            struct.pack_into("<I", self._text, at, self._places[name] - at)
        head = struct.pack("<2i", -1, len(self._text))
        return head + bytes(self._text) + _END

    def _align(self) -> None:
        self._text += bytes(-len(self._text) % 8)


def nested(n_levels: int, n_leaves: int) -> bytes:
    """A stream of a schema of one column, so deep, that ends in so many columns."""
    written = _Written()
    kind = struct.pack("<h", 4)
    written.table("message", {0: kind, 1: _SCHEMA_MESSAGE, 2: "schema"})
    written.table("schema", {1: "level 1"})
    for level in range(1, n_levels):
        written.list(f"level {level}", [f"field {level}"])
        children = f"level {level + 1}"
        members: dict[int, Member] = {0: "name", 2: _STRUCT, 3: "struct", 5: children}
        written.table(f"field {level}", members)
    written.list(f"level {n_levels}", ["leaf"] * n_leaves)
    written.table("leaf", {0: "name", 2: _INT, 3: "integer", 5: "none"})
    written.table("struct", {})
    written.table("integer", {0: struct.pack("<i", 64), 1: b"\1"})
    written.list("none", [])
    written.text("name", 1)
    return written.stream()


def repeating(what: str, number: int, *, n_bytes: int = 3) -> bytes:
    """A stream of a schema that refers to one thing so many times.

    Args:
        what: a field with a long ``name``, a ``child`` of one, the long ``zone`` of a
            timestamp, or the long text of a pair of metadata: of the ``message``, the
            ``schema`` or a ``field``.
        n_bytes: of that text.
    """
    written = _Written()
    pairs: dict[int, Member] = {4: "pairs"} if what == "message" else {}
    kind = struct.pack("<h", 4)
    written.table("message", {0: kind, 1: _SCHEMA_MESSAGE, 2: "schema", **pairs})
    pairs = {2: "pairs"} if what == "schema" else {}
    written.table("schema", {1: "fields", **pairs})
    is_repeated = what in ("name", "zone", "child")
    written.list("fields", ["field"] * (number if is_repeated else 1))
    members: dict[int, Member] = {0: "text", 2: _INT, 3: "type"}
    if what == "child":
        members |= {2: _STRUCT, 5: "children"}
    if what == "zone":
        members |= {0: "short", 2: _TIMESTAMP}
    if what == "field":
        members |= {6: "pairs"}
    written.table("field", members)
    written.list("children", ["leaf"] * number)
    written.table("leaf", {0: "short", 2: _INT, 3: "integer", 5: "none"})
    written.list("pairs", ["pair"] * (1 if is_repeated else number))
    written.table("pair", {0: "short", 1: "text"})
    bits = struct.pack("<i", 64)
    written.table("integer", {0: bits, 1: b"\1"})
    types: dict[str, dict[int, Member]] = {"child": {}, "zone": {1: "text"}}
    written.table("type", types.get(what, {0: bits, 1: b"\1"}))
    written.list("none", [])
    written.text("short", 1)
    written.text("text", n_bytes)
    return written.stream()

"""Counts the values of a JSON text before a parser builds them, and reads it strictly."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from app.core.errors import TooLarge

_PART_BYTES = 128 * 1024
_MARKS = b",:[{"
_NEITHER_MARK_NOR_QUOTE = bytes(byte for byte in range(256) if byte not in _MARKS + b'"')
_STRING = re.compile(rb'"[^"]*+"?')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def check_nodes(text: bytes, limit: int) -> None:
    """Checks that a parser of JSON builds at most ``limit`` values and names of members from a text.

    Every value but the outermost follows a comma, a colon or an opening bracket, and every name precedes a colon. So
    nodes are at most one more than these marks outside strings; only an empty array or object makes them fewer.

    Raises:
        TooLarge: more nodes, or more strings.
    """
    n_marks = 0  # marks inside strings count, too
    for part in _parts(text):
        n_marks += sum(map(part.count, _MARKS))
        if n_marks >= limit:
            break
    else:
        return
    parts, n_quotes = [], 0
    for part in _parts(text):
        unescaped = part.replace(rb"\\", b"").replace(rb"\"", b"")
        parts.append(unescaped.translate(None, _NEITHER_MARK_NOR_QUOTE))
        n_quotes += parts[-1].count(b'"')
        if n_quotes // 2 > limit:
            raise TooLarge("the number of values and names in the body", limit)
    marks_and_quotes = b"".join(parts)
    if len(marks_and_quotes) - _length_of_strings(marks_and_quotes) >= limit:
        raise TooLarge("the number of values and names in the body", limit)


def _parts(text: bytes) -> Iterator[bytes]:
    """Parts of a text, none of which ends inside an escape. Between two of them, other threads may run."""
    start = 0
    while start < len(text):
        part = text[start : start + _PART_BYTES]
        if (len(part) - len(part.rstrip(b"\\"))) % 2 and start + len(part) < len(text):
            part = part[:-1]
        yield part
        start += len(part)


def loads(text: bytes) -> Any:
    """The value of a JSON text in UTF-8, which may begin with a byte order mark.

    Raises:
        ValueError: not JSON; a name occurs twice in one object; NaN or an infinity; or half of a surrogate pair, which
            Python's parser accepts and no answer can repeat.
        RecursionError: nested too deeply.
    """
    value = json.loads(text.decode("utf-8-sig"), object_pairs_hook=unique, parse_constant=_refuse)
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON text, as the ``object_pairs_hook`` of a parser.

    Raises:
        ValueError: a name occurs twice, so that two readers may disagree about its value.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a duplicate name")
    return members


def _refuse(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _length_of_strings(text: bytes) -> int:
    return sum(match.end() - match.start() for match in _STRING.finditer(text))

"""Counts the values of a JSON text before a parser builds them, and refuses names that an object has twice."""

import re
from typing import Any

from app.core.errors import TooLarge

_MARKS = b",:[{"
_NEITHER_MARK_NOR_QUOTE = bytes(byte for byte in range(256) if byte not in _MARKS + b'"')
_STRING = re.compile(rb'"[^"]*+"?')


def check_nodes(text: bytes, limit: int) -> None:
    """Checks that a parser of JSON builds at most ``limit`` values and names of members from a text.

    Every value but the outermost follows a comma, a colon or an opening bracket, and every name precedes a colon. So
    nodes are at most one more than these marks outside strings; only an empty array or object makes them fewer.

    Raises:
        TooLarge: more nodes, or more strings.
    """
    if sum(map(text.count, _MARKS)) < limit:  # marks inside strings count, too
        return
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    marks_and_quotes = unescaped.translate(None, _NEITHER_MARK_NOR_QUOTE)
    n_strings = marks_and_quotes.count(b'"') // 2
    if n_strings > limit or len(marks_and_quotes) - _length_of_strings(marks_and_quotes) >= limit:
        raise TooLarge("the number of values and names in the body", limit)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON text, as the ``object_pairs_hook`` of a parser.

    Raises:
        ValueError: a name occurs twice, so that two readers may disagree about its value.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a duplicate name")
    return members


def _length_of_strings(text: bytes) -> int:
    return sum(match.end() - match.start() for match in _STRING.finditer(text))

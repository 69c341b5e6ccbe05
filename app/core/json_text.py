"""Counts the values of a JSON text before a parser builds them."""

import re
from itertools import islice

from app.core.errors import TooLarge

_STRING_OR_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,:\[{]', re.DOTALL)
"""A string, closed or not, or a mark that introduces values. The repeats are possessive, so nothing backtracks."""
_QUOTE = ord('"')


def check_nodes(text: bytes, limit: int) -> None:
    """Checks that a parser of JSON builds at most ``limit`` values and names of members from a text.

    Every value but the outermost follows a comma, a colon or an opening bracket, and every name precedes a colon. So
    nodes are at most one more than the marks outside strings; only an empty array or object makes them fewer.

    Raises:
        TooLarge: more nodes.
    """
    if sum(map(text.count, (b",", b":", b"[", b"{"))) < limit:  # marks inside strings count, too
        return
    # In every beginning of a JSON text, strings are at most one more than marks. So beyond these many matches, either
    # the marks are too many or a parser has failed before.
    matches = islice(_STRING_OR_MARK.finditer(text), 2 * limit)
    if sum(text[match.start()] != _QUOTE for match in matches) >= limit:
        raise TooLarge("the number of values and names in the body", limit)

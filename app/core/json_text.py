"""Reads the JSON of requests within limits and exactly, and hashes what it says."""

import hashlib
import json
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from app.core import limits
from app.core.errors import MalformedRequest, TooLarge
from grovekeeper_common import strict_json
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import limits as forest_limits


def n_bytes(value: object) -> int:
    """The bytes of a value as JSON."""
    return len(msgspec.json.encode(value))


def check_nodes(text: bytes, limit: int) -> None:
    """Checks that a parser of JSON builds at most ``limit`` values and names of members
    from a text; see :func:`grovekeeper_common.strict_json.has_more_nodes`.

    Raises:
        TooLarge: more nodes, or more strings.
    """
    # a mark is a byte, so that a short text is not read
    if len(text) >= limit and strict_json.has_more_nodes(text, limit):
        raise TooLarge("the number of values and names in the body", limit)


def not_json(body: bytes) -> MalformedRequest:
    """The refusal of a body that a parser did not read: where its first fault is, and
    what it is, without quoting it.

    Reads the text again, since not every parser tells the place.
    """
    return MalformedRequest(f"the body is not JSON: {strict_json.fault(body)}")


def loads_exactly(body: bytes, *, max_nodes: int) -> Any:
    """The value of a JSON text, with or without a byte order mark, whose numbers are
    integers and exact decimals.

    Raises:
        MalformedRequest: not JSON, not UTF-8, a duplicate key, NaN or an infinity, a
            number that is too long or has too large an exponent, or nested deeper than
            ``limits.MAX_JSON_DEPTH``.
        TooLarge: more values and names than ``max_nodes``, counted before any of them
            is built; or an object with more than ``limits.MAX_JSON_MEMBERS``.
    """
    check_nodes(body, max_nodes)
    try:
        value = json.loads(
            body.decode("utf-8-sig"),
            parse_float=_exact,
            parse_constant=strict_json.refuse_constant,
            object_pairs_hook=_few_unique,
        )
    except (ValueError, RecursionError):
        raise not_json(body) from None
    if _is_deeper(value, limits.MAX_JSON_DEPTH):
        raise MalformedRequest("the body is nested too deeply")
    return value


def digest(value: object) -> bytes:
    """SHA-256 of a body's canonical form, which does not depend on spacing, key order
    or number spelling.
    """
    text = json.dumps(
        _tagged(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )
    return hashlib.sha256(text.encode("ascii")).digest()


def _tagged(value: object) -> object:
    match value:
        case bool() | None | str():
            return value
        case int() | Decimal():
            return {"$number": _number_text(Decimal(value))}
        case list():
            return list(map(_tagged, value))
        case dict():
            return {"$object": {key: _tagged(item) for key, item in value.items()}}
    raise TypeError("not a JSON value")


def _number_text(number: Decimal) -> str:
    """One text per number, however the number was spelled. Exact: no decimal context
    rounds or overflows.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).lstrip("0")
    shortest = significant.rstrip("0")
    if shortest:
        return f"{'-' * sign}{shortest}e{exponent + len(significant) - len(shortest)}"
    return "0"


def _is_deeper(value: object, depth: int) -> bool:
    """Whether arrays and objects are nested more than ``depth`` times, without
    recursion.
    """
    level = [value]
    for _ in range(depth + 1):
        nested = [item for item in level if isinstance(item, list | dict)]
        if not nested:
            return False
        level = []
        for item in nested:
            level += item.values() if isinstance(item, dict) else item
    return True


def _exact(text: str) -> int | Decimal:
    """A number with a point or an exponent. A whole one is an integer, as in JSON
    Schema: R writes 100000 as 1e+05.
    """
    # an exponent beyond what the decimal module can hold
    with suppress(InvalidOperation):
        if len(text) <= 400:
            number = Decimal(text)
            is_whole = (
                number.adjusted() < forest_limits.MAX_JSON_NUMBER_DIGITS
                and number == number.to_integral_value()
            )
            return int(number) if is_whole else number
    raise ValueError("a number of too many digits or too large an exponent")


def _few_unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    if len(pairs) > limits.MAX_JSON_MEMBERS:
        raise TooLarge("the number of members of an object", limits.MAX_JSON_MEMBERS)
    return strict_json.unique(pairs)

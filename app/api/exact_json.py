"""Parses JSON request bodies with exact decimal numbers; rejects duplicate keys and NaN."""

import hashlib
import json
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from app.core import json_text, limits
from app.core.errors import MalformedRequest, TooLarge


def loads(body: bytes, *, max_nodes: int) -> Any:
    """Return the value of a JSON text.

    Raises:
        MalformedRequest: not JSON, not UTF-8, a duplicate key, NaN or an infinity, a number that is too long or
            has too large an exponent, or nested deeper than ``limits.MAX_JSON_DEPTH``.
        TooLarge: more values and names than ``max_nodes``, counted before any of them is built; or an object with more
            than ``limits.MAX_JSON_MEMBERS``.
    """
    json_text.check_nodes(body, max_nodes)
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_float=_decimal, parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise MalformedRequest("the body is not JSON") from None
    if _is_deeper(value, limits.MAX_JSON_DEPTH):
        raise MalformedRequest("the body is nested too deeply")
    return value


def digest(value: object) -> bytes:
    """Return SHA-256 of a body's canonical form, which does not depend on spacing, key order or number spelling."""
    text = json.dumps(_tagged(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).digest()


def _tagged(value: object) -> object:
    match value:
        case bool() | None | str():
            return value
        case int() | Decimal():
            return {"$number": _number_text(Decimal(value))}
        case list():
            return [_tagged(item) for item in value]
        case dict():
            return {"$object": {key: _tagged(item) for key, item in value.items()}}
    raise TypeError("not a JSON value")


def _number_text(number: Decimal) -> str:
    """Return one text per number, however the number was spelled. Exact: no decimal context rounds or overflows."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).lstrip("0")
    shortest = significant.rstrip("0")
    return f"{'-' * sign}{shortest}e{exponent + len(significant) - len(shortest)}" if shortest else "0"


def _is_deeper(value: object, depth: int) -> bool:
    """Return whether arrays and objects are nested more than ``depth`` times, without recursion."""
    level = [value]
    for _ in range(depth + 1):
        nested = [item for item in level if isinstance(item, list | dict)]
        if not nested:
            return False
        level = [inner for item in nested for inner in (item.values() if isinstance(item, dict) else item)]
    return True


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text) if len(text) <= 400 else _refuse(text)
    except InvalidOperation:  # an exponent beyond what the decimal module can hold
        _refuse(text)


def _refuse(_: str) -> NoReturn:
    raise ValueError("not a number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > limits.MAX_JSON_MEMBERS:
        raise TooLarge("the number of members of an object", limits.MAX_JSON_MEMBERS)
    return json_text.unique(pairs)

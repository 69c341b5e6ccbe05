"""Counts the values of a JSON text before a parser builds them, reads it strictly, and
hashes what it says.
"""

import codecs
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import msgspec

from app.core import limits
from app.core.errors import MalformedRequest, TooLarge
from grovekeeper_forests import limits as forest_limits

_PART_BYTES = 128 * 1024
_MARKS = b",:[{"
_NEITHER_MARK_NOR_QUOTE = bytes(
    byte for byte in range(256) if byte not in _MARKS + b'"'
)
_STRING = re.compile(rb'"[^"]*+"?')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*+"|-?(?:NaN|Infinity)', re.DOTALL)
_TRAILING_COMMA = re.compile(r",\s*[\]}]")


def n_bytes(value: object) -> int:
    """The bytes of a value as JSON."""
    return len(msgspec.json.encode(value))


def check_nodes(text: bytes, limit: int) -> None:
    """Checks that a parser of JSON builds at most ``limit`` values and names of members
    from a text.

    Every value but the outermost follows a comma, a colon or an opening bracket, and
    every name precedes a colon. So nodes are at most one more than these marks outside
    strings; only an empty array or object makes them fewer.

    Raises:
        TooLarge: more nodes, or more strings.
    """
    if len(text) < limit:  # a mark is a byte
        return
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
    n_within_strings = sum(
        match.end() - match.start() for match in _STRING.finditer(marks_and_quotes)
    )
    if len(marks_and_quotes) - n_within_strings >= limit:
        raise TooLarge("the number of values and names in the body", limit)


def _parts(text: bytes) -> Iterator[bytes]:
    """Parts of a text, none of which ends inside an escape. Between two of them, other
    threads may run.
    """
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
        ValueError: not JSON; a name occurs twice in one object; NaN or an infinity; or
            half of a surrogate pair, which Python's parser accepts and no answer can
            repeat.
        RecursionError: nested too deeply.
    """
    value = json.loads(
        text.decode("utf-8-sig"), object_pairs_hook=unique, parse_constant=_refuse
    )
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def not_json(body: bytes, what: str = "the body") -> MalformedRequest:
    """The refusal of a text that a parser did not read: where its first fault is, and
    what it is, without quoting it.

    Reads the text again, since not every parser tells the place.
    """
    return MalformedRequest(f"{what} is not JSON: {_fault(body)}")


def _fault(body: bytes) -> str:
    try:
        loads(body)
    except json.JSONDecodeError as error:
        return _syntax_fault(error.doc, error.pos)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        is_utf_16 = error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        return f"line {line} is not UTF-8" + (
            ", and looks like UTF-16" if is_utf_16 else ""
        )
    except RecursionError:
        return "it is nested too deeply"
    except _RefusedConstant:
        return f"{_place_of_constant(body)}: NaN and Infinity are not JSON; null stands for a missing value"
    except _RepeatedName:
        return "a name occurs twice in one object"
    except UnicodeEncodeError:
        return "a text has half of a surrogate pair"
    except ValueError:
        # as where this parser reads the text: the one that refused it reads fewer
        # numbers
        pass
    return "a number has too many digits or too large an exponent"


def _syntax_fault(text: str, position: int) -> str:
    if not text.strip():
        return "it is empty"
    # Depending on its version, the parser stops at the comma or at the bracket after
    # it.
    before = text[:position].rstrip()
    comma = len(before) - 1 if before.endswith(",") else position
    if _TRAILING_COMMA.match(text, comma):
        return f"{_place(text, comma)}: a trailing comma"
    hint = ", which looks like UTF-16" if "\0" in text[:4] else ""
    return f"{_place(text, position)}{hint}"


def _place_of_constant(body: bytes) -> str:
    text = body.decode("utf-8-sig")
    constants = (
        match
        for match in _STRING_OR_CONSTANT.finditer(text)
        if not match[0].startswith('"')
    )
    return _place(text, next(constants).start())


def _place(text: str, position: int) -> str:
    line_start = text.rfind("\n", 0, position) + 1
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - line_start + 1}"


class _RefusedConstant(ValueError):
    """NaN or an infinity, which are no JSON."""


class _RepeatedName(ValueError):
    """A name that occurs twice in one object."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON text, as the ``object_pairs_hook`` of a parser.

    Raises:
        ValueError: a name occurs twice, so that two readers may disagree about its
            value.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RepeatedName
    return members


def _refuse(_: str) -> NoReturn:
    raise _RefusedConstant


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
            parse_constant=_refuse,
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
            return [_tagged(item) for item in value]
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
    return (
        f"{'-' * sign}{shortest}e{exponent + len(significant) - len(shortest)}"
        if shortest
        else "0"
    )


def _is_deeper(value: object, depth: int) -> bool:
    """Whether arrays and objects are nested more than ``depth`` times, without
    recursion.
    """
    level = [value]
    for _ in range(depth + 1):
        nested = [item for item in level if isinstance(item, list | dict)]
        if not nested:
            return False
        level = [
            inner
            for item in nested
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
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


def _few_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > limits.MAX_JSON_MEMBERS:
        raise TooLarge("the number of members of an object", limits.MAX_JSON_MEMBERS)
    return unique(pairs)

"""Parses JSON strictly and writes it in canonical form (RFC 8785).

A ledger holds strings, integers, null, booleans, arrays and objects. Fractions are text
in a ledger, so floating-point numbers, the difficult part of RFC 8785, do not occur: a
number with a point or an exponent is rejected on reading.
"""

import json
from typing import TypeAlias

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"

MAX_INTEGER = 2**53 - 1
"""Above this limit two readers of the same JSON may see different integers (RFC 7493)."""

MAX_NESTING = 200
"""Deeper than any valid event, and far below Python's recursion limit."""


class NotStrictJson(ValueError):
    """The text is not JSON, or is JSON that two readers may interpret differently;
    ``str()`` gives the reason.
    """


def loads(line: bytes) -> Json:
    """Reads one JSON value and rejects everything that a lenient reader would
    interpret.

    Raises:
        NotStrictJson: not UTF-8, not JSON, a duplicate key, NaN or an infinity, a
            number that is not an integer or is too large, half of a surrogate pair, or
            nesting that is too deep.
    """
    try:
        value = json.loads(
            line.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_no_fraction,
            parse_constant=_no_constant,
        )
        # Writing finds what reading accepts: half of a surrogate pair, deep nesting.
        dumps(value)
    except NotStrictJson:
        raise
    except UnicodeDecodeError as error:
        raise NotStrictJson("it is not UTF-8 text") from error
    except UnicodeEncodeError as error:
        raise NotStrictJson("a text holds half of a surrogate pair") from error
    except RecursionError as error:
        raise NotStrictJson("it is nested too deeply") from error
    except ValueError as error:
        raise NotStrictJson("it is not JSON, or is truncated") from error
    return value  # type: ignore[no-any-return]


def dumps(value: Json) -> bytes:
    """The RFC 8785 form: no spaces, keys in the order of their UTF-16 code units, the
    shortest escapes, UTF-8.

    Raises:
        UnicodeEncodeError: a text holds half of a surrogate pair.
        NotStrictJson: nested more than :data:`MAX_NESTING` deep.
    """
    return _text(value, depth=0).encode("utf-8")


def _text(value: Json, *, depth: int) -> str:
    if depth > MAX_NESTING:
        raise NotStrictJson("it is nested too deeply")
    match value:
        case dict():
            members = [
                f"{_string(name)}:{_text(item, depth=depth + 1)}"
                for name, item in sorted(value.items(), key=_utf_16)
            ]
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(_text(item, depth=depth + 1) for item in value) + "]"
        case str():
            return _string(value)
        # Before integers, which booleans are in Python.
        case True:
            return "true"
        case False:
            return "false"
        case None:
            return "null"
        case int():
            return str(value)


def _utf_16(member: tuple[str, Json]) -> bytes:
    # Big-endian bytes have the order of the code units.
    return member[0].encode("utf-16-be")


_encoder = json.JSONEncoder(ensure_ascii=False)


def _string(text: str) -> str:
    """Python's escapes equal those of RFC 8785 when non-ASCII text is not escaped; a
    test compares all of them.
    """
    return _encoder.encode(text)


def _object(members: list[tuple[str, Json]]) -> dict[str, Json]:
    # ``dict`` keeps the last of two equal keys; another reader may keep the first.
    result = dict(members)
    if len(result) != len(members):
        raise NotStrictJson("an object has a duplicate key")
    return result


def _integer(digits: str) -> int:
    # The length first: a conversion of many digits takes long.
    if len(digits) > len(str(-MAX_INTEGER)) or abs(int(digits)) > MAX_INTEGER:
        raise NotStrictJson("an integer is too large to be exact everywhere")
    return int(digits)


def _no_fraction(_digits: str) -> Json:
    raise NotStrictJson("a number is not an integer; fractions are text in a ledger")


def _no_constant(_name: str) -> Json:
    raise NotStrictJson("NaN and infinities are no JSON")

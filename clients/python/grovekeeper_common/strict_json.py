"""Reads JSON strictly, counts the values of a text before a parser builds them, and
says where a fault is.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from grovekeeper_common.json_types import JsonObject

_PART_BYTES = 128 * 1024
_MARKS = b",:[{"
_NEITHER_MARK_NOR_QUOTE = bytes(
    byte for byte in range(256) if byte not in _MARKS + b'"'
)
_STRING = re.compile(rb'"[^"]*+"?')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*+"|-?(?:NaN|Infinity)', re.DOTALL)
_TRAILING_COMMA = re.compile(r",\s*[\]}]")


def has_more_nodes(text: bytes, limit: int) -> bool:
    """Whether a text has more strings than ``limit``, or a parser of JSON may build more
    values and names of members from it.

    Every value but the outermost follows a comma, a colon or an opening bracket, and
    every name precedes a colon. So nodes are at most one more than these marks outside
    strings; only an empty array or object makes them fewer.
    """
    n_marks = 0  # marks inside strings count, too
    for part in _parts(text):
        n_marks += sum(map(part.count, _MARKS))
        if n_marks >= limit:
            break
    else:
        return False
    parts = []
    n_quotes = 0
    for part in _parts(text):
        unescaped = part.replace(rb"\\", b"").replace(rb"\"", b"")
        parts.append(unescaped.translate(None, _NEITHER_MARK_NOR_QUOTE))
        n_quotes += parts[-1].count(b'"')
        if n_quotes // 2 > limit:
            return True
    marks_and_quotes = b"".join(parts)
    n_within_strings = sum(
        match.end() - match.start() for match in _STRING.finditer(marks_and_quotes)
    )
    return len(marks_and_quotes) - n_within_strings >= limit


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
        text.decode("utf-8-sig"),
        object_pairs_hook=unique,
        parse_constant=refuse_constant,
    )
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def fault(body: bytes) -> str:
    """Where the first fault is of a text that a parser did not read, and what it is,
    without quoting it.

    Reads the text again, since not every parser tells the place.
    """
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


def unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object of a JSON text, as the ``object_pairs_hook`` of a parser.

    Raises:
        ValueError: a name occurs twice, so that two readers may disagree about its
            value.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RepeatedName
    return members


def refuse_constant(_: str) -> NoReturn:
    """Refuses NaN and the infinities, as the ``parse_constant`` of a parser."""
    raise _RefusedConstant

"""Gives each value of a unit column its one spelling, so that one person is one privacy
unit at every way in.

The declaration says what the column holds, and the account's opening entry fixes it:

* ``text``: Unicode's compatibility form (NFKC), without white space around it and
  without signs that nobody sees. So ``17`` and ``17`` with a space, a tab or a
  zero-width space are one person, as are the two spellings of ``é``. ``017`` and
  ``17``, and ``ann`` and ``Ann``, stay two: identifiers exist that differ in nothing
  else.
* ``integer``: decimal digits without leading zeros, signs and points. Another spelling
  is refused.
* ``raw``: compared character by character. Datasets that were declared before there was
  a form have it.
"""

import re
import unicodedata
from collections.abc import Iterator

import numpy as np

from grovekeeper_common.json_types import JsonMapping
from grovekeeper_forests.array_types import UInt64Array

TEXT = "text"
INTEGER = "integer"
RAW = "raw"

PLAIN_INTEGER = "^(?:0|[1-9][0-9]*)$"
"""For RE2 and, with ``fullmatch``, for Python: ``$`` of Python alone allows a line
break.
"""

# The signs that Unicode lets a program ignore when it shows a text
# (Default_Ignorable_Code_Point), and controls.
_INVISIBLE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)

# A table with a gap makes 17.0 of 17, R writes 1e+05 for 100000, and spreadsheets write
# 1.23E+05 and 4,711.
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]+|[0-9]{1,3}(?:[,' ][0-9]{3})+)(?:\.(?P<part>[0-9]*))?"
    r"(?:[eE](?P<power>[+-]?[0-9]{1,4}))?"
)
_BETWEEN_THOUSANDS = ",' "
_WIDEST = 20
"""Digits or characters up to which leading zeros are looked for."""


class NotAPlainInteger(ValueError):
    """A value of an ``integer`` unit column has another spelling than that of the
    integer. Quotes nothing.
    """


def form_of(privacy_unit: JsonMapping) -> str:
    """The form of the unit column of a declared privacy unit."""
    return str(privacy_unit.get("form", RAW))


def canonical(value: str, form: str) -> str:
    """The one spelling of a value; PRIVATE.

    Raises:
        NotAPlainInteger: the value has no spelling in this form.
    """
    if form == TEXT:
        return canonical_text(value)
    if form == INTEGER and value and not re.fullmatch(PLAIN_INTEGER, value):
        raise NotAPlainInteger
    return value


def canonical_text(value: str) -> str:
    """NFKC without invisible signs and outer white space; a text in this form is left
    as it is.
    """
    if value.isascii() and value.isprintable():
        return value.strip()
    # A sign that is removed may have stood between two that compose, so the form is
    # taken again.
    visible = without_invisible(unicodedata.normalize("NFKC", value.strip()))
    return unicodedata.normalize("NFKC", visible).strip()


def without_invisible(text: str) -> str:
    """A text without the signs that a program may leave out when it shows the text."""
    return _INVISIBLE.sub("", text)


def folded(value: str) -> str:
    """What two canonical texts have in common that differ by leading zeros, case, the
    spelling of a number or the signs by which a spreadsheet keeps a text (``="017"``
    and ``'017``) alone.
    """
    value = _unsigned(value)
    number = _number(value)
    if number is None:
        return value.casefold().lstrip("0")
    digits, power = number
    return f"{digits}e{power} "  # no canonical text ends in a blank


def _unsigned(value: str) -> str:
    """A value without the signs by which a spreadsheet keeps a text."""
    if value.startswith(("=", "'")):
        return value.lstrip("='").strip('"')
    return value


def _number(value: str) -> tuple[str, int] | None:
    """The digits of a number without zeros at their ends, and the power of ten by which
    they are multiplied.
    """
    # most identifiers; the expression takes three times as long
    if value.isascii() and value.isdigit():
        return _scaled(value, 0)
    match = _NUMBER.fullmatch(value)
    if match is None:
        return None
    part = match["part"] or ""
    digits = re.sub(f"[{_BETWEEN_THOUSANDS}]", "", match["whole"]) + part
    significant, power = _scaled(digits, int(match["power"] or 0) - len(part))
    # -0 and 0 are one number
    if match["sign"] == "-" and significant != "0":
        significant = f"-{significant}"
    return significant, power


def _scaled(digits: str, power: int) -> tuple[str, int]:
    significant = digits.rstrip("0")
    if not significant:
        return "0", 0
    power += len(digits) - len(significant)
    return significant.lstrip("0"), power


def similar_spellings(name: str) -> set[str]:
    """Other names with the fold of a name, as programs write them: not all that there
    are, because ids are keyed.
    """
    plain = _unsigned(name)
    number = _number(plain)
    if number is None:
        texts = spellings = set(_spellings_of_text(plain))
    else:
        spellings = set(_spellings_of_number(*number))
        texts = set(filter(str.isdigit, spellings))
    spellings = spellings.union(*((f'="{text}"', f"'{text}") for text in texts))
    fold = folded(name)
    return {
        text
        for text in spellings
        if text != name and folded(text) == fold and canonical_text(text) == text
    }


def _spellings_of_text(name: str) -> Iterator[str]:
    stem = name.lstrip("0")
    for cased in {stem, stem.lower(), stem.upper(), stem.title(), stem.capitalize()}:
        yield from (cased.rjust(width, "0") for width in range(_WIDEST + 1))


def _spellings_of_number(digits: str, power: int) -> Iterator[str]:
    prefixes = ("-",) if digits.startswith("-") else ("", "+")
    digits = digits.removeprefix("-")
    for spelling in (*_without_exponent(digits, power), *_with_exponent(digits, power)):
        yield from (f"{prefix}{spelling}" for prefix in prefixes)


def _without_exponent(digits: str, power: int) -> Iterator[str]:
    if power < -_WIDEST or power > _WIDEST:
        return
    if power < 0:
        digits = digits.rjust(1 - power, "0")
        yield from (f"{digits[:power]}.{digits[power:]}{zeros}" for zeros in ("", "0"))
        return
    whole = digits + "0" * power
    wholes = {whole.rjust(width, "0") for width in range(_WIDEST + 1)}
    wholes |= {_in_thousands(whole, separator) for separator in _BETWEEN_THOUSANDS}
    yield from (
        f"{spelling}{part}" for spelling in wholes for part in ("", ".", ".0", ".00")
    )


def _in_thousands(whole: str, separator: str) -> str:
    first = len(whole) % 3
    groups = [whole[:first]] if first else []
    for start in range(first, len(whole), 3):
        groups.append(whole[start : start + 3])
    return separator.join(groups)


def _with_exponent(digits: str, power: int) -> Iterator[str]:
    first = digits[0]
    rest = digits[1:]
    power += len(rest)
    for part in {rest.ljust(width, "0") for width in range(_WIDEST - 4)}:
        mantissa = f"{first}.{part}" if part else first
        for letter in "eE":
            yield from (
                f"{mantissa}{letter}{exponent}"
                for exponent in (power, f"{power:+d}", f"{power:+03d}")
            )


def n_similar(folds: UInt64Array, names: UInt64Array) -> int:
    """The number of different names that share their fold with another name.

    Args:
        folds: PRIVATE; ``(n_rows,)``; a keyed digest of the folded form of each row's
            name.
        names: PRIVATE; ``(n_rows,)``; a keyed digest of each row's name.
    """
    order = np.lexsort((names, folds))
    folds, names = folds[order], names[order]
    is_new_name = np.ones(len(names), np.bool_)
    is_new_name[1:] = (names[1:] != names[:-1]) | (folds[1:] != folds[:-1])
    n_names = np.unique(folds[is_new_name], return_counts=True)[1]
    return int(n_names[n_names > 1].sum())

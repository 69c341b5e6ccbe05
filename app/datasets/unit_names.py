"""Gives each value of a unit column its one spelling, so that one person is one privacy unit at every way in.

The declaration says what the column holds, and the account's opening entry fixes it:

* ``text``: Unicode's compatibility form (NFKC), without white space around it and without signs that nobody sees. So
  ``17`` and ``17`` with a space, a tab or a zero-width space are one person, as are the two spellings of ``é``. ``017``
  and ``17``, and ``ann`` and ``Ann``, stay two: identifiers exist that differ in nothing else.
* ``integer``: decimal digits without leading zeros, signs and points. Another spelling is refused.
* ``raw``: compared character by character. Datasets that were declared before there was a form have it.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

TEXT: Final = "text"
INTEGER: Final = "integer"
RAW: Final = "raw"

PLAIN_INTEGER: Final = "^(?:0|[1-9][0-9]*)$"
"""For RE2 and, with ``fullmatch``, for Python: ``$`` of Python alone allows a line break."""

# The signs that Unicode lets a program ignore when it shows a text (Default_Ignorable_Code_Point), and controls.
_INVISIBLE: Final = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


class NotAPlainInteger(ValueError):
    """A value of an ``integer`` unit column has another spelling than that of the integer. Quotes nothing."""


def form_of(privacy_unit: Mapping[str, Any]) -> str:
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
    """NFKC without invisible signs and outer white space; a text in this form is left as it is."""
    if value.isascii() and value.isprintable():
        return value.strip()
    # A sign that is removed may have stood between two that compose, so the form is taken again.
    visible = _INVISIBLE.sub("", unicodedata.normalize("NFKC", value.strip()))
    return unicodedata.normalize("NFKC", visible).strip()


def folded(value: str) -> str:
    """What two canonical texts have in common that differ by leading zeros or case alone."""
    return value.casefold().lstrip("0")


def n_similar(folds: NDArray[np.uint64], names: NDArray[np.uint64]) -> int:
    """The number of different names that share their fold with another name.

    Args:
        folds: PRIVATE; ``(n_rows,)``; a keyed digest of the folded form of each row's name.
        names: PRIVATE; ``(n_rows,)``; a keyed digest of each row's name.
    """
    order = np.lexsort((names, folds))
    folds, names = folds[order], names[order]
    is_new_name = np.ones(len(names), np.bool_)
    is_new_name[1:] = (names[1:] != names[:-1]) | (folds[1:] != folds[:-1])
    n_names = np.unique(folds[is_new_name], return_counts=True)[1]
    return int(n_names[n_names > 1].sum())

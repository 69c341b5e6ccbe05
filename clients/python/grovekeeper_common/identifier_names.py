"""Finds columns whose names alone look like identifiers of people. Reads no cell."""

import re
from collections.abc import Iterable

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_AT_THE_END = frozenset(
    (
        "email", "guid", "iban", "id", "identifier", "mrn", "nino", "pid", "ssn", "uid", "uuid",
    )
)  # fmt: skip
"""Words that make a name one of an identifier, as its last."""
_PEOPLE = frozenset(
    (
        "case", "client", "customer", "insurance", "member", "passport", "patient", "person", "phone", "security",
        "subject", "user",
    )
)  # fmt: skip
_NUMBERS = frozenset(("code", "key", "no", "nr", "num", "number"))
"""Words that do so after a word for people."""
_SHOWN = 5  # names that a sentence lists


def looks_like_identifier(name: str) -> bool:
    """Whether the name of a column looks like that of an identifier of people."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    is_number_of_people = words[-1] in _NUMBERS and not _PEOPLE.isdisjoint(words)
    return words[-1] in _AT_THE_END or is_number_of_people


def warnings_of(features: Iterable[str], *, unit: str | None) -> list[str]:
    """A sentence about the features that look like identifiers, if there are any.

    Args:
        features: names of the features.
        unit: the column that names the privacy unit, if there is one.
    """
    names = list(filter(looks_like_identifier, features))
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    advice = "Leave out what names single people: it is no feature."
    if unit is None:
        advice = (
            "Is it the column of the person? Then declare it as the privacy unit (privacy_unit, --unit of datasets "
            "init), which protects all rows of a person together. If not, leave out what names single people."
        )
    listed = ", ".join(names[:_SHOWN])
    return [f"By its name, this looks like an identifier: {listed}{more}. {advice}"]

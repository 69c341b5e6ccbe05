"""Finds columns whose names alone look like identifiers of people. Reads no cell."""

import re
from collections.abc import Iterable

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_IDENTIFIERS = frozenset(
    (
        "email", "guid", "iban", "identifier", "mrn", "nino", "passport", "phone", "pid", "ssn", "surname",
        "telephone", "uid", "uuid",
    )
)  # fmt: skip
"""Words that make a name one of an identifier, as its last."""
_PEOPLE = frozenset(
    (
        "account", "applicant", "card", "case", "citizen", "client", "customer", "donor", "employee", "encounter",
        "household", "individual", "insurance", "insured", "member", "national", "nhs", "participant", "passport",
        "pat", "patient", "person", "personal", "phone", "pupil", "record", "resident", "respondent", "security",
        "student", "subject", "tax", "user", "voter", "worker",
    )
)  # fmt: skip
"""Words for people, and for what each of them has one of."""
_NUMBERS = frozenset(("code", "id", "key", "no", "nr", "num", "number"))
"""Words that make an identifier as the last, after a word for people or ``id``."""
_PHRASES = frozenset(
    (
        "e mail", "email address", "family name", "first name", "full name", "last name", "maiden name",
        "mail address",
    )
)  # fmt: skip
"""Last words that do so together."""
_QUESTIONS = frozenset(("has", "is"))
"""First words of a name whose column says yes or no."""
_SHOWN = 5  # names that a sentence lists
_UNIT = (
    "by its name the column of the person: declare it as the privacy unit (privacy_unit, --unit of datasets init), "
    "which protects all rows of a person together, or leave it out"
)


def looks_like_identifier(name: str) -> bool:
    """Whether the name of a column looks like that of an identifier of people."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[0] in _QUESTIONS:
        return False
    last = words[-1]
    if last in _IDENTIFIERS or " ".join(words[-2:]) in _PHRASES or words == ["id"]:
        return True
    if last in _NUMBERS:
        return not _PEOPLE.union(("id",)).isdisjoint(words[:-1])
    # written as one word: patientid
    return last.endswith("id") and last.removesuffix("id") in _PEOPLE


def of_unknown_columns(names: Iterable[str]) -> str | None:
    """What undeclared columns of a file may be, by their names: that of the person."""
    for name in names:
        if name.lower() in _PEOPLE or looks_like_identifier(name):
            return _UNIT
    return None


def warnings_of(
    features: Iterable[str], *, unit: str | None, is_declared: bool = False
) -> list[str]:
    """A sentence about the features that look like identifiers, if there are any.

    Args:
        features: names of the features.
        unit: the column that names the privacy unit, if there is one.
        is_declared: a dataset has the features already, whose privacy unit never
            changes.
    """
    names = list(filter(looks_like_identifier, features))
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    advice = "If it names single people, leave it out: it is no feature."
    if unit is None:
        where = " in a new declaration" if is_declared else ""
        advice = (
            f"Is it the column of the person? Then declare it as the privacy unit{where} (privacy_unit, --unit of "
            "datasets init), which protects all rows of a person together. If not, leave out what names single people."
        )
    listed = ", ".join(names[:_SHOWN])
    return [f"By its name, this looks like an identifier: {listed}{more}. {advice}"]

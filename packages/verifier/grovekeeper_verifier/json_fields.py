"""Checks JSON fields and returns them with their types, or raises Malformed."""

import re
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from typing import Any

from grovekeeper_verifier import amounts
from grovekeeper_verifier.canonical_json import Json

_MAX_DELTA_PLACES = 120
"""The API accepts no δ with more decimal places."""

_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_AT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z", re.ASCII
)


class Malformed(ValueError):
    """A line does not have the published form; ``str()`` gives the reason."""


def fields(value: Json, names: set[str], what: str) -> dict[str, Json]:
    """An object with exactly these fields."""
    if not isinstance(value, dict) or set(value) != names:
        raise Malformed(f"{what} has not exactly the fields {', '.join(sorted(names))}")
    return value


_ENTRY_FIELDS = {
    "sequence", "kind", "amount", "scope", "event", "job_id", "actor", "at", "previous_hash", "hash",
}  # fmt: skip


def entry_fields(value: Json) -> dict[str, Json]:
    """The fields of an entry. ``details`` may be absent, and is a non-empty object
    otherwise; ``actor`` is a text.
    """
    details = value.get("details") if isinstance(value, dict) else None
    if (
        isinstance(value, dict)
        and "details" in value
        and not (isinstance(details, dict) and details)
    ):
        raise Malformed("details is not a non-empty object")
    names = _ENTRY_FIELDS | ({"details"} if details else set())
    members = fields(value, names, "the entry")
    text(members["actor"], "actor")
    return members


def place(entry: dict[str, Json]) -> dict[str, Any]:
    """The fields of an entry that give its place in the chain."""
    return {
        "sequence": positive(entry["sequence"], "sequence"),
        "at": time(entry["at"]),
        "previous_hash": digest(entry["previous_hash"], "previous_hash"),
        "hash": digest(entry["hash"], "hash"),
    }


def check_export(export: dict[str, Json]) -> None:
    """Checks that a header is marked as the header of an export in format 1."""
    # ``True`` equals 1 in Python, and is no number in JSON.
    if export["kind"] != "export" or export["format"] is True or export["format"] != 1:
        raise Malformed("this is not the header of an export in format 1")


def accountant(value: Json) -> str:
    """``pure``, ``zcdp`` or ``gdp``."""
    if not isinstance(value, str) or value not in amounts.PLACES:
        raise Malformed("the accountant is none of pure, zcdp and gdp")
    return value


def adjacency(value: Json) -> str:
    """``add_remove`` or ``label``."""
    if value not in ("add_remove", "label"):
        raise Malformed("the adjacency is neither add_remove nor label")
    return str(value)


def delta(value: Json, accountant: str) -> str | None:
    """The δ of an account, as its text in the export; ``None`` on a pure account."""
    if accountant == "pure":
        if value is not None:
            raise Malformed("a pure account has no delta")
        return None
    if not 0 < fraction(value, "delta") < 1:
        raise Malformed("delta is not strictly between 0 and 1")
    return str(value)


def fraction(value: Json, what: str) -> Fraction:
    """Exact decimal text of up to 120 places."""
    return Fraction(amount(value, what, _MAX_DELTA_PLACES), 10**_MAX_DELTA_PLACES)


def text(value: Json, what: str) -> str:
    """A non-empty text."""
    if not isinstance(value, str) or not value:
        raise Malformed(f"{what} is not a text")
    return value


def text_or_none(value: Json, what: str) -> str | None:
    """A non-empty text, or null."""
    return None if value is None else text(value, what)


def positive(value: Json, what: str) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Malformed(f"{what} is not a positive integer")
    return value


def amount(value: Json, what: str, places: int) -> int:
    """An amount in steps of the account's unit."""
    try:
        return amounts.to_steps(value, places)
    except amounts.NotAnAmount as error:
        raise Malformed(f"{what} {error}") from error


def digest(value: Json, what: str) -> str:
    """A SHA-256 in lower-case hexadecimal."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise Malformed(f"{what} is not 64 lower-case hexadecimal digits")
    return value


def time(value: Json) -> datetime:
    """The time of an entry."""
    with suppress(ValueError):
        if isinstance(value, str) and _AT.fullmatch(value):
            return datetime.fromisoformat(value)
    raise Malformed("at is not an RFC 3339 time in UTC with microseconds")

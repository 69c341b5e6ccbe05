"""Reads the wall clock, and converts times to text and back. Every time has a zone, which is UTC."""

import re
from datetime import UTC, datetime

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)


def now() -> datetime:
    """The current time in UTC, to the microsecond."""
    return datetime.now(UTC)


def to_text(at: datetime) -> str:
    """Writes a time as RFC 3339 with microseconds and ``Z``: ``2026-11-20T09:30:00.000000Z``.

    Raises:
        ValueError: the time has no zone.
    """
    if at.tzinfo is None:
        raise ValueError("the time has no zone")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """Reads a time that :func:`to_text` wrote."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def from_rfc_3339(text: str) -> datetime:
    """Reads a time of a request: RFC 3339 with a zone and at most six decimal places.

    Raises:
        ValueError: another text, or a time that UTC cannot express between the years 1 and 9999.
    """
    if _RFC_3339.fullmatch(text) is None:
        raise ValueError("not an RFC 3339 time")
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError:
        raise ValueError("not a time of this calendar") from None

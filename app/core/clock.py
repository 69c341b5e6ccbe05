"""Reads the wall clock, and converts times to text and back. Every time has a zone, which is UTC."""

from datetime import UTC, datetime


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

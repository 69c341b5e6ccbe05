"""The one place that reads the wall clock. All times are aware and in UTC."""

from datetime import UTC, datetime


def now() -> datetime:
    """The current time, in UTC, to the microsecond."""
    return datetime.now(UTC)


def to_text(at: datetime) -> str:
    """RFC 3339 with microseconds and ``Z``: ``2026-11-20T09:30:00.000000Z``. Refuses a naive time."""
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """Inverse of :func:`to_text`."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)

"""Reads the wall clock, converts times to text and back, and makes ids. Every time has
a zone, which is UTC.
"""

import base64
import re
import secrets
from datetime import UTC, datetime

from app.core import limits

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


def now() -> datetime:
    """The current time in UTC, to the microsecond."""
    return datetime.now(UTC)


def to_text(at: datetime) -> str:
    """Writes a time as RFC 3339 with microseconds and ``Z``:
    ``2026-11-20T09:30:00.000000Z``.

    Raises:
        ValueError: the time has no zone.
    """
    if at.tzinfo is None:
        raise ValueError("the time has no zone")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def text_or_none(at: datetime | None) -> str | None:
    """Writes a time as :func:`to_text` does, if there is one."""
    return None if at is None else to_text(at)


def from_text(text: str) -> datetime:
    """Reads a time that :func:`to_text` wrote."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def from_rfc_3339(text: str) -> datetime:
    """Reads a time of a request: RFC 3339 with a zone and at most nine decimal places,
    of which six count.

    Raises:
        ValueError: another text, or a time that UTC cannot express between the years 1
            and 9999.
    """
    if _RFC_3339.fullmatch(text) is None:
        raise ValueError("not an RFC 3339 time")
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError:
        raise ValueError("not a time of this calendar") from None


DATASET = "ds"
EPOCH = "ep"
RESERVATION = "rs"
JOB = "jb"
MODEL = "md"
PROFILE = "pf"
EVALUATION = "ev"
STATISTICS = "st"
KEY = "key"
SUBJECT = "sub"
POPULATION = "pop"
WEBHOOK = "wh"
DELIVERY = "whd"
PROCESS = "pr"
ERASURE = "er"

_REFERENCE = re.compile(
    rf"[A-Za-z0-9._-]{{1,{limits.MAX_DATASET_NAME_CHARS}}}", re.ASCII
)


_ID = re.compile(r"[a-z]{2,3}_[a-z2-7]{16}")


def is_id(text: str) -> bool:
    """Whether a text has the form of an id that :func:`new` makes. As a name, it would
    stand for two things.
    """
    return _ID.fullmatch(text) is not None


def is_reference(text: str) -> bool:
    """Whether a text has the form of an id or a name. Other texts need no query, and
    may hold characters such as NUL that a database refuses.
    """
    return _REFERENCE.fullmatch(text) is not None


def new(prefix: str) -> str:
    """A new id, such as ``ds_4xk2m7q3vdn5t6wa``: lower case letters and digits after
    the prefix.
    """
    return (
        f"{prefix}_{base64.b32encode(secrets.token_bytes(10)).decode('ascii').lower()}"
    )

"""Conditions on a change: what it replaces is still what its sender has seen (``ETag`` and ``If-Match``, RFC 9110)."""

import hashlib
import json
import re
from typing import TypeAlias

from app.core.errors import ChangedMeanwhile, InvalidRequest

Condition: TypeAlias = frozenset[str] | None
"""The entity tags of which one must hold; ``*`` holds for everything that exists. ``None``: no condition."""

_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_IF_MATCH = re.compile(rf"[ \t]*(?:\*|{_TAG}(?:[ \t]*,[ \t]*{_TAG})*)[ \t]*")


def etag_of(*facts: object) -> str:
    """The entity tag of a state, without its quotes: equal states have equal tags.

    Args:
        facts: values of JSON that make up the state.
    """
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def condition_of(field: str | None) -> Condition:
    """The condition in a field ``If-Match``.

    A tag names a state, not the bytes of an answer. So a tag that a proxy made weak, when it compressed the answer,
    names the same state.

    Raises:
        InvalidRequest: the field is no list of entity tags.
    """
    if field is None:
        return None
    if not _IF_MATCH.fullmatch(field):
        raise InvalidRequest.at("/If-Match", "malformed", accepted=["*, or the ETag of an answer, with its quotes"])
    return frozenset(tag.removeprefix("W/").strip('"') for tag in re.findall(rf"\*|{_TAG}", field))


def require_unchanged(condition: Condition, etag: str | None) -> None:
    """Checks a condition inside the transaction that makes the change.

    Args:
        etag: of the present state; ``None`` if there is nothing.

    Raises:
        ChangedMeanwhile: the condition does not hold.
    """
    if condition is not None and (etag is None or condition.isdisjoint({"*", etag})):
        raise ChangedMeanwhile

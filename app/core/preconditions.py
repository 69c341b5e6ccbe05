"""Conditions on a change: what it replaces is still what its sender has seen (``ETag``,
RFC 9110).
"""

import hashlib
import json
import re

from app.core.errors import ChangedMeanwhile, InvalidRequest

Condition = frozenset[str] | None
"""The entity tags of which one must hold; ``*`` holds for everything that exists.
``None``: no condition.
"""

NOTHING: frozenset[str] = frozenset()
"""The condition that nothing exists yet: no tag holds."""

_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_IF_MATCH = re.compile(rf"[ \t]*(?:\*|{_TAG}(?:[ \t]*,[ \t]*{_TAG})*)[ \t]*")


def etag_of(*facts: object) -> str:
    """The entity tag of a state, without its quotes: equal states have equal tags.

    Args:
        facts: values of JSON that make up the state.
    """
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def condition_of(if_match: str | None, if_none_match: str | None = None) -> Condition:
    """The condition in a field ``If-Match`` or ``If-None-Match``.

    A tag names a state up to its dash, if it has one, and not the bytes of an answer.
    So a tag that a proxy made weak, when it compressed the answer, names the same
    state.

    Raises:
        InvalidRequest: ``If-Match`` is no list of entity tags, or ``If-None-Match`` is
            not ``*`` alone.
    """
    if if_none_match is not None and (
        if_none_match.strip(" \t") != "*" or if_match is not None
    ):
        raise InvalidRequest.at(
            "/If-None-Match",
            "malformed",
            accepted=["*, without If-Match: only make what is new"],
        )
    if if_none_match is not None:
        return NOTHING
    if if_match is None:
        return None
    if not _IF_MATCH.fullmatch(if_match):
        raise InvalidRequest.at(
            "/If-Match",
            "malformed",
            accepted=["*, or the ETag of an answer, with its quotes"],
        )
    return frozenset(
        tag.removeprefix("W/").strip('"').partition("-")[0]
        for tag in re.findall(rf"\*|{_TAG}", if_match)
    )


def require_unchanged(
    condition: Condition, etag: str | None, *, exists: bool = True
) -> None:
    """Checks a condition inside the transaction that makes the change.

    Args:
        etag: of the present state; ``None`` if there never was one.
        exists: whether the state is that something exists. What was removed has a
            state, too.

    Raises:
        ChangedMeanwhile: the condition does not hold.
    """
    if condition is None:
        return
    holds = (
        etag in condition
        or (exists and "*" in condition)
        or (condition == NOTHING and not exists)
    )
    if not holds:
        raise ChangedMeanwhile

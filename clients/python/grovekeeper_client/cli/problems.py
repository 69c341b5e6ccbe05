"""Explains problems of requests in words, suggests what a user may have meant, and
gives exit codes.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from enum import IntEnum

from grovekeeper_common.json_types import JsonMapping

_SHOWN_VALUES = 20
_MEANINGS = {
    "/actor: without-entries": "no key of this id or name has an entry on this account",
    "/delta: not-for-pure": "a pure account has no δ: leave --delta out",
    "/epsilon: required": "needed: add --epsilon",
    "/epsilon: too-small": "too small: it pays for no draw",
    "/epsilon: too-large": "too large for any account",
    "/expires_at: too-early": "in the past",
    "/parameters: unknown-field": "the algorithm has no such parameter",
    "/rows: unknown-column": "the rows have a column that the model does not read",
    "/scope: unknown-partition": "the dataset has no such partition; see: grovekeeper datasets show DATASET",
    "/unlabelled: required": "this algorithm needs a second dataset: add --unlabelled",
    "above-upper": "above the upper bound",
    "not-below-upper": "must be below the upper bound",
    "not-for-numbers": "not for a label that is a number",
    "malformed": "not of the form that this field takes",
    "missing": "an empty cell in a column that allows none",
    "not-an-amount": "not an exact decimal number",
    "not-of-dates": "a sum of dates means nothing; a mean, a median and quantiles do",
    "not-disjoint": "the two scopes share cells",
    "not-for-this-algorithm": "this algorithm does not take it; see: grovekeeper algorithms ALGORITHM",
    "other-declaration": "it was released under other features or classes than the dataset declares",
    "other-features": "its features are not those of the first dataset",
    "/metrics: not-for-numbers": "of models that predict a class",
    "/metrics: not-for-classes": "of models that predict a number",
    "/largest_error: not-for-classes": "of models that predict a number",
    "needs-two-classes": "auroc is defined for two classes",
    "too-many-digits": "more digits than a JSON number keeps",
    "unchanged": "this cap is in force already",
    "unknown-choice": "not one of the choices",
    "unknown-field": "no such field",
}
"""Sentences for problems that their slugs do not explain: at one field, or at any."""


def in_words(error: JsonMapping) -> str:
    """One problem of an ``invalid-request`` answer. Neither the answer nor this line
    repeats a value of the request.
    """
    at = error["at"]
    problem = error["problem"]
    words = (
        _MEANINGS.get(f"{at}: {problem}")
        or _MEANINGS.get(problem)
        or problem.replace("-", " ")
    )
    if (at, problem) == ("/parameters", "unknown-field") and not error.get("accepted"):
        words = "the algorithm takes no parameter"
    named = f" {error['field']}" if "field" in error else ""
    limit = f"; at most {error['limit']} here" if "limit" in error else ""
    accepted = error.get("accepted", ())
    meant = question(similar(typed_words(), accepted))
    place = f"column {error['column']}" if "column" in error else _place(at)
    rows = (
        f", in {error['count']} row{'s' * (error['count'] != 1)}"
        if "count" in error
        else ""
    )
    return f"{place}: {words}{named}{rows}{limit}{_accepted(accepted)}{meant}"


def _accepted(values: Sequence[str]) -> str:
    if not values:
        return ""
    more = (
        f" and {len(values) - _SHOWN_VALUES} more"
        if len(values) > _SHOWN_VALUES
        else ""
    )
    return f"; accepted: {', '.join(values[:_SHOWN_VALUES])}{more}"


_SEPARATORS = re.compile("[=,]")
_SHORTEST = 3
_CLOSE = 0.75
_TYPED_AS: Mapping[str, Collection[str]] = {
    "cap": ("epsilon", "rho", "mu"),
    "model": ("model_id",),
    "threshold": ("below",),
    "url": ("address",),
}
"""Arguments and options of other names than the field of a request that they state."""
_TYPED: ContextVar[Mapping[str, object]] = ContextVar("typed")


@contextmanager
def typed(values: Mapping[str, object]) -> Iterator[None]:
    """Remembers the arguments and options of a command, by name, while it runs."""
    token = _TYPED.set(values)
    try:
        yield
    finally:
        _TYPED.reset(token)


def typed_words() -> tuple[str, ...]:
    """The values of the running command; ``name=value`` and lists are taken apart."""
    listed = [
        item
        for value in _TYPED.get({}).values()
        for item in (value if isinstance(value, list) else [value])
    ]
    return tuple(
        word
        for item in listed
        if isinstance(item, str)
        for word in _SEPARATORS.split(item)
        if word
    )


def _place(at: str) -> str:
    """A place of a request by the argument or the option of the running command that
    states it; a place in a file as it is.
    """
    first, *rest = at.removeprefix("/").split("/")
    if first == "tables" and rest[1:]:
        first, *rest = rest[1:]
    if first == "budget" and rest:
        first, *rest = rest
    words = _TYPED.get({})
    stated = [name for name in _TYPED_AS.get(first, ()) if words.get(name) is not None]
    # ``--error`` takes shares, too, and ``--parameter`` is given once for each
    for name in (*stated, first, re.sub("(_share|s)$", "", first)):
        if name in words:
            return " ".join([name, *(part for part in rest if not part.isdecimal())])
    return at or "the request"


def similar(typed: Iterable[str], known: Collection[str]) -> list[str]:
    """Known names that resemble a typed word which is none of them, the closest name of
    each word.
    """
    unknown = [word for word in typed if len(word) >= _SHORTEST and word not in known]
    closest = [
        (word, name) for word in unknown for name in get_close_matches(word, known, n=1)
    ]
    # Typists rarely miss the first letter: of words as short as "spend" and "open",
    # half of the letters are alike.
    return list(
        dict.fromkeys(
            name
            for word, name in closest
            if word[0] == name[0] or get_close_matches(word, [name], cutoff=_CLOSE)
        )
    )


def question(names: Iterable[str]) -> str:
    """The end of a sentence that suggests names; empty without names."""
    listed = " or ".join(names)
    return f"; did you mean {listed}?" if listed else ""


class ExitCode(IntEnum):
    """The exit codes, which scripts rely on."""

    DONE = 0
    FAILED = 1
    """The command failed, or the evidence was not verified."""
    WRONG_USE = 2
    REFUSED = 3
    """The budget or the rules of the dataset do not admit the request."""
    NOT_ALLOWED = 4
    UNREACHABLE = 5
    GOES_ON = 6
    """A wait ended before its job: the job waits for an approval, no worker may start
    it, or the time of ``--timeout`` has passed.
    """
    SECRET_NOT_WRITTEN = 7
    """The service has made a secret, which could not be written."""


_BY_TYPE = {
    "budget-exceeded": ExitCode.REFUSED,
    "quota-exceeded": ExitCode.REFUSED,
    "needs-approval": ExitCode.REFUSED,
    "frozen": ExitCode.REFUSED,
    "too-many-cells": ExitCode.REFUSED,
    "erasure-due": ExitCode.REFUSED,
    "unauthenticated": ExitCode.NOT_ALLOWED,
    "role-missing": ExitCode.NOT_ALLOWED,
    "same-submitter": ExitCode.NOT_ALLOWED,
    "unavailable": ExitCode.UNREACHABLE,
    "too-many-requests": ExitCode.UNREACHABLE,
    "unexpected-answer": ExitCode.UNREACHABLE,
    "malformed-request": ExitCode.WRONG_USE,
    "invalid-request": ExitCode.WRONG_USE,
    "idempotency-key-reused": ExitCode.WRONG_USE,
    "not-supported": ExitCode.WRONG_USE,
}


def of_problem(problem_type: str) -> ExitCode:
    """The exit code for a problem type of the API; a type that is not listed is a
    failure.
    """
    return _BY_TYPE.get(problem_type, ExitCode.FAILED)

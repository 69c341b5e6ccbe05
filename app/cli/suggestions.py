"""Suggests what a user may have meant: known names that resemble a word of the command line."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches

_SEPARATORS = re.compile("[=,]")
_SHORTEST = 3
_TYPED: ContextVar[tuple[str, ...]] = ContextVar("typed", default=())


@contextmanager
def typed(values: Iterable[object]) -> Iterator[None]:
    """Remembers the values of the arguments and options of a command while it runs."""
    listed = [item for value in values for item in (value if isinstance(value, list) else [value])]
    words = [word for item in listed if isinstance(item, str) for word in _SEPARATORS.split(item) if word]
    token = _TYPED.set(tuple(words))
    try:
        yield
    finally:
        _TYPED.reset(token)


def typed_words() -> tuple[str, ...]:
    """The values of the running command; ``name=value`` and lists are taken apart."""
    return _TYPED.get()


def similar(typed: Iterable[str], known: Collection[str]) -> list[str]:
    """Known names that resemble a typed word which is none of them, the closest name of each word."""
    unknown = [word for word in typed if len(word) >= _SHORTEST and word not in known]
    return list(dict.fromkeys(name for word in unknown for name in get_close_matches(word, known, n=1)))


def question(names: Iterable[str]) -> str:
    """The end of a sentence that suggests names; empty without names."""
    listed = " or ".join(names)
    return f"; did you mean {listed}?" if listed else ""

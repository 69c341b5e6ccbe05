"""Forges lines of an export, for tests of the verifier."""

import copy
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

Path = tuple[str | int, ...]
"""Names of members and indices of items, from a line down to a value."""


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every member and item, including objects and lists."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, item in items:
        yield (*path, name)
        yield from places(item, (*path, name))


def _at(line: Any, path: Path) -> Any:
    for name in path:
        line = line[name]
    return line


def _others(value: Any) -> list[Any]:
    """Other values: similar values of the same type, and values of other types."""
    similar: list[Any] = []
    match value:
        case bool():
            similar = [not value]
        case int():
            similar = [value + 1, value - 1]
        case str():
            similar = [f"{value}0", value[:-1], f"{value} "]
        case list():
            similar = [value[:-1], [*value, *value[-1:]], value[::-1]]
        case dict():
            similar = [{}]
    return [
        other
        for other in (*similar, None, True, 7, "x", [], {})
        if json.dumps(other) != json.dumps(value)
    ]


def every_change(
    line: dict[str, Any], *, step: int
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Paths of a line with its forged copies; with a step, each kind of change at some
    paths only.
    """
    changes = (
        (path, forged) for path in places(line) for forged in changed(line, path)
    )
    return islice(changes, 0, None, step)


def changed(line: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """Forged copies of a line: with another value at a path, without the value, and
    with a second copy of it.
    """
    for other in _others(_at(line, path)):
        forged = copy.deepcopy(line)
        _at(forged, path[:-1])[path[-1]] = other
        yield forged
    forged = copy.deepcopy(line)
    del _at(forged, path[:-1])[path[-1]]
    yield forged
    if isinstance(path[-1], str):
        forged = copy.deepcopy(line)
        _at(forged, path[:-1])[f"{path[-1]}_"] = _at(line, path)
        yield forged

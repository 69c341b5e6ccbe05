"""Lines of an export, changed in every way: what tests of the verifier forge."""

import copy
import json
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
"""Names of members and numbers of items, from a line down to a value."""


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every member and item, containers too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*path, name)
        yield from places(item, (*path, name))


def _at(line: Any, path: Path) -> Any:
    for name in path:
        line = line[name]
    return line


def _others(value: Any) -> list[Any]:
    """Values that are not this one: of the same form where one is near, and of others."""
    near: list[Any] = []
    match value:
        case bool():
            near = [not value]
        case int():
            near = [value + 1, value - 1]
        case str():
            near = [f"{value}0", value[:-1], f"{value} "]
        case list():
            near = [value[:-1], [*value, *value[-1:]], value[::-1]]
        case dict():
            near = [{}]
    return [other for other in (*near, None, True, 7, "x", [], {}) if json.dumps(other) != json.dumps(value)]


def changed(line: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """The line with another value at a place, and without it, and with one more beside it."""
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

"""Defines what a data dictionary describes, and reads members of its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core.errors import MalformedRequest
from app.services.dictionaries.columns import Column, text


class NotADictionary(MalformedRequest):
    """A file is no data dictionary, or one that names no table that can be declared. ``str()`` says why."""


@dataclass(frozen=True)
class Table:
    """A table that a data dictionary describes.

    Attributes:
        name: of the table; may be empty.
        columns: in the order of the dictionary.
        label: name of the column to predict, if the dictionary says so.
        declared: further members of a declaration, where the dictionary is one.
    """

    name: str
    columns: tuple[Column, ...]
    label: str | None = None
    declared: Mapping[str, Any] | None = None


def listed(value: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A member that is a list of objects.

    Raises:
        NotADictionary: it is not.
    """
    items = value.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise NotADictionary(f'"{name}" in the data dictionary is not a list of objects')
    return items


def items(value: object) -> list[object]:
    """A value that is a list; empty if it is none."""
    return value if isinstance(value, list) else []


def member(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A member that is an object; empty if there is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def name_of(value: Mapping[str, Any]) -> str:
    """The ``name`` of an object, or an empty text."""
    return text(value.get("name") or "")

"""Tests that every list, object and string of a request body has a limit."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import app.wire
from app.wire.base import FiniteNumber, PositiveAmount, Request

for module in pkgutil.iter_modules(app.wire.__path__):
    importlib.import_module(f"app.wire.{module.name}")

SCALARS = (int, float, bool, type(None), Any)


def requests_of(kind: type[Request]) -> Iterator[type[Request]]:
    for below in kind.__subclasses__():
        yield below
        yield from requests_of(below)


def unbounded(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[str]:
    """The parts of a type that have no largest length."""
    if annotation in (FiniteNumber, PositiveAmount):
        return
    if hasattr(annotation, "__metadata__"):  # Annotated
        outer = (*annotation.__metadata__, *metadata)
        yield from unbounded(annotation.__origin__, outer)
        return
    origin = get_origin(annotation) or annotation
    if origin in (str, list, dict) and not has_limit(metadata):
        yield str(annotation)
    if origin not in SCALARS and not (
        isinstance(origin, type) and issubclass(origin, BaseModel)
    ):
        for inner in get_args(annotation):
            if not isinstance(inner, str | int):  # a literal
                yield from unbounded(inner)


def has_limit(metadata: tuple[Any, ...]) -> bool:
    constraints = [
        part
        for it in metadata
        for part in (it.metadata if isinstance(it, FieldInfo) else (it,))
    ]
    return any(isinstance(it, annotated_types.MaxLen) for it in constraints)


@pytest.mark.parametrize(
    "kind", sorted(requests_of(Request), key=lambda kind: kind.__name__)
)
def test_every_list_object_and_string_of_a_request_has_a_limit(
    kind: type[Request],
) -> None:
    fields = {
        name: list(unbounded(field.annotation, tuple(field.metadata)))
        for name, field in kind.model_fields.items()
    }
    assert {name: parts for name, parts in fields.items() if parts} == {}


@pytest.mark.parametrize(
    "annotation", [str, list[int], dict[str, int], list[str] | None, FiniteNumber | str]
)
def test_an_unbounded_part_of_a_type_is_detected(annotation: Any) -> None:
    assert list(unbounded(annotation))

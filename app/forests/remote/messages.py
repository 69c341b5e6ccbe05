"""Encodes the calls that growth sends to other machines, and the sums that come back, as bytes without pickle.

Bytes are a safetensors file: arrays of fixed types, and one JSON text with everything else. A reader makes objects of
the classes in :data:`FORMS` and :data:`_CLASSES` alone and calls no method but those in :data:`METHODS`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as tensors

from app.forests.algorithms.nbrt.boosted_rows import LocalBoostedRows
from app.forests.algorithms.nbrt.random_trees import Trees
from app.forests.algorithms.nbrt.scales import Scales
from app.forests.algorithms.rpf.reweighted_rows import LocalReweightedRows
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.trees.grow.assignment import Assignment
from app.forests.trees.grow.in_memory_histograms import LocalHistograms

FORMS: Final = MappingProxyType(
    {form.__name__: form for form in (LocalHistograms, LocalReweightedRows, LocalBoostedRows)}
)
"""The forms of parts that growth counts, by name."""

METHODS: Final = frozenset(
    {
        *("code_counts", "of_tree", "class_histogram", "joint_histogram", "leaf_histogram", "descend"),
        *("finish_tree", "class_counts", "leaf_counts", "start", "sums", "add_scores", "tally"),
    }
)
"""The methods of parts that growth names."""

TAKE: Final = "take"
"""The call that brings coded rows into a form; its arguments are those of :func:`row_parts.parts_of`."""

ROWS: Final = -1
"""The number of the first branch, which begins at the rows as they were read."""


@dataclass(frozen=True)
class Call:
    """A method of parts, or :data:`TAKE`, with its arguments."""

    method: str
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Branch:
    """The calls that lead from one state of the rows to another.

    Attributes:
        number: identifies the branch within a job.
        skipped: number of calls that are not repeated here because the receiver has answered after them.
        calls: the first call of a branch makes its parts from those of the branch before; the others change them.
    """

    number: int
    skipped: int
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Question:
    """A sum over rows in the state that branches lead to, of which the first begins at the coded rows."""

    branches: tuple[Branch, ...]
    call: Call


@dataclass(frozen=True)
class Json:
    """A value that JSON can hold."""

    value: Any


_CLASSES: Final = MappingProxyType(
    {kind.__name__: kind for kind in (Assignment, Branch, Call, Encoding, Question, Scales, Trees)}
)
_PLAIN = (str, int, type(None))


def dumps(value: object) -> bytes:
    """Encodes a value: plain values, arrays, tuples, and objects of the classes of this module.

    Raises:
        TypeError: a value of another type.
    """
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_plain(value, arrays))
    return tensors.save(arrays, metadata={"value": text})


def loads(data: bytes) -> Any:
    """Inverse of :func:`dumps`.

    Raises:
        ValueError, KeyError, TypeError: the bytes are not of :func:`dumps`.
    """
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return _value(json.loads(header["__metadata__"]["value"]), tensors.load(data))


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON; anything but a plain value is a list of its kind and its content."""
    match value:
        case _ if isinstance(value, _PLAIN):
            return value
        case np.ndarray():
            arrays[str(len(arrays))] = np.ascontiguousarray(value)
            return ["array", len(arrays) - 1]
        case bytes():
            return ["bytes", value.hex()]
        case slice():
            return ["slice", value.start, value.stop]
        case Fraction():
            return ["fraction", value.numerator, value.denominator]
        case tuple():
            return ["tuple", *(_plain(item, arrays) for item in value)]
        case dict():
            return ["named", *([name, _plain(item, arrays)] for name, item in value.items())]
        case Schema():
            return ["schema", value.to_json()]
        case Json():
            return ["json", value.value]
    if type(value) not in _CLASSES.values():
        raise TypeError("a value that is not sent to other machines")
    return [type(value).__name__, *(_plain(getattr(value, own.name), arrays) for own in fields(value))]


def _value(plain: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(plain, _PLAIN):
        return plain
    kind, *content = plain
    match kind:
        case "array":
            return arrays[str(content[0])]
        case "bytes":
            return bytes.fromhex(content[0])
        case "slice":
            return slice(*content)
        case "fraction":
            return Fraction(*content)
        case "tuple":
            return tuple(_value(item, arrays) for item in content)
        case "named":
            return {name: _value(item, arrays) for name, item in content}
        case "schema":
            return Schema.from_json(content[0])
        case "json":
            return Json(content[0])
    return _CLASSES[kind](*(_value(item, arrays) for item in content))

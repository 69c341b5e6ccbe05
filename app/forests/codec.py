"""A forest as bytes: safetensors with one canonical JSON text in its header. No pickle, nothing executable.

The same forest and metadata always give the same bytes (the header holds a single metadata entry, RFC 8785), and the
number of bytes is a function of public numbers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import rfc8785
import safetensors
from numpy.typing import NDArray
from safetensors import numpy as tensors

from app.core.errors import GrovekeeperError
from app.forests.forest import Forest
from app.forests.plan import Plan
from app.forests.schema import Schema

FORMAT = "grovekeeper-forest/1"
_HEADER_ENTRY = "grovekeeper"
_UNREADABLE = (
    safetensors.SafetensorError,
    GrovekeeperError,
    ArithmeticError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading foreign bytes can raise before they are known to be ours."""
_DTYPES = {"feature": np.int32, "threshold": np.uint8, "equals": np.bool_, "counts": np.int64}


class ArtifactInvalid(GrovekeeperError):
    """The bytes are not an artifact that this code can use safely."""

    def __str__(self) -> str:
        return "the bytes are not a valid model artifact"


@dataclass(frozen=True)
class Artifact:
    """A forest with all that prediction and a model card need.

    Attributes:
        forest: checked: its arrays have the plan's shapes and name features of the schema only.
        schema: public.
        plan: the forest's plan.
        metadata: the whole JSON object: ``format``, ``schema``, ``plan``, and what else the caller stored.
    """

    forest: Forest
    schema: Schema
    plan: Plan
    metadata: Mapping[str, object]


def dumps(forest: Forest, metadata: Mapping[str, object]) -> bytes:
    """The bytes of an artifact.

    Args:
        forest: released.
        metadata: public facts, JSON-able, with ``schema``; ``format`` and ``plan`` are added.
    """
    assert "schema" in metadata
    text = rfc8785.dumps(cast(Any, {**metadata, "format": FORMAT, "plan": forest.plan.to_json()})).decode()
    arrays: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(getattr(forest, name), dtype=dtype) for name, dtype in _DTYPES.items()
    }
    return tensors.save(arrays, metadata={_HEADER_ENTRY: text})


def loads(data: bytes) -> Artifact:
    """Reads and checks an artifact, so that prediction can index nothing out of bounds.

    Raises:
        ArtifactInvalid: truncated or foreign bytes, unknown tensors, wrong shapes or types, a feature that the schema
            does not have, or metadata that this code cannot have written.
    """
    try:
        arrays = tensors.load(data)
        metadata = _metadata(data)
        plan = Plan.from_json(metadata["plan"])
        schema = Schema.from_json(cast(Mapping[str, object], metadata["schema"]))
        if schema.to_json() != metadata["schema"]:
            raise ArtifactInvalid
    except _UNREADABLE as error:
        raise ArtifactInvalid from error
    _check(arrays, plan, schema)
    return Artifact(Forest(plan, **arrays), schema, plan, metadata)


def _metadata(data: bytes) -> dict[str, object]:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = json.loads(header["__metadata__"][_HEADER_ENTRY])
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ArtifactInvalid
    return metadata


def _check(arrays: Mapping[str, NDArray[Any]], plan: Plan, schema: Schema) -> None:
    n_trees, n_leaves = plan.n_trees, 2 ** int(plan.parameters["max_depth"])
    nodes = (n_trees, n_leaves - 1)
    shapes = {"feature": nodes, "threshold": nodes, "equals": nodes, "counts": (n_trees, n_leaves, schema.n_classes)}
    if set(arrays) != set(_DTYPES):
        raise ArtifactInvalid
    for name, dtype in _DTYPES.items():
        if arrays[name].dtype != dtype or arrays[name].shape != shapes[name]:
            raise ArtifactInvalid
    feature = arrays["feature"]
    if not np.all((feature >= 0) & (feature < len(schema.features))):
        raise ArtifactInvalid

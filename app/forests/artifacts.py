"""Serializes forests as safetensors files with one canonical JSON header. No pickle, no executable content.

Equal forests with equal metadata give equal bytes (the header holds a single metadata entry, RFC 8785), and the number
of bytes is a function of public numbers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import rfc8785
import safetensors
from safetensors import numpy as tensors

from app.core.errors import GrovekeeperError
from app.forests import catalogue
from app.forests.bins import quantile_bins
from app.forests.contract.plan import Forest, Plan
from app.forests.data.schema import Schema

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
"""Exceptions that parsing untrusted bytes can raise."""


class ArtifactInvalid(GrovekeeperError):
    """The bytes are not a valid artifact."""

    def __str__(self) -> str:
        return "the bytes are not a valid model artifact"


@dataclass(frozen=True)
class Artifact:
    """A forest with the schema, plan and metadata that prediction and a model card need.

    Attributes:
        forest: checked: the arrays have the plan's shapes, name only features of the schema and hold legal values.
        schema: public.
        plan: the forest's plan.
        metadata: the whole JSON object: ``format``, ``schema``, ``plan``, and any other fields that the caller stored.
    """

    forest: Forest
    schema: Schema
    plan: Plan
    metadata: Mapping[str, object]


def dumps(forest: Forest, metadata: Mapping[str, object]) -> bytes:
    """Serialises a forest and its metadata to the bytes of an artifact.

    Args:
        forest: released.
        metadata: public facts, JSON-able, with ``schema``; ``format`` and ``plan`` are added.
    """
    assert "schema" in metadata
    text = rfc8785.dumps(cast(Any, {**metadata, "format": FORMAT, "plan": forest.plan.to_json()})).decode()
    arrays = {name: np.ascontiguousarray(array) for name, array in forest.arrays.items()}
    return tensors.save(arrays, metadata={_HEADER_ENTRY: text})


def loads(data: bytes) -> Artifact:
    """Reads and checks an artifact, so that prediction never indexes out of bounds.

    Raises:
        ArtifactInvalid: truncated or foreign bytes, unknown tensors, wrong shapes or types, a feature that the schema
            does not have, or invalid metadata.
    """
    try:
        arrays = tensors.load(data)
        metadata = _metadata(data)
        plan = catalogue.read_plan(metadata["plan"])
        schema = Schema.from_json(cast(Mapping[str, object], metadata["schema"]))
        if schema.to_json() != metadata["schema"]:
            raise ArtifactInvalid
        forest = Forest(plan, arrays)
        _check(forest, schema)
    except _UNREADABLE as error:
        raise ArtifactInvalid from error
    return Artifact(forest, schema, plan, metadata)


def _metadata(data: bytes) -> dict[str, object]:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = json.loads(header["__metadata__"][_HEADER_ENTRY])
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ArtifactInvalid
    # A model card repeats the metadata: it must hold no NaN and no half of a surrogate pair, which JSON cannot hold.
    json.dumps(metadata, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return metadata


def _check(forest: Forest, schema: Schema) -> None:
    family = catalogue.family(forest.plan.algorithm)
    layouts = family.layouts(forest.plan, schema)
    if set(forest.arrays) != set(layouts):
        raise ArtifactInvalid
    if not all(layout.fits(forest.arrays[name]) for name, layout in layouts.items()):
        raise ArtifactInvalid
    profile = forest.plan.profile
    if profile is not None:
        cuts = profile.cut_array
        if not quantile_bins.is_valid(schema, cuts) or not np.array_equal(forest.arrays.get("cuts", cuts), cuts):
            raise ArtifactInvalid
    if not family.is_valid(forest, schema):
        raise ArtifactInvalid

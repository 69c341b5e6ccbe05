"""Predicts from a released forest, and stores it as a safetensors file with one canonical JSON header.

Both are post-processing, at no privacy cost. A file holds no pickle and no executable content. Equal forests with equal
metadata give equal bytes (the header holds a single metadata entry, RFC 8785), and the number of bytes is a function of
public numbers.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import rfc8785
import safetensors
from numpy.typing import NDArray
from safetensors import numpy as tensors

from app.core.errors import GrovekeeperError, InvalidRequest
from app.forests import catalogue
from app.forests.bins import quantile_bins
from app.forests.contract.plan import Forest, Plan, Reader
from app.forests.data.sanitiser import RequestRows, SanitisedColumns
from app.forests.data.schema import Schema
from app.forests.trees import leaf_read_out

COIN_BITS = 53
"""Probabilities are rounded to multiples of 2^-53 before a label is drawn from them."""


def probabilities(
    forest: Forest, schema: Schema, columns: SanitisedColumns, *, read_out: str | None
) -> NDArray[np.float64]:
    """Class probabilities of rows. Deterministic: equal rows give equal numbers.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
        columns: the caller's rows, sanitised.
        read_out: a read-out of the algorithm (see ``app.forests.trees.leaf_read_out``); ``None``: the default.

    Returns:
        float64 ``(n_rows, n_classes)``; rows sum to 1.

    Raises:
        InvalidRequest: the model offers no such read-out.
    """
    return _reader(forest, schema, _settled(forest, read_out))(columns)


def labels(
    forest: Forest,
    schema: Schema,
    columns: SanitisedColumns,
    probabilities: NDArray[np.float64],
    *,
    read_out: str | None,
    below: Callable[[int], int] = secrets.randbelow,
) -> NDArray[np.int32]:
    """One class code per row: the most probable class (the first in a tie), or for ``pa`` a random draw.

    Every call draws afresh, at no privacy cost: the probabilities are released, and the draws read no row.

    Args:
        forest: released.
        schema: public.
        columns: the caller's rows, sanitised.
        probabilities: their class probabilities, from :func:`probabilities` with the same read-out.
        read_out: as above.
        below: draws an exactly uniform integer in ``[0, n)``.

    Returns:
        int32 ``(n_rows,)``.

    Raises:
        InvalidRequest: the model offers no such read-out.
    """
    assert probabilities.shape == (columns.n_rows, schema.n_classes)
    return _labels(probabilities, _settled(forest, read_out), below)


def sanitised(forest: Forest, schema: Schema, rows: Sequence[Mapping[str, object]]) -> SanitisedColumns:
    """Sanitises the rows of a request; see :func:`app.forests.data.sanitiser.sanitise_prediction_rows`."""
    return _predictor(forest, schema).rows.sanitise(rows)


def prepare(forest: Forest, schema: Schema) -> None:
    """Packs the trees of a forest for its default read-out, and loads the compiled code that predicts."""
    _reader(forest, schema, _settled(forest, None))


def is_prepared(forest: Forest, schema: Schema) -> bool:
    """Whether :func:`prepare` was called, so that a prediction by the default read-out takes microseconds."""
    return _shared(_settled(forest, None)) in _predictor(forest, schema).readers


@dataclass(frozen=True)
class _Predictor:
    """What the predictions of a forest share. It holds no reference to the forest, so that the forest can be freed.

    Attributes:
        schema: public.
        rows: sanitises rows of requests.
        readers: by read-out, those that have predicted.
    """

    schema: Schema
    rows: RequestRows
    readers: dict[str, Reader] = field(default_factory=dict)


_predictors: WeakKeyDictionary[Forest, _Predictor] = WeakKeyDictionary()


def _predictor(forest: Forest, schema: Schema) -> _Predictor:
    known = _predictors.get(forest)
    if known is None or known.schema != schema:
        known = _predictors[forest] = _Predictor(schema, RequestRows(schema))
    return known


def _labels(probabilities: NDArray[np.float64], read_out: str, below: Callable[[int], int]) -> NDArray[np.int32]:
    if read_out != leaf_read_out.DRAW:
        most_probable: NDArray[np.int32] = probabilities.argmax(axis=1).astype(np.int32)
        return most_probable
    weights = np.floor(probabilities * 2**COIN_BITS).astype(np.uint64).cumsum(axis=1)
    drawn = [int(np.searchsorted(row, below(int(row[-1])), side="right")) for row in weights]
    return np.array(drawn, dtype=np.int32)


def _shared(read_out: str) -> str:
    """The read-out whose probabilities a read-out has."""
    return leaf_read_out.AVERAGE if read_out == leaf_read_out.DRAW else read_out


def _settled(forest: Forest, read_out: str | None) -> str:
    offered = catalogue.read_outs(forest.plan.algorithm)
    if read_out is None:
        return offered[0]
    if read_out not in offered:
        raise InvalidRequest.at("/read_out", "unknown-choice", accepted=offered)
    return read_out


def _one_row(schema: Schema) -> SanitisedColumns:
    """A row that the schema allows."""
    columns = (
        np.zeros(1, dtype=np.int32) if feature.is_categorical else np.array([feature.lower], dtype=np.float64)
        for feature in schema.features
    )
    return SanitisedColumns(tuple(columns), 1)


def _reader(forest: Forest, schema: Schema, read_out: str) -> Reader:
    """The reader of a forest by a read-out, cached for the life of the forest."""
    predictor, shared = _predictor(forest, schema), _shared(read_out)
    known = predictor.readers.get(shared)
    if known is not None:
        return known
    reader = catalogue.family(forest.plan.algorithm).reader(forest, schema, shared)
    # Readers pack trees and load compiled code at their first use.
    reader(_one_row(schema))
    predictor.readers[shared] = reader
    return reader


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

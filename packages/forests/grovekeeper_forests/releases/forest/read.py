"""Stores a released forest as a safetensors file with one canonical JSON header, and
tells whether the forest can answer one class, or one number, only.

All of this is post-processing, at no privacy cost. A file holds no pickle and no
executable content. Equal forests with equal metadata give equal bytes (the header holds
a single metadata entry, RFC 8785), and the number of bytes is a function of public
numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import rfc8785
import safetensors
from safetensors import numpy as tensors

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.nbrt.read import BoostedScores
from grovekeeper_forests.array_types import BoolArray, Float64Array
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.schema import Schema, plain_number
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.json_types import JsonMapping, JsonObject
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy.events import (
    DiscreteLaplace,
    Event,
    Parallel,
    RoundedGaussian,
    Sequential,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.importances import ForestUse, use_of
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.trees import leaf_read_out
from grovekeeper_forests.trees.leaf_read_out import PackedForest, PooledSums
from grovekeeper_forests.trees.number_read_out import Numbers

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

    sentence = "the bytes are not a valid model artifact"


@dataclass(frozen=True)
class Artifact:
    """A forest with the schema, plan and metadata that prediction and a model card
    need.

    Attributes:
        forest: checked: the arrays have the plan's shapes, name only features of the
            schema and hold legal values.
        schema: public.
        metadata: the whole JSON object: ``format``, ``schema``, ``plan``, and any other
            fields that the caller stored.
    """

    forest: Forest
    schema: Schema
    plan: Plan
    metadata: JsonMapping

    @kept_property
    def predictor(self) -> Predictor:
        """What all predictions with this artifact share."""
        return Predictor(self.forest, self.schema)

    @kept_property
    def use(self) -> ForestUse:
        """What the trees look at."""
        return use_of(self.forest, self.schema)


def dumps(forest: Forest, metadata: JsonMapping) -> bytes:
    """Serialises a forest and its metadata to the bytes of an artifact.

    Args:
        forest: released.
        metadata: public facts, JSON-able, with ``schema``; ``format`` and ``plan`` are
            added.
    """
    assert "schema" in metadata
    text = rfc8785.dumps(
        cast(Any, {**metadata, "format": FORMAT, "plan": forest.plan.to_json()})
    ).decode()
    arrays = {
        name: np.ascontiguousarray(array) for name, array in forest.arrays.items()
    }
    return tensors.save(arrays, metadata={_HEADER_ENTRY: text})


def planned_bytes(plan: Plan, schema: Schema) -> int:
    """The size of the artifact of a plan, from public numbers: not less than it but for
    the metadata of the job.

    The header holds plan and schema as JSON within JSON, whose quotes and backslashes
    are escaped.
    """
    layouts = catalogue.family(plan.algorithm).layouts(plan, schema).values()
    arrays = sum(
        np.dtype(layout.dtype).itemsize * math.prod(layout.shape) for layout in layouts
    )
    return arrays + 2 * len(json.dumps([plan.to_json(), schema.to_json()]))


def loads(data: bytes) -> Artifact:
    """Reads and checks an artifact, so that prediction never indexes out of bounds.

    Raises:
        ArtifactInvalid: truncated or foreign bytes, unknown tensors, wrong shapes or
            types, a feature that the schema does not have, or invalid metadata.
    """
    try:
        arrays = tensors.load(data)
        metadata = _metadata(data)
        plan = forest_price.read_plan(metadata["plan"])
        schema = Schema.from_json(cast(JsonMapping, metadata["schema"]))
        if schema.to_json() != metadata["schema"]:
            raise ArtifactInvalid
        forest = Forest(plan, arrays)
        _check(forest, schema)
    except _UNREADABLE as error:
        raise ArtifactInvalid from error
    return Artifact(forest, schema, plan, metadata)


def _metadata(data: bytes) -> JsonObject:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = json.loads(header["__metadata__"][_HEADER_ENTRY])
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ArtifactInvalid
    # A model card repeats the metadata: it must hold no NaN and no half of a surrogate
    # pair, which JSON cannot hold.
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
        if not quantile_bins.is_valid(schema, cuts, profile.grid) or not np.array_equal(
            forest.arrays.get("cuts", cuts), cuts
        ):
            raise ArtifactInvalid
    if not family.is_valid(forest, schema):
        raise ArtifactInvalid


def only_answer(forest: Forest, schema: Schema) -> str | None:
    """The class, or the number as text, that a forest answers whatever the row is, by
    its default read-out.

    A number is the only one if the sums of the least and of the largest scores of
    reachable leaves stand for it, for instance if both are clamped to the same bound. A
    class is certain: in every tree the reachable leaf that favours it least is
    added up, and the class still leads every other. The leaves of several trees need
    not be reachable together, so a forest of many trees may answer one class without
    this proof; then, and for read-outs that draw labels, the result is ``None``.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
    """
    read_out = catalogue.read_outs(forest.plan.algorithm, schema.label)[0]
    if read_out == leaf_read_out.DRAW:
        return None
    match catalogue.family(forest.plan.algorithm).reader(forest, schema, read_out):
        case PooledSums() as reader:
            packed = reader.sums.packed
            start = np.zeros(schema.n_classes)
        case BoostedScores() as reader:
            packed = reader.packed
            start = reader.arrays["start"].astype(np.float64)
        case Numbers() as reader:
            return _only_number(reader)
        case _:
            return None
    scores = packed.trees.values.transpose(0, 2, 1)
    if scores.shape[2] == 1:  # of the second of two classes; the first has none
        scores = np.concatenate((np.zeros_like(scores), scores), axis=2)
        start = np.concatenate(([0.0], start))
    code = _leading(scores, start, _reachable(packed))
    return None if code is None else schema.label.classes[code]


def only_answer_in_words(
    forest: Forest, schema: Schema, expected_rows: object
) -> dict[str, str] | None:
    """The only class or number of a forest as ``label``, and sentences about it as
    ``text``; ``None`` without such an answer.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
        expected_rows: in the scope, by declared sizes; ``None`` where no size was
            declared.
    """
    label = only_answer(forest, schema)
    if label is None:
        return None
    kind, of_leaves = "class", _in_numbers(forest.plan, expected_rows)
    if schema.label.is_number:
        kind, of_leaves = "number", []  # leaves release sums of residuals
    sentences = [
        f"The model answers {label} whatever the row is: all leaves of its trees lead to that {kind}.",
        *of_leaves,
        "Either noise hid what there was to learn, and more ε or rows would help, or the splits gained nothing.",
    ]
    return {"label": label, "text": " ".join(sentences)}


def _in_numbers(plan: Plan, expected_rows: object) -> list[str]:
    """Rows × ε, depth, and the noise of a leaf beside its expected rows, from public
    numbers alone.
    """
    noise = noise_in_rows(plan.event)
    depth = int(plan.parameters["max_depth"])
    if not isinstance(expected_rows, int) or noise is None:
        return []
    shares = 1
    if plan.parameters.get("assignment") == "sharded":
        shares = plan.n_trees
    of_a_leaf = expected_rows / shares / 2**depth
    epsilon = float(plan.terms.epsilon)
    return [
        f"It was trained at ε = {epsilon:g} on about {expected_rows} declared rows, so rows × ε is about "
        f"{expected_rows * epsilon:,.0f}; at depth {depth}, a leaf has about {of_a_leaf:,.1f} of them, and "
        f"the noise of a count has a standard deviation of about {noise:,.1f} rows."
    ]


def noise_in_rows(event: Event) -> float | None:
    """The standard deviation of the noise of the largest noisy table of an event, in
    rows; ``None`` without a table.
    """
    tables = sorted(_tables(event), key=lambda table: table.coordinates)
    match tables[-1:]:
        case [DiscreteLaplace(l1_sensitivity=sensitivity, inverse_scale=inverse)] if (
            inverse > 0
        ):
            return math.sqrt(2) / float(inverse * sensitivity)
        case [
            RoundedGaussian(l2_sensitivity_squared=squared, sigma_squared=variance)
        ] if squared > 0:
            return math.sqrt(variance / squared)
        case _:
            return None


def _tables(event: Event) -> Iterator[DiscreteLaplace | RoundedGaussian]:
    match event:
        case Sequential(parts=parts) | Parallel(parts=parts):
            for part in parts:
                yield from _tables(part.event)
        case DiscreteLaplace() | RoundedGaussian():
            yield event


def _only_number(reader: Numbers) -> str | None:
    """The number of every row, as text, where all leaves that rows can reach lead to it."""
    scores = reader.packed.trees.values[:, 0]
    is_reachable = _reachable(reader.packed)
    least = np.where(is_reachable, scores, np.inf).min(axis=1)
    largest = np.where(is_reachable, scores, -np.inf).max(axis=1)
    # the leaves of several trees need not be reachable together
    ends = np.array([least.sum(), largest.sum()])
    low, high = reader.numbers(ends).tolist()
    if low < high:
        return None
    return str(plain_number(low))


def _reachable(packed: PackedForest) -> BoolArray:
    """Whether each split on the path to a leaf sends some code there, bool ``(n_trees,
    n_leaves)``.
    """
    trees = packed.trees
    codes = (
        np.arange(trees.right.shape[1] * 64) < packed.encoding.n_codes[:, np.newaxis]
    )
    legal = np.packbits(codes, axis=1, bitorder="little").view(np.uint64)[trees.feature]
    goes_left = ((legal & ~trees.right) != 0).any(axis=1)
    goes_right = ((legal & trees.right) != 0).any(axis=1)
    n_trees, n_nodes = trees.number.shape
    reachable = np.ones((n_trees, 1), dtype=np.bool_)
    while (n_level := reachable.shape[1]) <= n_nodes:
        number = trees.number[:, n_level - 1 : 2 * n_level - 1]
        sides = (reachable & goes_left[number], reachable & goes_right[number])
        reachable = np.stack(sides, axis=2).reshape(n_trees, -1)
    return reachable


def _leading(
    scores: Float64Array,
    start: Float64Array,
    reachable: BoolArray,
) -> int | None:
    """The class with the largest sum of scores on all reachable leaves, the first in a
    tie; ``None`` if none is shown.

    Args:
        scores: of every leaf, float64 ``(n_trees, n_leaves, n_classes)``.
        start: float64 ``(n_classes,)``, before the first tree.
        reachable: bool ``(n_trees, n_leaves)``.
    """
    weights = reachable / reachable.sum(axis=1, keepdims=True)
    # A class that leads everywhere leads on average.
    code = int((start + np.einsum("tl,tlc->c", weights, scores)).argmax())
    leads = np.where(
        reachable[..., np.newaxis], scores[..., code : code + 1] - scores, np.inf
    ).min(axis=1)
    ahead = start[code] - start + leads.sum(axis=0)
    is_never_behind = (leads >= 0).all(axis=0) & (start[code] >= start)
    rounding = 1e-9 * (np.abs(start).max() + np.abs(scores).max(axis=(1, 2)).sum())
    wins_ties = np.arange(len(start)) > code
    wins = (ahead > rounding) | (is_never_behind & wins_ties)
    wins[code] = True
    return code if wins.all() else None

"""Exports an artifact as the bytes of an ONNX model, whatever the family of its forest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.bms_rf.read import StackedSums
from grovekeeper_forests.algorithms.nbrt.read import BoostedNumbers, BoostedScores
from grovekeeper_forests.array_types import Float64Array
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.days import date_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.schema import NUMBER, TARGET_STEPS, Feature, Schema
from grovekeeper_forests.errors import NotSupported, ParameterInvalid
from grovekeeper_forests.kernels.boosting import SCORE_BITS
from grovekeeper_forests.releases.forest.onnx import columns, trees
from grovekeeper_forests.releases.forest.onnx.columns import (
    TREES_DOMAIN,
    Columns,
    Graph,
)
from grovekeeper_forests.releases.forest.read import Artifact
from grovekeeper_forests.trees import leaf_read_out
from grovekeeper_forests.trees.leaf_read_out import LeafSums, PooledSums
from grovekeeper_forests.trees.number_read_out import LeafNumbers

OPSETS = {"": 18, TREES_DOMAIN: 5}
"""Read by ONNX Runtime 1.20 and later."""

_IR_VERSION = 10
_ROWS = "n_rows"


def dumps(artifact: Artifact, *, digest: str, read_out: str | None = None) -> bytes:
    """Returns the model as ONNX. Equal artifacts give equal bytes, with the same
    version of the ``onnx`` library.

    Inputs are the columns of the schema under their own names, each ``(n_rows, 1)``:
    numbers as doubles, NaN being an empty cell; categories as strings, the empty string
    being an empty cell. Outputs are ``label``, strings ``(n_rows,)``, and
    ``probabilities``, doubles ``(n_rows, n_classes)`` in the order of the declared
    classes; where a column has the name of an output, the output's name ends in an
    underscore. For the read-out ``pa``, which draws labels, the only output is
    ``probabilities``, and the caller draws. Where the label is a number, the only
    output is ``number``, doubles ``(n_rows,)``.

    Args:
        artifact: released.
        digest: SHA-256 of the artifact's bytes, so that the export can be traced to its
            model card.
        read_out: a read-out of the algorithm; ``None``: the default.

    Raises:
        ParameterInvalid: the model offers no such read-out.
        NotSupported: forests of this family cannot be exported yet.
    """
    offered = catalogue.read_outs(artifact.plan.algorithm, artifact.schema.label)
    chosen = offered[0] if read_out is None else read_out
    if chosen not in offered:
        raise ParameterInvalid.named("read_out", "unknown-choice", accepted=offered)
    features = artifact.schema.features
    proto = helper.make_model(
        helper.make_graph([], artifact.plan.algorithm, list(map(_input, features)), []),
        opset_imports=[
            helper.make_opsetid(domain, version) for domain, version in OPSETS.items()
        ],
        ir_version=_IR_VERSION,
        producer_name="grovekeeper",
    )
    proto.graph.output.extend(
        _add_forest(
            Graph(proto.graph, [feature.name for feature in features]), artifact, chosen
        )
    )
    helper.set_model_props(proto, _facts(artifact, digest=digest, read_out=chosen))
    data: bytes = proto.SerializeToString(deterministic=True)
    del proto  # the checker parses the bytes into a model of its own
    onnx.checker.check_model(data)
    return data


def _add_forest(
    graph: Graph, artifact: Artifact, read_out: str
) -> list[ValueInfoProto]:
    schema = artifact.schema
    if schema.label.is_number:
        return [_number(graph, artifact)]
    is_drawn = read_out == leaf_read_out.DRAW
    sums = add_sums(
        graph, artifact.forest, schema, leaf_read_out.AVERAGE if is_drawn else read_out
    )
    probabilities = trees.add_probabilities(
        graph, sums.value, read_out=sums.read_out, n_outputs=sums.n_outputs
    )
    outputs = [] if is_drawn else [_label(graph, schema, probabilities)]
    name = graph.publish(probabilities, "probabilities")
    return [
        *outputs,
        helper.make_tensor_value_info(
            name, TensorProto.DOUBLE, [_ROWS, schema.n_classes]
        ),
    ]


def _number(graph: Graph, artifact: Artifact) -> ValueInfoProto:
    """Adds the number of each row, with the operations of ``Numbers`` in their order,
    so that it has the same bits.
    """
    forest, schema = artifact.forest, artifact.schema
    reader = catalogue.family(forest.plan.algorithm).reader(forest, schema, NUMBER)
    match reader:
        case BoostedNumbers():
            value = _add_tree_scores(graph, reader.encoding, reader.arrays, unit=1.0)
        case LeafNumbers():
            value = _add_leaf_sums(graph, reader.sums, reader.sums.values)
        case _:
            raise NotSupported("artifact format onnx")
    start, spread = reader.arrays["start"].tolist()
    column = schema.label.column
    step = (column.upper - column.lower) / TARGET_STEPS
    for operation, *numbers in (
        ("Mul", spread / 2.0**SCORE_BITS),
        ("Add", start),
        ("Clip", 0.0, TARGET_STEPS),
        ("Mul", step),
        ("Add", column.lower),
        ("Clip", column.lower, column.upper),
    ):
        doubles = [np.array(float(each)) for each in numbers]
        constants = map(graph.constant, doubles)
        value = graph.add(operation, value, *constants)
    first = graph.constant(np.array([1], dtype=np.int64))
    name = graph.publish(graph.add("Squeeze", value, first), "number")
    return helper.make_tensor_value_info(name, TensorProto.DOUBLE, [_ROWS])


def _label(graph: Graph, schema: Schema, probabilities: str) -> ValueInfoProto:
    """Adds the most probable class, the first in a tie."""
    code = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
    label = graph.add("Gather", graph.constant(np.array(schema.label.classes)), code)
    return helper.make_tensor_value_info(
        graph.publish(label, "label"), TensorProto.STRING, [_ROWS]
    )


def _input(feature: Feature) -> ValueInfoProto:
    if feature.is_categorical:
        element = TensorProto.STRING
        empty = "so does the empty string"
        if feature.missing:
            empty = "the empty string is an empty cell"
        values = f"category; an undeclared one counts as OTHER, {empty}"
    else:
        element = TensorProto.DOUBLE
        kind = "number"
        if feature.first_day is not None:
            kind = f"days since {date_of(feature.first_day)}, a number"
        legal = (
            f"{kind} from {feature.lower!r} to {feature.upper!r}, others are clamped"
        )
        empty = "NaN counts as the lower bound"
        if feature.missing:
            empty = "NaN is an empty cell"
        values = f"{feature.type} {legal}; {empty}"
    return helper.make_tensor_value_info(
        feature.name, element, [_ROWS, 1], doc_string=values
    )


def _facts(artifact: Artifact, *, digest: str, read_out: str) -> dict[str, str]:
    """Returns the artifact's metadata: text unchanged, every other value as JSON."""
    facts = {**artifact.metadata, "artifact_sha256": digest, "read_out": read_out}
    return {
        name: value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, sort_keys=True)
        for name, value in sorted(facts.items())
    }


@dataclass(frozen=True)
class Sums:
    """The sums of rows in a graph.

    Attributes:
        value: name of the sums; double ``(n_rows, n_outputs)``.
        n_outputs: one per class, or 1: the logit of the second of two classes.
        read_out: how sums become probabilities.
    """

    value: str
    n_outputs: int
    read_out: str


def add_sums(graph: Graph, forest: Forest, schema: Schema, read_out: str) -> Sums:
    """Adds the leaf sums of a forest for one of its read-outs.

    Raises:
        NotSupported: forests of this family cannot be exported yet.
    """
    match catalogue.family(forest.plan.algorithm).reader(forest, schema, read_out):
        case PooledSums() as reader:
            return _add_pooled(graph, reader)
        case BoostedScores() as reader:
            return _add_boosted(graph, reader)
        case StackedSums() as reader:
            return Sums(
                trees.add_stacked_sums(graph, reader), schema.n_classes, reader.read_out
            )
        case _:
            raise NotSupported("artifact format onnx")


def _add_pooled(graph: Graph, reader: PooledSums) -> Sums:
    values = reader.sums.values
    if reader.read_out == leaf_read_out.VOTE:
        # Sums of whole votes are exact in any order, so every runtime sees the same
        # ties.
        values = np.rint(values * len(values))
    sums = _add_leaf_sums(graph, reader.sums, values)
    return Sums(sums, values.shape[2], reader.read_out)


def _add_leaf_sums(graph: Graph, forest: LeafSums, values: Float64Array) -> str:
    """Adds the summed values of the leaves of trees with thresholds: double ``(n_rows,
    n_outputs)``.
    """
    encoding = forest.encoding
    arrays = forest.arrays
    of_splits = Columns.of(encoding, arrays["feature"])
    splits = trees.of_thresholds(
        of_splits,
        feature=arrays["feature"],
        threshold=arrays["threshold"],
        equals=arrays["equals"],
    )
    return trees.add_tree_sums(
        graph, columns.add_values(graph, encoding, of_splits), splits, values
    )


def _add_tree_scores(
    graph: Graph, encoding: Encoding, arrays: Mapping[str, NDArray[Any]], *, unit: float
) -> str:
    """Adds the summed scores of boosted trees, in multiples of ``unit``: double
    ``(n_rows, n_scores)``.
    """
    splits = trees.of_masks(
        Columns.of(encoding), feature=arrays["feature"], right=arrays["right"]
    )
    values = arrays["scores"] / unit
    return trees.add_tree_sums(
        graph, columns.add_values(graph, encoding), splits, values
    )


def _add_boosted(graph: Graph, reader: BoostedScores) -> Sums:
    arrays, unit = reader.arrays, 2.0**SCORE_BITS
    start = arrays["start"] / unit
    sums = _add_tree_scores(graph, reader.encoding, arrays, unit=unit)
    if start.any():
        sums = graph.add("Add", sums, graph.constant(start[np.newaxis]))
    if reader.temperature != 1.0:
        sums = graph.add("Mul", sums, graph.constant(np.array(reader.temperature)))
    return Sums(sums, arrays["scores"].shape[2], reader.read_out)

"""Builds an ONNX graph and converts the caller's raw columns to the matrix of doubles
that the trees of a model read.

Numbers stay numbers: they are clamped, and integers are rounded to nearest with ties to
even. An empty cell (NaN) becomes +∞ where the schema allows empty cells, and the lower
bound where it does not. Categories become their codes, counted from 1. The matrix
replaces both the sanitiser (``grovekeeper_forests.data.sanitiser``) and the bins
(``grovekeeper_forests.data.encoding``), so a threshold on bins becomes a threshold on
values: a value is in bin c or below iff the value is at most ``cuts[c]``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, TensorProto, helper, numpy_helper

from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
)
from grovekeeper_forests.data.encoding import (
    COLUMNS_PER_PAIR,
    Encoding,
    as_number,
    n_places,
    to_numbers,
    to_places,
)
from grovekeeper_forests.data.sanitiser import empty_texts
from grovekeeper_forests.data.schema import Feature, Schema

TREES_DOMAIN = "ai.onnx.ml"
_PIECE = 65_536


class Graph:
    """Adds nodes and constants to a graph in the order of the calls; equal calls give
    equal graphs.

    Args:
        proto: the graph of a model, which is filled in place: a large forest is not
            copied.
        taken: names of the model's inputs. The owner chooses these names freely, so
            every generated name begins with a prefix that no input name begins with.
    """

    def __init__(self, proto: GraphProto, taken: Sequence[str]) -> None:
        self._nodes = proto.node
        self._constants = proto.initializer
        self._taken = set(taken)
        self._prefix = "/"
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "/"

    def constant(self, array: NDArray[Any]) -> str:
        """Adds a constant tensor; text arrays become string tensors."""
        name = f"{self._prefix}constant_{len(self._constants)}"
        if array.dtype.kind == "U":
            texts = [text.encode() for text in array.ravel().tolist()]
            self._constants.append(
                helper.make_tensor(name, TensorProto.STRING, array.shape, texts)
            )
        else:
            self._constants.append(
                numpy_helper.from_array(np.ascontiguousarray(array), name)
            )
        return name

    def add(
        self, operator: str, *inputs: str, domain: str = "", **attributes: Any
    ) -> str:
        """Adds a node with one output and returns the output's name. Arrays are
        attributes of integers.
        """
        name = f"{self._prefix}value_{len(self._nodes)}"
        node = self._nodes.add(
            op_type=operator, input=inputs, output=[name], name=name, domain=domain
        )
        for key, value in sorted(attributes.items()):
            if isinstance(value, np.ndarray):
                _set_integers(node.attribute.add(), key, value.ravel())
            else:
                node.attribute.append(helper.make_attribute(key, value))
        return name

    def split(self, value: str, lengths: Sequence[int]) -> list[str]:
        """Splits a value into pieces along its second axis."""
        first = f"{self._prefix}value_{len(self._nodes)}"
        names = [f"{first}_{piece}" for piece in range(len(lengths))]
        sizes = self.constant(np.array(lengths, dtype=np.int64))
        self._nodes.append(
            helper.make_node("Split", [value, sizes], names, name=first, axis=1)
        )
        return names

    def publish(self, value: str, name: str) -> str:
        """Adds a value to the outputs of the model.

        Returns:
            ``name``, followed by as many underscores as make the name different from
            every input.
        """
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        self._nodes.append(
            helper.make_node("Identity", [value], [name], name=f"{self._prefix}{name}")
        )
        return name


def _set_integers(attribute: AttributeProto, name: str, integers: NDArray[Any]) -> None:
    """Fills an attribute piece by piece: a Python list of millions of integers takes
    several times their bytes.
    """
    attribute.name = name
    attribute.type = AttributeProto.INTS
    for piece in np.array_split(integers, len(integers) // _PIECE + 1):
        attribute.ints.extend(piece.tolist())


FIRST_CODE = 1
"""Codes start at 1: runtimes test sets of such numbers with one mask, and the reference
evaluator ends a set at a 0.
"""


@dataclass(frozen=True, eq=False)
class Columns:
    """The column of each feature in the matrix, and the representation of its bins.

    Attributes:
        place: column of the matrix for each column of the encoding, int64
            ``(n_columns,)``: numbers first, then categories, then the columns of pairs
            that splits use; −1 for columns that are not in the matrix.
        cuts: float64 ``(n_columns, 256)``: the largest value of each bin of each
            column; +∞ from its last bin on.
        is_coded: bool ``(n_columns,)``: values are codes of bins, counted from
            :data:`FIRST_CODE`, instead of numbers.
        used: indices of the columns of pairs in the matrix, in the order of the matrix.
    """

    place: Int64Array
    cuts: Float64Array
    is_coded: BoolArray
    used: tuple[int, ...] = ()

    @classmethod
    def of(cls, encoding: Encoding, splits_on: Int32Array | None = None) -> "Columns":
        """Builds the columns for splits on some columns of an encoding; ``None``: for
        splits on features alone.
        """
        features = encoding.schema.features
        order = sorted(
            range(len(features)), key=lambda index: features[index].is_categorical
        )
        n_own = len(features)
        n_columns = len(encoding.n_codes)
        cuts = np.full((n_columns, 256), math.inf)
        for index, (feature, edges) in enumerate(
            zip(features, encoding.edges, strict=True)
        ):
            if edges is None:
                feature_cuts = np.arange(encoding.n_codes[index] - 1) + FIRST_CODE
            else:
                feature_cuts = _cuts(feature, edges)
            cuts[index, : len(feature_cuts)] = feature_cuts
        for index in range(n_own, n_columns):
            cuts[index, : encoding.n_codes[index] - 1] = np.arange(
                encoding.n_codes[index] - 1
            )
        is_coded = np.array(
            [
                *(edges is None for edges in encoding.edges),
                *[False] * (n_columns - n_own),
            ]
        )
        used = []
        if splits_on is not None:
            used = sorted({int(column) for column in splits_on.flat if column >= n_own})
        place = np.full(n_columns, -1, dtype=np.int64)
        place[[*order, *used]] = np.arange(n_own + len(used))
        return cls(place, cuts, is_coded, tuple(used))


def _cuts(feature: Feature, edges: Float64Array) -> Float64Array:
    """The cuts of a numeric feature, including the cut below the bin of MISSING."""
    if feature.missing:
        return np.append(edges, as_number(feature).upper)
    return edges


def add_values(graph: Graph, encoding: Encoding, columns: Columns | None = None) -> str:
    """Adds the nodes that convert inputs to the matrix, double ``(n_rows, …)``; by
    default for features alone.
    """
    features = encoding.schema.features
    parts = []
    if not all(feature.is_categorical for feature in features):
        parts.append(_add_numbers(graph, encoding.schema))
    categories = [
        _codes(graph, encoding, index)
        for index, feature in enumerate(features)
        if feature.is_categorical
    ]
    if categories:
        parts.append(joined(graph, categories))
    matrix = graph.add("Concat", *parts, axis=1)
    if columns is None or not columns.used:
        return matrix
    return graph.add(
        "Concat", matrix, *_Pairs(graph, encoding, columns, matrix).added(), axis=1
    )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Adds sums and differences of the places of two columns, as in
    ``grovekeeper_forests.data.encoding``, in whole doubles.
    """

    _graph: Graph
    _encoding: Encoding
    _columns: Columns
    _matrix: str
    _known: dict[tuple[int, int], str] = field(default_factory=dict)

    def added(self) -> list[str]:
        """Adds the used columns of pairs, each double ``(n_rows, 1)``."""
        graph = self._graph
        encoding = self._encoding
        sums = list[str]()
        for index in self._columns.used:
            which, is_difference = divmod(index - len(encoding.edges), COLUMNS_PER_PAIR)
            pair = encoding.pairs[which]
            common = n_places(encoding.n_own_codes, pair)
            first, second = (self._places(feature, common) for feature in pair)
            if is_difference:
                second = graph.add(
                    "Sub", graph.constant(np.array(common - 1.0)), second
                )
            sums.append(graph.add("Add", first, second))
        return sums

    def _places(self, feature: int, common: int) -> str:
        """Adds the places of one feature's bins; the number of a bin is the number of
        cuts below the value.
        """
        if (feature, common) not in self._known:
            graph = self._graph
            n_own = int(self._encoding.n_own_codes[feature])
            column = graph.constant(self._columns.place[[feature]])
            value = graph.add("Gather", self._matrix, column, axis=1)
            cuts = graph.constant(self._columns.cuts[[feature], : n_own - 1])
            is_above = graph.add(
                "Cast", graph.add("Greater", value, cuts), to=TensorProto.DOUBLE
            )
            code = graph.add(
                "ReduceSum",
                is_above,
                graph.constant(np.array([1], dtype=np.int64)),
                keepdims=1,
            )
            of_code = to_places(np.arange(n_own, dtype=np.uint8), n_own, common).astype(
                np.float64
            )
            whole = graph.add("Cast", code, to=TensorProto.INT64)
            self._known[feature, common] = graph.add(
                "Gather", graph.constant(of_code), whole
            )
        return self._known[feature, common]


def _add_numbers(graph: Graph, schema: Schema) -> str:
    """Adds all sanitised numbers, double ``(n_rows, n_numbers)``. NaN passes through
    minimum, maximum and rounding.

    Args:
        schema: with at least one number.
    """
    features = [feature for feature in schema.features if not feature.is_categorical]
    lower = np.array([[feature.lower for feature in features]])
    upper = np.array([[feature.upper for feature in features]])
    raw = graph.add("Concat", *(feature.name for feature in features), axis=1)
    is_empty = graph.add("IsNaN", raw)
    values = graph.add(
        "Max", graph.add("Min", raw, graph.constant(upper)), graph.constant(lower)
    )
    is_whole = np.array([[feature.type != "numeric" for feature in features]])
    if is_whole.any():
        values = graph.add(
            "Where", graph.constant(is_whole), graph.add("Round", values), values
        )
    missing = np.array(
        [[math.inf if feature.missing else feature.lower for feature in features]]
    )
    return graph.add("Where", is_empty, graph.constant(missing), values)


def _codes(graph: Graph, encoding: Encoding, index: int) -> str:
    feature = encoding.schema.features[index]
    codes = np.arange(len(feature.categories) + 2, dtype=np.int32)
    if encoding.edges[index] is None:
        values = np.minimum(codes, encoding.n_codes[index] - 1) + float(FIRST_CODE)
    else:
        values = to_numbers(feature, codes)
        values[feature.missing_code] = math.inf
    return add_encoder(graph, feature, values)


def add_encoder(graph: Graph, feature: Feature, values: Float64Array) -> str:
    """Adds the node that turns a categorical column into numbers.

    Args:
        graph: receives the node.
        feature: ``categorical``.
        values: of the feature's codes, then of OTHER, then of MISSING; whole numbers
            below 2²⁴, or +∞.

    Returns:
        float ``(n_rows, 1)``, exact for such numbers.
    """
    other = float(values[feature.other_code])
    empty = float(values[feature.missing_code]) if feature.missing else other
    return graph.add(
        "LabelEncoder",
        feature.name,
        domain=TREES_DOMAIN,
        keys_strings=[*feature.categories, *empty_texts(feature)],
        values_floats=[
            *values[: feature.other_code].tolist(),
            *[empty] * len(empty_texts(feature)),
        ],
        default_float=other,
    )


def joined(graph: Graph, encoded: Sequence[str]) -> str:
    """Adds the concatenation of encoded columns, as doubles."""
    return graph.add(
        "Cast", graph.add("Concat", *encoded, axis=1), to=TensorProto.DOUBLE
    )

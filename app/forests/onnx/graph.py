"""Builds an ONNX graph value by value, under names that no column can have."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, TensorProto, helper, numpy_helper

TREES_DOMAIN = "ai.onnx.ml"
_PIECE = 65_536


class Graph:
    """Adds nodes and constants to a graph in the order of the calls; equal calls give equal graphs.

    Args:
        proto: the graph of a model, which is filled in place: a large forest is not copied.
        taken: names of the model's inputs. The owner chooses these names freely, so every generated name begins with
            a prefix that no input name begins with.
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
            self._constants.append(helper.make_tensor(name, TensorProto.STRING, array.shape, texts))
        else:
            self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output and returns the output's name. Arrays are attributes of integers."""
        name = f"{self._prefix}value_{len(self._nodes)}"
        node = self._nodes.add(op_type=operator, input=inputs, output=[name], name=name, domain=domain)
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
        self._nodes.append(helper.make_node("Split", [value, sizes], names, name=first, axis=1))
        return names

    def publish(self, value: str, name: str) -> str:
        """Adds a value to the outputs of the model.

        Returns:
            ``name``, followed by as many underscores as make the name different from every input.
        """
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"{self._prefix}{name}"))
        return name


def _set_integers(attribute: AttributeProto, name: str, integers: NDArray[Any]) -> None:
    """Fills an attribute piece by piece: a Python list of millions of integers takes several times their bytes."""
    attribute.name, attribute.type = name, AttributeProto.INTS
    for piece in np.array_split(integers, len(integers) // _PIECE + 1):
        attribute.ints.extend(piece.tolist())

"""Builds an ONNX graph value by value, under names that no column can have."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

TREES_DOMAIN = "ai.onnx.ml"


class Graph:
    """Nodes and constants in the order they were added; the same calls give the same graph.

    Args:
        taken: names of the model's inputs. They are the owner's words and may be anything, so every name of ours
            begins with a prefix that none of them begins with.
    """

    def __init__(self, taken: Sequence[str]) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._taken = set(taken)
        self._prefix = "/"
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "/"

    def constant(self, array: NDArray[Any]) -> str:
        """A tensor that is part of the model; text arrays become string tensors."""
        name = f"{self._prefix}constant_{len(self.constants)}"
        if array.dtype.kind == "U":
            texts = [text.encode() for text in array.ravel().tolist()]
            self.constants.append(helper.make_tensor(name, TensorProto.STRING, array.shape, texts))
        else:
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node with one output, whose name is returned."""
        name = f"{self._prefix}value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def split(self, value: str, lengths: Sequence[int]) -> list[str]:
        """Pieces of a value along its second axis."""
        first = f"{self._prefix}value_{len(self.nodes)}"
        names = [f"{first}_{piece}" for piece in range(len(lengths))]
        sizes = self.constant(np.array(lengths, dtype=np.int64))
        self.nodes.append(helper.make_node("Split", [value, sizes], names, name=first, axis=1))
        return names

    def publish(self, value: str, wanted: str) -> str:
        """Makes a value an output of the model.

        Returns:
            ``wanted``, with underscores after it as long as a column has that very name.
        """
        while wanted in self._taken:
            wanted += "_"
        self._taken.add(wanted)
        self.nodes.append(helper.make_node("Identity", [value], [wanted], name=f"{self._prefix}{wanted}"))
        return wanted

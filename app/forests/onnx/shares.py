"""Adds nodes to an ONNX graph that convert a row's sums of leaf values to class probabilities.

Implements ``app.forests.trees.pooling`` and the read-outs of the boosted family in ONNX.
"""

import numpy as np

from app.forests.algorithms.nbrt.read import CALIBRATED, LOGISTIC, TIE_BREAK
from app.forests.algorithms.nbrt.scales import clip_of
from app.forests.onnx.graph import Graph
from app.forests.trees import pooling


def add_probabilities(graph: Graph, sums: str, *, read_out: str, n_outputs: int) -> str:
    """Adds the class probabilities of a read-out.

    Args:
        graph: receives the nodes.
        sums: double ``(n_rows, n_outputs)``.
        read_out: any read-out of a family except ``pa``, whose probabilities equal those of ``ta``.
        n_outputs: one per class, or 1: the logit of the second of two classes.

    Returns:
        double ``(n_rows, n_classes)``; rows sum to 1.
    """
    if read_out not in (pooling.LOGARITHMIC, CALIBRATED, LOGISTIC):
        return _normalised(graph, sums, n_classes=n_outputs)
    if n_outputs > 1:
        return graph.add("Softmax", sums, axis=1)
    zeros = graph.add("Sub", sums, sums)
    softmax = graph.add("Softmax", graph.add("Concat", zeros, sums, axis=1), axis=1)
    return _calibrated(graph, softmax) if read_out == CALIBRATED else softmax


def _normalised(graph: Graph, sums: str, *, n_classes: int) -> str:
    """Adds the shares of a row's total; uniform where the total is zero."""
    total = graph.add("ReduceSum", sums, graph.constant(np.array([1], dtype=np.int64)), keepdims=1)
    is_positive = graph.add("Greater", total, graph.constant(np.array(0.0)))
    return graph.add("Where", is_positive, graph.add("Div", sums, total), graph.constant(np.array(1.0 / n_classes)))


def _calibrated(graph: Graph, softmax: str) -> str:
    """Adds the correction for clipped gradients of two classes; see ``app.forests.algorithms.nbrt.read.calibrated``."""
    clip = float(clip_of(2))

    def number(value: float) -> str:
        return graph.constant(np.array(value))

    larger = graph.add("ReduceMax", softmax, graph.constant(np.array([1], dtype=np.int64)), keepdims=1)
    doubt = graph.add("Sub", number(clip + 1.0), graph.add("Max", larger, number(1.0 - clip)))
    share = graph.add("Div", number(clip), doubt)
    is_larger = graph.add("Equal", softmax, larger)
    shares = graph.add("Where", is_larger, share, graph.add("Sub", number(1.0), share))
    mixed = graph.add("Mul", number(1.0 - TIE_BREAK), shares)
    return graph.add("Add", mixed, graph.add("Mul", number(TIE_BREAK), softmax))

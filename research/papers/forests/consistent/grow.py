"""Grows the consistent forests of the papers and the two ablations of ``mrf-plain`` on
public rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isqrt
from types import MappingProxyType

import numpy as np

from grovekeeper_forests.contract.algorithm import Parameters
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.loops import split_loops
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_trees import NodeTree, collected
from research.papers.forests.trees.split_trees import CodedRows, Rule, Weights, grown


def grow_forest(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """Grows the forest; every tree draws its own rows and its own splits.

    Privacy:
        None.

    Source:
        The paper of the slug; see ``price`` of this folder. Denil et al., Wang et al.
        and Bai et al. prove that their forests are consistent (docs/references.md
        quotes the conditions).
    """
    coded, random = CodedRows.of(Design.of(schema), rows), np.random.default_rng(seed)
    n_drawn = coded.n_features if _by_features(plan.parameters) else len(coded.values)
    rule = _RULES[plan.algorithm](plan.parameters, max(isqrt(n_drawn), 1))

    label_strength = float(plan.parameters.get("b3", 0))

    def trees() -> Iterator[NodeTree]:
        for _ in range(plan.n_trees):
            tree = grown(
                coded, _weights(plan.parameters, coded.n_rows, random), rule, random
            )
            yield (
                tree
                if label_strength == 0
                else with_labels(tree, label_strength, random)
            )
            on_tree_done()

    return PlainForest(plan, collected(trees()))


def with_labels(
    tree: NodeTree, strength: float, random: np.random.Generator
) -> NodeTree:
    """The tree with one label for each node, drawn with softmax(B3/2 · P) over the
    node's class shares P.

    Args:
        tree: the labels of its leaves count.
        strength: B3, above zero.
        random: draws the labels.

    Source:
        Bai et al. (2022), section 3.2: the label of a leaf is selected when the tree
        grows.
    """
    # the largest of logits with such noise is a draw of the softmax
    gumbel = random.gumbel(size=tree.shares.shape)
    drawn = (strength / 2 * tree.shares + gumbel).argmax(axis=1)
    return replace(tree, shares=np.eye(tree.shares.shape[1])[drawn])


def _weights(
    parameters: Parameters, n_rows: int, random: np.random.Generator
) -> Weights:
    if "structure_share" in parameters:
        return Weights.parted(
            n_rows, random, structure_share=float(parameters["structure_share"])
        )
    return Weights.bootstrapped(n_rows, random)


def _multinomial(parameters: Parameters, _: int) -> Rule:
    strengths = float(parameters["b1"]), float(parameters["b2"])
    depth = int(parameters.get("max_depth", 0))
    return Rule(
        split_loops.MULTINOMIAL,
        int(parameters["min_samples_leaf"]),
        0,
        strengths,
        max_depth=depth,
        stop=str(parameters["stop"]),
        by_features=_by_features(parameters),
    )


def _greedy(parameters: Parameters, n_candidates: int) -> Rule:
    return Rule(
        split_loops.GREEDY,
        int(parameters["min_samples_leaf"]),
        n_candidates,
        stop=str(parameters["stop"]),
        by_features=_by_features(parameters),
    )


def _pooled(parameters: Parameters, n_candidates: int) -> Rule:
    pool_size = int(parameters["pool_size"])
    return Rule(
        split_loops.POOLED,
        int(parameters["min_samples_leaf"]),
        _drawn_columns(parameters, n_candidates),
        pool_size=pool_size,
        redraws=parameters["redraw"] == "yes",
    )


def _bernoulli(parameters: Parameters, n_candidates: int) -> Rule:
    rates = float(parameters["p1"]), float(parameters["p2"])
    return Rule(
        split_loops.BERNOULLI,
        int(parameters["min_samples_leaf"]),
        _drawn_columns(parameters, n_candidates),
        rates=rates,
        redraws=parameters["redraw"] == "yes",
    )


def _by_features(parameters: Parameters) -> bool:
    return parameters.get("draws") == "features"


def _drawn_columns(parameters: Parameters, n_candidates: int) -> int:
    return n_candidates if parameters["candidates"] == "sqrt" else 1


_RULES: Mapping[str, Callable[[Parameters, int], Rule]] = MappingProxyType(
    {
        "mrf-plain": _multinomial,
        "breiman-m": _multinomial,
        "breiman-se": _greedy,
        "denil14": _pooled,
        "brf": _bernoulli,
    }
)

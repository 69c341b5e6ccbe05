"""States what the papers' private rules cost as printed, and bounds the accuracy of
labels drawn by them.
"""

import math
from collections.abc import Mapping

_RANDOM_TREES = "the claim, without the price of choosing k and h; twice that where a row is replaced"
TRUE_LOSS: Mapping[str, str] = {
    "mrf": "no bound, under either adjacency",
    "spe": "no bound, under either adjacency",
    "srt": "no bound, under either adjacency",
    "rdt-jagannathan": "the claim; twice that where a row is replaced",
    "maxtree": "at most e^(2ε) − 1 a tree where a row is added or removed",
    "sspe-1": "no bound, under either adjacency",
    "sspe-2": "up to three times the claim where a label is added or removed, the claim itself if the tree of each "
    "label is drawn on its own; twice the claim where a label changes",
    "pte": "that of `sspe-2` where features are public",
    "rdt-mv": _RANDOM_TREES,
    "rdt-ta": _RANDOM_TREES,
    "bms-rf": "no bound, under either adjacency",
}
"""True loss of the rule as printed, by slug of the repaired algorithm."""


def upper_bound(number: float, digits: int = 1) -> str:
    """An upper bound in text, rounded up: rounded down it would be none."""
    return f"{math.ceil(number * 10**digits) / 10**digits:.{digits}f}"


def lower_bound(number: float, digits: int = 1) -> str:
    """A lower bound in text, rounded down."""
    return f"{math.floor(number * 10**digits) / 10**digits:.{digits}f}"


def vote_ceiling(n_trees: int, epsilon: float, n_classes: int = 2) -> float:
    """Accuracy of the multinomial forest's labels if every leaf is pure and every split
    perfect.

    A tree draws class c with probability in proportion to exp(B3 η_c / 2), B3 = ε/T and
    η_c ≤ 1 the share of the class: a tree is right with probability e^{B3/2} /
    (e^{B3/2} + K − 1) at best. The forest takes the most frequent label, a random one
    of several.

    Args:
        n_trees: T, on the same rows.
        epsilon: the claim for the forest.
        n_classes: K.
    """
    odds = math.exp(epsilon / n_trees / 2)
    right = odds / (odds + n_classes - 1)
    return sum(
        math.comb(n_trees, votes)
        * right**votes
        * _wins(n_trees - votes, votes, n_classes - 1, 1 - right)
        for votes in range(1, n_trees + 1)
    )


def _wins(n_others: int, votes: int, n_classes: int, wrong: float) -> float:
    """Probability that ``n_others`` labels are wrong and leave the right class with
    ``votes`` labels the winner.

    Adds wrong classes one by one; ``ways[j][m]`` is the number of ways, divided by m!,
    to give m labels to them so that none has more than ``votes`` and j have as many.
    """
    ways = [[1.0, *[0.0] * n_others]]
    for _ in range(n_classes):
        grown = [[0.0] * (n_others + 1) for _ in range(len(ways) + 1)]
        for ties, row in enumerate(ways):
            for total, number in enumerate(row):
                if number:
                    for gained in range(min(votes, n_others - total) + 1):
                        grown[ties + (gained == votes)][total + gained] += (
                            number / math.factorial(gained)
                        )
        ways = grown
    number = sum(row[n_others] / (ties + 1) for ties, row in enumerate(ways))
    return number * math.factorial(n_others) * (wrong / n_classes) ** n_others

"""Lists every algorithm with its price, its read-outs and its description for ``GET /algorithms``.

Growth is in ``app.forests.grow``, which only the child process of a job imports.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from app.core.errors import InvalidRequest
from app.forests import expected_accuracy
from app.forests.algorithms.auto import Auto
from app.forests.algorithms.bms_rf.price import StackedForest
from app.forests.algorithms.bms_rf.read import StackedFamily
from app.forests.algorithms.maxtree.price import MaximalVoteTrees
from app.forests.algorithms.mrf.price import MultinomialForest
from app.forests.algorithms.nbrt.price import NoiseMatchedBoosting
from app.forests.algorithms.nbrt.read import BoostedFamily
from app.forests.algorithms.pte.price import TransductiveEnsemble
from app.forests.algorithms.rdt.jagannathan import JagannathanTrees
from app.forests.algorithms.rdt.price import AveragedTrees, DrawnTrees, VotingTrees
from app.forests.algorithms.rpf.price import ReweightedForest
from app.forests.algorithms.rpf.read import ReweightedFamily
from app.forests.algorithms.spe.price import MedianTrees
from app.forests.algorithms.srt.price import LabelledRandomTrees
from app.forests.algorithms.sspe1.price import SemiSupervisedTrees
from app.forests.algorithms.sspe2.price import LabelMedianTrees
from app.forests.contract.algorithm import Algorithm, Described, TwoDatasetAlgorithm
from app.forests.contract.family import Family
from app.forests.trees.count_read_out import CountFamily
from app.forests.trees.label_read_out import ChosenLeafFamily, LabelFamily

AUTO = Auto()
"""The slug that lets the planner choose an algorithm; see ``app.forests.planning``."""

_ALGORITHMS: tuple[tuple[Algorithm, Family], ...] = (
    (ReweightedForest(), ReweightedFamily()),
    (NoiseMatchedBoosting(), BoostedFamily()),
    (MultinomialForest(), ChosenLeafFamily()),
    (VotingTrees(), CountFamily()),
    (AveragedTrees(), CountFamily()),
    (DrawnTrees(), CountFamily()),
    (JagannathanTrees(), CountFamily()),
    (LabelledRandomTrees(), LabelFamily()),
    (MaximalVoteTrees(), CountFamily()),
    (MedianTrees(), CountFamily()),
    (StackedForest(), StackedFamily()),
    (SemiSupervisedTrees(), CountFamily()),
    (LabelMedianTrees(), ChosenLeafFamily()),
    (TransductiveEnsemble(), CountFamily()),
)

BY_SLUG: Mapping[str, Algorithm] = MappingProxyType({priced.slug: priced for priced, _ in _ALGORITHMS})
"""Every algorithm."""

_FAMILIES: Mapping[str, Family] = MappingProxyType({priced.slug: family for priced, family in _ALGORITHMS})


def algorithm(slug: str) -> Algorithm:
    """The algorithm with this slug.

    Raises:
        InvalidRequest: no algorithm has this slug.
    """
    known = BY_SLUG.get(slug)
    if known is None:
        raise _unknown()
    return known


def _unknown() -> InvalidRequest:
    return InvalidRequest.at("/algorithm", "unknown", accepted=(AUTO.slug, *BY_SLUG))


def family(slug: str) -> Family:
    """The family that stores and reads the released arrays of an algorithm.

    Raises:
        InvalidRequest: no algorithm has this slug.
    """
    known = _FAMILIES.get(slug)
    if known is None:
        raise _unknown()
    return known


@cache
def read_outs(slug: str) -> tuple[str, ...]:
    """Read-outs that a model of this algorithm offers, the default first."""
    return algorithm(slug).read_outs


def algorithms() -> list[dict[str, object]]:
    """One JSON-able description per algorithm: slug, title, source, claims, read-outs and parameters."""
    listed: tuple[Described, ...] = (AUTO, *BY_SLUG.values())
    return [
        {
            "slug": algorithm.slug,
            "title": algorithm.title,
            "source": algorithm.source,
            "about": {**vars(algorithm.about), "accuracy": expected_accuracy.at_epsilon_one(algorithm.slug)},
            "read_outs": list(algorithm.read_outs),
            "parameters": [parameter.describe() for parameter in algorithm.parameters],
            "accountants": list(algorithm.accountants),
            "adjacency": algorithm.adjacency.value,
            "unlabelled": isinstance(algorithm, TwoDatasetAlgorithm),
        }
        for algorithm in listed
    ]

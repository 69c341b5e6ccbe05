"""Every algorithm that can be trained, by slug, and how ``GET /algorithms`` describes it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from app.core.errors import InvalidRequest
from app.forests.algorithms.auto import Auto
from app.forests.algorithms.bms_rf.price import StackedForest
from app.forests.algorithms.maxtree.price import MaximalVoteTrees
from app.forests.algorithms.mrf.price import MultinomialForest
from app.forests.algorithms.nbrt.price import NoiseMatchedBoosting
from app.forests.algorithms.pte.price import TransductiveEnsemble
from app.forests.algorithms.rdt.jagannathan import JagannathanTrees
from app.forests.algorithms.rdt.price import RandomDecisionTrees
from app.forests.algorithms.rpf.price import ReweightedForest
from app.forests.algorithms.spe.price import MedianTrees
from app.forests.algorithms.srt.price import LabelledRandomTrees
from app.forests.algorithms.sspe1.price import SemiSupervisedTrees
from app.forests.algorithms.sspe2.price import LabelMedianTrees
from app.forests.contract.algorithm import ForestMechanism, TreeMechanism, TwoDatasetMechanism
from app.forests.contract.family import Family

AnyMechanism: TypeAlias = TreeMechanism | ForestMechanism | TwoDatasetMechanism
"""By how it grows."""

AUTO = Auto()
"""Chooses one of the others when a job is planned; see ``app.forests.planning``."""

_MECHANISMS: tuple[AnyMechanism, ...] = (
    ReweightedForest(),
    NoiseMatchedBoosting(),
    MultinomialForest(),
    RandomDecisionTrees("rdt-mv", "Random decision trees, majority vote", ("mv", "ta", "pa")),
    RandomDecisionTrees("rdt-ta", "Random decision trees, threshold averaging", ("ta", "mv", "pa")),
    RandomDecisionTrees("rdt-pa", "Random decision trees, probabilistic averaging", ("pa", "mv", "ta")),
    JagannathanTrees(),
    LabelledRandomTrees(),
    MaximalVoteTrees(),
    MedianTrees(),
    StackedForest(),
    SemiSupervisedTrees(),
    LabelMedianTrees(),
    TransductiveEnsemble(),
)

BY_SLUG: Mapping[str, AnyMechanism] = MappingProxyType({mechanism.slug: mechanism for mechanism in _MECHANISMS})


REUSING_PROFILES = frozenset(
    {
        *("rpf", "nbrt"),
        *("mrf", "maxtree", "rdt-mv", "rdt-ta", "rdt-pa", "rdt-jagannathan", "srt", "spe", "sspe-1", "bms-rf"),
    }
)
"""Algorithms that use the bins of a profile: the first two (and ``nbrt`` its class counts) in place of paying for their
own, the others in place of equal steps. ``sspe-2`` and ``pte`` have nothing to gain by it: features are public there,
and their medians are exact ones among 255 steps, at no price."""


def mechanism(slug: str) -> AnyMechanism:
    """The mechanism of an algorithm that a plan can name.

    Raises:
        InvalidRequest: no algorithm has this slug.
    """
    found = BY_SLUG.get(slug)
    if found is None:
        raise InvalidRequest.at("/algorithm", "unknown")
    return found


def family(slug: str) -> Family:
    """How the released arrays of an algorithm are stored and read.

    Raises:
        InvalidRequest: no algorithm has this slug.
    """
    return mechanism(slug).family


def read_outs(slug: str) -> tuple[str, ...]:
    """Read-outs that a model of this algorithm offers, its default first."""
    return mechanism(slug).read_outs


def algorithms() -> list[dict[str, object]]:
    """One description per algorithm: slug, title, source, story, read-outs and parameters. JSON-able."""
    return [
        {
            "slug": each.slug,
            "title": each.title,
            "accountants": list(each.accountants),
            "adjacency": each.adjacency.value,
            "unlabelled": isinstance(each, TwoDatasetMechanism),
            "source": each.source,
            "about": each.about.to_json(),
            "read_outs": list(each.read_outs),
            "parameters": [parameter.describe() for parameter in each.parameters],
        }
        for each in (AUTO, *_MECHANISMS)
    ]

"""Lists the algorithms, and the families that read their forests; ``auto`` chooses one
of them by public numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from grovekeeper_forests import expected_accuracy
from grovekeeper_forests.algorithms.bms_rf.price import StackedForest
from grovekeeper_forests.algorithms.bms_rf.read import StackedFamily
from grovekeeper_forests.algorithms.literature.label_price import (
    LabelMedianTrees,
    TransductiveEnsemble,
)
from grovekeeper_forests.algorithms.literature.price import (
    AveragedTrees,
    DrawnTrees,
    JagannathanTrees,
    LabelledRandomTrees,
    MaximalVoteTrees,
    MedianTrees,
    MultinomialForest,
    SemiSupervisedTrees,
    VotingTrees,
)
from grovekeeper_forests.algorithms.nbrt.price import NoiseMatchedBoosting
from grovekeeper_forests.algorithms.nbrt.read import BoostedFamily
from grovekeeper_forests.algorithms.rpf.price import ReweightedForest
from grovekeeper_forests.algorithms.rpf.read import ReweightedFamily
from grovekeeper_forests.bins.noisy_counts import mu_squared
from grovekeeper_forests.contract.algorithm import (
    About,
    Algorithm,
    Described,
    PublicFacts,
    TwoDatasetAlgorithm,
    Value,
)
from grovekeeper_forests.contract.plan import Family, Plan
from grovekeeper_forests.data.schema import NUMBER, Label
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.json_types import JsonMapping, JsonObject
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.trees.leaf_read_out import LeafFamily

MIN_SIZE_TIMES_MU: Final = 10
"""Public size × μ below which noise outweighs any structure, and noisy class
proportions are as accurate as trees.
"""

_CLASSES_ONLY: Final = MappingProxyType({"max_depth": 0, "n_estimators": 1})

_NUMBER_ONLY = (
    "The budget times the public size is so small that noise outweighs any structure: the model will be a noisy "
    "average, the same for every row."
)

_HOPELESS = (
    "The budget times the public size is so small that noise outweighs any structure: the model will be the noisy "
    "class proportions, the same for every row."
)


@dataclass(frozen=True)
class Choice:
    """The algorithm that is planned instead of ``auto``, parameters that override its
    rules, and warnings.
    """

    slug: str
    parameters: JsonMapping
    warnings: tuple[str, ...]


class Auto(Described):
    """A public rule that names an algorithm. The plan, the price and the model are
    those of the named algorithm.

    The rule names ``rpf`` on a ``pure`` account, where δ = 0, and ``nbrt`` on any other
    account. The named algorithm's rules choose the parameters. The rule reads the
    declaration, the public size and the budget only, so it costs no budget.
    """

    slug = "auto"
    title = "The better of rpf and nbrt for the account, sized by public numbers"
    source = "Grovekeeper; docs/proofs/rpf.md, docs/proofs/nbrt.md"
    about = About(
        claimed=None,
        wrong=None,
        here=(
            "Chooses one of two algorithms by public numbers; the chosen algorithm states guarantee and accuracy. "
            "Plan, price and model are those of the chosen algorithm."
        ),
        proof="docs/proofs/README.md",
        results="docs/results/flagships.md",
    )
    read_outs = ()
    parameters = ()
    predicts_numbers = True

    def reason(self, slug: str) -> str:
        """Why the rule names an algorithm, for a quote."""
        accounts = "accounts with a δ"
        if slug == ReweightedForest.slug:
            accounts = "pure accounts (δ = 0)"
        return f"auto chose {slug}, the most accurate algorithm of this service on {accounts}"

    def choose(self, facts: PublicFacts) -> Choice:
        """Chooses the algorithm for a budget and a public size.

        If noise would outweigh any structure, ``nbrt`` is planned without splits, so
        that the model is the noisy class proportions, and a warning is added. ``rpf``
        makes this check in its own ``fill_defaults``.
        """
        if facts.budget.accountant == pure.NAME:
            return Choice(ReweightedForest.slug, {}, ())
        if facts.size * math.sqrt(mu_squared(facts.budget)) < MIN_SIZE_TIMES_MU:
            is_number = facts.schema.label.is_number
            warning = _NUMBER_ONLY if is_number else _HOPELESS
            return Choice(NoiseMatchedBoosting.slug, _CLASSES_ONLY, (warning,))
        return Choice(NoiseMatchedBoosting.slug, {}, ())


AUTO = Auto()
"""The rule by which a plan chooses an algorithm and its parameters; see
:func:`grovekeeper_forests.releases.forest.price.plan`.
"""

BY_SLUG: Mapping[str, Algorithm] = MappingProxyType(
    {
        algorithm.slug: algorithm
        for algorithm in (
            ReweightedForest(),
            NoiseMatchedBoosting(),
            MultinomialForest(),
            VotingTrees(),
            AveragedTrees(),
            DrawnTrees(),
            JagannathanTrees(),
            LabelledRandomTrees(),
            MaximalVoteTrees(),
            MedianTrees(),
            StackedForest(),
            SemiSupervisedTrees(),
            LabelMedianTrees(),
            TransductiveEnsemble(),
        )
    }
)
"""Every algorithm."""

_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **dict.fromkeys(BY_SLUG, LeafFamily()),
        ReweightedForest.slug: ReweightedFamily(),
        NoiseMatchedBoosting.slug: BoostedFamily(),
        StackedForest.slug: StackedFamily(),
        LabelledRandomTrees.slug: LeafFamily("label"),
    }
)


def algorithm(slug: str) -> Algorithm:
    """The algorithm with this slug.

    Raises:
        ParameterInvalid: no algorithm has this slug.
    """
    if slug not in BY_SLUG:
        raise ParameterInvalid.named(
            "algorithm", "unknown", accepted=(AUTO.slug, *BY_SLUG)
        )
    return BY_SLUG[slug]


def family(slug: str) -> Family:
    """The family that stores and reads the released arrays of an algorithm."""
    return _FAMILIES[algorithm(slug).slug]


def read_outs(slug: str, label: Label | None = None) -> tuple[str, ...]:
    """Read-outs that a model of this algorithm offers, the default first.

    Args:
        slug: of the algorithm.
        label: of the model; a model of a label that is a number has one read-out.
    """
    if label is not None and label.is_number:
        return (NUMBER,)
    return algorithm(slug).read_outs


def shown_parameters(plan: Plan, label: Label) -> dict[str, Value]:
    """The parameters of a plan, where the label is a number without those that are of
    classes alone: a stored plan has them, too.
    """
    known = algorithm(plan.algorithm).parameters
    return {
        parameter.name: plan.parameters[parameter.name]
        for parameter in known
        if not (parameter.only_of_classes and label.is_number)
    }


def algorithms() -> list[JsonObject]:
    """One JSON-able description per algorithm: slug, title, source, claims, read-outs
    and parameters.
    """
    listed: tuple[Described, ...] = (AUTO, *BY_SLUG.values())
    return [
        {
            "slug": algorithm.slug,
            "title": algorithm.title,
            "source": algorithm.source,
            "about": {
                **vars(algorithm.about),
                "accuracy": expected_accuracy.at_epsilon_one(algorithm.slug),
            },
            "read_outs": list(algorithm.read_outs),
            "parameters": [parameter.describe() for parameter in algorithm.parameters],
            "accountants": list(algorithm.accountants),
            "adjacency": algorithm.adjacency.value,
            "unlabelled": isinstance(algorithm, TwoDatasetAlgorithm),
            "predicts_numbers": algorithm.predicts_numbers,
        }
        for algorithm in listed
    ]

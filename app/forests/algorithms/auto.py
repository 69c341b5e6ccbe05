"""Implements ``auto``, which chooses an algorithm and the size of its forest from public numbers alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from app.forests.algorithms.nbrt.price import NoiseMatchedBoosting
from app.forests.algorithms.rpf.price import ReweightedForest
from app.forests.bins.noisy_counts import mu_squared
from app.forests.contract.about import About
from app.forests.contract.algorithm import Described
from app.forests.contract.facts import PublicFacts
from app.privacy.accountants import pure

HOPELESS: Final = 10
"""Public size × μ below which noise outweighs any structure, and noisy class proportions are as accurate as trees."""

_CLASSES_ONLY: Final = MappingProxyType({"max_depth": 0, "n_estimators": 1})

_HOPELESS = (
    "The budget times the public size is so small that noise outweighs any structure: the model will be the noisy "
    "class proportions, the same for every row."
)


@dataclass(frozen=True)
class Choice:
    """The algorithm that is planned instead of ``auto``, parameters that override its rules, and warnings."""

    slug: str
    parameters: Mapping[str, object]
    warnings: tuple[str, ...]


_REASONS: Final = MappingProxyType(
    {
        ReweightedForest.slug: "auto chose rpf, the most accurate algorithm of this service on pure accounts (δ = 0)",
        NoiseMatchedBoosting.slug: "auto chose nbrt, the most accurate algorithm of this service on accounts with a δ",
    }
)


_ABOUT = About(
    claimed=None,
    wrong=None,
    here=(
        "Chooses one of two algorithms by public numbers; the chosen algorithm states guarantee and accuracy. Plan, "
        "price and model are those of the chosen algorithm."
    ),
    proof="docs/proofs/README.md",
    results="docs/results/flagships.md",
)


class Auto(Described):
    """A public rule that names an algorithm. The plan, the price and the model are those of the named algorithm.

    The rule names ``rpf`` on a ``pure`` account, where δ = 0, and ``nbrt`` on any other account. The named algorithm's
    rules choose the parameters. The rule reads the declaration, the public size and the budget only, so it costs no
    budget.
    """

    slug = "auto"
    title = "The better of rpf and nbrt for the account, sized by public numbers"
    source = "Grovekeeper; docs/proofs/rpf.md, docs/proofs/nbrt.md"
    about = _ABOUT
    read_outs = ()
    parameters = ()

    def reason(self, slug: str) -> str:
        """Why the rule names an algorithm, for a quote."""
        return _REASONS[slug]

    def choose(self, facts: PublicFacts) -> Choice:
        """Chooses the algorithm for a budget and a public size.

        If noise would outweigh any structure, ``nbrt`` is planned without splits, so that the model is the noisy class
        proportions, and a warning is added. ``rpf`` makes this check in its own ``settle``.
        """
        if facts.budget.accountant == pure.NAME:
            return Choice(ReweightedForest.slug, {}, ())
        if facts.size * math.sqrt(mu_squared(facts.budget)) < HOPELESS:
            return Choice(NoiseMatchedBoosting.slug, _CLASSES_ONLY, (_HOPELESS,))
        return Choice(NoiseMatchedBoosting.slug, {}, ())

"""``auto``: which algorithm, and how large, from public numbers only."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from app.forests.algorithms.nbrt.price import NoiseMatchedBoosting
from app.forests.algorithms.rpf.price import ReweightedForest
from app.forests.bins.noise_prices import mu_squared
from app.forests.contract.about import About
from app.forests.contract.algorithm import Described
from app.forests.contract.facts import PublicFacts
from app.privacy.accountants import pure

HOPELESS: Final = 10
"""Rows × μ below which noise outweighs any structure: the noisy class proportions do as well."""

_CLASSES_ONLY: Final = MappingProxyType({"max_depth": 0, "n_estimators": 1})

_HOPELESS = (
    "The budget times the public size is so small that noise outweighs any structure: the model will be the noisy "
    "class proportions, the same for every row."
)


@dataclass(frozen=True)
class Choice:
    """What to plan instead: an algorithm, parameters that its own rules do not choose, and warnings."""

    slug: str
    parameters: Mapping[str, object]
    warnings: tuple[str, ...]


_ABOUT = About(
    claimed=None,
    wrong=None,
    here=(
        "Names one of two algorithms by public numbers; see its guarantee and accuracy there. The plan, the price "
        "and the model are those of what it names."
    ),
    proof="docs/proofs/README.md",
    results="docs/results/flagships.md",
    accuracy=(),
)


class Auto(Described):
    """Not a mechanism: a rule that names one. The plan, the price and the model are those of what it names.

    On a ``pure`` account, where δ = 0, ``rpf``; elsewhere ``nbrt``; the rest by their own rules. The rule sees the
    declaration, the public size and the budget, so it costs nothing.
    """

    slug = "auto"
    title = "The better of rpf and nbrt for the account, sized by public numbers"
    source = "Grovekeeper; docs/proofs/rpf.md, docs/proofs/nbrt.md"
    about = _ABOUT
    read_outs = ()
    parameters = ()

    def choose(self, facts: PublicFacts) -> Choice:
        """The algorithm for a budget and a size. Where both are hopeless, the noisy class proportions, with a warning.

        ``rpf`` finds out by itself that its budget is hopeless.
        """
        if facts.budget.accountant == pure.NAME:
            return Choice(ReweightedForest.slug, {}, ())
        if facts.size * math.sqrt(mu_squared(facts.budget)) < HOPELESS:
            return Choice(NoiseMatchedBoosting.slug, _CLASSES_ONLY, (_HOPELESS,))
        return Choice(NoiseMatchedBoosting.slug, {}, ())

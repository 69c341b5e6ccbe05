"""Prices ``mrf``, the multinomial random forest, repaired: public candidates, depth-only stopping, noisy leaves.

Li et al., "Multinomial random forest: toward consistency and privacy-preservation" (preprint), and Bai et al.,
"Multinomial random forest" (2022). docs/proofs/mrf.md shows the errors of the papers and proves the guarantee of this
version.
"""

from __future__ import annotations

from fractions import Fraction

from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value
from app.forests.trees import multinomial_price, shapes, tree_parameters
from app.forests.trees.multinomial_price import USUAL_STRUCTURE_SHARE
from app.privacy.events import Event

_ALL_RANDOM = (
    "Every split is random (exploration is 1), so what is charged for choosing splits buys nothing; see rdt-ta."
)


_ABOUT = About(
    claimed=(
        "ε-differential privacy of trees whose splits and labels are drawn by exponential mechanisms on normalised "
        "utilities, and consistency."
    ),
    wrong=(
        "Split values lie halfway between values present, and a stop reads an exact count: the loss is infinite. "
        "Normalised utilities make the labels of 64 trees at ε = 1 nearly coins, at most 51.2 % right on two "
        "classes, so the reported accuracy is not that of the mechanism. Labels that are drawn anew for every "
        "prediction cost budget every time."
    ),
    here=(
        "The same trees with public candidates, and counts as utilities at the price of what one row moves; a fixed "
        "depth; labels or counts are released once. Every mode of the papers is a parameter. Consistency is not "
        "claimed."
    ),
    proof="docs/proofs/mrf.md",
    results="docs/results/papers.md",
)


class MultinomialForest(Algorithm):
    """Trees whose splits are selected at random by a utility of class counts, with noisy counts or labels in leaves."""

    slug = "mrf"
    title = "Multinomial random forest, repaired"
    source = "Bai et al. (2022), Multinomial random forest, Pattern Recognition; repaired"
    about = _ABOUT
    read_outs = ("log", "ta", "mv")
    parameters = (
        *multinomial_price.PARAMETERS,
        Parameter(
            "exploration",
            "number",
            "Probability that a node takes a random feature and a random split of it, without looking at rows.",
            default="0",
            minimum=Fraction(0),
            maximum=Fraction(1),
        ),
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the shares of each tree's ε, and the number and depth of trees, from public facts."""
        settled = dict(requested)
        tree_parameters.settle_structure_share(settled, facts, usual=USUAL_STRUCTURE_SHARE)
        settled, warnings = shapes.fill_greedy_sizes(settled, facts)
        if settled["exploration"] == "1" and int(settled["max_depth"]) > 0:
            warnings = (*warnings, _ALL_RANDOM)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees, sequential or on disjoint rows; a tree is the selections of a path, then its leaves."""
        return multinomial_price.event(parameters, facts)

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        multinomial_price.check(event, parameters)

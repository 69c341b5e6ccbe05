"""Prices ``pte``: only the small ensemble on private labels costs budget, not the larger one on its predictions.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles", Algorithm 4.
docs/proofs/pte.md states the claim, shows why the second noise is not needed and proves this version.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from app.core import limits
from app.core.errors import InvalidRequest
from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value
from app.forests.trees import label_prices, leaf_prices, tree_parameters
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

DEFAULT_TEACHERS, DEFAULT_PUPILS = 10, 50

_TEACHERS = Parameter(
    "n_teachers",
    "integer",
    "Trees of the first ensemble, which divide the labels or ε; the other trees learn from the labels that the "
    "first ensemble predicts. By default ten, or all trees if there are fewer.",
    minimum=Fraction(1),
    maximum=Fraction(limits.MAX_TREES),
)


_ABOUT = About(
    claimed=(
        "ε-differential privacy of a first ensemble that labels further rows, and of a second one that learns from "
        "those labels."
    ),
    wrong=(
        "The text contradicts itself on whether features are private. If so, both ensembles read the rows again: the "
        "price is a multiple. If not, the price is right where a label is added or removed, and 2ε where one changes; "
        "the second ensemble needs no noise."
    ),
    here=(
        "Only on accounts that protect labels: the first ensemble costs budget, the second reads the first "
        "ensemble's labels and public features at no cost."
    ),
    proof="docs/proofs/pte.md",
    results="docs/results/semi-supervised.md",
)


class TransductiveEnsemble(Algorithm):
    """Median trees with noisy label counts, then median trees with exact counts of the labels that these predict."""

    slug = "pte"
    title = "Transductive ensemble of median trees for labels alone"
    source = "Huang, Lei and Kabán, private transductive ensemble; repaired"
    about = _ABOUT
    adjacency = Adjacency.LABEL
    reuses_profiles = False
    reads_values = True
    read_outs = ("ta", "mv")
    parameters = (
        replace(
            tree_parameters.N_ESTIMATORS,
            description="Trees of both ensembles together. By default the teachers and fifty more.",
        ),
        _TEACHERS,
        tree_parameters.MAX_DEPTH,
        label_prices.N_BINS,
        tree_parameters.SHARDED_ASSIGNMENT,
        label_prices.MIN_ROWS,
        label_prices.LABELLED_SHARE,
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in ten and fifty trees, the fewest rows of a node that splits and, from public facts, the depth.

        Raises:
            InvalidRequest: more teachers than trees.
        """
        settled = dict(requested)
        if "n_estimators" in settled:
            settled.setdefault("n_teachers", min(DEFAULT_TEACHERS, int(settled["n_estimators"])))
        settled.setdefault("n_teachers", DEFAULT_TEACHERS)
        settled.setdefault("n_estimators", min(int(settled["n_teachers"]) + DEFAULT_PUPILS, limits.MAX_TREES))
        n_teachers = int(settled["n_teachers"])
        if n_teachers > int(settled["n_estimators"]):
            raise InvalidRequest.at("/parameters/n_teachers", "too-large", limit=int(settled["n_estimators"]))
        warnings = label_prices.settle(settled, facts, n_noisy_trees=n_teachers)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event of the first ensemble alone: trees on disjoint labels, or sequential."""
        return label_prices.label_event(
            parameters, facts, kind=leaf_prices.COUNTS, n_trees=int(parameters["n_teachers"])
        )

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        label_prices.require_label_event(event, kind=leaf_prices.COUNTS)

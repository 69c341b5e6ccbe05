"""Prices ``sspe-2``: median trees with structure from public features and noise on labels only.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles", Algorithm 3
in its second setting. docs/proofs/sspe-2.md shows that the paper needs twice its noise and proves this version.
"""

from __future__ import annotations

from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.trees import label_prices, leaf_prices, tree_parameters
from app.forests.trees.label_prices import N_BINS, label_event, require_label_event
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

_ABOUT = About(
    claimed=(
        "ε-differential privacy of labels, features being public: exact medians, Laplace noise of scale 1/ε on leaf "
        "counts."
    ),
    wrong="Right where a label is added or removed, as in the paper; 2ε where one changes, which moves two counts.",
    here=(
        "The same with noise for two counts, only on accounts whose owner published features and membership. It "
        "protects labels and nothing else."
    ),
    proof="docs/proofs/sspe-2.md",
    results="docs/results/semi-supervised.md",
)


class LabelMedianTrees(Algorithm):
    """Each node splits a random feature at its exact median; each leaf releases noisy label counts or one label.

    Rows without a known label, the paper's unlabelled set, are used for the structure.
    """

    slug = "sspe-2"
    title = "Median trees for labels alone"
    source = "Huang, Lei and Kabán, semi-supervised private ensemble, label privacy; repaired"
    about = _ABOUT
    adjacency = Adjacency.LABEL
    reuses_profiles = False
    reads_values = True
    """No profile is needed: features are public, so exact medians among 255 steps cost no budget."""
    read_outs = ("log", "sum", "ta", "mv")
    parameters = (
        tree_parameters.TEN_TREES,
        tree_parameters.MAX_DEPTH,
        N_BINS,
        tree_parameters.SHARDED_ASSIGNMENT,
        leaf_prices.LEAF,
        label_prices.MIN_ROWS,
        label_prices.LABELLED_SHARE,
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the fewest rows of a node that splits and, from the public size and ε, the depth."""
        settled = dict(requested)
        warnings = label_prices.settle(settled, facts, n_noisy_trees=int(settled["n_estimators"]))
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees on disjoint labels, or sequential; a tree is the releases of its leaves."""
        return label_event(parameters, facts, kind=str(parameters["leaf"]), n_trees=int(parameters["n_estimators"]))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        require_label_event(event, kind=str(parameters["leaf"]))

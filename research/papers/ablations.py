"""Lists the ablations and figures of the papers: their tasks, their numbers of folds,
and what is measured.

``research.papers.ablation_runs`` runs them and writes their pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

from research import printed_tables
from research.papers import synthetic
from research.papers.ablation_measures import (
    NORMAL,
    accuracy,
    median_distances,
    tree_accuracies,
)
from research.papers.forests import catalogue
from research.papers.forests.parameters import DRAWN
from research.papers.literal_forests import MEDIAN_TREES, SMOOTH
from research.papers.median_trees import GEOMETRIC, MEDIANS, PRIVATE, UNIFORM
from research.printed_pages import N_FOLDS
from research.runs import Task

Values = Mapping[Task, Sequence[Sequence[float]]]
"""Numbers of the runs of a task, by the task on the first fold."""


@dataclass(frozen=True)
class Ablation:
    """A figure or a table of a paper as a list of runs.

    Attributes:
        tasks: on the first fold.
        measure: makes the numbers of a task; ``None`` as a folder means the bundled
            datasets.
        n_folds: number of folds of every task: one whole cross-validation where rows
            are real.
    """

    tasks: Sequence[Task]
    measure: Callable[[Path | None, Task], Sequence[float]] = accuracy
    n_folds: int = N_FOLDS

    @property
    def runs(self) -> list[Task]:
        """All tasks on all their folds, fold by fold."""
        return [
            replace(task, repeat=repeat)
            for repeat in range(self.n_folds)
            for task in self.tasks
        ]


N_SUPERVISED = 10
"""Trees of the ensembles of Huang, Lei and Kabán."""

FIGURE_1_EPSILONS = ("0.5", "1", "2", "5", "10")
FIGURE_2_EPSILONS, FIGURE_2_DEPTHS = ("0.1", "0.5", "1", "2", "5"), (5, 10)
FIGURE_3_TREES = (1, 2, 5, 10, 20, 40)
FIGURE_3_FEATURES = {"banknote": 4, "car": 6, "nursery": 8}
"""Datasets of table 1, as the text that we have does not name those of the figure, and
their numbers of features.
"""


def median_task(
    dataset: str, medians: str, n_trees: int, max_depth: int, epsilon: str
) -> Task:
    """The task of an ensemble of printed median trees on the first fold."""
    algorithm = (
        f"{MEDIAN_TREES}:medians={medians},n_estimators={n_trees},max_depth={max_depth}"
    )
    return Task(dataset, algorithm, epsilon, "0", 0)


def _figure_1() -> Iterator[Task]:
    for width in synthetic.WIDTHS[:2]:
        for name, epsilon in product(synthetic.names(width), FIGURE_1_EPSILONS):
            yield from (
                median_task(name, medians, N_SUPERVISED, width, epsilon)
                for medians in MEDIANS
            )


def repaired_task(
    dataset: str, n_trees: int, epsilon: str, max_depth: int | None = None
) -> Task:
    """The task of an ensemble of ``spe`` on the first fold; its public rule chooses the
    depth unless it is given.
    """
    depth = "" if max_depth is None else f",max_depth={max_depth}"
    return Task(dataset, f"spe:n_estimators={n_trees}{depth}", epsilon, "0", 0)


def _repaired() -> Iterator[Task]:
    for width in synthetic.WIDTHS[:2]:
        for name, epsilon in product(synthetic.names(width), FIGURE_1_EPSILONS):
            yield repaired_task(name, N_SUPERVISED, epsilon)
    for (dataset, n_features), n_trees in product(
        FIGURE_3_FEATURES.items(), FIGURE_3_TREES
    ):
        yield repaired_task(dataset, n_trees, "2", n_features)


def distance_task(max_depth: int, ratio: float, epsilon: str) -> Task:
    """The task of a tree of figure 2 on normal data."""
    return Task(
        NORMAL,
        f"{MEDIAN_TREES}:max_depth={max_depth},level_ratio={ratio:g}",
        epsilon,
        "0",
        0,
    )


def depths_of(n_features: int) -> tuple[int, int, int]:
    """Half, once and twice the number of features: the depths of figure 3."""
    return n_features // 2, n_features, 2 * n_features


def _figure_3() -> Iterator[Task]:
    for dataset, n_features in FIGURE_3_FEATURES.items():
        for depth, n_trees in product(depths_of(n_features), FIGURE_3_TREES):
            yield median_task(dataset, PRIVATE, n_trees, depth, "2")


SYNTHETIC = {
    "RF": "breiman:min_samples_leaf=1", "SPE": "spe:n_estimators=10", "SRT": "srt:n_estimators=10",
    "RDT": "rdt-jagannathan:n_estimators=10", "MaxTree": "maxtree:n_estimators=10", "SSPE-1": "sspe-1",
    "SSPE-2": "sspe-2:labelled_share=0.2", "PTE": "pte:labelled_share=0.2",
}  # fmt: skip
"""Algorithms of tables 1 and 2 as in ``printed_tables``, by printed method."""


def synthetic_tasks(width: int, method: str) -> list[Task]:
    """The tasks of a printed method on the generated datasets of a width; "SPE as
    printed" is the printed rule.
    """
    if method == "SPE as printed":
        return [
            median_task(name, PRIVATE, N_SUPERVISED, width, "2")
            for name in synthetic.names(width)
        ]
    epsilon = "" if method == "RF" else "2"
    return [
        Task(name, SYNTHETIC[method], epsilon, "0", 0)
        for name in synthetic.names(width)
    ]


def _synthetic() -> Iterator[Task]:
    for width, method in product(synthetic.WIDTHS, (*SYNTHETIC, "SPE as printed")):
        yield from synthetic_tasks(width, method)


def _grid(slug: str, **choices: Sequence[object]) -> tuple[str, ...]:
    """Every combination of the values of parameters as in :class:`Task`, without those
    that are defaults.
    """
    defaults = {
        parameter.name: str(parameter.default)
        for parameter in catalogue.REFERENCES[slug].parameters
    }
    algorithms = []
    for values in product(*choices.values()):
        setting = {
            name: str(value) for name, value in zip(choices, values, strict=True)
        }
        text = ",".join(
            f"{name}={value}"
            for name, value in setting.items()
            if value != defaults[name]
        )
        algorithms.append(f"{slug}:{text}" if text else slug)
    return tuple(algorithms)


_LEAVES, _STRENGTHS = (5, 1), (10, 5, 20)
OBLIQUE = {
    "RoF-PCA": "rof-pca",
    "RoF-LDA": "rof-lda",
    "MPSVM-T": "mpsvm-t",
    "MPSVM-P": "mpsvm-p",
    "MPSVM-N": "mpsvm-n",
}

TABLE_4 = {
    "Denil14": _grid("denil14", min_samples_leaf=_LEAVES, pool_size=(1_000, 100)),
    "BRF": _grid("brf", min_samples_leaf=_LEAVES, p2=("0.05", "0.2")),
    "CompRF-C": _grid("comprf-c", min_samples_leaf=_LEAVES),
    "MRF": _grid("mrf-plain", min_samples_leaf=_LEAVES, b2=_STRENGTHS),
    "CompRF-I": _grid("comprf-i", max_samples_leaf=_LEAVES),
    "Breiman": _grid("breiman", min_samples_leaf=_LEAVES, max_features=("sqrt", "all")),
    "Breiman+SE": _grid("breiman-se", min_samples_leaf=_LEAVES),
    "Breiman+M": _grid("breiman-m", min_samples_leaf=_LEAVES, b2=_STRENGTHS),
}
TABLE_5 = {
    **{
        name: _grid(slug, min_samples_leaf=_LEAVES)
        for name, slug in (*OBLIQUE.items(), ("HobRaF", "hobraf"))
    },
    "MRF": TABLE_4["MRF"],
}
OPTIMAL = {"mrf-4": TABLE_4, "mrf-5": TABLE_5}
"""Settings of every method among which the best is taken; the paper prints no grid."""

OPTIMAL_DATASETS = ("Hayes", "Echo", "Hepatitis", "Vehicle", "Yeast")


def optimal_tasks(table: str, dataset: str, method: str) -> list[Task]:
    """The tasks of the settings of a method of table 4 or 5, by printed names."""
    file = printed_tables.sources()[dataset].file
    if method in OBLIQUE:
        file = printed_tables.declared(file)
    return [Task(file, algorithm, "", "0", 0) for algorithm in OPTIMAL[table][method]]


def _optimal() -> Iterator[Task]:
    for table, grids in OPTIMAL.items():
        for dataset, method in product(OPTIMAL_DATASETS, grids):
            yield from optimal_tasks(table, dataset, method)


FIGURE_5_DATASETS = tuple(
    dict.fromkeys(
        file
        for cell in printed_tables.rows("mrf-2")
        for file in (printed_tables.sources()[cell.dataset].file,)
        if file and ":" not in file
    )
)
"""Every dataset of table 2 that we have, by file and with its documented label: our
text does not name the eight.
"""

FIGURE_5_TREES = (1, 2, 4, 8, 16, 32, 64)

DRAWN_TIES = f"ties={DRAWN}"
"""Of votes, as in section 3.3 of Bai et al. With few trees and labels that are nearly
coins, ties are frequent, and the class that gets them gains.
"""

LITERAL, FIGURE_5_DEPTH = "mrf-plain", 10
FIGURE_5_FORESTS = (LITERAL, SMOOTH, "mrf", "srt")
"""The two forests as printed, and their repaired forms."""


def privacy_task(slug: str, dataset: str, n_trees: int, epsilon: str) -> Task:
    """The task of a forest of figure 5, one of :data:`FIGURE_5_FORESTS`.

    As printed, t trees of depth d have B1 = B2 = ε / (2 d t) and B3 = ε / t (Bai et
    al., section 5.3).
    """
    if slug != LITERAL:
        return Task(dataset, f"{slug}:n_estimators={n_trees}", epsilon, "0", 0)
    of_tree = Fraction(epsilon) / n_trees
    split, label = (
        f"{float(strength):.12g}"
        for strength in (of_tree / (2 * FIGURE_5_DEPTH), of_tree)
    )
    sizes = f"n_estimators={n_trees},max_depth={FIGURE_5_DEPTH}"
    strengths = f"b1={split},b2={split},b3={label}"
    return Task(dataset, f"{slug}:{sizes},{strengths},{DRAWN_TIES}", "", "0", 0)


FIGURE_6_DATASETS, FIGURE_6_STRENGTHS = (
    ("echocardiogram", "cmc", "wdbc", "car"),
    (0, 5, 10, 15, 20),
)
"""Datasets of the figure that we have, and values of B1 and B2 in its range."""


def strength_task(dataset: str, b1: int, b2: int) -> Task:
    """The task of a forest of figure 6."""
    return Task(dataset, f"mrf-plain:b1={b1},b2={b2}", "", "0", 0)


FIGURE_7_DATASETS, FIGURE_7_FORESTS = (
    ("echocardiogram", "cmc", "wdbc", "car"),
    ("mrf-plain", "breiman"),
)

RATES = ("0.05", "0.1", "0.2", "0.4", "0.6", "0.8", "1")
"""Values of p1 and p2 (table 2 of Song and Wang)."""

DROPOUT_DATASETS, DROPOUT_TREES = ("movement_libras", "sonar", "wine_quality_red"), 30
"""Datasets of figures 2 and 3, and the largest number of trees of a layer in the paper;
theirs is not printed.
"""


def dropout_task(dataset: str, p1: str, p2: str) -> Task:
    """The task of a forest without layers of figures 2 and 3."""
    return Task(
        dataset,
        f"bms-rf-plain:n_estimators={DROPOUT_TREES},n_layers=1,p1={p1},p2={p2}",
        "",
        "0",
        0,
    )


STACKED_SIZES, N_LAYERS = (3, 10, 20, 30, 40, 50, 60), 3
"""Trees of all layers of figure 4, and its layers."""

STACKED_DATASETS = (
    "Zoo",
    "Wpbc",
    "Wdbc",
    "Sonar",
    "Movement_libras",
    "Australian",
    "Vehicle",
    "Banknote",
)
"""Eight datasets of table 3, as the text that we have names few of those of the
figures.
"""

BUDGETS, BUDGET_SIZES = ("0.1", "0.5", "1"), (3, 30, 60)
BUDGET_DATASETS = ("Zoo", "Sonar", "Australian", "Vehicle")
"""The datasets that the text on figure 5 names."""


@cache
def rates_of(dataset: str) -> tuple[str, str]:
    """p1 and p2 of a dataset in table 5 of Song and Wang, by printed name."""
    (parameters,) = (
        cell.parameters
        for cell in printed_tables.cells()
        if (cell.table, cell.dataset, cell.method) == ("bms-3", dataset, "BMS-RF")
    )
    settings = dict(pair.split("=") for pair in parameters.split(","))
    return settings["p1"], settings["p2"]


def stacked_tasks(dataset: str, n_trees: int) -> tuple[Task, Task]:
    """The tasks of BMS-RF with three layers and of MRF with as many trees (figure 4),
    by the dataset's printed name.
    """
    file, (p1, p2) = printed_tables.sources()[dataset].file, rates_of(dataset)
    stacked = f"bms-rf-plain:n_estimators={n_trees},n_layers={N_LAYERS},p1={p1},p2={p2}"
    return Task(file, stacked, "", "0", 0), Task(
        file, f"mrf-plain:n_estimators={n_trees}", "", "0", 0
    )


def printed_budget_tasks(dataset: str, n_trees: int, epsilon: str) -> tuple[Task, Task]:
    """The tasks of BMS-RF with three layers and of MRF with as many trees at a budget,
    as printed (figure 5).

    Every layer has all of ε, so that its M trees of depth d have B1 = B2 = ε / (2 d M)
    and B3 = ε / M (Song and Wang, section 3.2.1).
    """
    file, (p1, p2) = printed_tables.sources()[dataset].file, rates_of(dataset)
    of_tree = Fraction(epsilon) * N_LAYERS / n_trees
    split, label = (
        f"{float(strength):.12g}"
        for strength in (of_tree / (2 * FIGURE_5_DEPTH), of_tree)
    )
    sizes = f"n_estimators={n_trees},n_layers={N_LAYERS}"
    strengths = f"b1={split},b2={split},b3={label}"
    stacked = f"bms-rf-plain:{sizes},{strengths},p1={p1},p2={p2},{DRAWN_TIES}"
    plain = privacy_task(LITERAL, file, n_trees, epsilon)
    return Task(file, stacked, "", "0", 0), plain


def budget_tasks(dataset: str, n_trees: int, epsilon: str) -> tuple[Task, Task]:
    """The tasks of the repaired ``bms-rf`` with three layers and of ``mrf`` with as
    many trees (figure 5).
    """
    file, (p1, p2) = printed_tables.sources()[dataset].file, rates_of(dataset)
    stacked = f"bms-rf:n_estimators={n_trees},n_layers={N_LAYERS},kept_features={p1},kept_splits={p2}"
    return Task(file, stacked, epsilon, "0", 0), Task(
        file, f"mrf:n_estimators={n_trees}", epsilon, "0", 0
    )


ADVANCED_DATASETS = (
    "Zoo", "Wpbc", "Wdbc", "Sonar", "Movement_libras", "Australian", "Vehicle", "Banknote", "WineQuality-red", "Image",
    "WineQuality-White",
)  # fmt: skip
"""Datasets of table 4 of Song and Wang that we have."""


def advanced_task(dataset: str, method: str) -> Task:
    """The task of an advanced forest of table 4 of Song and Wang, by printed names."""
    file = printed_tables.declared(printed_tables.sources()[dataset].file)
    return Task(file, OBLIQUE[method], "", "0", 0)


_WHOLE = 3 * N_FOLDS
"""Three cross-validations, where one leaves a sentence of the paper undecided."""

ABLATIONS: Mapping[str, Ablation] = {
    "huang-figure-1": Ablation(tuple(_figure_1()), n_folds=_WHOLE),
    "huang-figure-2": Ablation(
        tuple(
            distance_task(depth, ratio, epsilon)
            for depth, ratio, epsilon in product(
                FIGURE_2_DEPTHS, (GEOMETRIC, UNIFORM), FIGURE_2_EPSILONS
            )
        ),
        median_distances,
        n_folds=100,
    ),
    "huang-figure-3": Ablation(tuple(_figure_3()), n_folds=2 * _WHOLE),
    "huang-repaired": Ablation(tuple(_repaired())),
    "huang-synthetic": Ablation(tuple(_synthetic())),
    "mrf-optimal": Ablation(tuple(dict.fromkeys(_optimal()))),
    "mrf-figure-5": Ablation(
        tuple(
            privacy_task(*place)
            for place in product(
                FIGURE_5_FORESTS, FIGURE_5_DATASETS, FIGURE_5_TREES, BUDGETS
            )
        )
    ),
    "mrf-figure-6": Ablation(
        tuple(
            strength_task(*place)
            for place in product(
                FIGURE_6_DATASETS, FIGURE_6_STRENGTHS, FIGURE_6_STRENGTHS
            )
        )
    ),
    "preprint-figure-7": Ablation(
        tuple(
            Task(dataset, slug, "", "0", 0)
            for dataset, slug in product(FIGURE_7_DATASETS, FIGURE_7_FORESTS)
        ),
        tree_accuracies,
    ),
    "song-figure-2": Ablation(
        tuple(dropout_task(*place) for place in product(DROPOUT_DATASETS, RATES, RATES))
    ),
    "song-figure-4": Ablation(
        tuple(
            task
            for place in product(STACKED_DATASETS, STACKED_SIZES)
            for task in stacked_tasks(*place)
        )
    ),
    "song-table-4": Ablation(
        tuple(advanced_task(*place) for place in product(ADVANCED_DATASETS, OBLIQUE))
    ),
    "song-figure-5": Ablation(
        tuple(
            task
            for place in product(BUDGET_DATASETS, BUDGET_SIZES, BUDGETS)
            for task in (*printed_budget_tasks(*place), *budget_tasks(*place))
        )
    ),
}
"""Every ablation by name; the runs of ``song-figure-2`` are those of figure 3, too,
which shows their times.
"""

"""Lists the papers' tables: printed numbers, datasets, and our algorithms beside each
printed method.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from research.datasets import DECLARED, NUMBERS
from research.papers.literal_forests import MEDIAN_TREES, PTE, SMOOTH, SSPE_2
from research.runs import Task

_REFERENCE = Path(__file__).with_name("reference")
PRINTED, DATASETS, NOTES = (
    _REFERENCE / f"printed{name}.csv" for name in ("", "_datasets", "_notes")
)

OTHER_LABELS = {"Hepatitis": "Hepatitis by histology"}
"""Printed datasets that run again with another column as label, because the printed
numbers suggest it.
"""


ALL_CATEGORIES = ("hayes_roth", "tic_tac_toe")
"""Datasets of Bai et al. below 2,000 rows whose features are all unordered categories,
by file.
"""

WITH_CATEGORIES = ("zoo", "hayes_roth", "tic_tac_toe", "australian")
"""Datasets below 2,000 rows of Bai et al., and of Song and Wang, half of whose features
or more are unordered categories without missing values, by file.
"""

WITH_SOME_CATEGORIES = (
    "zoo", "hayes_roth", "echocardiogram", "hepatitis", "hepatitis:histology", "mammographic", "tic_tac_toe", "cmc",
    "kr_vs_kp", "nursery", "australian",
)  # fmt: skip
"""Datasets of Bai et al. and of Song and Wang with an unordered category, by file and
label.
"""


def declared(file: str) -> str:
    """The dataset of a file without columns for other and missing values, which forests
    of planes have: a column that is 0 in every row is in every null space.
    """
    return f"{file}@{DECLARED}" if file in WITH_SOME_CATEGORIES else file


@dataclass(frozen=True)
class Check:
    """A run that tests a reason of a difference.

    Attributes:
        title: the reason.
        algorithm: written as in :class:`Task`.
        epsilon: its ε; empty: without privacy.
        coding: how categories become columns, as in ``datasets.read``; empty: a column
            for every value, OTHER and MISSING.
        files: datasets that it runs on; empty: all.
    """

    title: str
    algorithm: str
    epsilon: str = ""
    coding: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """The algorithms that stand beside a printed method, written as in :class:`Task`.

    Attributes:
        plain: algorithm without privacy; empty: none.
        private: repaired algorithm, which runs at the printed ε; empty: none.
        checks: runs that test reasons of a difference.
        absent: why neither is there; empty otherwise.
        splits_by_planes: whether ``plain`` has no columns for other and missing values.
    """

    plain: str = ""
    private: str = ""
    checks: tuple[Check, ...] = ()
    absent: str = ""
    splits_by_planes: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        name: first column of ``printed.csv``.
        title: title of its page.
        measures_error: whether the paper prints 100 − accuracy.
        about: the paper's protocol, and what is otherwise here.
        methods: by printed name.
        n_splits: number of random splits whose mean a printed number is; 0: it is the
            mean of ten whole cross-validations.
    """

    name: str
    title: str
    about: str
    methods: Mapping[str, Method]
    measures_error: bool = False
    n_splits: int = 0


@dataclass(frozen=True)
class Cell:
    """A printed number.

    Attributes:
        table: name of the table.
        dataset: as printed.
        method: as printed.
        printed: accuracy in percent.
        parameters: parameters that the paper chose for this cell, as in :class:`Task`.
        epsilon: ε of the private run beside the number; empty: none.
    """

    table: str
    dataset: str
    method: str
    printed: float
    parameters: str
    epsilon: str

    @property
    def plain(self) -> Task | None:
        """Specification of the run without privacy, on the first split."""
        method = TABLES[self.table].methods[self.method]
        if not method.plain:
            return None
        task = self._task(method.plain, self.parameters, "")
        return (
            replace(task, dataset=declared(task.dataset))
            if task is not None and method.splits_by_planes
            else task
        )

    @property
    def private(self) -> Task | None:
        """Specification of the private run, on the first split."""
        algorithm = TABLES[self.table].methods[self.method].private
        # Random trees and stacked forests take the paper's sizes; elsewhere those
        # belong to the run without privacy.
        parameters = self.parameters if algorithm.startswith(("rdt-", "bms-rf")) else ""
        return (
            self._task(algorithm, _private(parameters), self.epsilon)
            if algorithm
            else None
        )

    @property
    def checks(self) -> Mapping[str, Task]:
        """Specifications of the runs that test reasons of a difference, on the first
        split, by reason.
        """
        checks = TABLES[self.table].methods[self.method].checks
        tasks = {
            check.title: self._task(
                check.algorithm,
                "" if check.epsilon else self.parameters,
                check.epsilon,
                check.coding,
            )
            for check in checks
            if not check.files or sources()[self.dataset].file in check.files
        }
        return {title: task for title, task in tasks.items() if task is not None}

    def _task(
        self, algorithm: str, parameters: str, epsilon: str, coding: str = ""
    ) -> Task | None:
        file = sources()[self.dataset].file
        if not file:
            return None
        if coding:
            file = f"{file}@{coding}"
        joined = (
            f"{algorithm}{',' if ':' in algorithm else ':'}{parameters}"
            if parameters
            else algorithm
        )
        return Task(file, joined, epsilon, "0", 0)


@dataclass(frozen=True)
class Source:
    """A dataset of the papers.

    Attributes:
        file: name of its files; empty: it is missing.
        missing: why it is missing.
    """

    file: str
    missing: str


def _private(parameters: str) -> str:
    """The printed parameters under the names of the private algorithms."""
    pairs = [pair.split("=") for pair in parameters.split(",") if pair]
    names = {"p1": "kept_features", "p2": "kept_splits"}
    return ",".join(f"{names.get(name, name)}={value}" for name, value in pairs)


@cache
def sources() -> Mapping[str, Source]:
    """Datasets by printed name."""
    with DATASETS.open(newline="", encoding="utf-8") as lines:
        return {
            row["printed"]: Source(row["dataset"], row["missing"])
            for row in csv.DictReader(lines)
        }


@cache
def notes() -> Mapping[tuple[str, str], str]:
    """What differs from a paper's description of a dataset, by the beginning of its
    tables' names and printed name.
    """
    with NOTES.open(newline="", encoding="utf-8") as lines:
        return {
            (row["paper"], row["dataset"]): row["note"] for row in csv.DictReader(lines)
        }


@cache
def cells() -> Sequence[Cell]:
    """All printed numbers, as accuracies in percent, in the order of the papers."""
    with PRINTED.open(newline="", encoding="utf-8") as lines:
        return tuple(
            Cell(
                row["table"],
                row["dataset"],
                row["method"],
                _accuracy(row),
                row["parameters"],
                row["epsilon"],
            )
            for row in csv.DictReader(lines)
        )


def rows(table: str) -> Iterator[Cell]:
    """The cells of a table, each of a dataset in :data:`OTHER_LABELS` followed by
    itself with the other label.
    """
    for cell in cells():
        if cell.table == table:
            yield cell
            if cell.dataset in OTHER_LABELS:
                yield replace(cell, dataset=OTHER_LABELS[cell.dataset])


def _accuracy(row: Mapping[str, str]) -> float:
    printed = float(row["printed"])
    return round(100 - printed, 2) if TABLES[row["table"]].measures_error else printed


_STOP = (
    "split a node of more than k estimation points, as line 3 of Algorithm 1 of Bai et al. says; their published code "
    "does where both sides have one, and their section 3.2 contradicts it, with k in every leaf."
)
OF_BAI = (
    f"The paper: 10 times 10-fold cross-validation, 100 trees, smallest leaf 5. MRF and Breiman+SE {_STOP} "
    "Breiman+M, which has bootstrap samples, splits a node of more than k draws. "
    "Denil14, BRF and CompRF-C leave k estimation points on both sides. CompRF-I splits a node of more than five rows. "
    "Breiman leaves five rows on both sides, the others five draws of the bootstrap. The paper "
    "says that it does no preprocessing but for missing values, and not how categories become numbers. "
    "Here an ordered category is a number, and every value of another one a column of 0 and 1, as are “other” and "
    "“missing”, which are 0 in every row of a table without such cells and count in √D, but not for RoF and MPSVM. "
    "MRF and Breiman+M draw such a column first, where the papers and the code draw a feature."
)
"""The protocol of the tables of Bai et al."""
OF_SONG = (
    f"MRF and BMS-RF {_STOP} Lines 9 to 12 of Algorithm 2 of Song and Wang are a third rule, by which both children of "
    "a split are leaves unless both have more than k, and their section 2.2 contradicts them, with more than k in "
    "every leaf. BRF leaves k on both sides, RF has leaves of five rows. Categories are columns as beside "
    "[Bai et al.](paper-bai.md#printed-numbers-beside-ours)."
)
"""The protocol of the table of Song and Wang."""
_TRIED = (
    "Tried otherwise: the stop of section 3.2; for {forests}, one column a split instead of √D, with and without "
    "drawing another where it has no split; for {breiman}, leaves of five draws of the bootstrap instead of five rows."
)
_NUMBERS = "a number for each category, in the order of names or, of numbers, by size, for {forests}."
_BY_FEATURES = (
    "Where tables have categories, features drawn with all their values, {which}; and "
)
_SECTION = "section 3.2"
_COLUMN, _NO_OTHER = "one column", "one column, no other"


def _on_both_sides(algorithm: str) -> Check:
    slug, _, parameters = algorithm.partition(":")
    return Check(_SECTION, f"{slug}:stop=leaves{',' * bool(parameters)}{parameters}")


def _few_columns(slug: str) -> tuple[Check, Check]:
    return (
        Check(_COLUMN, f"{slug}:candidates=one"),
        Check(_NO_OTHER, f"{slug}:candidates=one,redraw=no"),
    )


def _coded(method: Method) -> Method:
    """A method that runs with categories as numbers, too."""
    check = _as_numbers(_AS_NUMBERS, method.plain)
    return replace(method, checks=(*method.checks, check))


def _as_numbers(title: str, algorithm: str) -> Check:
    return Check(title, algorithm, coding=NUMBERS, files=WITH_CATEGORIES)


_AS_NUMBERS, _EVERY_COLUMN = "categories as numbers", "columns of other and missing"
_DRAWS, _OF_DRAWS = "five draws a leaf", "breiman:leaf_counts=draws"
_BREIMAN = _coded(
    Method(
        "breiman",
        checks=(
            Check(_DRAWS, _OF_DRAWS),
            _as_numbers(f"{_DRAWS}, {_AS_NUMBERS}", _OF_DRAWS),
        ),
    )
)
_FEATURES = "features drawn"


def _of_authors(slug: str, private: str = "") -> Method:
    """A method of Bai et al., whose code draws a feature with all its values."""
    by_features = Check(_FEATURES, f"{slug}:draws=features", files=WITH_SOME_CATEGORIES)
    return Method(slug, private, (_on_both_sides(slug), by_features))


_MRF = _of_authors("mrf-plain", "mrf")
_CONSISTENT = {
    "Denil14": _coded(Method("denil14", checks=_few_columns("denil14"))),
    "BRF": _coded(Method("brf", checks=_few_columns("brf"))),
    "CompRF-C": _coded(Method("comprf-c")),
    "MRF": _MRF,
    "CompRF-I": _coded(Method("comprf-i")),
    "Breiman": _BREIMAN,
    "Breiman+SE": _of_authors("breiman-se"),
    "Breiman+M": _of_authors("breiman-m"),
}


def _planes(slug: str) -> Method:
    """A forest of planes."""
    checks = (
        Check(_AS_NUMBERS, slug, coding=NUMBERS, files=ALL_CATEGORIES),
        Check(_EVERY_COLUMN, slug, files=WITH_SOME_CATEGORIES),
    )
    return Method(slug, checks=checks, splits_by_planes=True)


_DRAWN = 1 - math.comb(27, 6) / math.comb(45, 6)
"""Chance that six columns of Tic-tac-toe, √D of 45, hold one of the 18 of OTHER and
MISSING.
"""

_LITERAL = "as printed"
_SPE = f"{MEDIAN_TREES}:medians=private,n_estimators=10"
_NO_DEFINITION = (
    "the paper of this table does not define it, and its own paper is not at hand"
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(
            "mrf-2",
            "Bai et al. (2022), table 2: consistent forests",
            f"B1 = B2 = 10 and B3 → ∞, which is no privacy. "
            "Table 1 of the preprint prints the same numbers for its 22 datasets and six methods. "
            "The private run is `mrf` at ε = 1, the largest ε of the "
            "paper's figure 5, with its public rules. "
            f"{_TRIED.format(forests='Denil14 and BRF', breiman='Breiman')} "
            f"{_BY_FEATURES.format(which='√D of them for Breiman+SE')}"
            f"{_NUMBERS.format(forests='the other forests on Zoo, Hayes and Tic-tac-toe')}",
            _CONSISTENT,
        ),
        Table(
            "mrf-3",
            "Bai et al. (2022), table 3: rotation and oblique forests",
            "The column of MRF repeats table 2. Tried otherwise: on tables whose features are all categories, "
            f"{_NUMBERS.format(forests='RoF and MPSVM on Hayes, and MPSVM-N on Tic-tac-toe')} As well, RoF and MPSVM "
            "with columns of “other” and “missing”, and HobRaF with leaves of one row. A column that is 0 in every "
            "row is in the null space of both groups of classes: both planes of MPSVM-N contain every row, and only "
            f"rounding can divide the node. On Tic-tac-toe, {100 * _DRAWN:.0f} % of its nodes would draw one.",
            {
                "RoF-PCA": _planes("rof-pca"),
                "RoF-LDA": _planes("rof-lda"),
                "MPSVM-T": _planes("mpsvm-t"),
                "MPSVM-P": _planes("mpsvm-p"),
                "MPSVM-N": _planes("mpsvm-n"),
                "HobRaF": Method(
                    "hobraf",
                    checks=(Check("leaves of one row", "hobraf:min_samples_leaf=1"),),
                ),
                "MRF": Method("mrf-plain", checks=_MRF.checks),
            },
        ),
        Table(
            "mrf-preprint-3",
            "Preprint of the multinomial forest, table 3: one tree at a budget",
            "The paper: one tree, B1 = B2 = B3/20, for a claim of ε = B3, as it observes no depth above 10. "
            "Algorithm 1 does not stop there: at B1 = B2 = 0.05, most trees on Wdbc are deeper, so that "
            "their splits cost more than ε. Without privacy: a tree of at most depth 10 with "
            "one label drawn for each leaf, as the journal prints; its loss is infinite. The preprint draws one for "
            "every prediction, which has the same expected accuracy and less spread. Private: one tree of `mrf` at "
            "ε = B3. "
            "In the published code a leaf predicts the majority of its points; B3 draws a label only where a split "
            "would leave a side without estimation points.",
            {
                f"B3 = {b3}": Method(
                    f"mrf-plain:n_estimators=1,max_depth=10,b3={b3}",
                    "mrf:n_estimators=1",
                    (
                        Check("100 trees with labels by majority", "mrf-plain"),
                        Check(
                            "one tree with labels by majority",
                            "mrf-plain:n_estimators=1,max_depth=10",
                        ),
                        _on_both_sides(
                            f"mrf-plain:n_estimators=1,max_depth=10,b3={b3}"
                        ),
                    ),
                )
                for b3 in (1, 5, 10, 20)
            },
        ),
        Table(
            "spe-1",
            "Huang, Lei and Kabán, table 1: supervised ensembles at ε = 2",
            "The paper: 50 random splits, nine tenths for training; SPE has 10 trees whose depth is at most the number "
            "of features, the other private methods have “parameters recommended by the authors”, which it does not "
            "print. Here all private methods have 10 trees, whose depth follows public rules. RF has 100 trees, as "
            "there, with leaves of one row, scikit-learn's default. Tried otherwise: SPE and SRT (SmoothRF, by its "
            "authors' code, with 10 trees) as printed, at no finite loss. Algorithm 1 draws every feature among all; "
            "that no feature comes twice on a path is another reading, as section 6.1 says only of trees of twice the "
            "depth that “features to split on are sampled with replacement”.",
            {
                "RF": Method("breiman:min_samples_leaf=1"),
                "SPE": Method(
                    private="spe:n_estimators=10",
                    checks=(
                        Check(_LITERAL, _SPE, "2"),
                        Check(
                            f"{_LITERAL}, no feature twice on a path",
                            f"{_SPE},features=once",
                            "2",
                        ),
                    ),
                ),
                "SRT": Method(
                    private="srt:n_estimators=10",
                    checks=(Check(_LITERAL, f"{SMOOTH}:n_estimators=10", "2"),),
                ),
                "RDT": Method(private="rdt-jagannathan:n_estimators=10"),
                "MaxTree": Method(private="maxtree:n_estimators=10"),
            },
            n_splits=50,
        ),
        Table(
            "spe-2",
            "Huang, Lei and Kabán, table 2: semi-supervised ensembles at ε = 2",
            "The paper: the splits of table 1; one training row in five keeps its label. SSPE-1 protects rows, "
            "the others labels only. Tried otherwise: the printed noise in our forests (ε = 4, the loss where a label "
            "changes; it is ε = 2 where a label is added or removed), and Algorithms 3 and 4 as printed, with trees as "
            "deep as there are features and half as deep, ten in an ensemble. Ten is the paper's default (section "
            "6.1); it does not print the numbers of the two ensembles of PTE. The algorithms divide the labels among "
            "the trees; with every label in every tree, ten trees cost ten times the claim.",
            {
                "SSPE-1": Method(private="sspe-1"),
                **{
                    name: Method(
                        private=algorithm,
                        checks=(
                            Check("the printed noise", algorithm, "4"),
                            Check(_LITERAL, literal, "2"),
                            Check(
                                f"{_LITERAL}, half the depth",
                                f"{literal}:depth=half",
                                "2",
                            ),
                            Check(
                                f"{_LITERAL}, every label in every tree",
                                f"{literal}:labels=all",
                                "2",
                            ),
                        ),
                    )
                    for name, algorithm, literal in (
                        ("SSPE-2", "sspe-2:labelled_share=0.2", SSPE_2),
                        ("PTE", "pte:labelled_share=0.2", PTE),
                    )
                },
                "SSRDT": Method(absent=_NO_DEFINITION),
                "TOP": Method(absent=_NO_DEFINITION),
            },
            n_splits=50,
        ),
        Table(
            "dprf-1",
            "Bojarski et al. (2014), table 1: random decision trees",
            "The paper prints errors; these are 100 − error. Its ten runs with nine tenths for training follow from "
            "its printed intervals ([below](#the-lost-number-of-runs-and-share-of-training-rows)). ε = 1000/n, "
            "n the number of training rows, is recalled. Number k and height h of trees are those that the paper "
            "chose with a validation set for each cell.",
            {
                "rpart": Method("rpart"),
                "n-dpRFMV": Method("rdt-plain-mv"),
                "n-dpRFTA": Method("rdt-plain-ta"),
                "dpRFMV": Method(private="rdt-mv"),
                "dpRFTA": Method(private="rdt-ta"),
            },
            measures_error=True,
            n_splits=10,
        ),
        Table(
            "bms-3",
            "Song and Wang (2024), table 3: stacked forests",
            "The paper: 10-fold cross-validation, 10 runs, 100 trees; for BMS-RF the layers, p1 and p2 of its table 5, "
            "chosen for each dataset; B1 = B2 = 10 and B3 → ∞, which is no privacy. Table 4 states a budget of 1 for "
            "BMS-RF and prints the numbers of table 3. Private runs are `mrf`, and `bms-rf` with the paper's layers, "
            f"trees, p1 and p2, at ε = 1. {_TRIED.format(forests='BRF', breiman='RF')} "
            f"{_BY_FEATURES.format(which='for MRF')}{_NUMBERS.format(forests='RF and BRF on Zoo and Australian')}",
            {
                "RF": _BREIMAN,
                "BRF": _CONSISTENT["BRF"],
                "MRF": _MRF,
                "BMS-RF": Method(
                    "bms-rf-plain",
                    "bms-rf",
                    (
                        Check("Algorithm 2", "bms-rf-plain:stop=children"),
                        _on_both_sides("bms-rf-plain"),
                    ),
                ),
            },
        ),
    )
}

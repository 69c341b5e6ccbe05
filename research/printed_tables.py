"""Lists the papers' tables: printed numbers, datasets, and our algorithms beside each
printed method.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from research.runs import Task

_REFERENCE = Path(__file__).with_name("reference")
PRINTED, DATASETS, NOTES = (
    _REFERENCE / f"printed{name}.csv" for name in ("", "_datasets", "_notes")
)

MAX_DEPTH = 12
"""Largest depth of a private tree here; taller printed trees are cut."""

OTHER_LABELS = {"Hepatitis": "Hepatitis by histology"}
"""Printed datasets that run again with another column as label, because the printed
numbers suggest it.
"""


@dataclass(frozen=True)
class Method:
    """The algorithms that stand beside a printed method, written as in :class:`Task`.

    Attributes:
        plain: algorithm without privacy; empty: none.
        private: repaired algorithm, which runs at the printed ε; empty: none.
        check: algorithm of the table's check, which tests a reason of a difference;
            empty: none.
        check_epsilon: its ε; empty: without privacy.
        absent: why neither is there; empty otherwise.
    """

    plain: str = ""
    private: str = ""
    check: str = ""
    check_epsilon: str = ""
    absent: str = ""


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        name: first column of ``printed.csv``.
        title: title of its page.
        measures_error: whether the paper prints 100 − accuracy.
        about: the paper's protocol, and what is otherwise here.
        methods: by printed name.
        check: what the checks of the methods are; empty: there are none.
    """

    name: str
    title: str
    about: str
    methods: Mapping[str, Method]
    measures_error: bool = False
    check: str = ""


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
        algorithm = TABLES[self.table].methods[self.method].plain
        return self._task(algorithm, self.parameters, "") if algorithm else None

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
    def check(self) -> Task | None:
        """Specification of the run that tests a reason of a difference, on the first
        split.
        """
        method = TABLES[self.table].methods[self.method]
        parameters = "" if method.check_epsilon else self.parameters
        return (
            self._task(method.check, parameters, method.check_epsilon)
            if method.check
            else None
        )

    def _task(self, algorithm: str, parameters: str, epsilon: str) -> Task | None:
        file = sources()[self.dataset].file
        if not file:
            return None
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
    """The printed parameters under the names of the private algorithms, with trees that
    are cut.
    """
    pairs = [pair.split("=") for pair in parameters.split(",") if pair]
    names = {"p1": "kept_features", "p2": "kept_splits"}
    cut = [
        (name, min(int(value), MAX_DEPTH) if name == "max_depth" else value)
        for name, value in pairs
    ]
    return ",".join(f"{names.get(name, name)}={value}" for name, value in cut)


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


_FOLDS = "The paper: 10 times 10-fold cross-validation, 100 trees, smallest leaf 5."
_CONSISTENT = {
    "Denil14": Method("denil14"),
    "BRF": Method("brf"),
    "CompRF-C": Method("comprf-c"),
    "MRF": Method("mrf-plain", "mrf"),
    "CompRF-I": Method("comprf-i"),
    "Breiman": Method("breiman"),
    "Breiman+SE": Method("breiman-se"),
    "Breiman+M": Method("breiman-m"),
}
_NO_DEFINITION = (
    "its paper is not at hand, and the paper of this table does not define it"
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(
            "mrf-2",
            "Bai et al. (2022), table 2: consistent forests",
            f"{_FOLDS} B1 = B2 = 10 and B3 → ∞, which is no privacy. Table 1 of the preprint prints the same "
            "numbers for its 22 datasets and six methods. The private run is `mrf` at ε = 1, the largest ε of the "
            "paper's figure 5, with its public rules.",
            _CONSISTENT,
        ),
        Table(
            "mrf-3",
            "Bai et al. (2022), table 3: rotation and oblique forests",
            f"{_FOLDS} The column of MRF repeats table 2.",
            {
                "RoF-PCA": Method("rof-pca"),
                "RoF-LDA": Method("rof-lda"),
                "MPSVM-T": Method("mpsvm-t"),
                "MPSVM-P": Method("mpsvm-p"),
                "MPSVM-N": Method("mpsvm-n"),
                "HobRaF": Method("hobraf", check="hobraf:min_samples_leaf=1"),
                "MRF": Method("mrf-plain"),
            },
            check="leaves of one row",
        ),
        Table(
            "mrf-preprint-3",
            "Preprint of the multinomial forest, table 3: one tree at a budget",
            "The paper: one tree, B1 = B2 = B3/20, depth 10, for a claim of ε = B3. Without privacy: that tree as "
            "printed, which draws its labels and whose loss is infinite. Private: one tree of `mrf` at ε = B3.",
            {
                f"B3 = {b3}": Method(
                    f"mrf-plain:n_estimators=1,max_depth=10,b3={b3}",
                    "mrf:n_estimators=1",
                    check="mrf-plain",
                )
                for b3 in (1, 5, 10, 20)
            },
            check="100 trees with labels by majority",
        ),
        Table(
            "spe-1",
            "Huang, Lei and Kabán, table 1: supervised ensembles at ε = 2",
            "The paper: 50 random splits, nine tenths for training, 10 trees, depth at most the number of features. "
            "RF is scikit-learn's default, with leaves of one row. The depth of private trees follows public rules "
            "here.",
            {
                "RF": Method("breiman:min_samples_leaf=1"),
                "SPE": Method(private="spe:n_estimators=10"),
                "SRT": Method(private="srt:n_estimators=10"),
                "RDT": Method(private="rdt-jagannathan:n_estimators=10"),
                "MaxTree": Method(private="maxtree:n_estimators=10"),
            },
        ),
        Table(
            "spe-2",
            "Huang, Lei and Kabán, table 2: semi-supervised ensembles at ε = 2",
            "The paper: the splits of table 1; one training row in five keeps its label. SSPE-1 protects rows, "
            "the others labels only.",
            {
                "SSPE-1": Method(private="sspe-1"),
                **{
                    name: Method(private=algorithm, check=algorithm, check_epsilon="4")
                    for name, algorithm in (
                        ("SSPE-2", "sspe-2:labelled_share=0.2"),
                        ("PTE", "pte:labelled_share=0.2"),
                    )
                },
                "SSRDT": Method(absent=_NO_DEFINITION),
                "TOP": Method(absent=_NO_DEFINITION),
            },
            check="ε = 4, the true loss of the printed noise",
        ),
        Table(
            "dprf-1",
            "Bojarski et al. (2014), table 1: random decision trees",
            "The paper prints errors; these are 100 − error. Its ten runs with nine tenths for training follow from "
            "its printed intervals ([theory](bojarski.md)). Its formula of ε is missing in the text that we have: "
            "ε = 1000/n, n the number of training rows, is recalled, not read. Number k and height h of trees are "
            "those that the paper chose with a validation set for each cell; private trees here are "
            f"{MAX_DEPTH} splits high at most. [Runs as printed](bojarski-runs.md) go to the printed heights.",
            {
                "rpart": Method("rpart"),
                "n-dpRFMV": Method("rdt-plain-mv"),
                "n-dpRFTA": Method("rdt-plain-ta"),
                "dpRFMV": Method(private="rdt-mv"),
                "dpRFTA": Method(private="rdt-ta"),
            },
            measures_error=True,
        ),
        Table(
            "bms-3",
            "Song and Wang (2024), table 3: stacked forests",
            "The paper: 10-fold cross-validation, 10 runs, 100 trees; for BMS-RF the layers, p1 and p2 of its table 5, "
            "chosen for each dataset; B1 = B2 = 10 and B3 → ∞, which is no privacy. Table 4 states a budget of 1 for "
            "BMS-RF and prints the numbers of table 3. Private runs are `mrf`, and `bms-rf` with the paper's layers, "
            "trees, p1 and p2, at ε = 1.",
            {
                "RF": Method("breiman"),
                "BRF": Method("brf"),
                "MRF": Method("mrf-plain", "mrf"),
                "BMS-RF": Method("bms-rf-plain", "bms-rf"),
            },
        ),
    )
}

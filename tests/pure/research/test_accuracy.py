"""Tests the accuracy benchmark: splits, metrics, continuing from a CSV, tables."""

import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.privacy.accountants import gdp, pure
from research import accuracy, datasets, runs, tables
from research.papers.forests.trees.design import Design
from research.reference import methods
from research.runs import Run, RunsUnreadable, Task

SMALL = "rdt-ta:n_estimators=1,max_depth=1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset of 40 rows in which ``size`` decides the class, and a row for each rule
    about undeclared values.
    """
    declaration = {
        "features": [
            {
                "name": "size",
                "type": "numeric",
                "lower": 0,
                "upper": 10,
                "missing": True,
            },
            {
                "name": "colour",
                "type": "categorical",
                "categories": ["red", "blue"],
                "missing": True,
            },
        ],
        "label": {"name": "kind", "classes": ["small", "large"], "note": "ignored"},
    }
    (tmp_path / "toy.json").write_text(json.dumps(declaration))
    rows = [
        (index / 4, ("red", "blue")[index % 2], ("small", "large")[index >= 20])
        for index in range(40)
    ]
    rows += [("", "", "small"), (99, "green", "large"), (1, "red", "unheard of")]
    with gzip.open(tmp_path / "toy.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([("size", "colour", "kind"), *rows])
    (tmp_path / "undeclared.csv.gz").write_bytes(b"")
    return tmp_path


def task(**changes: object) -> Task:
    values = {
        "dataset": "toy",
        "algorithm": SMALL,
        "epsilon": "1",
        "delta": "1e-6",
        "repeat": 0,
    }
    return Task(**(values | changes))  # type: ignore[arg-type]


def run(**changes: object) -> Run:
    values: dict[str, object] = vars(task()) | {
        "n_trees": 1, "depth": 1, "accuracy": 0.5, "auroc": math.nan, "log_loss": 0.7, "seconds": 0.1,
        "reliability": json.dumps([[0, 0.0, 0]] * 9 + [[2, 1.9, 1]]),
    }  # fmt: skip
    return Run(**(values | changes))  # type: ignore[arg-type]


def test_splits_follow_the_protocol() -> None:
    train, test = datasets.split_of(105, 3)
    order = np.random.default_rng(1003).permutation(105)

    assert np.array_equal(test, order[:10])  # 10.5 rows, rounded to even
    assert sorted([*train, *test]) == list(range(105))
    assert not np.array_equal(datasets.split_of(105, 4)[1], test)


def test_datasets_are_read_by_their_schema(folder: Path) -> None:
    toy = datasets.read(folder, "toy")

    assert datasets.names(folder) == ["toy"], "a table without a schema is not listed"
    assert len(toy.y) == 42, "the row with an undeclared class is dropped"
    assert math.isnan(toy.columns[0][40])
    assert toy.columns[0][41] == 10.0
    assert toy.columns[1][-2:].tolist() == [
        toy.schema.features[1].missing_code,
        toy.schema.features[1].other_code,
    ]
    assert (toy.public_size, toy.n_splits) == (42, 10)


def test_declared_values_become_columns_and_others_none(folder: Path) -> None:
    toy = datasets.read(folder, "toy@declared")

    names = [feature.name for feature in toy.schema.features]
    assert names == ["size", "colour=red", "colour=blue"]
    assert Design.of(toy.schema).n_columns == 3
    assert Design.of(datasets.read(folder, "toy").schema).n_columns == 5
    assert np.array_equal(toy.columns[1], [1, 0] * 20 + [0, 0])
    assert np.array_equal(toy.columns[2], [0, 1] * 20 + [0, 0])


def test_another_column_becomes_the_label_and_the_label_a_feature(folder: Path) -> None:
    toy = datasets.read(folder, "toy:colour")

    assert (toy.schema.label.name, toy.schema.label.classes) == (
        "colour",
        ("red", "blue"),
    )
    assert [feature.name for feature in toy.schema.features] == ["size", "kind"]
    assert len(toy.y) == 41, "rows without a declared colour are dropped"
    assert toy.columns[1].tolist() == [0] * 20 + [1] * 20 + [
        toy.schema.features[1].other_code
    ]


def test_categories_become_ordered_and_keep_their_codes(folder: Path) -> None:
    toy, ordered = (datasets.read(folder, name) for name in ("toy", "toy@numbers"))

    assert [feature.ordered for feature in toy.schema.features] == [False, False]
    assert [feature.ordered for feature in ordered.schema.features] == [False, True]
    assert np.array_equal(toy.columns[1], ordered.columns[1])


@pytest.mark.parametrize(
    ("n_rows", "size", "n_splits"),
    [(7, 7, 10), (19_999, 20_000, 10), (20_000, 20_000, 5), (1_249, 1_200, 10)],
)
def test_public_size_has_two_digits_and_large_tables_five_splits(
    folder: Path, n_rows: int, size: int, n_splits: int
) -> None:
    toy = datasets.read(folder, "toy")
    table = datasets.Dataset("any", toy.schema, (), np.zeros(n_rows, dtype=np.int32))

    assert (table.public_size, table.n_splits) == (size, n_splits)


def test_a_task_names_its_accountant_and_parameters() -> None:
    plain, detailed = (
        task(algorithm="rpf"),
        task(algorithm="nbrt@gdp:max_depth=3,bins_share=0.1"),
    )

    assert (plain.slug, plain.accountant) == ("rpf", pure.NAME)
    assert (plain.request(100).parameters, plain.request(100).terms.delta) == ({}, None)
    assert (detailed.slug, detailed.accountant) == ("nbrt", gdp.NAME)
    assert detailed.request(100).parameters == {"max_depth": 3, "bins_share": "0.1"}
    assert float(detailed.request(100).terms.delta or 0) == 1e-6


def test_reliability_counts_every_row_once() -> None:
    probabilities = np.array([[0.95, 0.05], [0.5, 0.5], [0.0, 1.0], [0.31, 0.69]])
    bins = runs.reliability(probabilities, np.array([0, 1, 1, 0], dtype=np.int32))

    assert [bin_ for bin_ in bins if bin_[0]] == [
        (1, 0.5, 0),
        (1, 0.69, 0),
        (2, 1.95, 2),
    ]
    assert len(bins) == runs.N_BINS


def test_log_loss_is_finite_and_auroc_needs_two_classes() -> None:
    confident = np.array([[1.0, 0.0], [0.5, 0.5]])
    truth = np.array([1, 0], dtype=np.int32)

    assert runs.log_loss(confident, truth) == pytest.approx(
        (-math.log(1e-6) + math.log(2)) / 2
    )
    assert runs.auroc(confident, truth) == 0.0
    assert math.isnan(runs.auroc(confident, np.array([1, 1], dtype=np.int32)))
    assert math.isnan(runs.auroc(np.full((2, 3), 1 / 3), truth))


def test_a_stopped_benchmark_continues_without_repeating_runs(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs.csv"
    tasks = accuracy.tasks_of(
        folder,
        ["toy"],
        algorithms=[SMALL],
        budgets=[("1", "1e-6"), ("2", "1e-6")],
        repeats=2,
    )
    assert [(task.epsilon, task.repeat) for task in tasks] == [
        ("1", 0),
        ("1", 1),
        ("2", 0),
        ("2", 1),
    ]

    assert accuracy.complete(folder, tasks[:2], path, n_jobs=1) == []
    first = path.read_text()
    with path.open("a") as file:
        file.write("toy,rdt-ta,half a li")
    assert accuracy.complete(folder, tasks, path, n_jobs=1) == []

    assert path.read_text().startswith(first), (
        "finished runs are kept: new noise would change them"
    )
    done = runs.load(path, Run)
    assert [run.task for run in done] == tasks
    assert all(0 <= run.accuracy <= 1 and run.seconds > 0 for run in done)
    assert {(run.n_trees, run.depth) for run in done} == {(1, 1)}


def test_a_refused_task_is_reported_and_the_others_run(
    folder: Path, tmp_path: Path
) -> None:
    tasks = [task(algorithm="rdt-ta:max_depth=999"), task()]
    ((refused, reason),) = accuracy.complete(
        folder, tasks, tmp_path / "runs.csv", n_jobs=1
    )

    assert refused == tasks[0]
    assert reason == "max_depth: too-large (accepted: 0 to 16)"
    assert [run.task for run in runs.load(tmp_path / "runs.csv", Run)] == tasks[1:]


def test_tasks_with_equal_numbers_in_other_notation_are_equal() -> None:
    done = [run(epsilon="1.0", delta="0.5"), run(algorithm="nbrt@gdp", delta="1e-6")]
    tasks = [
        task(),
        task(epsilon="1.5"),
        task(algorithm="nbrt@gdp", delta="0.000001"),
        task(algorithm="nbrt@gdp", delta="1e-7"),
    ]

    assert runs.unfinished(tasks, done) == [tasks[1], tasks[3]]
    assert runs.runs_of(tasks, done) == done


def test_a_csv_of_another_program_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("dataset,accuracy\ntoy,0.5\n")

    with pytest.raises(RunsUnreadable):
        runs.load(path, Run)
    assert path.read_text() == "dataset,accuracy\ntoy,0.5\n"


def test_runs_survive_writing_and_reading_the_csv(tmp_path: Path) -> None:
    written = [run(accuracy=1 / 3, auroc=0.1), run(repeat=1)]
    for written_run in written:
        runs.append(tmp_path / "runs.csv", written_run)

    first, second = runs.load(tmp_path / "runs.csv", Run)
    assert first == written[0]
    assert math.isnan(second.auroc)
    assert runs.load(tmp_path / "none.csv", Run) == []


def test_tables_show_means_and_standard_deviations() -> None:
    table = tables.accuracy(
        [
            run(accuracy=0.8, auroc=0.9),
            run(accuracy=0.9, auroc=0.7, repeat=1),
            run(epsilon="10"),
        ]
    )

    assert "| dataset | algorithm | ε = 1 | ε = 10 |" in table
    assert (
        f"| toy | `{SMALL}` | 85.0 ± 7.1 / 0.800 (1 × depth 1) | 50.0 (1 × depth 1) |"
        in table
    )


def test_calibration_error_pools_rows() -> None:
    """Two runs with two rows each in the top bin: confidence 95 %, right labels 50 %."""
    both = [run(), run(repeat=1)]

    assert tables.calibration_error(both) == pytest.approx(0.45)
    assert "95 → 50" in tables.reliability(both)
    assert "| 0.700 / 45.0 |" in tables.log_loss(both)


def test_every_reference_method_has_a_claim() -> None:
    names = set()
    for path in methods.TABLES:
        with path.open(newline="") as file:
            names |= {row["method"] for row in csv.DictReader(file)}

    assert names == set(methods.CLAIMS)


def test_the_first_opponents_of_a_pure_account_claim_pure_epsilon() -> None:
    pure_codes, private_codes, prototype = methods.opponents("rpf", pure.NAME).values()

    assert set(pure_codes) < set(private_codes)
    assert "s-bdt-cyclic" in private_codes
    assert "s-bdt-cyclic" not in pure_codes
    assert not {"majority", "sklearn-rf100-nonprivate"} & set(private_codes)
    assert prototype == ("rpf-prototype",)
    assert list(methods.opponents("mrf", gdp.NAME)) == ["every private code"]


@pytest.mark.parametrize(
    ("algorithm", "n_labelled"),
    [("sspe-1:n_estimators=2,max_depth=1", 7), ("sspe-2:n_estimators=2", 38)],
)
def test_algorithms_that_protect_labels_or_use_two_datasets_are_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, n_labelled: int
) -> None:
    """With two datasets, one row in five is labelled, and no row is in both."""
    sizes: list[tuple[int, int | None]] = []
    grow = runs.grow

    def grow_and_note_sizes(
        plan: object,
        schema: object,
        rows: object,
        *more: object,
        unlabelled: object,
        **named: object,
    ) -> Any:
        sizes.append(
            (
                rows.features.n_rows,
                None if unlabelled is None else unlabelled.features.n_rows,
            )
        )
        return grow(plan, schema, rows, *more, unlabelled=unlabelled, **named)

    monkeypatch.setattr(runs, "grow", grow_and_note_sizes)
    measured = runs.measure(
        datasets.read(folder, "toy"), task(algorithm=algorithm, epsilon="100")
    )

    assert measured.n_trees == 2
    assert sizes == [
        (n_labelled, 38 - n_labelled if algorithm.startswith("sspe-1") else None)
    ]


def test_the_command_writes_tables_and_does_not_repeat_runs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        str(folder),
        "--csv",
        str(tmp_path / "runs.csv"),
        "--algorithms",
        SMALL,
        "--epsilons",
        "1",
        "--jobs",
        "1",
    ]
    arguments += ["--repeats", "2", "--markdown", str(tmp_path / "tables.md")]

    assert accuracy.main(arguments) == 0
    before = (tmp_path / "runs.csv").read_bytes()
    assert accuracy.main(arguments) == 0
    assert (tmp_path / "runs.csv").read_bytes() == before
    text = (tmp_path / "tables.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "## Accuracy", "## Log loss and calibration", "## Reliability",
    ]  # fmt: skip
    assert text in capsys.readouterr().out


def test_a_command_on_a_csv_of_another_program_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("a,b\n")

    with pytest.raises(SystemExit):
        accuracy.main([str(folder), "--csv", str(path)])
    assert path.read_text() == "a,b\n"

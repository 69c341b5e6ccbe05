"""Ablations: their tasks, one fold that continues, and single trees."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from research import bundled
from research.datasets import Dataset
from research.papers import __main__ as tables
from research.papers import (
    ablation_measures,
    ablation_runs,
    ablations,
    median_trees,
    mrf_page,
    printed_further,
    synthetic,
)
from research.papers.forests import catalogue
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_routing import NodeTrees
from research.papers.median_trees import MedianRule
from research.runs import Task, load, plan
from tests.pure.research.papers.reference_forests import grown, leaf_of, public_rows

Labels: TypeAlias = NDArray[np.int64]
Split: TypeAlias = tuple[Labels, Labels]


def test_every_task_of_a_forest_without_privacy_can_be_planned() -> None:
    plain = {
        task.algorithm: task
        for ablation in ablations.ABLATIONS.values()
        for task in ablation.tasks
        if task.slug in catalogue.REFERENCES
    }
    assert len(plain) > 100
    for task in plain.values():
        assert catalogue.plan(
            task.slug, task.parameters
        ).n_trees == task.parameters.get("n_estimators", 100)


@pytest.mark.parametrize("table", ["mrf-4", "mrf-5"])
def test_a_grid_begins_with_the_papers_setting_and_has_every_printed_method(
    table: str,
) -> None:
    methods = {method for _, method in printed_further.numbers(table)}
    assert methods == ablations.OPTIMAL[table].keys()
    for algorithms in ablations.OPTIMAL[table].values():
        assert ":" not in algorithms[0]
        assert len(set(algorithms)) == len(algorithms) > 1
    assert len(ablations.TABLE_4["MRF"]) == 6


def test_the_best_setting_is_at_least_as_accurate_as_the_papers() -> None:
    """On the committed runs, and on the same folds."""
    path = tables.RESULTS / ablation_runs.RUNS
    values = ablation_runs.values_of("mrf-optimal", path)
    tasks = ablations.optimal_tasks("mrf-5", "Hayes", "HobRaF")
    chosen = mrf_page.best_setting(values, tasks)
    assert chosen is not None, "runs.csv has HobRaF with leaves of five rows and of one"
    usual = [100 * run[0] for run in values[tasks[0]]][: len(chosen[1])]
    assert np.mean(chosen[1]) >= np.mean(usual)


def test_the_repaired_trees_of_figure_1_have_the_depths_that_its_page_names() -> None:
    for name in (*synthetic.names(5), *synthetic.names(10)):
        dataset = synthetic.read(name)
        depths = []
        for epsilon in ablations.FIGURE_1_EPSILONS:
            task = ablations.repaired_task(name, ablations.N_SUPERVISED, epsilon)
            request = task.request(dataset.public_size)
            depths.append(plan(request, dataset.schema).parameters["max_depth"])
        assert depths == [4, 5, 6, 8, 9]
    page = (tables.RESULTS / "paper-huang.md").read_text(encoding="utf-8")
    assert "4, 5, 6, 8 and 9 for ε = 0.5, 1, 2, 5 and 10" in page


def test_rates_are_those_of_the_printed_table() -> None:
    assert ablations.rates_of("Vehicle") == ("0.6", "0.2")
    stacked, plain = ablations.stacked_tasks("Vehicle", 30)
    assert stacked.algorithm == "bms-rf-plain:n_estimators=30,n_layers=3,p1=0.6,p2=0.2"
    assert (plain.dataset, plain.algorithm) == ("vehicle", "mrf-plain:n_estimators=30")


def test_a_fold_runs_once_and_continues_after_an_incomplete_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / ablation_runs.RUNS
    ablation_runs.run_fold(None, "huang-figure-2", path, 0)
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + len(ablations.ABLATIONS["huang-figure-2"].tasks)
    ablation_runs.run_fold(None, "huang-figure-2", path, 0)
    assert path.read_text().splitlines() == lines
    path.write_text("\n".join(lines)[:-5])
    ablation_runs.run_fold(None, "huang-figure-2", path, 0)
    assert path.read_text().splitlines()[:-1] == lines[:-1]
    values = ablation_runs.values_of("huang-figure-2", path)
    assert {len(runs) for runs in values.values()} == {1}
    assert all(
        0 < number < 10 for runs in values.values() for run in runs for number in run
    )


def test_accuracies_of_the_papers_tables_are_not_measured_again(tmp_path: Path) -> None:
    task = replace(ablations.strength_task("wdbc", 10, 5), repeat=1)
    run = tables.PaperRun(**vars(task), accuracy=0.75, seconds=1.0)
    tables.append(tmp_path / "runs.csv", run)
    values = ablation_runs.values_of("mrf-figure-6", tmp_path / ablation_runs.RUNS)
    assert values == {replace(task, repeat=0): [(0.75,)]}


def test_missing_datasets_are_left_out(tmp_path: Path) -> None:
    """The folder has none of the datasets of figure 3, which the bundle lacks, too."""
    ablation_runs.run_fold(None, "huang-figure-3", tmp_path / ablation_runs.RUNS, 0)
    path = tmp_path / ablation_runs.RUNS
    assert ablation_runs.runs_by_task("huang-figure-3", path) == {}


def test_the_printed_ensemble_is_measured_on_its_fold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Splits and leaves have one half of ε each; the answers are those to the test rows
    of the fold.
    """
    asked: list[object] = []

    def every_second_is_right(
        dataset: Dataset, split: Split, rule: MedianRule, **settings: object
    ) -> Labels:
        asked.extend(
            (split[1].tolist(), rule, settings["n_trees"], settings["leaf_epsilon"])
        )
        wrong = np.arange(len(split[1])) % 2 == 1
        return np.where(wrong, -1, dataset.y[split[1]])

    monkeypatch.setattr(median_trees, "ensemble_labels", every_second_is_right)
    task = replace(ablations.median_task("wine", "random", 7, 6, "3"), repeat=4)
    test = tables.fold_of(178, 4)[1]
    (accuracy,) = ablation_measures.accuracy(None, task)
    assert asked == [test.tolist(), MedianRule("random", 6, 1.5), 7, 1.5]
    assert accuracy == pytest.approx(-(-len(test) // 2) / len(test))


def test_single_trees_answer_as_a_walk_in_plain_python() -> None:
    dataset = bundled.read("iris")
    rows = np.random.default_rng(0).permutation(150)
    forest = grown(
        "mrf-plain",
        dataset.schema,
        public_rows(
            *(column[rows[:90]] for column in dataset.columns), y=dataset.y[rows[:90]]
        ),
    )
    trees, test = NodeTrees.of(forest.arrays), rows[90:]
    X = Design.of(dataset.schema).matrix(dataset.features(test))
    expected = [
        np.mean(
            [
                trees.values[leaf_of(trees, tree, row)[0]].argmax() == label
                for row, label in zip(X, dataset.y[test], strict=True)
            ]
        )
        for tree in range(20)
    ]
    assert ablation_measures.accuracies_of_trees(
        forest, dataset, test
    ) == pytest.approx(expected)
    mean, *quantiles = ablation_measures.tree_accuracies(
        None, Task("iris", "mrf-plain:n_estimators=8", "", "0", 0)
    )
    assert quantiles == sorted(quantiles)
    assert quantiles[0] - 1e-9 <= mean <= quantiles[-1] + 1e-9


def test_the_overview_states_the_folds_of_figures_and_ablations() -> None:
    # every ablation reads the same two files
    n_folds, read = set[int](), cache(load)
    for name in ablations.ABLATIONS:
        runs = ablation_runs.values_of(name, tables.RESULTS / ablation_runs.RUNS, read)
        n_folds |= {len(of_task) for of_task in runs.values()}
    overview = (tables.RESULTS.parent / "papers.md").read_text(encoding="utf-8")
    counted = f"figures and ablations have {min(n_folds)} to {max(n_folds)} folds"
    assert counted in overview

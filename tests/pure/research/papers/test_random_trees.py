"""Random decision trees as printed: columns, θ, read-outs, runs that continue,
sensitivity to k and h, the page.
"""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.data.schema import Feature, Label, Schema
from research.datasets import Dataset
from research.papers import printed_random_trees as printed
from research.papers import (
    random_tree_draws,
    random_tree_grid,
    random_tree_page,
    random_trees,
)
from research.papers.printed_random_trees import Columns
from research.papers.random_tree_grid import (
    COLUMNS,
    HEIGHTS,
    N_ESTIMATORS,
    GridRun,
    GridTask,
    ReachedLeaves,
)
from research.papers.random_tree_page import Sensitivity
from research.runs import load


def test_columns_have_the_bounds_of_present_values_and_constant_ones_are_left_out() -> (
    None
):
    schema = Schema(
        (
            Feature("age", "numeric", 0.0, 100.0, missing=True),
            Feature("colour", "categorical", categories=("red", "green"), missing=True),
            Feature("same", "numeric", 0.0, 9.0),
        ),
        Label("y", ("no", "yes")),
    )
    ages, colours = np.array([20.0, np.nan, 60.0]), np.array([1, 3, 0], dtype=np.int32)
    dataset = Dataset(
        "table",
        schema,
        (ages, colours, np.full(3, 4.0)),
        np.array([0, 1, 1], dtype=np.int32),
    )
    columns = Columns.of(dataset)
    assert columns.X[:, 1].tolist() == [1, 2, 0], (
        "MISSING comes after the last category"
    )
    assert columns.X[1, 0] < 0
    assert (columns.lower.tolist(), columns.upper.tolist()) == ([20, 0], [60, 2])


def test_trees_cut_at_a_height_are_trees_of_that_height() -> None:
    """The law of both, by the share of rows beside a given row; ten standard deviations
    are allowed.
    """
    X = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    columns = Columns(X, np.zeros(3), np.ones(3))
    cut = (
        printed.leaves_of(
            columns, n_trees=3_000, height=6, random=np.random.default_rng(1)
        )
        >> 4
    )
    short = printed.leaves_of(
        columns, n_trees=3_000, height=2, random=np.random.default_rng(2)
    )
    beside = [(leaves == leaves[:, :1]).mean() for leaves in (cut, short)]
    assert set(np.unique(cut)) == set(range(4))
    assert abs(beside[0] - beside[1]) < 0.05
    assert 0.2 < beside[0] < 0.8


def test_the_paper_s_theta_is_drawn_where_a_count_is_negative_or_both_are_zero() -> (
    None
):
    random = np.random.default_rng(3)
    exact = printed.printed_theta(np.array([[3, 1], [0, 5], [2, 0]]), random)
    assert exact.tolist() == [0.25, 1.0, 0.0]
    for pair in ((0, 0), (-0.5, 7.0), (7.0, -0.5), (-1.0, -1.0)):
        drawn = np.sort(printed.printed_theta(np.tile(pair, (4_000, 1)), random))
        assert np.abs(drawn - np.linspace(0, 1, 4_000)).max() < 0.06
    assert printed.clamped_theta(
        np.array([[0, 0], [-0.5, 7.0], [7.0, -0.5], [3.0, 1.0]])
    ).tolist() == [0.5, 1, 0, 0.25]
    assert printed.larger_count(
        np.array([[-3.0, -1.0], [2.0, 1.0], [1.0, 1.0]])
    ).tolist() == [1, 0, 1]


def test_read_outs() -> None:
    random = np.random.default_rng(4)
    theta = np.tile([[0.6, 0.4], [0.6, 0.4], [0.0, 1.0]], (1, 2_000))
    assert printed.predicted(theta, "mv", random)[:2].tolist() == [True, False]
    assert printed.predicted(theta, "ta", random)[:2].tolist() == [False, True]
    drawn = printed.predicted(theta, "pa", random).reshape(-1, 2).mean(axis=0)
    assert drawn == pytest.approx([0.4, 0.6], abs=0.07)


def test_noise_has_the_scale_of_all_trees() -> None:
    noise = printed.noisy_counts(
        np.zeros((100_000, 2), dtype=np.int64),
        scale=21 / 0.5,
        random=np.random.default_rng(5),
    )
    assert np.abs(noise).mean() == pytest.approx(42, rel=0.03)


def test_the_logarithmic_number_of_trees() -> None:
    assert printed.n_trees_of(7, 10**9) == 7
    assert [printed.n_trees_of("logarithmic", n_rows) for n_rows in (435, 32_561)] == [
        25,
        42,
    ]
    n_rows = [435, 748, 961, 1_372, 8_124, 32_561]
    more = {
        printed.n_trees_of("logarithmic", n)
        - printed.n_trees_of("logarithmic", n * 9 // 10)
        for n in n_rows
    }
    assert more == {0, 1}, "the page says by how much n of all rows asks for more"


@pytest.mark.parametrize("height", [2, 7])
def test_reached_leaves_are_those_of_a_complete_count(height: int) -> None:
    fold = random_tree_grid.folds(None, "wdbc")[3]
    rows, validation, test = fold.parts
    assert sorted(np.concatenate(fold.parts)) == list(range(569))
    assert fold.n_training == len(rows) + len(validation) == 569 - len(test)
    reached = ReachedLeaves.of(fold, height, 5, test)
    leaves = fold.leaves[:5] >> (15 - height)
    counts = printed.class_counts(leaves[:, rows], fold.y[rows], n_leaves=2**height)
    assert counts.sum() == 5 * len(rows)
    for tree in range(5):
        assert np.array_equal(
            reached.counts[reached.place[tree]], counts[tree, leaves[tree, test]]
        )
        first, last = reached.first[tree : tree + 2]
        assert first <= reached.place[tree].min() <= reached.place[tree].max() < last


def test_runs_continue_and_count_wrong_points(tmp_path: Path) -> None:
    path = tmp_path / "random_trees.csv"
    tasks = [
        GridTask("wdbc", f"printed:max_depth={height}", budget, "0", 0)
        for height in (1, 6)
        for budget in ("", "10")
    ]
    random_trees.run_all(None, tasks[:3], path)
    before = path.read_text()
    random_trees.run_all(None, tasks, path)
    assert path.read_text().startswith(before)
    runs = load(path, GridRun)
    assert [run.task for run in runs] == tasks
    assert {(run.n_test, run.n_validation) for run in runs} == {("569", "510")}
    assert runs[0].test_errors.shape == (6, 12)
    assert runs[1].test_errors.shape == (6, 7)
    mv, ta = (runs[2].test_errors[COLUMNS.index(name)] for name in ("mv", "ta"))
    assert mv[0] == ta[0], (
        "with one tree both are the same rule, as the paper's footnote says"
    )
    assert mv[N_ESTIMATORS.index(21)] < 15 < runs[3].test_errors[0].min(), (
        "much noise, many errors"
    )


def grid_run(
    dataset: str,
    budget: str,
    height: int,
    test: NDArray[np.int64],
    validation: NDArray[np.int64],
) -> GridRun:
    texts = (
        ";".join(" ".join(map(str, row)) for row in numbers)
        for numbers in (test, validation)
    )
    return GridRun(
        dataset, f"printed:max_depth={height}", budget, "0", 0, *texts, "100", "50", 0.0
    )


def test_sensitivity_measures_both_parameters() -> None:
    heights, numbers = np.arange(15)[:, np.newaxis], np.arange(11)[np.newaxis]
    assert Sensitivity.of(np.full((15, 11), 8.0)) == Sensitivity(0, 0, 0, 8)
    assert Sensitivity.of(10.0 + heights + 0 * numbers) == Sensitivity(0, 14, 7, 10)
    assert Sensitivity.of(10.0 + 2 * numbers + 0 * heights) == Sensitivity(
        20, 0, 10, 10
    )
    # One bad height costs the mean little and the range much.
    assert Sensitivity.of(
        np.where(heights == 3, 30.0, 0.0) + 0 * numbers
    ) == Sensitivity(0, 30, 2, 0)


def _page(runs: list[GridRun]) -> str:
    return "\n".join(random_tree_page.sections(runs))


def test_the_file_of_further_grids_has_the_counts_of_the_page_first() -> None:
    results = random_trees.RESULTS
    runs = load(results / "random_trees.csv", GridRun)
    text = (results / random_tree_page.OF_GRIDS).read_text(encoding="utf-8")
    columns, *rows = csv.reader(text.splitlines())
    assert len(columns) == 3 + random_tree_draws.N_FURTHER
    assert {(counted, of): int(page) for counted, of, page, *_ in rows} == (
        random_tree_draws.counts(runs)
    )


def test_the_page_says_how_far_further_grids_move_a_count() -> None:
    of_grids = [
        {("datasets", "a"): 3, ("differences", "b"): 7, ("cases", "c"): 38},
        {("datasets", "a"): 0, ("differences", "b"): 8, ("cases", "c"): 32},
        {("datasets", "a"): 4, ("differences", "b"): 6, ("cases", "c"): 44},
    ]
    text = " ".join(
        random_tree_page.sections([], random_tree_draws.text_of(of_grids))[0].split()
    )
    assert "In 2 [further grids](bojarski-grids.csv)" in text
    assert "counts of datasets are up to 3 from" in text
    assert "counts of differences up to 1; in 32 to 44 of the cases" in text


def test_another_grid_has_other_folds_and_trees() -> None:
    first, second = (random_tree_grid.folds(None, "wdbc", grid)[0] for grid in (0, 1))
    assert (first.parts[2] != second.parts[2]).any()
    assert (first.leaves != second.leaves).any()


def test_the_main_finding_names_the_least_sensitive_read_out() -> None:
    by_read_out = {
        "mv": Sensitivity(2, 9, 3, 8),
        "ta": Sensitivity(4, 7, 3, 8),
        "pa": Sensitivity(1, 8, 5, 8),
    }
    measures = ("to_trees", "to_height", "regret")
    assert [
        random_tree_page.least_sensitive(by_read_out, measure) for measure in measures
    ] == ["pa", "ta", "mv"]


def test_sensitivities_leave_out_the_logarithmic_number_and_the_page_counts_datasets() -> (
    None
):
    random = np.random.default_rng(6)
    runs = []
    for height in HEIGHTS:
        wrong = np.full((6, 12), 20) + random.integers(0, 20, size=(6, 1)) * np.array(
            [[0], [1], [1], [0], [1], [1]]
        )
        wrong[:, -1] = 9
        runs.append(grid_run("vote", "1000", height, wrong, wrong))
    errors = random_tree_page.errors_of(runs)["vote", "1000"]
    assert random_tree_page.sensitivities(errors)["mv"] == Sensitivity(0, 0, 0, 20)
    assert random_tree_page.sensitivities(errors)["ta"].to_height > 5
    rows = random_tree_page.files(runs)["bojarski-sensitivity.csv"]
    assert "vote,the paper's θ,mv,20.0,0.0,0.0,0.0\n" in rows
    assert "| 1 to 15 | the paper's θ | 1, 1 of 1 | 1, 1 of 1 | 1, 1 of 1 |" in _page(
        runs
    )
    assert (
        "* nε = 1,000: transfusion, mammographic, banknote, mushroom, adult.\n"
        in _page(runs)
    )
    assert "* With the paper's θ: in 0 of 2 cases.\n" in _page(runs)
    swapped = [
        replace(
            run,
            test=";".join(run.test.split(";")[place] for place in (1, 0, 2, 3, 4, 5)),
        )
        for run in runs
    ]
    assert "| 1 to 15 | the paper's θ | 1, 1 of 1 | 0, 0 of 1 | 0, 0 of 1 |" in _page(
        swapped
    )
    assert "| 1 to 15 | the paper's θ | 0, 0 of 0 | 0, 0 of 0 | 0, 0 of 0 |" in _page(
        runs[1:]
    )


def test_the_height_is_chosen_by_validation_and_judged_by_the_test() -> None:
    wrong = np.arange(6 * 12).reshape(6, 12)
    runs = [
        grid_run("vote", "1000", height, wrong + height, np.full((6, 12), validation))
        for height, validation in ((1, 9), (2, 4), (3, 4), (4, 7))
    ]
    assert random_tree_page.chosen_by_validation(runs, "ta", 5) == wrong[1, 2] + 2


def test_the_budget_of_planted_errors_is_the_nearest() -> None:
    """Runs whose private errors are the printed ones at one budget only."""
    runs = []
    errors = {
        (error.dataset, error.method): error.error
        for error in random_tree_page.printed_of("vote")
    }
    for budget, shift in (("100", 9.0), ("1000", 0.0), ("10000", 4.0)):
        for height in HEIGHTS:
            n_numbers = 12 if budget == "1000" else 7
            wrong = np.zeros((6, n_numbers), dtype=np.int64)
            wrong[0], wrong[1] = (
                round(100 * (errors["CVR", method] + shift))
                for method in ("dpRFMV", "dpRFTA")
            )
            runs.append(
                replace(grid_run("vote", budget, height, wrong, wrong), n_test="10000")
            )
    distances = random_tree_page.budget_distances(
        random_tree_page.errors_of(runs), "the paper's θ"
    )
    roots = {
        budget: distance.root_mean_square for budget, distance in distances.items()
    }
    assert roots == {
        "100": pytest.approx(9),
        "1000": pytest.approx(0),
        "10000": pytest.approx(4),
    }
    assert [
        (distance.n_cells, distance.n_inside) for distance in distances.values()
    ] == [(2, 0), (2, 2), (2, 0)]

"""The first split of a boosted forest: its utilities, its tree and its scores."""

import math
from functools import partial

import numpy as np
import pytest

from grovekeeper_forests.algorithms.nbrt import boosted_rows
from grovekeeper_forests.algorithms.nbrt.boosted_rows import LocalBoostedRows
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.kernels import boosting as kernels
from tests.support.schemas import schema_of

UNIT = 2**16


def encoding_of(n_classes: int = 2) -> Encoding:
    features = [
        {"name": "size", "type": "integer", "lower": 0, "upper": 5},
        {
            "name": "kind",
            "type": "categorical",
            "categories": ["x", "y", "z"],
            "missing": True,
        },
        {
            "name": "grade",
            "type": "categorical",
            "categories": ["low", "mid", "high"],
            "ordered": True,
        },
        {"name": "constant", "type": "integer", "lower": 1, "upper": 1},
        {
            "name": "town",
            "type": "categorical",
            "categories": [f"t{i}" for i in range(150)],
        },
        {
            "name": "rank",
            "type": "categorical",
            "categories": [f"r{i}" for i in range(150)],
            "ordered": True,
        },
    ]
    classes = [str(k) for k in range(n_classes)]
    return Encoding.of(schema_of(*features, classes=classes, label="k"), 32)


def rows_of(
    encoding: Encoding, n_rows: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.stack(
        [rng.integers(0, n, n_rows) for n in encoding.n_codes.tolist()], axis=1
    ).astype(np.uint8)
    return X, rng.integers(0, encoding.schema.n_classes, n_rows).astype(np.int32)


def goes_right(encoding: Encoding, X: np.ndarray, choice: int) -> np.ndarray:
    own = encoding.candidates
    codes = X[:, own.feature[choice]]
    return (
        codes != own.threshold[choice]
        if own.equals[choice]
        else codes > own.threshold[choice]
    )


def utilities_of(encoding: Encoding, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    rows = LocalBoostedRows(X, y, n_classes=encoding.schema.n_classes)
    return boosted_rows.first_split_utilities(
        encoding, partial(rows.code_counts, n_codes=encoding.n_codes)
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_utility_is_the_norms_of_both_sides(n_classes: int) -> None:
    encoding = encoding_of(n_classes)
    X, y = rows_of(encoding, 60, seed=1)
    expected = []
    for choice in range(len(encoding.candidates)):
        right = goes_right(encoding, X, choice)
        norms = (
            np.bincount(y[side], minlength=n_classes).astype(object) ** 4
            for side in (right, ~right)
        )
        expected.append(sum(math.isqrt(math.isqrt(int(norm.sum()))) for norm in norms))
    assert utilities_of(encoding, X, y).tolist() == expected


def test_utilities_are_the_same_however_many_features_are_tabulated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoding = encoding_of()
    X, y = rows_of(encoding, 60, seed=5)
    whole = utilities_of(encoding, X, y)
    assert len(whole) == len(encoding.candidates)
    for block in (1, 3):
        monkeypatch.setattr(boosted_rows, "_BLOCK", block)
        assert np.array_equal(utilities_of(encoding, X, y), whole)


@pytest.mark.parametrize("n_rows", [0, 1, 2, 17])
def test_a_row_raises_every_utility_by_nothing_or_one(n_rows: int) -> None:
    encoding = encoding_of(3)
    seen = set()
    for seed in range(20):
        X, y = rows_of(encoding, n_rows + 1, seed=seed)
        seen |= set(
            (
                utilities_of(encoding, X, y) - utilities_of(encoding, X[1:], y[1:])
            ).tolist()
        )
    assert seen <= {0, 1}
    assert 1 in seen


def test_every_choice_divides_the_rows_as_its_candidate_defines() -> None:
    encoding = encoding_of()
    X, _ = rows_of(encoding, 80, seed=2)
    for choice in range(len(encoding.candidates)):
        for depth in (1, 3):
            tree = boosted_rows.first_tree(encoding, choice, depth=depth)
            (reached,) = kernels.leaves(
                X, feature=tree.feature, right=tree.right, depth=depth
            )
            left, right = boosted_rows.sides_of_first_split(tree.n_leaves)
            assert np.array_equal(
                reached, np.where(goes_right(encoding, X, choice), right, left)
            )


def test_without_a_choice_all_rows_are_on_one_side() -> None:
    encoding = encoding_of()
    tree = boosted_rows.first_tree(encoding, None, depth=2)
    X, _ = rows_of(encoding, 20, seed=3)
    assert not kernels.leaves(X, feature=tree.feature, right=tree.right, depth=2).any()
    assert tree.n_leaves == 4


def test_leaf_counts_are_those_of_the_tree() -> None:
    encoding = encoding_of(3)
    X, y = rows_of(encoding, 50, seed=4)
    tree = boosted_rows.first_tree(encoding, 2, depth=2)
    right = goes_right(encoding, X, 2)
    result = LocalBoostedRows(X, y, n_classes=3).leaf_counts(tree)
    assert result[[0, 2]].tolist() == [
        np.bincount(y[side], minlength=3).tolist() for side in (~right, right)
    ]
    assert not result[[1, 3]].any()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sides_go_three_quarters_of_the_way_to_their_own_proportions(
    n_classes: int,
) -> None:
    counts = np.array([[900, 100, 40], [200, 800, 90]])[:, :n_classes]
    count = 2**30  # noise of 1/64 row
    start, found = boosted_rows.scores_of_first_tree(counts * count, count, n_leaves=4)

    def logs(weights: np.ndarray) -> np.ndarray:
        own = np.log(weights)
        return own[1:] - own[:1] if n_classes == 2 else own - own.mean()

    deviation = 2.0**-6
    prior = counts.sum(axis=0) + math.sqrt(2) * deviation
    shrunk = counts + (1 + 2.5 * deviation) * prior / prior.sum()
    assert start / UNIT == pytest.approx(logs(prior), abs=1e-4)
    for side, leaf in enumerate((0, 2)):
        assert found[leaf] / UNIT == pytest.approx(
            0.75 * (logs(shrunk[side]) - logs(prior)), abs=1e-4
        )
    assert found.dtype == np.int32
    assert not found[[1, 3]].any()


def test_no_release_scores_above_the_limit() -> None:
    large = 2**61
    for released in (
        [[large, -large], [-large, large]],
        [[-large, -large], [-large, -large]],
        [[0, 0], [large, 0]],
    ):
        start, found = boosted_rows.scores_of_first_tree(
            np.array(released, dtype=np.int64), 1, n_leaves=2
        )
        assert np.abs(found).max() <= 3 * UNIT
        assert np.abs(start).max() <= 64 * UNIT

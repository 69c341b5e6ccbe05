"""Forests without privacy: learned functions, artifacts, split rules against NumPy, and
falling errors.
"""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from grovekeeper_forests import catalogue as private
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Feature, Label, Schema
from research import bundled
from research.papers.forests import catalogue
from research.papers.forests.consistent.grow import with_labels
from research.papers.forests.loops import split_loops
from research.papers.forests.trees import split_trees
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_trees import NodeTree
from research.papers.forests.trees.split_trees import (
    CodedRows,
    Rule,
    Weights,
    grown,
)
from tests.pure.research.papers.reference_forests import (
    IRIS,
    UNIT,
    error,
    iris,
    public_rows,
)
from tests.pure.research.papers.reference_forests import grown as grown_forest

MIXED = Schema(
    (
        Feature("age", "integer", 0.0, 9.0, missing=True),
        Feature("sex", "categorical", categories=("f", "m")),
        Feature("size", "categorical", categories=("s", "m", "l"), ordered=True),
    ),
    Label("y", ("no", "yes")),
)


def test_no_reference_has_the_slug_of_a_private_algorithm() -> None:
    assert private.BY_SLUG.keys().isdisjoint(catalogue.REFERENCES)
    assert len(catalogue.REFERENCES) == 20


@pytest.mark.parametrize("slug", catalogue.REFERENCES)
def test_a_reference_learns(slug: str) -> None:
    X, y = iris()
    train, test = public_rows(*X[:100].T, y=y[:100]), public_rows(*X[100:].T, y=y[100:])
    forest = grown_forest(slug, IRIS, train)
    assert error(forest, IRIS, test) < 0.2
    for read_out in catalogue.REFERENCES[slug].read_outs:
        shares = catalogue.probabilities(forest, IRIS, test.features, read_out=read_out)
        assert np.allclose(shares.sum(axis=1), 1.0)


@pytest.mark.covering("slug", "n_rows")
@pytest.mark.parametrize("slug", catalogue.REFERENCES)
@pytest.mark.parametrize("n_rows", [0, 1, 2, 40])
def test_any_rows_give_a_model(slug: str, n_rows: int) -> None:
    random = np.random.default_rng(2)
    age = np.where(random.random(n_rows) < 0.2, np.nan, random.integers(0, 10, n_rows))
    rows = public_rows(
        age,
        random.integers(0, 4, n_rows).astype(np.int32),
        random.integers(0, 5, n_rows).astype(np.int32),
        y=np.ones(n_rows, dtype=np.int64)
        if n_rows < 40
        else random.integers(0, 2, n_rows),
    )
    forest = grown_forest(slug, MIXED, rows)
    assert np.allclose(
        catalogue.probabilities(forest, MIXED, rows.features, read_out=None).sum(
            axis=1
        ),
        1.0,
    )


def test_trees_of_scikit_learn_answer_as_scikit_learn_does() -> None:
    X, y = iris()
    rows = public_rows(*X.T, y=y)
    exact = X.astype(np.float32)
    tree = DecisionTreeClassifier(random_state=1).fit(exact, y)
    ours = catalogue.probabilities(
        grown_forest("cart", IRIS, rows), IRIS, rows.features, read_out="ta"
    )
    assert np.array_equal(ours.argmax(axis=1), tree.predict(exact))
    theirs = RandomForestClassifier(
        20, min_samples_leaf=5, max_features="sqrt", random_state=1
    ).fit(exact, y)
    ours = catalogue.probabilities(
        grown_forest("breiman", IRIS, rows), IRIS, rows.features, read_out="ta"
    )
    assert np.mean(ours.argmax(axis=1) == theirs.predict(exact)) > 0.97


def _decreases(
    values: NDArray[np.float64], y: NDArray[np.int32], min_leaf: int
) -> dict[float, float]:
    """The decrease of the Gini impurity by every legal midpoint, in plain NumPy."""

    def gini(labels: NDArray[np.int32]) -> float:
        return 1.0 - float(np.square(np.bincount(labels) / len(labels)).sum())

    distinct = np.unique(values)
    found = {}
    for low, high in pairwise(distinct):
        left = values <= low
        if min(left.sum(), (~left).sum()) >= min_leaf:
            share = left.mean()
            found[(low + high) / 2] = (
                gini(y) - share * gini(y[left]) - (1 - share) * gini(y[~left])
            )
    return found


def test_the_first_split_is_the_best_one_of_numpy() -> None:
    X, y = iris()
    coded = CodedRows.of(Design.of(IRIS), public_rows(*X.T, y=y))
    everything = np.ones(len(y), dtype=np.int32)
    rule = Rule(split_loops.GREEDY, 5, 4)
    tree = grown(coded, Weights(everything, everything), rule, np.random.default_rng(0))
    largest = [
        max(_decreases(column, y.astype(np.int32), 5).values())
        for column in X.astype(np.float32).T
    ]
    chosen = _decreases(X.astype(np.float32)[:, tree.feature[0]], y.astype(np.int32), 5)
    at = min(chosen, key=lambda threshold: abs(threshold - tree.threshold[0]))
    assert chosen[at] == pytest.approx(max(largest))


@pytest.mark.parametrize("n_rows", [30, 300])
def test_tallies_and_sorts_find_the_best_split_of_numpy(n_rows: int) -> None:
    schema = Schema(
        (
            *MIXED.features,
            Feature("wage", "numeric", 0.0, 1.0),
            Feature("town", "categorical", categories=tuple("abcdefgh")),
        ),
        Label("y", ("no", "yes", "perhaps")),
    )
    random, everything = np.random.default_rng(n_rows), np.ones(n_rows, dtype=np.int32)
    for _ in range(3):
        columns = [
            random.integers(0, n_values, n_rows).astype(np.int32)
            for n_values in (10, 4, 5, 1, 9)
        ]
        rows = public_rows(
            columns[0].astype(np.float64),
            *columns[1:3],
            random.random(n_rows),
            columns[4],
            y=(random.integers(0, 3, n_rows) + columns[random.integers(5)] % 2) % 3,
        )
        design = Design.of(schema)
        X, coded = design.matrix(rows.features), CodedRows.of(design, rows)
        rule = Rule(split_loops.GREEDY, 4, design.n_columns, max_depth=1)
        tree = grown(coded, Weights(everything, everything), rule, random)
        assert len(tree.feature) == 3
        largest = max(
            max(_decreases(column, rows.y, 4).values(), default=0.0) for column in X.T
        )
        left = X[:, tree.feature[0]] <= tree.threshold[0]
        chosen = min(
            _decreases(X[:, tree.feature[0]], rows.y, 4).items(),
            key=lambda at: abs(at[0] - tree.threshold[0]),
        )
        assert chosen[1] == pytest.approx(largest)
        for side, shares in ((left, tree.shares[1]), (~left, tree.shares[2])):
            assert np.allclose(
                shares, np.bincount(rows.y[side], minlength=3) / side.sum()
            )


def test_multinomial_splits_follow_the_softmax_of_normalised_decreases() -> None:
    X, y = iris()
    X, y = X[:40], y[:40].astype(np.int32)
    coded, everything = (
        CodedRows.of(Design.of(IRIS), public_rows(*X.T, y=y)),
        np.ones(len(y), dtype=np.int32),
    )
    rule, random = (
        Rule(split_loops.MULTINOMIAL, 15, 0, (4.0, 3.0)),
        np.random.default_rng(3),
    )
    points = [_decreases(column, y, 15) for column in X.astype(np.float32).T]
    best = np.array([max(found.values()) for found in points])
    weights = np.exp(2.0 * (best - best.min()) / (best.max() - best.min()))
    n_draws = 2_000
    drawn = [
        grown(coded, Weights(everything, everything), rule, random)
        for _ in range(n_draws)
    ]
    counted = np.bincount([tree.feature[0] for tree in drawn], minlength=4) / n_draws
    assert np.abs(counted - weights / weights.sum()).max() < 0.05
    column = int(counted.argmax())
    gains = np.array(list(points[column].values()))
    shares = np.exp(1.5 * (gains - gains.min()) / (gains.max() - gains.min()))
    cuts = np.array([tree.threshold[0] for tree in drawn if tree.feature[0] == column])
    seen = np.array([np.mean(np.abs(cuts - cut) < 1e-6) for cut in points[column]])
    assert np.abs(seen - shares / shares.sum()).max() < 0.06


def _town_and_wage() -> tuple[Schema, SanitisedRows, list[NDArray[np.float64]]]:
    """A category of four values beside a number of two, rows, and the decreases by the
    split points of both.
    """
    schema = Schema(
        (
            Feature("town", "categorical", categories=tuple("abcd")),
            Feature("wage", "integer", 0.0, 1.0),
        ),
        Label("y", ("no", "yes")),
    )
    random = np.random.default_rng(5)
    town = random.integers(0, 4, 60).astype(np.int32)
    wage = random.integers(0, 2, 60).astype(np.float64)
    y = ((random.random(60) < 0.2 + 0.2 * town) ^ (wage == 1)).astype(np.int32)
    decreases = [
        np.array([*_decreases(column, y, 1).values()])
        for column in (*(town == code for code in range(4)), wage)
    ]
    return (
        schema,
        public_rows(town, wage, y=y),
        [np.concatenate(decreases[:4]), decreases[4]],
    )


def test_a_feature_is_drawn_by_its_best_value_and_then_a_value() -> None:
    schema, rows, decreases = _town_and_wage()
    coded, random = CodedRows.of(Design.of(schema), rows), np.random.default_rng(7)
    everything = Weights(np.ones(60, dtype=np.int32), np.ones(60, dtype=np.int32))
    best = np.array([found.max() for found in decreases])
    weights = np.exp(2.0 * (best - best.min()) / np.ptp(best))
    gains = decreases[0]
    shares = np.exp(1.5 * (gains - gains.min()) / np.ptp(gains))
    law = np.append(shares / shares.sum() * weights[0], weights[1]) / weights.sum()
    rule = Rule(
        split_loops.MULTINOMIAL, 1, 0, (4.0, 3.0), max_depth=1, by_features=True
    )
    drawn = [grown(coded, everything, rule, random).feature[0] for _ in range(3_000)]
    # two columns of the category are those of OTHER and MISSING
    seen = np.bincount(drawn, minlength=7)[[0, 1, 2, 3, 6]] / len(drawn)
    assert np.abs(seen - law).max() < 0.05
    greedy = Rule(split_loops.GREEDY, 1, 1, max_depth=1, by_features=True)
    found = [grown(coded, everything, greedy, random).feature[0] for _ in range(3_000)]
    assert {*found} == {gains.argmax(), 6}
    assert abs(np.mean(np.array(found) == 6) - 0.5) < 0.05


def _task(n_rows: int, random: np.random.Generator) -> SanitisedRows:
    """Uniform points; P(yes) is 0.9 in a disk and 0.1 outside, so that the Bayes error
    is 0.1.
    """
    a, b = random.random(n_rows), random.random(n_rows)
    chance = np.where((a - 0.5) ** 2 + (b - 0.5) ** 2 < 0.15, 0.9, 0.1)
    return public_rows(a, b, y=(random.random(n_rows) < chance).astype(np.int64))


def _excess_errors(slug: str, sizes: tuple[int, ...]) -> list[float]:
    random = np.random.default_rng(4)
    test = _task(20_000, random)
    return [
        error(
            grown_forest(
                slug, UNIT, _task(n, random), min_samples_leaf=max(int(n**0.5 / 2), 1)
            ),
            UNIT,
            test,
        )
        - 0.1
        for n in sizes
    ]


CONSISTENT = ("mrf-plain", "denil14", "brf", "comprf-c", "bms-rf-plain")


def _check_falling(slug: str, sizes: tuple[int, ...], *, last: float) -> None:
    errors = _excess_errors(slug, sizes)
    assert errors[-1] < last, errors
    assert errors[-1] < errors[0] / 2, errors


@pytest.mark.parametrize("slug", CONSISTENT)
def test_the_error_of_a_consistent_forest_falls_towards_that_of_bayes(
    slug: str,
) -> None:
    _check_falling(slug, (60, 3_000), last=0.06)


@pytest.mark.long
@pytest.mark.parametrize("slug", CONSISTENT)
def test_the_error_of_a_consistent_forest_comes_close_to_that_of_bayes(
    slug: str,
) -> None:
    _check_falling(slug, (100, 1_000, 10_000, 100_000), last=0.02)


def test_labels_of_leaves_are_drawn_as_printed() -> None:
    """Pr[c] ∝ exp(B3/2 · P_c): equal leaves of many trees get their labels by this law,
    each one label.
    """
    shares = np.tile([0.7, 0.2, 0.1], (40_000, 1))
    tree = NodeTree(
        np.full(40_000, -1, np.int32),
        np.zeros(40_000),
        np.zeros(40_000, np.int32),
        shares,
    )
    drawn = with_labels(tree, 4.0, np.random.default_rng(5)).shares
    law = np.exp(2.0 * shares[0]) / np.exp(2.0 * shares[0]).sum()
    assert np.array_equal(drawn.sum(axis=1), np.ones(40_000))
    assert drawn.mean(axis=0) == pytest.approx(law, abs=0.01)


def test_ties_of_votes_are_drawn_or_go_to_the_first_class() -> None:
    shares = np.tile([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4], [0.1, 0.8, 0.1]], (3_000, 1))
    random = np.random.default_rng(7)
    first, drawn = (
        catalogue.labels(catalogue.plan(slug, named), shares, random).reshape(-1, 3)
        for slug, named in (("mrf-plain", {}), ("bms-rf-plain", {"ties": "drawn"}))
    )
    assert (first == [0, 1, 1]).all()
    assert [set(of_row) for of_row in drawn.T] == [{0, 1}, {1, 2}, {1}]
    assert drawn.mean(axis=0) == pytest.approx([0.5, 1.5, 1.0], abs=0.05)


def test_a_literal_multinomial_forest_has_no_path_longer_than_its_depth() -> None:
    X, y = iris()
    rows = public_rows(*X[:100].T, y=y[:100])
    forest = grown_forest(
        "mrf-plain", IRIS, rows, n_estimators=3, max_depth=2, b3="1", min_samples_leaf=1
    )
    sizes = np.diff(forest.arrays["root"])
    assert (sizes <= 7).all()
    assert set(np.unique(forest.arrays["values"])) == {0.0, 1.0}


def test_trees_of_algorithm_1_are_deeper_than_bai_et_al_observe() -> None:
    """At B1 = B2 = 0.05 (their preprint's table 3), on nine tenths of Wdbc."""
    wdbc, random = bundled.read("wdbc"), np.random.default_rng(9)
    kept = random.permutation(len(wdbc.y))[: len(wdbc.y) * 9 // 10]
    rows = public_rows(*(column[kept] for column in wdbc.columns), y=wdbc.y[kept])
    coded = CodedRows.of(Design.of(wdbc.schema), rows)
    rule = Rule(split_loops.MULTINOMIAL, 5, 0, (0.05, 0.05), stop=split_trees.NODE)
    depths = []
    for _ in range(200):
        weights = Weights.parted(len(kept), random, structure_share=0.5)
        tree = grown(coded, weights, rule, random)
        depth = np.zeros(len(tree.feature), dtype=np.int64)
        for node in np.flatnonzero(tree.feature >= 0):
            depth[[node + 1, tree.right[node]]] = depth[node] + 1
        depths.append(depth.max())
    assert np.mean(np.array(depths) > 10) == pytest.approx(0.9, abs=0.05)


def _estimation_sizes(
    tree: NodeTree, columns: NDArray[np.float64], estimation: NDArray[np.int32]
) -> list[int]:
    """Estimation points of every node, by a walk in plain Python."""
    sizes = [0] * len(tree.feature)
    for row in np.flatnonzero(estimation):
        node = 0
        while True:
            sizes[node] += 1
            if tree.feature[node] < 0:
                break
            goes_left = columns[row, tree.feature[node]] <= tree.threshold[node]
            node = node + 1 if goes_left else int(tree.right[node])
    return sizes


@pytest.mark.parametrize("kind", [split_loops.GREEDY, split_loops.MULTINOMIAL])
@pytest.mark.parametrize("stop", split_trees.STOPS)
def test_a_stop_counts_k_at_the_node_or_on_both_sides(kind: int, stop: str) -> None:
    """Random labels, so that no node is of one class: with line 3 of Algorithm 1 every
    node of more than five estimation points is split.
    """
    random, n_rows = np.random.default_rng(3), 400
    X, y = random.random((n_rows, 2)), random.integers(0, 2, n_rows)
    coded = CodedRows.of(Design.of(UNIT), public_rows(*X.T, y=y))
    rule, empty, together = Rule(kind, 5, 2, (4.0, 4.0), stop=stop), 0, 0
    for _ in range(20):
        weights = Weights.parted(n_rows, random, structure_share=0.5)
        tree = grown(coded, weights, rule, random)
        assert np.isfinite(tree.shares).all()
        sizes = _estimation_sizes(tree, X.astype(np.float32), weights.estimation)
        for node, size in enumerate(sizes):
            if stop == split_trees.LEAVES:
                assert size >= 5
                continue
            if tree.feature[node] < 0:
                continue
            assert size > 5
            children = (node + 1, int(tree.right[node]))
            if min(sizes[child] for child in children) <= 5:
                is_leaf = [tree.feature[child] < 0 for child in children]
                assert all(is_leaf) or stop == split_trees.NODE
                together += all(is_leaf)
            for child in children:
                if sizes[child] == 0:
                    empty += 1
                    assert tree.feature[child] < 0
                    assert np.array_equal(tree.shares[child], tree.shares[node])
    assert (empty > 0, together > 0) == (stop != split_trees.LEAVES,) * 2


def test_a_forest_that_draws_no_other_column_has_smaller_trees() -> None:
    """Half of the columns are constant: a node that draws one of them is a leaf."""
    random, n_rows = np.random.default_rng(4), 200
    X, y = random.random((n_rows, 2)), random.integers(0, 2, n_rows)
    X[:, 1] = 0.5
    rows, sizes = public_rows(*X.T, y=y), {}
    for redraw in ("yes", "no"):
        forest = grown_forest(
            "brf", UNIT, rows, n_estimators=40, candidates="one", redraw=redraw
        )
        sizes[redraw] = np.diff(forest.arrays["root"])
    assert (sizes["yes"] > 1).all()
    assert 0.2 < np.mean(sizes["no"] == 1) < 0.8


def test_a_leaf_of_draws_may_hold_fewer_rows_than_a_leaf_of_rows() -> None:
    X, y = iris()
    rows = public_rows(*X.T, y=y)
    sizes = [
        np.diff(
            grown_forest(
                "breiman", IRIS, rows, n_estimators=100, leaf_counts=of
            ).arrays["root"]
        )
        for of in ("draws", "rows")
    ]
    assert sizes[0].mean() > sizes[1].mean()


def test_strengths_lead_from_random_splits_to_the_best_ones() -> None:
    """Appendix C of the preprint: without strength all columns and points have one
    chance; with the largest, the best split is chosen.
    """
    X, y = iris()
    coded = CodedRows.of(Design.of(IRIS), public_rows(*X.T, y=y))
    everything = Weights(np.ones(150, np.int32), np.ones(150, np.int32))
    random = np.random.default_rng(8)

    def first(rule: Rule) -> tuple[int, float]:
        tree = grown(coded, everything, rule, random)
        return int(tree.feature[0]), float(tree.threshold[0])

    rule = Rule(split_loops.MULTINOMIAL, 1, 0, (0.0, 0.0), max_depth=1)
    drawn = np.bincount([first(rule)[0] for _ in range(4_000)], minlength=4)
    assert np.abs(drawn / 4_000 - 0.25).max() < 0.05
    cuts = {cut for feature, cut in (first(rule) for _ in range(4_000)) if feature == 3}
    assert len(cuts) == len(coded.values[3]) - 1

    # petal length and petal width have best splits of one gain
    best = {first(Rule(split_loops.GREEDY, 1, 4, max_depth=1)) for _ in range(40)}
    strong = Rule(split_loops.MULTINOMIAL, 1, 0, (1e6, 1e6), max_depth=1)
    assert {first(strong) for _ in range(40)} <= best

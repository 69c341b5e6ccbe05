"""Random trees: their law, their masks, and that they depend on the schema alone."""

import itertools
from collections import Counter

import numpy as np
import pytest

from grovekeeper_forests.algorithms.nbrt.random_trees import (
    Trees,
    joined,
    no_trees,
    random_tree,
)
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.noise.randomness import SystemRandomness
from tests.privacy.enumeration import EnumeratingRandomness, output_law
from tests.privacy.laws import assert_law
from tests.support.schemas import schema_of


def encoding_of(*features: dict) -> Encoding:
    named = [{"name": f"f{index}", **feature} for index, feature in enumerate(features)]
    schema = schema_of(*named, classes=["a", "b"], label="k")
    return Encoding.of(schema, 32)


def number(n_values: int, *, missing: bool = False) -> dict:
    return {"type": "integer", "lower": 0, "upper": n_values - 1, "missing": missing}


def categories(n_values: int, *, ordered: bool = False, missing: bool = False) -> dict:
    named = [str(value) for value in range(n_values)]
    return {
        "type": "categorical",
        "categories": named,
        "ordered": ordered,
        "missing": missing,
    }


def codes_right(mask: np.ndarray) -> set[int]:
    return {code for code in range(256) if int(mask[code // 64]) >> code % 64 & 1}


def some_trees(encoding: Encoding, n_trees: int, *, depth: int) -> Trees:
    randomness = SystemRandomness()
    return joined(
        [
            random_tree(encoding, depth=depth, randomness=randomness)
            for _ in range(n_trees)
        ]
    )


def test_one_split_has_the_uniform_law_over_features_then_thresholds() -> None:
    """At most four features: a split draws from all of them. Numbers are cut between
    neighbouring codes only.
    """
    encoding = encoding_of(number(2), number(4))

    def run(randomness: EnumeratingRandomness) -> tuple:
        trees = random_tree(encoding, depth=1, randomness=randomness)
        return int(trees.feature[0, 0]), frozenset(codes_right(trees.right[0, 0]))

    expected = {
        (0, frozenset({1})): 1 / 2,
        (1, frozenset({1, 2, 3})): 1 / 6,
        (1, frozenset({2, 3})): 1 / 6,
    }
    expected[1, frozenset({3})] = 1 / 6
    assert output_law(run) == pytest.approx(expected)


def test_unordered_categories_are_cut_in_every_order_alike() -> None:
    """Three categories: each of the six partitions has probability 1/6; OTHER (code 3)
    goes with any of them.
    """
    encoding = encoding_of(categories(3))

    def run(randomness: EnumeratingRandomness) -> frozenset:
        return frozenset(
            codes_right(
                random_tree(encoding, depth=1, randomness=randomness).right[0, 0]
            )
        )

    subsets = [
        frozenset(subset)
        for size in (1, 2)
        for subset in itertools.combinations(range(3), size)
    ]
    expected = {subset: (3 - len(subset)) / 18 for subset in subsets} | {
        subset | {3}: len(subset) / 18 for subset in subsets
    }
    assert output_law(run) == pytest.approx(expected)


def test_a_missing_category_has_a_separate_place() -> None:
    # codes: two categories, OTHER, MISSING
    encoding = encoding_of(categories(2, missing=True))
    right = [
        codes_right(
            random_tree(encoding, depth=1, randomness=SystemRandomness()).right[0, 0]
        )
        for _ in range(200)
    ]
    assert {frozenset(subset & {0, 1, 3}) for subset in right} == {
        frozenset(subset)
        for size in (1, 2)
        for subset in itertools.combinations((0, 1, 3), size)
    }
    assert all((2 in subset) in ((0 in subset), (1 in subset)) for subset in right)


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (lambda: number(3, missing=True), [{1, 2, 3}, {2, 3}, {3}]),
        (lambda: categories(3, ordered=True), [{1, 2, 3}, {2, 3}]),
        (
            lambda: categories(3, ordered=True, missing=True),
            [{1, 2, 3, 4}, {2, 3, 4}, {4}],
        ),
    ],
)
def test_ordered_codes_keep_their_order(
    feature: object, expected: list[set[int]]
) -> None:
    """OTHER (code 3) goes with the highest category, MISSING is above every category."""
    encoding = encoding_of(feature())
    seen = {
        frozenset(
            codes_right(
                random_tree(encoding, depth=1, randomness=SystemRandomness()).right[
                    0, 0
                ]
            )
        )
        for _ in range(80)
    }
    assert seen == {frozenset(subset) for subset in expected}


@pytest.mark.parametrize("missing", [False, True])
def test_many_ordered_categories_are_cut_between_their_bins(missing: bool) -> None:
    """Categories are grouped as numbers are: fewer bins than categories, and no bin for
    OTHER.
    """
    many = encoding_of(
        categories(255, ordered=True, missing=missing), categories(255, missing=missing)
    )
    encoding = quantile_bins.widest_encoding(many.schema)
    trees = some_trees(encoding, 300, depth=1)
    grouped = trees.right[trees.feature == 0]
    cuts = {frozenset(codes_right(right)) for right in grouped}

    assert encoding.n_codes[0] < 40
    assert cuts <= {
        frozenset(range(code, encoding.n_codes[0]))
        for code in range(1, encoding.n_codes[0])
    }
    assert len(cuts) > 10
    assert len(grouped) < 300


def test_a_tree_draws_half_of_the_features_uniformly() -> None:
    encoding = encoding_of(*[number(2)] * 8)
    trees = some_trees(encoding, 3_000, depth=4)
    used = [frozenset(subset) for subset in trees.feature.tolist()]
    # four binary features fill exactly four levels
    assert all(len(subset) == 4 for subset in used)
    subsets = [frozenset(subset) for subset in itertools.combinations(range(8), 4)]
    index = {own: place for place, own in enumerate(subsets)}
    assert_law(
        Counter(index[subset] for subset in used), dict.fromkeys(range(70), 1 / 70)
    )


def test_boxes_are_split_until_nothing_is_left_and_then_everything_goes_left() -> None:
    encoding = encoding_of(number(3))
    trees = some_trees(encoding, 50, depth=4)
    for tree in range(50):
        boxes = {0: {0, 1, 2}}
        for node in range(15):
            box = boxes[node]
            right = box & codes_right(trees.right[tree, node])
            if len(box) > 1:
                assert right
                assert box - right
            else:
                assert not trees.right[tree, node].any()
            boxes[2 * node + 1], boxes[2 * node + 2] = box - right, right
        assert sorted(len(boxes[leaf]) for leaf in range(15, 31)) == [0] * 13 + [1] * 3


def test_every_code_of_a_wide_feature_can_be_separated() -> None:
    encoding = encoding_of(categories(255, missing=True))
    assert int(encoding.n_codes[0]) == 256  # OTHER and MISSING share the last bin
    trees = some_trees(encoding, 200, depth=1)
    right = [codes_right(mask[0]) for mask in trees.right]
    sides = np.array([[code in codes for code in range(256)] for codes in right])
    assert len(np.unique(sides.T[:255], axis=0)) == 255
    assert 60 < sides.sum(axis=1).mean() < 196


def test_features_without_a_split_are_never_asked() -> None:
    encoding = encoding_of(number(1), number(1), number(2))
    trees = some_trees(encoding, 20, depth=2)
    assert set(trees.feature[:, 0].tolist()) == {2}
    nothing = some_trees(encoding_of(number(1)), 2, depth=2)
    assert not nothing.right.any()


def test_trees_can_be_joined_and_be_none() -> None:
    encoding = encoding_of(number(5))
    one, two = (some_trees(encoding, n, depth=2) for n in (1, 3))
    both = joined([one, two])
    assert both.feature.shape == (4, 3)
    assert both.depth == 2
    assert both.n_leaves == 4
    assert np.array_equal(both.right[1:], two.right)
    assert no_trees(3).n_leaves == 1
    assert no_trees(3).depth == 0

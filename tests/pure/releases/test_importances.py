"""What the trees of a forest look at, by hand and for every algorithm."""

from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.contract.algorithm import TwoDatasetAlgorithm
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.encoding import NO_SPLIT
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import read
from grovekeeper_forests.releases.forest.importances import use_of
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.pure.releases.test_released_forest import METADATA, SCHEMA, forest
from tests.support.schemas import schema_of

_BITS = schema_of(
    *({"name": name, "type": "integer", "lower": 0, "upper": 1} for name in "ab"),
    classes=["no", "yes"],
)


def _counted(features: list[int], counts: list[list[int]], **arrays: object) -> Forest:
    """One tree of depth 2 on two bits with these counts in its leaves."""
    settled = plan(
        PlanRequest("rdt-ta", {"n_estimators": 1, "max_depth": 2}, Terms(Fraction(1))),
        _BITS,
    )
    split = {
        "feature": np.array([features], dtype=np.int32),
        "threshold": np.zeros((1, 3), dtype=np.uint8),
        "equals": np.zeros((1, 3), dtype=np.bool_),
        "counts": np.array([counts], dtype=np.int64),
    }
    return Forest(settled, {**split, **arrays})  # type: ignore[dict-item]


def test_importances_are_the_decrease_of_impurity_by_feature() -> None:
    # root on a: 50 and 50 of 100, n·G = 50; sides 40, 10 and 10, 40: 16 each, so 18
    # left on b: 40, 0 and 0, 10: 0 each, so 16; right on b helps nothing
    use = use_of(_counted([0, 1, 1], [[40, 0], [0, 10], [5, 20], [5, 20]]), _BITS)
    assert use.n_splits == (1, 2)
    assert use.importances == pytest.approx((18 / 34, 16 / 34))
    assert use.leaf_shares == (0.25, 0.75)


def test_noise_below_zero_counts_as_nothing() -> None:
    use = use_of(_counted([0, 1, 1], [[-5, -1], [-2, -3], [-1, -9], [0, 0]]), _BITS)
    assert use.importances == (0.0, 0.0), "nothing decreases"
    assert use.leaf_shares == (0.0, 0.0), "no leaf favours a class alone"


def test_a_node_that_sends_every_row_left_is_no_split_and_hides_what_is_below() -> None:
    threshold = np.array([[NO_SPLIT, 0, 0]], dtype=np.uint8)
    noisy = [[30, 0], [0, 10], [0, 900], [900, 0]]
    use = use_of(_counted([0, 1, 0], noisy, threshold=threshold), _BITS)
    assert use.n_splits == (0, 1)
    assert use.importances == (0.0, 1.0)
    assert use.leaf_shares == (0.5, 0.5)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize(
    "slug",
    [
        slug
        for slug, algorithm in catalogue.BY_SLUG.items()
        if not isinstance(algorithm, TwoDatasetAlgorithm)
        and algorithm.adjacency.value != "label"
    ],
)
def test_every_algorithm_tells_what_its_stored_trees_look_at(
    slug: str, depth: int
) -> None:
    parameters = {"max_depth": depth, **({"pairs": "ordered"} if slug == "rpf" else {})}
    grown = forest(slug, **parameters)
    use = read.loads(read.dumps(grown, METADATA)).use
    assert use == use_of(grown, SCHEMA)
    n_nodes = grown.plan.n_trees * (2**depth - 1)
    assert len(use.n_splits) == len(SCHEMA.features)
    assert sum(use.n_splits) <= 2 * n_nodes
    assert 0 <= sum(use.leaf_shares) <= 1 + 1e-9
    assert (use.importances is None) == ("counts" not in grown.arrays)
    if use.importances is not None:
        assert min(use.importances) >= 0
        assert sum(use.importances) == pytest.approx(1) or not any(use.importances)


def test_a_split_by_a_pair_counts_for_both_features() -> None:
    schema = schema_of(
        *({"name": name, "type": "integer", "lower": 0, "upper": 9} for name in "abc"),
        classes=["no", "yes"],
    )
    shape = {"n_estimators": 1, "max_depth": 1, "pairs": "ordered"}
    settled = plan(PlanRequest("rpf", shape, Terms(Fraction(1)), 100), schema)
    # columns 3 and 4 are sum and difference of a and b, 5 and 6 of a and c
    arrays = {
        "feature": np.array([[6]], dtype=np.int32),
        "threshold": np.array([[3]], dtype=np.uint8),
        "equals": np.zeros((1, 1), dtype=np.bool_),
        "counts": np.array([[[2560, 0], [0, 2560]]], dtype=np.int64),
        "selections": np.ones((1, 2), dtype=np.uint8),
        "cuts": np.zeros((0, 255), dtype=np.uint16),
    }
    use = use_of(Forest(settled, arrays), schema)
    assert use.n_splits == (1, 0, 1)
    assert use.importances == (0.5, 0.0, 0.5)

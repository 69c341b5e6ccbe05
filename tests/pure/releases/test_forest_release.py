"""Growth: one mechanism call per tree, public shapes, and structures that do not depend
on rows.
"""

import runpy
from copy import copy
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.literature.price import (
    MedianTrees,
    SemiSupervisedTrees,
)
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.coded_rows import CodedPart
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import draw as forest_draw
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import tree_growth, tree_histograms, tree_parameters
from grovekeeper_forests.trees.tree_growth import random_structure
from grovekeeper_forests.trees.tree_histograms import Assignment, LocalHistograms
from tests.support import walks
from tests.support.forest_fixtures import Offer
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 1},
    {
        "name": "colour",
        "type": "categorical",
        "categories": ["a", "b", "c", "d"],
        "missing": True,
    },
    {"name": "age", "type": "integer", "lower": 0, "upper": 5},
    classes=["x", "y", "z"],
)
N_ROWS = 300


def rows(n_rows: int = N_ROWS) -> SanitisedRows:
    generator = np.random.default_rng(8)
    columns = (
        generator.random(n_rows),
        generator.integers(0, 6, n_rows).astype(np.int32),
        generator.integers(0, 6, n_rows).astype(np.float64),
    )
    y = np.digitize(columns[0], [0.3, 0.6]).astype(np.int32)
    return SanitisedRows(
        SanitisedColumns(columns, n_rows),
        y,
        generator.integers(0, 256, (n_rows, 16), dtype=np.uint8),
    )


def grown(
    slug: str, epsilon: str = "1000000", **parameters: object
) -> tuple[Forest, int]:
    settled = plan(
        PlanRequest(slug, parameters, Terms(Fraction(epsilon)), N_ROWS), SCHEMA
    )
    done: list[None] = []
    forest = grow(
        settled,
        SCHEMA,
        rows(),
        SystemRandomness(),
        on_tree_done=lambda: done.append(None),
    )
    return forest, len(done)


@pytest.mark.parametrize("slug", ["mrf", "rdt-ta"])
def test_one_call_per_tree_and_arrays_of_the_public_shape(slug: str) -> None:
    forest, done = grown(slug, n_estimators=3, max_depth=4)

    assert done == 3
    assert forest.depth == 4
    assert (
        forest.arrays["feature"].shape
        == forest.arrays["threshold"].shape
        == forest.arrays["equals"].shape
        == (3, 15)
    )
    assert forest.arrays["counts"].shape == (3, 16, 3)
    kinds = (
        forest.arrays["feature"].dtype,
        forest.arrays["threshold"].dtype,
        forest.arrays["equals"].dtype,
        forest.arrays["counts"].dtype,
    )
    assert kinds == (np.int32, np.uint8, np.bool_, np.int64)


@pytest.mark.parametrize("slug", ["mrf", "rdt-ta"])
@pytest.mark.parametrize("where", ["sequential", "sharded"])
def test_without_noise_every_row_is_counted_where_it_lies(
    slug: str, where: str
) -> None:
    """At an inverse scale of 64 the noise is zero: each count is the number of rows
    that routing sends to the leaf.
    """
    forest, _ = grown(slug, n_estimators=4, max_depth=3, assignment=where)
    X = Encoding.of(SCHEMA, int(forest.plan.parameters["n_bins"])).encode(
        rows().features
    )
    splits = {name: forest.arrays[name] for name in ("feature", "threshold", "equals")}
    leaves = walks.leaves(X, **splits, depth=3)
    counted = np.zeros_like(forest.arrays["counts"])
    for tree in range(4):
        np.add.at(counted[tree], (leaves[tree], rows().y), 1)

    if where == "sequential":
        assert np.array_equal(forest.arrays["counts"], counted)
    else:  # disjoint shards: every row once
        assert forest.arrays["counts"].sum() == N_ROWS
        assert np.all(forest.arrays["counts"] <= counted)
        assert np.all(forest.arrays["counts"].sum(axis=(1, 2)) < N_ROWS)


def test_shards_use_a_key_that_is_drawn_for_the_job_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: list[bytes] = []
    honest = tree_histograms.shards

    def remembering(key: bytes, row_ids: np.ndarray, *, n_shards: int) -> np.ndarray:
        keys.append(key)
        return honest(key, row_ids, n_shards=n_shards)

    monkeypatch.setattr(tree_histograms, "shards", remembering)
    forests = [
        grown("rdt-ta", n_estimators=2, max_depth=1, assignment="sharded")[0]
        for _ in range(2)
    ]

    assert len(set(keys)) == 2
    assert all(len(key) == tree_histograms.KEY_BYTES for key in keys)
    assert all(set(vars(forest)) == {"plan", "arrays"} for forest in forests)


def test_selection_with_a_large_budget_takes_the_best_split() -> None:
    """The label is a function of the first feature alone."""
    forest, _ = grown("mrf", n_estimators=1, max_depth=2)

    assert forest.arrays["feature"][0, 0] == 0
    assert 0 in forest.arrays["feature"][0, 1:]


def test_blocks_of_features_change_no_utility(monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = Encoding.of(SCHEMA, 8)
    X = encoding.encode(rows().features)

    def utilities() -> np.ndarray:
        held = LocalHistograms(
            CodedPart(encoding, X, rows().y, None), Assignment()
        ).of_tree(0)
        return tree_growth.split_utilities(held, encoding, n_nodes=1)

    whole = utilities()
    for cells in (1, 20, 50):
        monkeypatch.setattr(tree_parameters, "BLOCK_CELLS", cells)
        assert np.array_equal(utilities(), whole)
    assert tree_parameters.feature_blocks(encoding, 1) == [slice(0, 2), slice(2, 3)]


def test_random_structure_leaves_no_child_empty() -> None:
    """Routes every record that the bins allow: every leaf is reached, except below a
    box that cannot be split.
    """
    encoding = Encoding.of(SCHEMA, 4)
    values = np.meshgrid(range(4), [0, 1, 2, 3, 5], range(4), indexing="ij")
    every = np.array(values, dtype=np.uint8).reshape(3, -1)
    for _ in range(40):
        feature, threshold, equals = random_structure(
            encoding.candidates, 5, SystemRandomness()
        )
        splits = {
            "feature": feature[None],
            "threshold": threshold[None],
            "equals": equals[None],
        }
        reached = np.unique(walks.leaves(every, **splits, depth=5))

        assert len(reached) == 2**5 - np.sum(threshold == 255)


def test_random_structure_tries_every_feature() -> None:
    candidates = Encoding.of(SCHEMA, 4).candidates
    roots = [
        int(random_structure(candidates, 1, SystemRandomness())[0][0])
        for _ in range(90)
    ]

    assert np.all(np.bincount(roots, minlength=3) > 5)


def test_structure_draws_features_and_then_splits_evenly() -> None:
    class Counting:
        def __init__(self) -> None:
            self.asked: list[int] = []

        def uniform(self, n: int) -> int:
            self.asked.append(n)
            return n - 1

    counting = Counting()
    feature, threshold, equals = random_structure(
        Encoding.of(SCHEMA, 4).candidates, 1, counting
    )

    # Three features; the last one (an integer of six values in four bins) has three
    # thresholds.
    assert counting.asked == [3, 3]
    assert (feature[0], threshold[0], equals[0]) == (2, 2, False)


def load_growth() -> None:
    """Loads the module of growth once more, as the child of a job does before the job
    is charged.
    """
    runpy.run_path(forest_draw.__file__)


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_growth_does_not_load_where_an_algorithm_states_other_rows(
    slug: str, offer: Offer
) -> None:
    load_growth()
    wrong = copy(catalogue.BY_SLUG[slug])
    wrong.reads_values = not wrong.reads_values
    offer(slug, wrong)

    with pytest.raises(
        ValueError, match=f"reads_values of {slug} is not what its growth takes"
    ):
        load_growth()


@pytest.mark.parametrize(
    ("slug", "wrong"), [("sspe-1", MedianTrees()), ("spe", SemiSupervisedTrees())]
)
def test_growth_does_not_load_where_an_algorithm_states_other_datasets(
    slug: str, wrong: MedianTrees, offer: Offer
) -> None:
    offer(slug, wrong)

    with pytest.raises(
        ValueError,
        match=f"the number of datasets of {slug} is not what its growth takes",
    ):
        load_growth()


def test_growth_does_not_load_where_a_growth_has_no_algorithm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = dict(catalogue.BY_SLUG)
    del others["rpf"]
    monkeypatch.setattr(catalogue, "BY_SLUG", others)

    with pytest.raises(ValueError, match="each growth one algorithm"):
        load_growth()


def test_growth_does_not_load_where_an_algorithm_has_no_growth(
    offer: Offer,
) -> None:
    offer("toy", MedianTrees())

    with pytest.raises(ValueError, match="each algorithm needs one growth"):
        load_growth()

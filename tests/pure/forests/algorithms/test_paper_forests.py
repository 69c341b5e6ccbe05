"""The papers' forests without noise, their label leaves in artifacts and predictions,
and their public rules.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from grovekeeper_forests import limits
from grovekeeper_forests.algorithms.literature import medians
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.coded_rows import CodedPart
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import PermuteAndFlip
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.forest.read import ArtifactInvalid
from grovekeeper_forests.trees import leaf_read_out, tree_parameters, tree_price
from grovekeeper_forests.trees.tree_growth import miscount, split_utility
from grovekeeper_forests.trees.tree_histograms import (
    Assignment,
    LocalHistograms,
    shards,
    structure_rows,
)
from grovekeeper_forests.trees.tree_price import MISCOUNT
from tests.support import walks
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
N_ROWS = 400
NO_NOISE = "1000000"
METADATA = {"schema": SCHEMA.to_json()}


def rows() -> SanitisedRows:
    generator = np.random.default_rng(9)
    columns = (
        generator.random(N_ROWS),
        generator.integers(0, 6, N_ROWS).astype(np.int32),
        generator.integers(0, 6, N_ROWS).astype(np.float64),
    )
    y = np.digitize(columns[0], [0.3, 0.6]).astype(np.int32)
    return SanitisedRows(
        SanitisedColumns(columns, N_ROWS),
        y,
        generator.integers(0, 256, (N_ROWS, 16), dtype=np.uint8),
    )


def grown(slug: str, epsilon: str = NO_NOISE, **parameters: object) -> Forest:
    settled = plan(
        PlanRequest(
            slug, {"n_estimators": 3, **parameters}, Terms(Fraction(epsilon)), N_ROWS
        ),
        SCHEMA,
    )
    return grow(settled, SCHEMA, rows(), SystemRandomness(), on_tree_done=lambda: None)


def leaf_counts(forest: Forest, mine: np.ndarray | None = None) -> np.ndarray:
    """Class counts of every leaf, by counting the rows that routing sends to it."""
    X = Encoding.of(SCHEMA, int(forest.plan.parameters["n_bins"])).encode(
        rows().features
    )
    splits = {name: forest.arrays[name] for name in ("feature", "threshold", "equals")}
    reached = walks.leaves(X, **splits, depth=forest.depth)
    counted = np.zeros((len(reached), 2**forest.depth, 3), dtype=np.int64)
    for tree, own in enumerate(reached):
        some = np.arange(N_ROWS) if mine is None else np.flatnonzero(mine[tree])
        np.add.at(counted[tree], (own[some], rows().y[some]), 1)
    return counted


@pytest.mark.parametrize("slug", ["maxtree", "spe", "rdt-jagannathan"])
def test_without_noise_sequential_trees_count_every_row_where_it_lies(
    slug: str,
) -> None:
    forest = grown(slug, max_depth=3, assignment="sequential")

    assert np.array_equal(forest.arrays["counts"], leaf_counts(forest))


@pytest.mark.parametrize("slug", ["spe", "srt"])
def test_sharded_is_the_default_of_forests_on_shards(slug: str) -> None:
    assert (
        plan(PlanRequest(slug, {}, Terms(Fraction(1)), N_ROWS), SCHEMA).parameters[
            "assignment"
        ]
        == tree_parameters.SHARDED
    )


def test_without_noise_shards_hold_every_row_once() -> None:
    forest = grown("spe", max_depth=2)
    sizes = forest.arrays["counts"].sum(axis=(1, 2))

    assert sizes.sum() == N_ROWS
    assert np.all(sizes > 60)


@pytest.mark.parametrize(
    ("slug", "parameters"),
    [("srt", {"assignment": "sequential"}), ("mrf", {"leaf": "label"})],
)
def test_without_noise_labels_are_majorities(slug: str, parameters: dict) -> None:
    forest = grown(slug, max_depth=3, **parameters)
    counted = leaf_counts(forest)
    clear = np.sort(counted, axis=2)[..., -1] > np.sort(counted, axis=2)[..., -2]

    assert set(forest.arrays) == {"feature", "threshold", "equals", "labels"}
    assert np.array_equal(forest.arrays["labels"][clear], counted.argmax(axis=2)[clear])
    assert clear.mean() > 0.2


def test_a_label_forest_survives_serialization_and_votes() -> None:
    forest = grown("srt", max_depth=3)
    artifact = released_forest.loads(released_forest.dumps(forest, METADATA))
    probabilities = Predictor(artifact.forest, SCHEMA).probabilities(rows().features)
    X = Encoding.of(SCHEMA, 32).encode(rows().features)
    splits = {name: forest.arrays[name] for name in ("feature", "threshold", "equals")}
    votes = np.take_along_axis(
        forest.arrays["labels"], walks.leaves(X, **splits, depth=3), axis=1
    )
    shares = np.stack([(votes == label).mean(axis=0) for label in range(3)], axis=1)

    assert np.array_equal(artifact.forest.arrays["labels"], forest.arrays["labels"])
    assert np.allclose(probabilities, shares)


def test_every_read_out_of_labels_is_their_vote() -> None:
    forest = grown("mrf", "1", max_depth=2, leaf="label")
    probabilities = [
        Predictor(forest, SCHEMA).probabilities(rows().features, read_out=name)
        for name in ("log", "ta", "mv")
    ]

    assert np.array_equal(probabilities[0], probabilities[1])
    assert np.array_equal(probabilities[0], probabilities[2])


@pytest.mark.parametrize("label", [-1, 3])
def test_artifact_with_a_label_that_is_no_class_is_refused(label: int) -> None:
    forest = grown("srt", max_depth=1)
    labels = forest.arrays["labels"].copy()
    labels[0, 0] = label
    data = released_forest.dumps(
        replace(forest, arrays={**forest.arrays, "labels": labels}), METADATA
    )

    with pytest.raises(ArtifactInvalid):
        released_forest.loads(data)


def test_label_and_count_artifacts_are_not_taken_for_each_other() -> None:
    counts, labels = grown("mrf", max_depth=1), grown("mrf", max_depth=1, leaf="label")
    for forest, other in ((counts, labels), (labels, counts)):
        with pytest.raises(ArtifactInvalid):
            released_forest.loads(
                released_forest.dumps(replace(forest, arrays=other.arrays), METADATA)
            )


def test_summed_counts_weigh_trees_by_their_leaves() -> None:
    counts = np.array([[[6, 0], [0, 0]], [[1, 3], [-2, 1]]], dtype=np.int64)
    values = leaf_read_out.leaf_values(counts, leaf_read_out.SUM, noise_scale=1.0)
    sums = values[0, 0] + values[1, 0]

    assert values[1, 1].tolist() == [0, 1]
    assert np.allclose(
        leaf_read_out.to_probabilities(sums[None, :], leaf_read_out.SUM), [[0.7, 0.3]]
    )


def test_parts_for_structure_and_leaves_are_disjoint_and_all() -> None:
    """One part's rows choose the splits, the leaves count the other part's rows, and
    routing treats both alike.
    """
    data = rows()
    encoding = Encoding.of(SCHEMA, 8)
    codes = encoding.encode(data.features)
    assignment = Assignment(bytes(32), n_shards=2, structure_share=Fraction(1, 3))
    mine = structure_rows(
        assignment.key, data.row_ids, tree=1, share=assignment.structure_share
    )
    shard = shards(assignment.key, data.row_ids, n_shards=2)
    held = LocalHistograms(
        CodedPart(encoding, codes, data.y, data.row_ids), assignment
    ).of_tree(1)
    split = {
        "feature": np.array([0], np.int32),
        "threshold": np.array([3], np.uint8),
        "equals": np.array([False]),
    }
    held.descend(**split)
    right = codes[0] > 3
    structure = held.class_histogram(slice(0, 1)).sum(axis=(1, 2))
    leaves = held.leaf_histogram()

    assert structure.tolist() == [
        np.sum(mine & (shard == 1) & ~right),
        np.sum(mine & (shard == 1) & right),
    ]
    for side, here in enumerate((~right, right)):
        expected = np.bincount(data.y[~mine & (shard == 1) & here], minlength=3)
        assert leaves[side].tolist() == expected.tolist()


def test_parted_forest_counts_about_half_of_the_rows_and_learns() -> None:
    forest = grown("mrf", max_depth=3, se="hash")
    sizes = forest.arrays["counts"].sum(axis=(1, 2))
    probabilities = Predictor(forest, SCHEMA).probabilities(rows().features)

    assert np.all((sizes > 0.35 * N_ROWS) & (sizes < 0.65 * N_ROWS))
    assert np.mean(probabilities.argmax(axis=1) == rows().y) > 0.9


@pytest.mark.parametrize(
    "parameters",
    [
        {"selection": "two_stage"},
        {"utility": "miscount"},
        {"selection": "two_stage", "utility": "miscount"},
    ],
)
def test_without_noise_greedy_modes_find_the_feature_that_matters(
    parameters: dict,
) -> None:
    forest = grown("mrf", max_depth=2, **parameters)

    assert np.all(forest.arrays["feature"][:, 0] == 0)


def test_full_exploration_splits_on_every_feature() -> None:
    forest = grown("mrf", n_estimators=128, max_depth=1, exploration="1")
    drawn = np.bincount(forest.arrays["feature"].ravel(), minlength=3)

    # each has 128/3 on average; the chance of fewer than 11 is one in ten billion
    assert np.all(drawn > 10)


def test_without_noise_medians_divide_rows_evenly() -> None:
    forest = grown(
        "spe", max_depth=1, n_estimators=16, assignment="sequential", n_bins=64
    )
    by_height = forest.arrays["feature"][:, 0] == 0
    sides = forest.arrays["counts"].sum(axis=2)[by_height]

    assert np.all(np.abs(sides[:, 0] - N_ROWS / 2) < 0.05 * N_ROWS)


def test_exact_medians_are_those_of_every_block_of_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoding, table = Encoding.of(SCHEMA, 8), rows()
    codes = encoding.encode(table.features)
    part = CodedPart(encoding, codes, table.y, None)
    unlabelled = LocalHistograms(part, Assignment(), has_labels=False).of_tree(0)
    whole = medians.exact_evenness(unlabelled, encoding, n_nodes=1)
    for cells in (1, 20, 40):
        monkeypatch.setattr(tree_parameters, "BLOCK_CELLS", cells)
        by_block = medians.exact_evenness(unlabelled, encoding, n_nodes=1)
        np.testing.assert_equal(by_block, whole)
    assert whole[1].tolist() == [N_ROWS]


@pytest.mark.parametrize(
    ("selection", "n_selections"), [("joint", 1), ("two_stage", 2)]
)
def test_a_node_has_its_selection_or_two_of_them_in_sequence(
    selection: str, n_selections: int
) -> None:
    asked = {"n_estimators": 1, "max_depth": 1, "selection": selection}
    request = PlanRequest("mrf", asked, Terms(Fraction(1)), N_ROWS)
    event = plan(request, SCHEMA).event
    level = event.parts[0].event.parts[0].event  # type: ignore[union-attr]
    node = level.parts[0].event
    if n_selections > 1:
        assert [part.times for part in node.parts] == [1] * n_selections
        node = node.parts[0].event
    assert isinstance(node, PermuteAndFlip)


def test_miscount_is_what_the_majority_leaves_out() -> None:
    counts = np.array([[3, 1, 2], [0, 0, 0]], dtype=np.int64)

    assert miscount(counts).tolist() == [3, 0]
    assert split_utility(counts, counts[::-1], MISCOUNT).tolist() == [-3, -3]


@pytest.mark.parametrize(
    ("n_numbers", "n_categories", "depth"),
    [(4, 0, 3), (16, 0, 10), (0, 6, 3), (6, 8, 8)],
)
def test_depth_of_random_labelled_trees_follows_the_features(
    n_numbers: int, n_categories: int, depth: int
) -> None:
    numbers = [
        {"name": f"n{i}", "type": "numeric", "lower": 0, "upper": 1}
        for i in range(n_numbers)
    ]
    words = [
        {"name": f"c{i}", "type": "categorical", "categories": ["a", "b"]}
        for i in range(n_categories)
    ]
    schema = Schema.from_json(
        {"features": [*numbers, *words], "label": SCHEMA.to_json()["label"]}
    )

    assert (
        plan(
            PlanRequest("srt", {"n_estimators": 1}, Terms(Fraction(1)), N_ROWS), schema
        ).parameters["max_depth"]
        == depth
    )


@pytest.mark.parametrize(("asked", "ratio"), [({}, "1.5"), ({"level_ratio": "1"}, "1")])
def test_medians_of_a_level_get_the_ratio_of_what_the_level_above_gets(
    asked: dict, ratio: str
) -> None:
    """By default that of the paper."""
    request = PlanRequest("spe", {"max_depth": 4, **asked}, Terms(Fraction(1)), N_ROWS)
    settled = plan(request, SCHEMA)
    levels = tree_price.TreePrice.of(settled.event).levels
    losses = [
        selection.range_sensitivity * selection.inverse_scale for (selection,) in levels
    ]

    assert sum(losses) == pytest.approx(0.5, abs=1e-8)
    assert [below / above for above, below in pairwise(losses)] == pytest.approx(
        [float(ratio)] * 3, abs=1e-7
    )


@pytest.mark.parametrize("slug", ["rdt-jagannathan", "spe"])
def test_the_deepest_trees_count_every_row_where_it_lies(slug: str) -> None:
    forest = grown(
        slug, max_depth=limits.MAX_DEPTH, n_estimators=1, assignment="sequential"
    )

    assert forest.depth == limits.MAX_DEPTH
    assert np.array_equal(forest.arrays["counts"], leaf_counts(forest))


def test_depth_of_summed_trees_is_half_the_features_or_what_the_size_allows() -> None:
    for size, depth in ((10**6, 2), (4, 1)):
        assert (
            plan(
                PlanRequest("rdt-jagannathan", {}, Terms(Fraction(1)), size), SCHEMA
            ).parameters["max_depth"]
            == depth
        )


def test_deeper_levels_get_a_little_more_and_all_of_them_the_whole() -> None:
    of_levels = tree_price.level_losses(Fraction(33), 3)

    assert of_levels == (10, 11, 12)
    assert tree_price.geometric_losses(Fraction(19), 3, Fraction(3, 2)) == (4, 6, 9)
    assert tree_price.level_losses(Fraction(1), 0) == ()

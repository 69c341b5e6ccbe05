"""Stacked forests: public layers, public columns between layers, and prediction
consistent with growth.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.algorithms.bms_rf import grow, layers, read
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    Parallel,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow as grow_forest
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import tree_growth, tree_histograms
from grovekeeper_forests.trees.tree_growth import SplitRule
from tests.support import walks
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 1},
    {"name": "change", "type": "numeric", "lower": -1, "upper": 3, "missing": True},
    {"name": "debt", "type": "integer", "lower": -10, "upper": -2},
    {
        "name": "rank",
        "type": "categorical",
        "categories": ["low", "mid", "high"],
        "ordered": True,
    },
    {"name": "city", "type": "categorical", "categories": ["a", "b", "c"]},
    classes=["x", "y", "z"],
)
N_ROWS = 400


def rows() -> SanitisedRows:
    generator = np.random.default_rng(8)
    columns = (
        generator.random(N_ROWS),
        generator.uniform(-1, 3, N_ROWS),
        generator.integers(-10, -1, N_ROWS).astype(np.float64),
        generator.integers(0, 4, N_ROWS).astype(np.int32),
        generator.integers(0, 4, N_ROWS).astype(np.int32),
    )
    y = np.digitize(columns[0], [0.3, 0.6]).astype(np.int32)
    ids = generator.integers(0, 256, (N_ROWS, 16), dtype=np.uint8)
    return SanitisedRows(SanitisedColumns(columns, N_ROWS), y, ids)


def planned(epsilon: str = "1000000", **parameters: object) -> Plan:
    return plan(
        PlanRequest("bms-rf", parameters, Terms(Fraction(epsilon)), N_ROWS), SCHEMA
    )


def grown(settled: Plan) -> Forest:
    done: list[None] = []
    forest = grow_forest(
        settled,
        SCHEMA,
        rows(),
        SystemRandomness(),
        on_tree_done=lambda: done.append(None),
    )
    assert len(done) == settled.n_trees
    return forest


def test_trees_are_dealt_out_as_evenly_as_they_can_be() -> None:
    assert layers.sizes({"n_estimators": 7, "n_layers": 3}) == (3, 2, 2)
    assert layers.sizes({"n_estimators": 4, "n_layers": 4}) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, (4, 2)),
        ({"n_estimators": 1}, (1, 1)),
        ({"n_layers": 6}, (6, 6)),
        ({"n_estimators": 5, "n_layers": 3}, (5, 3)),
    ],
)
def test_layers_by_rule_are_two_or_as_many_as_trees(
    parameters: dict, expected: tuple[int, int]
) -> None:
    settled = plan(
        PlanRequest("bms-rf", parameters, Terms(Fraction(1)), 20_000), SCHEMA
    )

    assert (
        settled.parameters["n_estimators"],
        settled.parameters["n_layers"],
    ) == expected


def test_more_layers_than_trees_are_refused() -> None:
    with pytest.raises(ParameterInvalid) as refused:
        planned(n_estimators=2, n_layers=3)
    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("n_layers",), "more-than-trees")
    ]


def test_price_has_a_part_per_layer_and_sharing_is_by_rows_or_by_budget() -> None:
    shape = {"n_estimators": 5, "n_layers": 2, "max_depth": 2}
    together, apart = (
        planned("1", **shape, layer_assignment=where)
        for where in ("sequential", "sharded")
    )
    sharded = planned("1", **shape, assignment="sharded")

    assert isinstance(together.event, Sequential)
    assert isinstance(apart.event, Parallel)
    assert [part.event.parts[0].times for part in together.event.parts] == [3, 2]
    assert [type(part.event) for part in sharded.event.parts] == [Parallel, Parallel]


@pytest.mark.parametrize("assignment", ["sequential", "sharded"])
@pytest.mark.parametrize("layer_assignment", ["sequential", "sharded"])
def test_layers_are_read_from_the_event_of_their_parameters_and_from_no_other(
    layer_assignment: str, assignment: str
) -> None:
    """Sequential layers or trees that were priced as disjoint ones, or trees that no
    layer has, would go unpaid.
    """
    where = {"layer_assignment": layer_assignment, "assignment": assignment}
    settled = planned("1", n_estimators=5, n_layers=2, max_depth=1, **where)
    event, parameters = settled.event, settled.parameters
    assert isinstance(event, Sequential | Parallel)
    first, second = (part.event for part in event.parts)
    assert layers.events(event, parameters) == (first, second)
    assert isinstance(first, Sequential | Parallel)
    (trees,) = first.parts
    others: list[Event] = [
        Sequential(event.parts)
        if isinstance(event, Parallel)
        else Parallel(layers.LAYERS, event.parts),
        Parallel("trees", event.parts),
        replace(event, parts=event.parts[:1]),
        replace(event, parts=(*event.parts, event.parts[0])),
        replace(event, parts=(Part(2, first), Part(1, second))),
        replace(event, parts=(Part(1, second), Part(1, second))),
        replace(
            event,
            parts=(
                Part(1, replace(first, parts=(*first.parts, trees))),
                Part(1, second),
            ),
        ),
        replace(event, parts=(Part(1, trees.event), Part(1, second))),
        replace(
            event,
            parts=(
                Part(1, Sequential(first.parts)),
                Part(1, Parallel("trees", second.parts)),
            ),
        ),  # type: ignore[union-attr]
        replace(
            event,
            parts=(
                Part(
                    1,
                    DiscreteLaplace(
                        Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1), 2
                    ),
                ),
            )
            * 2,
        ),
        DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1), 2),
    ]
    for other in others:
        with pytest.raises(UnknownPrivacyEvent):
            layers.events(other, parameters)
    for name, value in where.items():
        changed = {
            **parameters,
            name: "sharded" if value == "sequential" else "sequential",
        }
        with pytest.raises(UnknownPrivacyEvent):
            layers.events(event, changed)
    with pytest.raises(UnknownPrivacyEvent):
        layers.events(event, {**parameters, "n_estimators": 6})


def test_columns_between_layers_are_whole_numbers_with_room_for_the_shift() -> None:
    stacked = layers.stacked_schema(SCHEMA, 1_000)

    assert [feature.type for feature in stacked.features] == ["integer"] * 4 + [
        "categorical"
    ]
    assert [(feature.lower, feature.upper) for feature in stacked.features[:4]] == [
        (0, 66_536),
        (-16_384, 50_152),
        (-65_536, 1_000),
        (0, 66_536),
    ]
    assert stacked.features[1].missing
    assert not stacked.features[3].missing
    assert stacked.features[4] == SCHEMA.features[4]
    assert stacked.label == SCHEMA.label


def test_votes_move_numbers_and_ordered_categories_and_nothing_else() -> None:
    columns = SanitisedColumns(
        (
            np.array([0.0, 0.5, 1.0]),
            np.array([np.nan, -1.0, 3.0]),
            np.array([-10.0, -6.0, -2.0]),
            # 3: OTHER, which goes with the highest category
            np.array([0, 2, 3], dtype=np.int32),
            np.array([2, 3, 0], dtype=np.int32),
        ),
        3,
    )
    said = np.array([[65_536, 0, 0], [0, 32_768, 32_768], [0, 0, 0]], dtype=np.int64)
    weights = np.zeros((3, 5), dtype=np.uint16)
    weights[:, 0] = [32_768, 16_384, 0]
    weights[:, 3] = 65_535
    shifted = layers.add_votes(SCHEMA, columns, said, weights=weights, shift=32_768)

    assert shifted.columns[0].tolist() == [16_384, 32_768 + 4_096, 65_536]
    assert np.isnan(shifted.columns[1][0])
    assert shifted.columns[1][1:].tolist() == [-16_384, 49_152]
    assert shifted.columns[2].tolist() == [-65_536, -32_768, 0]
    assert shifted.columns[3].tolist() == [32_767, 65_536 + 32_767, 65_536]
    assert shifted.columns[4] is columns.columns[4]


def test_no_votes_carry_a_row_over_its_bounds() -> None:
    """The extreme case: unanimous votes, the largest weights, the highest values."""
    columns = rows().features
    said = np.tile(np.array([[65_536, 0, 0]]), (N_ROWS, 1))
    weights = np.full((3, 5), 65_535, dtype=np.uint16)
    shifted = layers.add_votes(SCHEMA, columns, said, weights=weights, shift=65_536)
    for feature, column in zip(
        layers.stacked_schema(SCHEMA, 65_536).features[:4],
        shifted.columns,
        strict=False,
    ):
        assert np.all((column >= feature.lower) & (column <= feature.upper))


def test_leaves_vote_by_their_shares_and_undecided_ones_for_all_alike() -> None:
    counts = np.array(
        [[[3, 1], [-2, -5]], [[-1, 2], [2**62, -(2**62)]]], dtype=np.int64
    )
    result = layers.of_leaves({"counts": counts}, 2)

    assert result.tolist() == [
        [[24_576, 8_192], [16_384, 16_384]],
        [[0, 32_768], [32_768, 0]],
    ]
    labels = layers.of_leaves({"labels": np.array([[1, 0]], dtype=np.int32)}, 2)
    assert labels.tolist() == [[[0, 65_536], [65_536, 0]]]


def test_weights_are_drawn_for_what_votes_are_added_to() -> None:
    weights = grow.draw_projection(SCHEMA, 3, SystemRandomness())

    assert weights.shape == (3, 3, 5)
    assert not weights[:, :, 4].any()
    assert len(np.unique(weights[:, :, :4])) > 30


@pytest.mark.parametrize("leaf", ["counts", "label"])
@pytest.mark.parametrize("where", ["sequential", "sharded"])
def test_prediction_sees_the_rows_that_growth_saw(
    monkeypatch: pytest.MonkeyPatch, leaf: str, where: str
) -> None:
    """Without noise, every layer counts each row in the leaf to which prediction sends
    the row.
    """
    seen: list[tuple[Plan, SanitisedRows]] = []
    honest = grow.grow_trees

    def remembering(mechanism, plan, *, schema, rows, randomness, on_tree_done):
        seen.append((plan, rows))
        return honest(
            mechanism,
            plan,
            schema=schema,
            rows=rows,
            randomness=randomness,
            on_tree_done=on_tree_done,
        )

    monkeypatch.setattr(grow, "grow_trees", remembering)
    settled = planned(
        n_estimators=5, n_layers=3, max_depth=3, leaf=leaf, layer_assignment=where
    )
    forest = grown(settled)
    reader = read.StackedFamily().reader(forest, SCHEMA, "ta")
    sizes = [own.features.n_rows for _, own in seen]

    assert [own.n_trees for own, _ in seen] == [2, 2, 1]
    assert (
        sizes == [N_ROWS] * 3
        if where == "sequential"
        else sum(sizes) == N_ROWS and min(sizes) > 80
    )
    for layer, (_, mine) in zip(reader.layers, seen, strict=True):
        splits = {
            name: layer.arrays[name] for name in ("feature", "threshold", "equals")
        }
        leaves = walks.leaves(layer.encoding.encode(mine.features), **splits, depth=3)
        for tree, reached in enumerate(leaves):
            counted = np.zeros((8, 3), dtype=np.int64)
            np.add.at(counted, (reached, mine.y), 1)
            if leaf == "counts":
                assert np.array_equal(layer.arrays["counts"][tree], counted)
            else:
                reported = layer.arrays["labels"][tree]
                assert np.array_equal(
                    counted[np.arange(8), reported], counted.max(axis=1)
                )
    if where == "sequential":
        together = sum(
            layer.packed.sums(mine.features)[:, :3]
            for layer, (_, mine) in zip(reader.layers, seen, strict=True)
        )
        probabilities = Predictor(forest, SCHEMA).probabilities(
            rows().features, read_out="ta"
        )
        assert probabilities == pytest.approx(
            together / together.sum(axis=1, keepdims=True)
        )


def test_artifact_keeps_its_answers_and_refuses_another_projection() -> None:
    forest = grown(planned("5", n_estimators=3, max_depth=3))
    data = released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
    loaded = released_forest.loads(data)
    columns = rows().features

    for read_out in ("log", "ta", "mv"):
        assert np.array_equal(
            Predictor(loaded.forest, SCHEMA).probabilities(columns, read_out=read_out),
            Predictor(forest, SCHEMA).probabilities(columns, read_out=read_out),
        )
    wider = {**forest.arrays, "projection": np.zeros((2, 3, 5), dtype=np.uint16)}
    with pytest.raises(released_forest.ArtifactInvalid):
        released_forest.loads(
            released_forest.dumps(
                Forest(forest.plan, wider), {"schema": SCHEMA.to_json()}
            )
        )


def test_dropout_keeps_a_share_and_at_least_one_split() -> None:
    """Means over 2,000 nodes; the false-alarm rate is one in a hundred thousand runs."""
    candidates = Encoding.of(SCHEMA, 8).candidates
    alive, randomness = np.arange(len(candidates)), SystemRandomness()
    few = SplitRule(
        "gini", kept_features=Fraction(1, 100), kept_splits=Fraction(1, 100)
    )
    half = SplitRule("gini", kept_features=Fraction(1, 2), kept_splits=Fraction(1, 2))
    drawn = [
        tree_growth.surviving(candidates, alive, half, randomness) for _ in range(2_000)
    ]

    assert (
        tree_growth.surviving(candidates, alive, SplitRule("gini"), randomness) is alive
    )
    assert np.mean([len(subset) for subset in drawn]) == pytest.approx(
        len(alive) / 4, rel=0.15
    )
    assert all(len(subset) and np.all(np.diff(subset) > 0) for subset in drawn)
    single = [
        tree_growth.surviving(candidates, alive, few, randomness) for _ in range(500)
    ]
    assert min(len(subset) for subset in single) == 1
    assert set(candidates.feature[np.concatenate(single)].tolist()) == set(range(5))
    assert len(tree_growth.surviving(candidates, alive[:0], few, randomness)) == 0


def test_parted_rows_of_a_tree_are_hashed_once_for_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tree on a shard hashes only the rows of its shard, not all rows."""
    queries: list[int] = []
    honest = tree_histograms.structure_rows

    def counting(
        key: bytes, row_ids: np.ndarray, *, tree: int, share: Fraction
    ) -> np.ndarray:
        queries.append(len(row_ids))
        return honest(key, row_ids, tree=tree, share=share)

    monkeypatch.setattr(tree_histograms, "structure_rows", counting)
    settled = plan(
        PlanRequest(
            "mrf",
            {"n_estimators": 8, "assignment": "sharded", "se": "hash"},
            Terms(Fraction(1)),
            N_ROWS,
        ),
        SCHEMA,
    )
    grown(settled)

    assert len(queries) == 8
    assert sum(queries) == N_ROWS


def test_rows_of_a_layer_are_divided_among_its_trees_by_their_own_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    divided: list[np.ndarray] = []
    honest = tree_histograms.shards

    def noted(key: bytes, row_ids: np.ndarray, *, n_shards: int) -> np.ndarray:
        divided.append(row_ids)
        return honest(key, row_ids, n_shards=n_shards)

    monkeypatch.setattr(tree_histograms, "shards", noted)
    forest = grown(
        planned(
            n_layers=2,
            n_estimators=4,
            max_depth=1,
            layer_assignment="sharded",
            assignment="sharded",
        )
    )
    every, *of_layers = divided
    assert len(of_layers) == 2
    together = np.concatenate(of_layers)
    assert sorted(together.tolist()) == sorted(every.tolist())
    assert forest.arrays["counts"].sum() == N_ROWS

"""The reweighted forest apart from its randomness: rules, events, artifacts and
predictions.
"""

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as tensors

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.rpf import price
from grovekeeper_forests.algorithms.rpf.grow import split_utilities
from grovekeeper_forests.algorithms.rpf.price import PathScales, Stage, events_of
from grovekeeper_forests.algorithms.rpf.read import UNREACHED, reached_leaves
from grovekeeper_forests.algorithms.rpf.reweighted_rows import (
    LocalReweightedRows,
    ReweightedRows,
)
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.contract.plan import Forest, PlanInvalid
from grovekeeper_forests.data.coded_rows import CodedPart, RowParts
from grovekeeper_forests.data.encoding import NO_SPLIT, Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy import receipts
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.forest.read import ArtifactInvalid
from grovekeeper_forests.trees import tree_parameters
from grovekeeper_verifier import events as verifier
from tests.support.reweighted import SCHEMA, planned, rows
from tests.support.schemas import schema_of

FREE = Schema.from_json(
    {**SCHEMA.to_json(), "features": SCHEMA.to_json()["features"][1:]}
)  # type: ignore[index]
METADATA = {"schema": SCHEMA.to_json()}


def grown(epsilon: str = "4", **asked: object) -> Forest:
    return grow(
        planned(epsilon, **asked),
        SCHEMA,
        rows(),
        SystemRandomness(),
        on_tree_done=lambda: None,
    )


@given(
    epsilon=st.fractions(Fraction(1, 100), Fraction(50)), size=st.integers(1, 10**12)
)
@settings(max_examples=60, deadline=None)
def test_rules_stay_inside_their_limits(epsilon: Fraction, size: int) -> None:
    settled = plan(PlanRequest("rpf", {}, Terms(epsilon), size), SCHEMA)
    depth = settled.parameters["max_depth"]

    assert 1 <= settled.n_trees <= 16
    assert (
        depth == 0
        if size * epsilon < price.MIN_SIZE_TIMES_EPSILON
        else 1 <= int(depth) <= 8
    )
    assert settled.parameters["structure_share"] == (
        "0.67" if settled.n_trees == 1 else "0.57"
    )


@pytest.mark.parametrize(
    ("epsilon", "size", "n_trees", "depth"),
    [("0.1", 7_500, 1, 5), ("1", 7_500, 3, 6), ("2", 20_000, 6, 7)],
)
def test_rules_give_the_published_shapes(
    epsilon: str, size: int, n_trees: int, depth: int
) -> None:
    digits = {
        **SCHEMA.to_json(),
        "label": {"name": "digit", "classes": [str(digit) for digit in range(10)]},
    }
    settled = planned(epsilon, size, Schema.from_json(digits))

    assert (settled.n_trees, settled.parameters["max_depth"]) == (n_trees, depth)


@given(
    levels=st.lists(st.integers(1, 2**40), max_size=6).map(tuple),
    last=st.integers(1, 2**40),
    by_level=st.booleans(),
    n_splits=st.integers(1, 2),
)
@settings(max_examples=60, deadline=None)
def test_every_path_costs_exactly_the_same_and_the_event_reads_back(
    levels: tuple[int, ...], last: int, by_level: bool, n_splits: int
) -> None:
    scales = PathScales(
        tuple(Fraction(level, 2**32) for level in levels), Fraction(last, 2**32)
    )
    event = scales.event(
        [Stage(n_splits, 9)] * len(levels), n_classes=3, by_level=by_level
    )
    total = 256 * (sum(scales.levels) + scales.last)

    assert [
        256 * (sum(scales.levels[:spent]) + scales.leaves[spent])
        for spent in range(len(levels) + 1)
    ] == [total] * (len(levels) + 1)
    assert pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE) == total
    assert PathScales.of(event) == scales


def test_bins_are_paid_for_only_where_a_number_needs_them_and_a_tree_splits() -> None:
    assert events_of(planned().event)[0] is not None
    assert events_of(planned(schema=FREE).event)[0] is None
    assert events_of(planned(max_depth=0).event)[0] is None
    for epsilon, depth in (("0.25", 1), ("8", 3)):
        settled = planned(epsilon, n_estimators=2, max_depth=depth, bins_share="0.08")
        bins, scales = events_of(settled.event)
        assert bins is not None
        for_bins = pure.loss(bins, adjacency=Adjacency.ADD_REMOVE_ONE)
        for_trees = (
            pure.loss(settled.event, adjacency=Adjacency.ADD_REMOVE_ONE) - for_bins
        )
        assert for_bins == pytest.approx(0.08 * float(epsilon), rel=1e-4)
        assert (
            for_trees
            == 2 * 256 * scales.leaves[0]
            == pytest.approx(0.92 * float(epsilon), rel=1e-4)
        )
    assert len(quantile_bins.private_features(FREE)) == 0


def test_the_verifier_recomputes_the_deepest_event_and_the_receipt_describes_it() -> (
    None
):
    settled = planned("3", 10**12, n_estimators=2, max_depth=12, splits="node")
    own = pure.loss(settled.event, adjacency=Adjacency.ADD_REMOVE_ONE)

    assert settled.parameters["max_depth"] == 12
    assert (
        verifier.total(
            settled.event.to_json(), adjacency="add_remove", accountant="pure"
        )
        == own
    )
    assert "4096 × choice" not in (
        words := receipts.in_words(
            settled.event, accountant="pure", adjacency=settled.terms.adjacency
        )
    )
    assert "2048 × choice" in words


def test_foreign_events_are_refused() -> None:
    leaf = DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1), 3)
    for event in (Sequential(()), leaf, Sequential((Part(1, leaf), Part(1, leaf)))):
        with pytest.raises(UnknownPrivacyEvent):
            events_of(event)
    stored = planned(max_depth=3, n_estimators=2, at_once=1)
    other = planned(max_depth=2, n_estimators=2, at_once=1)
    with pytest.raises(PlanInvalid):
        forest_price.require_priced(replace(stored, event=other.event), SCHEMA)
    assert forest_price.read_plan(stored.to_json()) == stored


def test_forest_learns_and_says_what_it_learnt() -> None:
    forest, held_out = grown("40"), rows(seed=4)
    probabilities = Predictor(forest, SCHEMA).probabilities(held_out.features)

    assert np.mean(probabilities.argmax(axis=1) == held_out.y) > 0.7
    assert np.allclose(probabilities.sum(axis=1), 1.0)
    assert probabilities.min() > 0


def ballots(seed: int) -> tuple[Schema, SanitisedRows]:
    """Five features vote with different weights; the two heaviest, read by a tree of
    depth two, are right in 82 %.
    """
    voices = [
        {"name": f"voice {index}", "type": "categorical", "categories": ["a", "b"]}
        for index in range(5)
    ]
    schema = schema_of(*voices, classes=["a", "b"], label="won")
    heard = np.random.default_rng(seed).integers(0, 2, (1_500, 5)).astype(np.int32)
    y = ((2 * heard - 1) @ np.array([5, 4, 3, 2, 1.5]) > 0).astype(np.int32)
    columns = SanitisedColumns(
        tuple(np.ascontiguousarray(column) for column in heard.T), 1_500
    )
    return schema, SanitisedRows(columns, y, np.zeros((1_500, 16), dtype=np.uint8))


def test_later_trees_correct_the_earlier_ones() -> None:
    """At a very large ε, trees that ignored earlier errors would all split on the two
    heaviest features.
    """
    schema, given_rows = ballots(seed=3)
    _, held_out = ballots(seed=4)

    def accuracy(n_trees: int) -> float:
        settled = planned("4000", 1_500, schema, n_estimators=n_trees, max_depth=2)
        forest = grow(
            settled, schema, given_rows, SystemRandomness(), on_tree_done=lambda: None
        )
        probabilities = Predictor(forest, schema).probabilities(held_out.features)
        return float(np.mean(probabilities.argmax(axis=1) == held_out.y))

    assert accuracy(1) < 0.85
    assert accuracy(6) > 0.95


def test_blocks_of_columns_change_no_utility(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a stop, too, which is counted by the codes of a block's first column."""
    encoding, table = Encoding.of(SCHEMA, 8), rows()
    codes = encoding.encode(table.features)
    part = CodedPart(encoding, codes, table.y, None)
    held = ReweightedRows(RowParts([LocalReweightedRows.of(part)]))
    root = np.zeros(1, dtype=np.int32)
    whole = split_utilities(held, encoding, root)
    for cells in (1, 20, 36):  # of 27, 12 and 24, so that the last block may have two
        monkeypatch.setattr(tree_parameters, "BLOCK_CELLS", cells)
        by_block = split_utilities(held, encoding, root)
        np.testing.assert_equal(by_block, whole)
    assert len(set(encoding.n_codes)) == len(encoding.n_codes)


def test_progress_is_reported_once_per_tree() -> None:
    done: list[None] = []
    grow(
        planned(n_estimators=5),
        SCHEMA,
        rows(),
        SystemRandomness(),
        on_tree_done=lambda: done.append(None),
    )

    assert len(done) == 5


def test_an_artifact_survives_serialization_and_predicts_the_same() -> None:
    forest = grown(n_estimators=3, max_depth=4)
    data = released_forest.dumps(forest, METADATA)
    artifact = released_forest.loads(data)

    assert released_forest.dumps(artifact.forest, artifact.metadata) == data
    assert set(artifact.forest.arrays) == {
        "feature",
        "threshold",
        "equals",
        "counts",
        "selections",
        "cuts",
    }
    for name, array in forest.arrays.items():
        assert np.array_equal(array, artifact.forest.arrays[name])
    features = rows(seed=5).features
    assert np.array_equal(
        Predictor(forest, SCHEMA).probabilities(features),
        artifact.predictor.probabilities(features, read_out="log"),
    )


def test_number_of_bytes_does_not_depend_on_rows() -> None:
    settled = planned(n_estimators=2)
    sizes = {
        len(
            released_forest.dumps(
                grow(
                    settled,
                    SCHEMA,
                    rows(n),
                    SystemRandomness(),
                    on_tree_done=lambda: None,
                ),
                METADATA,
            )
        )
        for n in (0, 1, 700)
    }

    assert len(sizes) == 1


def grown_with_stop(at_once: int = 1) -> Forest:
    """Three trees of three levels, the first of which stopped at its second selection."""
    forest = grown(n_estimators=3, max_depth=3, at_once=at_once)
    arrays = {name: array.copy() for name, array in forest.arrays.items()}
    arrays["feature"][0, 1:], arrays["threshold"][0, 1:], arrays["equals"][0, 1:] = (
        0,
        NO_SPLIT,
        False,
    )
    selections = np.array([2, UNREACHED, UNREACHED, UNREACHED] * 2, dtype=np.uint8)
    arrays["selections"][0] = selections
    arrays["counts"][0, selections == UNREACHED] = 0
    return Forest(forest.plan, arrays)


def replace_most(selections: np.ndarray, other: int) -> None:
    """Makes the leaves at the end of full paths state another number of selections."""
    selections[selections == selections[selections != UNREACHED].max()] = other


BROKEN: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "a cut beyond the grid": lambda a: a["cuts"].__setitem__((0, 0), 65_500),
    "a cut twice": lambda a: a["cuts"].__setitem__((0, slice(0, 2)), 7),
    "cuts of another type": lambda a: a.update(cuts=a["cuts"].astype(np.int32)),
    "more selections than there are": lambda a: replace_most(a["selections"], 4),
    "no selection in a leaf": lambda a: replace_most(a["selections"], 0),
    "a leaf that no row reaches tells one": lambda a: a["selections"].__setitem__(
        a["selections"] == UNREACHED, 2
    ),
    "a reached leaf tells none": lambda a: a["selections"].__setitem__(
        (0, 0), UNREACHED
    ),
    "weights where no row can be": lambda a: a["counts"].__setitem__(
        a["selections"] == UNREACHED, 1
    ),
    "a feature too large": lambda a: a["feature"].__setitem__((0, 0), 5),
    "nodes of a level with splits of their own": lambda a: a["feature"].__setitem__(
        (0, 1), a["feature"][0, 1] ^ 1
    ),
    "no cuts": lambda a: a.pop("cuts"),
    "another array": lambda a: a.update(exact=np.zeros(1)),
}


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_artifact_that_cannot_have_been_released_is_refused(
    change: Callable[[dict[str, np.ndarray]], object], at_once: int
) -> None:
    forest = grown_with_stop(at_once)
    arrays = {name: array.copy() for name, array in forest.arrays.items()}
    data = released_forest.dumps(forest, METADATA)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])[
        "__metadata__"
    ]
    assert (
        released_forest.loads(tensors.save(arrays, metadata=header)).plan == forest.plan
    )

    change(arrays)

    with pytest.raises(ArtifactInvalid):
        released_forest.loads(tensors.save(arrays, metadata=header))


def test_rows_reach_exactly_the_leaves_with_a_number_of_selections() -> None:
    forest = grown_with_stop()
    reached, n_splits = reached_leaves(forest)
    selections = forest.arrays["selections"]

    assert np.array_equal(reached, selections != UNREACHED)
    assert np.all((selections - n_splits)[reached] <= 1)
    passes = (forest.arrays["threshold"] == NO_SPLIT) & ~forest.arrays["equals"]
    assert np.all(reached.sum(axis=1) <= (~passes).sum(axis=1) + 1)


def test_reader_does_not_keep_its_forest() -> None:
    forest = grown()
    Predictor(forest, SCHEMA).probabilities(rows().features)
    trace = weakref.ref(forest)
    del forest
    gc.collect()

    assert trace() is None


@pytest.mark.parametrize(
    ("n_classes", "one_tree", "several"),
    [
        (2, "0.7", "0.6"),
        (4, "0.65", "0.55"),
        (26, "0.51", "0.41"),
        (1_000, "0.3", "0.3"),
    ],
)
def test_leaves_get_more_of_the_budget_where_there_are_more_classes(
    n_classes: int, one_tree: str, several: str
) -> None:
    label = {"name": "kind", "classes": [f"k{index}" for index in range(n_classes)]}
    schema = Schema.from_json({**SCHEMA.to_json(), "label": label})
    result = [
        planned(schema=schema, n_estimators=n_trees).parameters["structure_share"]
        for n_trees in (1, 2)
    ]

    assert result == [one_tree, several]
    assert (
        planned(schema=schema, structure_share="0.8").parameters["structure_share"]
        == "0.8"
    )


def test_pairs_are_a_public_rule_of_the_ordered_columns() -> None:
    def with_numbers(n: int) -> Schema:
        numbers = [
            {"name": f"n{index}", "type": "integer", "lower": 0, "upper": 9}
            for index in range(n)
        ]
        return Schema.from_json(
            {**FREE.to_json(), "features": [FREE.to_json()["features"][0], *numbers]}
        )  # type: ignore[index]

    assert [planned(schema=with_numbers(n)).parameters["pairs"] for n in (1, 2, 32, 33)] == [
        "none", "ordered", "ordered", "none",
    ]  # fmt: skip
    with pytest.raises(ParameterInvalid):
        planned(schema=with_numbers(33), pairs="ordered")


def test_pairs_learn_a_rule_that_no_single_column_shows() -> None:
    """Two numbers whose sum decides the class: at depth 1 only a split on the pair
    separates the classes.
    """
    schema = schema_of(
        *(
            {"name": name, "type": "integer", "lower": 0, "upper": 15}
            for name in ("one", "two")
        ),
        classes=["a", "b"],
    )
    numbers = np.random.default_rng(5).integers(0, 16, (2, 2_000)).astype(float)
    y = (numbers[0] + numbers[1] > 15).astype(np.int32)
    held = SanitisedRows(
        SanitisedColumns(tuple(numbers), 2_000),
        y,
        np.zeros((2_000, 16), dtype=np.uint8),
    )

    def accuracy(pairs: str) -> float:
        settled = planned("50", schema=schema, max_depth=1, n_estimators=1, pairs=pairs)
        forest = grow(
            settled, schema, held, SystemRandomness(), on_tree_done=lambda: None
        )
        probabilities = Predictor(forest, schema).probabilities(held.features)
        return float(np.mean(probabilities.argmax(axis=1) == y))

    assert accuracy("ordered") > 0.99
    assert accuracy("none") < 0.85


def test_temperature_softens_what_several_trees_promise_and_keeps_their_labels() -> (
    None
):
    tempered = grown(n_estimators=4, max_depth=3)
    parameters = {**tempered.plan.parameters, "calibration": "none"}
    plain = Forest(replace(tempered.plan, parameters=parameters), tempered.arrays)
    soft, sure = (
        Predictor(forest, SCHEMA).probabilities(rows().features)
        for forest in (tempered, plain)
    )
    powers = sure ** (1 / 2**0.5)  # the fourth root of four

    assert soft == pytest.approx(powers / powers.sum(axis=1, keepdims=True))
    assert np.array_equal(soft.argmax(axis=1), sure.argmax(axis=1))


def test_catalogue_describes_its_parameters() -> None:
    described = {algorithm["slug"]: algorithm for algorithm in catalogue.algorithms()}[
        "rpf"
    ]

    assert [parameter["name"] for parameter in described["parameters"]] == [  # type: ignore[index, union-attr]
        "n_estimators",
        "max_depth",
        "structure_share",
        "bins_share",
        "splits",
        "at_once",
        "pairs",
        "calibration",
    ]

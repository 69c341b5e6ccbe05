"""T1: the exact loss of the production code, over every dataset of a tiny universe and all its neighbours."""

import math
from fractions import Fraction

import pytest

from app.forests.trees import assignment
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from tests.privacy.enumeration import TOLERANCE
from tests.privacy.universe import (
    EMPTY,
    RECORDS,
    THREE_SPLITS,
    TWO_SPLITS,
    Laws,
    add_remove_pairs,
    datasets,
    multisets,
    planned,
    replace_one_pairs,
)

TOGETHER, APART = b"\x00" * 32, b"\x01" * 32
"""Assignment keys that put ids 0 and 1 into one of two shards, and into both."""


def claim(laws: Laws) -> float:
    return float(pure.loss(laws.plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))


HALF = {"structure_share": "0.5"}

# (slug, schema, parameters, ε, rows at most, kinds of record, share of the claim that must be reached)
SEQUENTIAL = [
    pytest.param("rdt-ta", TWO_SPLITS, {}, "1", 4, 4, 1.0, id="rdt"),
    pytest.param("rdt-ta", THREE_SPLITS, {"max_depth": 2}, "1", 2, 2, 1.0, id="rdt-depth-2"),
    pytest.param("rdt-mv", TWO_SPLITS, {"n_estimators": 2}, "0.5", 2, 2, 1.0, id="rdt-two-trees"),
    pytest.param("rdt-pa", TWO_SPLITS, {}, "1", 3, 4, 1.0, id="rdt-pa"),
    pytest.param("mrf", TWO_SPLITS, HALF, "1", 4, 4, 0.8, id="mrf"),
    pytest.param("mrf", THREE_SPLITS, {"structure_share": "0.9"}, "4", 3, 4, 0.6, id="mrf-large-epsilon"),
    pytest.param("mrf", TWO_SPLITS, {**HALF, "max_depth": 2}, "1", 2, 4, 0.6, id="mrf-depth-2"),
    pytest.param("mrf", TWO_SPLITS, {**HALF, "n_estimators": 2}, "1", 2, 2, 0.7, id="mrf-two-trees"),
]


@pytest.mark.parametrize(("slug", "schema", "parameters", "epsilon", "n_rows", "n_kinds", "reached"), SEQUENTIAL)
def test_sequential_forest_loses_what_was_charged_and_no_more(
    slug: str, schema: object, parameters: dict, epsilon: str, n_rows: int, n_kinds: int, reached: float
) -> None:
    laws = Laws(planned(slug, schema, epsilon, **parameters), schema)
    records = RECORDS[:n_kinds]
    add_remove = laws.worst(add_remove_pairs(multisets(n_rows, records)))
    replace_one = laws.worst(replace_one_pairs(multisets(n_rows, records), records))

    assert claim(laws) <= Fraction(epsilon)
    assert reached * claim(laws) - TOLERANCE <= add_remove <= claim(laws) + TOLERANCE
    assert add_remove < replace_one <= 2 * claim(laws) + TOLERANCE


# A tree with a single row has no use for any split, so rows apart show the loss of the counts only.
@pytest.mark.parametrize(
    ("slug", "key", "reached"),
    [("rdt-ta", TOGETHER, 1.0), ("rdt-ta", APART, 1.0), ("mrf", TOGETHER, 0.7), ("mrf", APART, 0.5)],
    ids=["rdt-together", "rdt-apart", "mrf-together", "mrf-apart"],
)
def test_sharded_forest_loses_what_its_largest_tree_was_charged(slug: str, reached: float, key: bytes) -> None:
    share = HALF if slug == "mrf" else {}
    plan = planned(slug, TWO_SPLITS, n_estimators=2, assignment="sharded", **share)
    laws = Laws(plan, TWO_SPLITS, key=key)
    few = RECORDS[:2]
    every = list(datasets(2, few))
    add_remove = laws.worst(add_remove_pairs(every))
    replace_one = laws.worst(replace_one_pairs(every, few))

    assert claim(laws) == 1.0
    assert reached - TOLERANCE <= add_remove <= 1.0 + TOLERANCE
    assert add_remove < replace_one <= 2.0 + TOLERANCE


def test_the_two_keys_cover_both_cases_of_the_assignment() -> None:
    ids = [bytes(15) + bytes([row_id]) for row_id in (0, 1)]
    shard = {key: [assignment.shard_of(key, row_id, n_shards=2) for row_id in ids] for key in (TOGETHER, APART)}

    assert shard[TOGETHER][0] == shard[TOGETHER][1]
    assert shard[APART][0] != shard[APART][1]


def test_four_rows_over_two_shards() -> None:
    plan = planned("rdt-ta", TWO_SPLITS, n_estimators=2, assignment="sharded", max_depth=0)
    laws = Laws(plan, TWO_SPLITS, key=APART)
    worst = laws.worst(add_remove_pairs(datasets(4, RECORDS[:2])))

    assert 1.0 - TOLERANCE <= worst <= 1.0 + TOLERANCE


@pytest.mark.parametrize("slug", ["rdt-ta", "mrf"])
def test_wider_window_on_noisy_counts_shows_no_more_loss(slug: str) -> None:
    narrow = Laws(planned(slug, TWO_SPLITS), TWO_SPLITS)
    wide = Laws(planned(slug, TWO_SPLITS), TWO_SPLITS, window=(-1, 2))
    pairs = list(add_remove_pairs(multisets(2)))

    assert wide.worst(pairs) == pytest.approx(narrow.worst(pairs), abs=TOLERANCE)


@pytest.mark.parametrize("slug", ["rdt-ta", "mrf"])
def test_every_output_can_come_from_every_dataset(slug: str) -> None:
    """T2: the set of possible releases, and so the model's shape, tells nothing."""
    laws = Laws(planned(slug, THREE_SPLITS), THREE_SPLITS)
    support = laws.of(EMPTY).keys()

    assert len(support) == 3 * 2**4
    for dataset in multisets(3):
        assert laws.of(dataset).keys() == support


def test_selection_alone_loses_at_most_its_share() -> None:
    """With the counts dropped, what is left is the loss of the selections."""
    plan = planned("mrf", THREE_SPLITS, structure_share="0.5")
    laws = Laws(plan, THREE_SPLITS, window=(0, 0))
    worst = laws.worst(add_remove_pairs(multisets(4)))

    assert 0.2 < worst <= 0.5 + TOLERANCE
    assert not math.isclose(worst, 0.0)

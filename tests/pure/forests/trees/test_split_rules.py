"""Public boxes: after any path of released splits, no remaining candidate leaves a side
empty.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.trees import tree_parameters
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "number", "type": "integer", "lower": 0, "upper": 3},
    {"name": "category", "type": "categorical", "categories": ["a", "b", "c", "d"]},
    {"name": "pair", "type": "categorical", "categories": ["x", "y"]},
    classes=["n", "p"],
    label="y",
)
CANDIDATES = Encoding.of(SCHEMA, 32).candidates
# Every record of declared values; OTHER goes to its side of each split.
RECORDS = list(itertools.product(range(4), range(4), range(2)))


def right(record: tuple[int, ...], candidate: int) -> bool:
    value, threshold = (
        record[CANDIDATES.feature[candidate]],
        CANDIDATES.threshold[candidate],
    )
    return bool(
        value != threshold if CANDIDATES.equals[candidate] else value > threshold
    )


@given(choices=st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=9))
@settings(max_examples=200, deadline=None)
def test_box_holds_the_splits_that_divide_the_records_which_reach_it(
    choices: list[tuple[int, bool]],
) -> None:
    box, here = CANDIDATES.root, RECORDS
    for pick, goes_right in choices:
        alive = np.flatnonzero(box)
        if len(alive) == 0:
            break
        chosen = int(alive[pick % len(alive)])
        box = CANDIDATES.children(box, chosen)[goes_right]
        here = [record for record in here if right(record, chosen) == goes_right]

    divisions = {
        frozenset(
            [
                frozenset(r for r in here if right(r, candidate)),
                frozenset(r for r in here if not right(r, candidate)),
            ]
        )
        for candidate in range(len(CANDIDATES))
    }
    proper = {division for division in divisions if frozenset() not in division}
    offered = {
        frozenset(
            [
                frozenset(r for r in here if right(r, candidate)),
                frozenset(r for r in here if not right(r, candidate)),
            ]
        )
        for candidate in np.flatnonzero(box)
    }
    assert len(here) > 0  # no empty children by construction
    assert offered == proper
    assert len(offered) == box.sum()  # no split is offered twice


def test_node_without_a_choice_sends_everything_left() -> None:
    empty = np.zeros(len(CANDIDATES), dtype=np.bool_)
    left, other = CANDIDATES.children(empty, None)
    feature, threshold, equals = CANDIDATES.splits([None, 0])

    assert not left.any()
    assert not other.any()
    assert (feature[0], threshold[0], equals[0]) == (0, 255, False)
    assert (feature[1], threshold[1], equals[1]) == (
        CANDIDATES.feature[0],
        CANDIDATES.threshold[0],
        False,
    )


def test_deepest_path_is_as_long_as_the_schema_allows() -> None:
    """3 thresholds, 3 of 4 categories, 1 of a pair: every further level would only add
    empty leaves.
    """
    assert tree_parameters.deepest(Encoding.of(SCHEMA, 32)) == 3 + 3 + 1
    box, length = CANDIDATES.root, 0
    while box.any():
        chosen = int(np.flatnonzero(box)[-1])
        left, other = CANDIDATES.children(box, chosen)
        box, length = (left if left.sum() >= other.sum() else other), length + 1
    assert length == 7


@pytest.mark.parametrize(("depth", "expected"), [(0, 1), (1, 1), (4, 8)])
def test_table_cells_count_the_nodes_of_the_last_level(
    depth: int, expected: int
) -> None:
    encoding = Encoding.of(SCHEMA, 32)

    assert tree_parameters.table_cells(depth, encoding) == expected * max(
        len(CANDIDATES), 5 * 2
    )

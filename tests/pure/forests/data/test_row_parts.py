"""Tests that parts of the rows and threads change no release."""

import re
import threading

import numpy as np
import pytest

from grovekeeper_forests.data.coded_rows import (
    CodedBlock,
    CodedPart,
    RowParts,
    added,
    sum_over,
)
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import plan
from tests.privacy.noiseless import REQUESTS, Noiseless, as_codes
from tests.support.forest_fixtures import DivideRows
from tests.support.reweighted import SCHEMA, rows


@pytest.mark.parametrize("name", REQUESTS)
def test_rows_in_parts_and_threads_give_the_forest_of_all_rows_together(
    name: str, divide_rows: DivideRows
) -> None:
    request, values = REQUESTS[name], rows(600)
    whole = grow(
        plan(request, SCHEMA), SCHEMA, values, Noiseless(), on_tree_done=lambda: None
    )
    divide_rows(part_rows=90, n_threads=3)
    for parted in (values, as_codes(values, request, SCHEMA)):
        forest = grow(
            plan(request, SCHEMA),
            SCHEMA,
            parted,
            Noiseless(),
            on_tree_done=lambda: None,
        )
        for array, expected in whole.arrays.items():
            np.testing.assert_array_equal(forest.arrays[array], expected)


def test_threads_count_every_part_once(divide_rows: DivideRows) -> None:
    divide_rows(n_threads=2)
    both, seen = threading.Barrier(2), set[int]()

    def add(part: int, onto: np.ndarray | None) -> np.ndarray:
        if part < 2:
            both.wait(timeout=60)  # passes only if two threads count at the same time
            seen.add(threading.get_ident())
        return added(np.array([1 << part], dtype=np.int64), onto)

    assert sum_over(range(9), add).tolist() == [2**9 - 1]
    assert len(seen) == 2


def test_a_part_that_cannot_be_counted_fails_the_sum(
    divide_rows: DivideRows,
) -> None:
    divide_rows(n_threads=2)
    with pytest.raises(ValueError, match="part 3"):
        sum_over(
            range(5),
            lambda part, _: np.zeros(1, dtype=np.int64) if part != 3 else _fail(),
        )


def test_threads_keep_the_order_of_the_parts_that_they_make(
    divide_rows: DivideRows,
) -> None:
    divide_rows(n_threads=3)
    assert RowParts([f" {i} " for i in range(9)]).map("strip").parts == [
        str(i) for i in range(9)
    ]


def test_no_row_is_in_the_repr_of_what_holds_rows() -> None:
    """A library may log what it was given."""
    assert "4711" not in _repr(RowParts([np.array([4711])]))
    codes = np.array([[471]], np.uint16)
    assert "471" not in _repr(CodedBlock(codes, np.zeros((1, 0), np.uint8)))
    label = np.array([4711], np.int32)
    part = CodedPart(Encoding.of(SCHEMA, 5), codes.astype(np.uint8), label, None)
    assert "4711" not in _repr(part)


def _repr(value: object) -> str:
    """The text of a value without addresses, in which any digits occur."""
    return re.sub("0x[0-9a-f]+", "", repr(value))


def _fail() -> np.ndarray:
    raise ValueError("part 3")

"""Tests that parts of the rows and threads change no release."""

import threading
from fractions import Fraction

import numpy as np
import pytest

from app.forests.data.coded_rows import CodedBlock, CodedColumns, CodedRows, is_wide
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.grow import code_request, grow
from app.forests.planning import PlanRequest, plan
from app.forests.trees import row_parts
from app.forests.trees.row_parts import sum_over
from app.privacy.accountants import gdp
from tests.privacy.fixed_releases import FixedReleases
from tests.support.reweighted import SCHEMA, rows
from tests.support.wide_codes import wide_codes


class Noiseless(FixedReleases):
    """Selects the largest utility and adds no noise, so that every released number is an exact count or sum."""

    def permute_and_flip(self, utilities: np.ndarray, *, inverse_scale: Fraction) -> int:
        return int(utilities.argmax())

    select_exponential = permute_and_flip

    def discrete_laplace(self, shape: tuple[int, ...], *, inverse_scale: Fraction) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


REQUESTS = {
    "rpf": PlanRequest("rpf", {"n_estimators": 3, "max_depth": 4}, Fraction(1), 600),
    "rpf, three at once": PlanRequest(
        "rpf", {"n_estimators": 2, "max_depth": 3, "at_once": 3, "pairs": "none"}, Fraction(1), 600
    ),
    "rpf, by node": PlanRequest("rpf", {"n_estimators": 2, "max_depth": 3, "splits": "node"}, Fraction(1), 600),
    "nbrt": PlanRequest("nbrt", {"n_estimators": 9, "max_depth": 3}, Fraction(1), 600, gdp.NAME, Fraction(1, 10**6)),
    "mrf": PlanRequest("mrf", {"n_estimators": 2, "max_depth": 4}, Fraction(1), 600),
    "mrf, sharded and apart": PlanRequest(
        "mrf", {"n_estimators": 3, "max_depth": 3, "assignment": "sharded", "se": "hash"}, Fraction(1), 600
    ),
}


def as_codes(values: SanitisedRows, request: PlanRequest, schema: Schema) -> CodedRows:
    """The rows as a job reads them from files, in blocks of 100 rows."""
    asked = code_request(plan(request, schema), schema)
    assert asked is not None
    codes = wide_codes(asked.public, values.features)
    blocks = np.split(codes, range(100, values.features.n_rows, 100), axis=1)
    features = CodedColumns(asked.public, [CodedBlock.of(block, is_wide=is_wide(asked.public)) for block in blocks])
    return CodedRows(features, values.y, values.row_ids if asked.with_ids else None)


@pytest.mark.parametrize("name", REQUESTS)
def test_rows_in_parts_and_threads_give_the_forest_of_all_rows_together(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, values = REQUESTS[name], rows(600)
    whole = grow(plan(request, SCHEMA), SCHEMA, values, Noiseless(), on_tree_done=lambda: None)
    monkeypatch.setattr(row_parts, "PART_ROWS", 90)
    monkeypatch.setattr(row_parts, "_n_processors", lambda: 3)
    for parted in (values, as_codes(values, request, SCHEMA)):
        forest = grow(plan(request, SCHEMA), SCHEMA, parted, Noiseless(), on_tree_done=lambda: None)
        for array, expected in whole.arrays.items():
            np.testing.assert_array_equal(forest.arrays[array], expected)


def test_threads_count_every_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_parts, "_n_processors", lambda: 2)
    both, seen = threading.Barrier(2), set[int]()

    def count(part: int) -> np.ndarray:
        if part < 2:
            both.wait(timeout=10)  # passes only if two threads count at the same time
            seen.add(threading.get_ident())
        return np.array([1 << part], dtype=np.int64)

    assert sum_over(range(9), count).tolist() == [2**9 - 1]
    assert len(seen) == 2


def test_a_part_that_cannot_be_counted_fails_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_parts, "_n_processors", lambda: 2)
    with pytest.raises(ValueError, match="part 3"):
        sum_over(range(5), lambda part: np.zeros(1, dtype=np.int64) if part != 3 else _fail())


def _fail() -> np.ndarray:
    raise ValueError("part 3")

"""Tests that rows on several machines, of which some are lost, give the forest of all rows together."""

from collections.abc import Callable

import numpy as np
import pytest

from app.forests import remote
from app.forests.catalogue import plan
from app.forests.data.coded_rows import CodedBlock, CodedColumns, CodedRows
from app.forests.forest_release import grow
from app.forests.remote import Branch, Call, CodedDistributedRows, Question, ShardStates, StateMissing
from tests.privacy.noiseless import REQUESTS, Noiseless, as_codes
from tests.support.reweighted import SCHEMA, rows


class Machines:
    """Shards of rows in this process, of which one is lost before every ``lost_every``-th question."""

    def __init__(self, shards: list[Callable[[], CodedRows]], *, lost_every: int) -> None:
        self._read, self._lost_every = shards, lost_every
        self._shards = [ShardStates(read) for read in shards]
        self.n_questions = self.n_full = 0

    def total(self, brief: bytes, full: Callable[[], bytes]) -> np.ndarray:
        self.n_questions += 1
        if self.n_questions % self._lost_every == 0:
            lost = self.n_questions % len(self._shards)
            self._shards[lost] = ShardStates(self._read[lost])
        return sum(remote.loads(self._answer(shard, brief, full)) for shard in self._shards)

    def _answer(self, shard: ShardStates, brief: bytes, full: Callable[[], bytes]) -> bytes:
        try:
            return remote.dumps(shard.answer(remote.loads(brief)))
        except StateMissing:
            self.n_full += 1
            return remote.dumps(shard.answer(remote.loads(full())))


def shards_of(whole: CodedRows) -> list[Callable[[], CodedRows]]:
    """Functions that read the blocks of rows, which no other function reads."""

    def reader(block: CodedBlock, place: slice) -> Callable[[], CodedRows]:
        ids = None if whole.ids is None else whole.ids[place]
        return lambda: CodedRows(CodedColumns(whole.features.public, [block]), whole.y[place], ids)

    ends = np.cumsum([block.n_rows for block in whole.features.blocks]).tolist()
    places = [slice(end - block.n_rows, end) for block, end in zip(whole.features.blocks, ends, strict=True)]
    return [reader(block, place) for block, place in zip(whole.features.blocks, places, strict=True)]


@pytest.mark.parametrize("name", REQUESTS)
def test_rows_on_machines_that_are_lost_give_the_forest_of_all_rows_together(name: str) -> None:
    request, values = REQUESTS[name], rows(600)
    whole = grow(plan(request, SCHEMA), SCHEMA, values, Noiseless(), on_tree_done=lambda: None)
    machines = Machines(shards_of(as_codes(values, request, SCHEMA)), lost_every=4)

    distributed = CodedDistributedRows(machines)
    forest = grow(plan(request, SCHEMA), SCHEMA, distributed, Noiseless(), on_tree_done=lambda: None)

    for array, expected in whole.arrays.items():
        np.testing.assert_array_equal(forest.arrays[array], expected)
    assert 0 < machines.n_full < 2 * machines.n_questions, "only machines without a state get the whole question"


def test_a_brief_question_is_refused_without_a_state() -> None:
    states = ShardStates(lambda: pytest.fail("rows were read for a question that cannot be answered"))
    with pytest.raises(StateMissing):
        states.answer(Question((Branch(-1, 0, ()), Branch(0, 1, ())), Call("leaf_histogram")))


@pytest.mark.parametrize("method", ["__class__", "_columns", "of", "read"])
def test_no_other_method_is_called(method: str) -> None:
    [read, *_] = shards_of(as_codes(rows(100), REQUESTS["mrf"], SCHEMA))
    with pytest.raises(ValueError, match="a method that growth does not name"):
        ShardStates(read).answer(Question((Branch(-1, 0, ()),), Call(method)))


def test_a_value_of_another_class_is_not_sent() -> None:
    with pytest.raises(TypeError):
        remote.dumps(Question((), Call("sums", (object(),))))


def test_sums_travel_as_64_bit_integers() -> None:
    largest = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    received = remote.loads(remote.dumps(largest))
    assert received.dtype == np.int64
    np.testing.assert_array_equal(received, largest)

"""Tests that rows on several machines, of which some are lost, give the forest of all rows together."""

import numpy as np
import pytest

from app.forests import remote
from app.forests.catalogue import plan
from app.forests.forest_release import grow
from app.forests.remote import Branch, Call, CodedDistributedRows, Question, ShardStates, StateMissing
from tests.privacy.noiseless import REQUESTS, Noiseless, as_codes
from tests.support.machines import Machines, shards_of
from tests.support.reweighted import SCHEMA, rows


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

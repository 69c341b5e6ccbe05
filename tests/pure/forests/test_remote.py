"""Tests that rows on several machines, of which some are lost, give the forest of all
rows together.
"""

from dataclasses import replace

import numpy as np
import pytest

from grovekeeper_forests import remote
from grovekeeper_forests.data.coded_rows import CodedRows
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import plan
from grovekeeper_forests.remote import (
    Branch,
    Call,
    CodedDistributedRows,
    Question,
    ShardStates,
    StateMissing,
)
from grovekeeper_forests.trees.tree_histograms import Assignment
from tests.privacy.noiseless import REQUESTS, Noiseless, as_codes
from tests.support.machines import Machines, shards_of
from tests.support.reweighted import SCHEMA, rows


@pytest.mark.parametrize("name", REQUESTS)
def test_rows_on_machines_that_are_lost_give_the_forest_of_all_rows_together(
    name: str,
) -> None:
    request, values = REQUESTS[name], rows(600)
    whole = grow(
        plan(request, SCHEMA), SCHEMA, values, Noiseless(), on_tree_done=lambda: None
    )
    machines = Machines(shards_of(as_codes(values, request, SCHEMA)), lost_every=4)

    distributed = CodedDistributedRows(machines)
    forest = grow(
        plan(request, SCHEMA),
        SCHEMA,
        distributed,
        Noiseless(),
        on_tree_done=lambda: None,
    )

    for array, expected in whole.arrays.items():
        np.testing.assert_array_equal(forest.arrays[array], expected)
    assert 0 < machines.n_full < 2 * machines.n_questions, (
        "only machines without a state get the whole question"
    )


def test_a_brief_question_is_refused_without_a_state() -> None:
    states = ShardStates(
        lambda: pytest.fail("rows were read for a question that cannot be answered")
    )
    with pytest.raises(StateMissing):
        states.answer(
            Question((Branch(-1, 0, ()), Branch(0, 1, ())), Call("leaf_histogram"))
        )


def test_a_state_that_is_behind_or_ahead_of_a_question_is_not_counted() -> None:
    """Two machines may hold one shard; whoever answered the last question, the other
    one has not moved its rows.
    """
    request, values = REQUESTS["mrf"], rows(100)
    encoding = Encoding.of(SCHEMA, 4)
    [read] = shards_of(
        as_codes(
            values,
            replace(request, parameters={**request.parameters, "n_bins": 4}),
            SCHEMA,
        )
    )
    take = Branch(0, 0, (Call("take", ("LocalHistograms", encoding, Assignment())),))
    splits = {
        "threshold": np.zeros(1, dtype=np.uint8),
        "equals": np.zeros(1, dtype=np.bool_),
    }
    down = [
        Call("descend", (), {name: np.repeat(value, 2**level) for name, value in splits.items()}
             | {"feature": np.full(2**level, level, dtype=np.int32)})
        for level in range(3)
    ]  # fmt: skip

    def asked(skipped: int, n_calls: int) -> Question:
        calls = (Call("of_tree", (0,)), *down)
        tree = Branch(1, skipped, calls[skipped:n_calls])
        return Question((Branch(-1, 0, ()), take, tree), Call("leaf_histogram"))

    expected = [ShardStates(read).answer(asked(0, n_calls)) for n_calls in (1, 2, 3, 4)]
    assert len({counted.shape for counted in expected}) == 4
    machine = ShardStates(read)
    for n_calls in (2, 4, 1, 3):  # forth and back
        np.testing.assert_array_equal(
            machine.answer(asked(0, n_calls)), expected[n_calls - 1]
        )
    machine.answer(asked(0, 1))
    for skipped, n_calls in ((2, 3), (3, 3), (3, 4)):
        with pytest.raises(StateMissing):
            machine.answer(asked(skipped, n_calls))
        machine.answer(asked(0, 1))
    machine.answer(asked(0, 4))
    with pytest.raises(StateMissing):
        machine.answer(asked(1, 3))


def test_rows_that_a_form_used_up_are_read_again_and_states_that_nobody_asks_for_are_dropped() -> (
    None
):
    request = REQUESTS["mrf"]
    [read] = shards_of(as_codes(rows(100), request, SCHEMA))
    n_reads = iter(range(10))

    def reading() -> CodedRows:
        next(n_reads)
        return read()

    encoding, machine = read().features.public, ShardStates(reading)

    def asked(number: int) -> Question:
        take = Branch(
            number, 0, (Call("take", ("LocalHistograms", encoding, Assignment())),)
        )
        return Question(
            (Branch(-1, 0, ()), take, Branch(number + 1, 0, (Call("of_tree", (0,)),))),
            Call("leaf_histogram"),
        )

    for number in (0, 10):
        assert machine.answer(asked(number)).sum() == 100
        assert machine._states.keys() == {-1, number, number + 1}
    assert next(n_reads) == 2
    assert (
        machine.answer(Question((Branch(-1, 0, ()),), Call("code_counts", (0,)))).sum()
        == 100
    )
    assert machine._states.keys() == {-1}


@pytest.mark.parametrize("method", ["__class__", "_columns", "of", "read"])
def test_no_other_method_is_called(method: str) -> None:
    """Neither in the place of a sum, nor where a call makes parts of others, nor where
    it changes them.
    """
    [read, *_] = shards_of(as_codes(rows(100), REQUESTS["mrf"], SCHEMA))
    first, count, other = Branch(-1, 0, ()), Call("code_counts", (0,)), Call(method)
    for question in (
        Question((first,), other),
        Question((first, Branch(0, 0, (other,))), count),
        Question((Branch(-1, 0, (other,)),), count),
    ):
        with pytest.raises(ValueError, match="a method that growth does not name"):
            ShardStates(read).answer(question)
    with pytest.raises(KeyError):
        ShardStates(read).answer(
            Question((first, Branch(0, 0, (Call("take", (method, None)),))), count)
        )


def test_a_value_of_another_class_is_not_sent() -> None:
    with pytest.raises(TypeError):
        remote.dumps(Question((), Call("sums", (object(),))))


def test_an_object_of_another_class_with_members_is_not_sent() -> None:
    """Say, rows that were read."""
    with pytest.raises(TypeError):
        remote.dumps(Question((), Call("sums", (SCHEMA.label,))))


def test_sums_travel_as_64_bit_integers() -> None:
    largest = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    received = remote.loads(remote.dumps(largest))
    assert received.dtype == np.int64
    np.testing.assert_array_equal(received, largest)

"""The largest load of service and verifier is that of the proofs, exact or as a bound."""

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_verifier.joint_cells import JointCells
from tests.support.chance import examples
from tests.support.loads import BoxAmount, load_at, loads_of
from tests.support.memory_ledger import Declared, declared
from tests.support.set_limits import limits_of

pytestmark = [pytest.mark.checked, pytest.mark.property]

seeds = st.integers(0, 2**64)
SEARCH = settings(phases=[Phase.generate], deadline=None)


def _case(seed: int) -> tuple[Declared, list[BoxAmount], Scope]:
    chance = random.Random(seed)
    dataset = declared(chance, n_cells=3)
    density = chance.choice([0.2, 0.5, 0.8])
    largest = chance.choice([5, 100, 10**9, 2**62])
    boxes = [
        BoxAmount(dataset.scope(chance, density), chance.randint(1, largest))
        for _ in range(chance.randint(0, 9))
    ]
    return dataset, boxes, dataset.scope(chance, chance.choice([0, 0.5]))


@settings(SEARCH, max_examples=examples(1500))
@given(seeds)
def test_the_largest_load_is_that_of_the_proofs(seed: int) -> None:
    dataset, boxes, inside = _case(seed)
    largest = dataset.names.largest(boxes, inside)
    loads = loads_of(dataset.partitions, boxes, inside=inside)
    tightest = loads.largest()
    assert (tightest.load, tightest.is_exact) == (largest, True)
    assert load_at(loads, boxes, tightest.cell) == largest
    cells = JointCells(dataset.of_verifier)
    for scope, amount in boxes:
        cells.reserve(tuple(scope.items()), amount)
    assert cells.tightest(tuple(inside.items())).load == largest
    assert not cells.exceeds(tuple(inside.items()), largest)
    assert not largest or cells.exceeds(tuple(inside.items()), largest - 1)


@settings(SEARCH, max_examples=examples(1000))
@given(seeds)
def test_no_bound_of_the_guard_is_below_the_load_of_the_proofs(seed: int) -> None:
    """Everything that boxes couple is beyond the limits of work."""
    dataset, boxes, inside = _case(seed)
    largest = dataset.names.largest(boxes, inside)
    with limits_of(MAX_COMPOSITION_WORK=0, MAX_ELIMINATION_WORK=0, MAX_WORK=0):
        bound = loads_of(dataset.partitions, boxes, inside=inside).largest()
        cells = JointCells(dataset.of_verifier)
        for scope, amount in boxes:
            cells.reserve(tuple(scope.items()), amount)
        verified = cells.tightest(tuple(inside.items()))
    assert bound.load >= largest
    assert bound.load == largest or not bound.is_exact
    assert verified.load == bound.load

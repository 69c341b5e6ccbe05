"""Accounts in memory decide every step as the checked function does, exactly or within
the bounds of the guard.
"""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_verifier.joint_cells import JointCells
from tests.support.chance import examples
from tests.support.ledger_oracle import Account, Step
from tests.support.memory_ledger import (
    Declared,
    MemoryAccount,
    admitted,
    dataset_account,
    declared,
)
from tests.support.set_limits import limits_of

pytestmark = [pytest.mark.checked, pytest.mark.property]

seeds = st.integers(0, 2**64)
SEARCH = settings(phases=[Phase.generate], deadline=None)


@dataclass
class Program:
    """A random walk on one account, and what the walk knows of it.

    Attributes:
        cap: at the opening.
        live: reservations that have not ended.
        ended: others, whose end must not be written twice.
    """

    dataset: Declared
    cap: int
    chance: random.Random
    live: list[Step] = field(default_factory=list)
    ended: list[Step] = field(default_factory=list)

    def job(self, number: int) -> list[Step]:
        """A job of one to three parts, the first of any size."""
        largest = self.cap if self.chance.random() < 0.25 else max(self.cap // 3, 1)
        parts = [self._part(number, largest, 0.5)]
        if self.chance.random() < 0.25:
            parts += [self._part(number, max(self.cap // 3, 1), 0.9) for _ in range(2)]
        return parts

    def end(self) -> Step:
        """The end of a reservation; now and then of one that has ended."""
        is_wrong = bool(self.ended) and self.chance.random() < 0.15
        listed = self.ended if is_wrong else self.live
        step = listed[self.chance.randrange(len(listed))]
        if not is_wrong:
            self.live.remove(step)
        self.ended.append(step)
        return step._replace(kind=self.chance.choice(["charge", "void", "expire"]))

    def new_cap(self) -> Step:
        """Another cap; 0 closes the account."""
        largest = self.chance.choice([0, self.cap, 2 * self.cap])
        return Step("cap", self.chance.randint(min(largest, 1), largest))

    def opening(self) -> Step:
        """An opening load, which may be above the cap, now and then above the highest."""
        load = self.chance.randint(1, 2 * self.cap)
        highest = max(self.cap, load) + self.chance.randint(-1, 5)
        return Step("load", load, highest=highest)

    def _part(self, number: int, largest: int, density: float) -> Step:
        amount = self.chance.randint(1, largest)
        scope = self.dataset.scope(self.chance, density)
        return Step("reserve", amount, scope, f"jb_{number}")


def _drawn(seed: int) -> Program:
    chance = random.Random(seed)
    dataset = declared(chance, n_partitions=3, n_cells=3)
    return Program(dataset, chance.choice([10, 30, 10**9]), chance)


def _take(
    program: Program, number: int, product: MemoryAccount
) -> tuple[list[Step], bool]:
    """The entries of one step, and whether the product writes them."""
    pick = program.chance.random()
    if number == 0 and pick < 0.2:
        step = program.opening()
    elif pick < 0.5 or not program.live:
        parts = program.job(number)
        written = admitted([product], (), [(0, part) for part in parts])
        program.live += parts if written is not None else []
        return parts, written is not None
    elif pick < 0.9:
        step = program.end()
    else:
        step = program.new_cap()
    return [step], product.take(step)


@settings(SEARCH, max_examples=examples(750))
@given(seeds)
def test_an_account_takes_every_step_as_the_proofs_do(seed: int) -> None:
    program = _drawn(seed)
    product = dataset_account("ds_1", program.dataset, program.cap)
    checked = Account(program.dataset.names, program.cap)
    cells = JointCells(program.dataset.of_verifier)
    for number in range(program.chance.randint(3, 20)):
        steps, is_taken = _take(program, number, product)
        assert checked.take(*steps) is is_taken, (number, steps)
        assert checked.caps == (product.state.cap, product.state.highest_cap)
        load = checked.load()
        assert product.state.budget.whole.load == load <= product.state.bound
        for step in steps:
            _follow(cells, step, is_taken, product.state.cap)
    assert cells.tightest(()).load == checked.load()


def _follow(cells: JointCells, step: Step, is_taken: bool, cap: int) -> None:
    """The verifier takes an entry, and finds that an admitted one is within the cap."""
    scope = tuple(Scope(step.scope).items())
    if is_taken and step.kind in ("reserve", "load"):
        cells.reserve(scope, step.amount)
        assert step.kind == "load" or not cells.exceeds(scope, cap)
    if is_taken and step.kind in ("void", "expire"):
        cells.reserve(scope, -step.amount)


@settings(SEARCH, max_examples=examples(500))
@given(seeds)
def test_what_the_guard_admits_the_proofs_admit(seed: int) -> None:
    """Whatever boxes couple is decided by bounds, which refuse more and admit no more."""
    program = _drawn(seed)
    product = dataset_account("ds_1", program.dataset, program.cap)
    checked = Account(program.dataset.names, program.cap)
    with limits_of(MAX_COMPOSITION_WORK=0, MAX_ELIMINATION_WORK=0, MAX_WORK=0):
        for number in range(program.chance.randint(3, 20)):
            steps, is_taken = _take(program, number, product)
            if not is_taken:
                continue
            assert checked.take(*steps), (number, steps)
            assert checked.caps == (product.state.cap, product.state.highest_cap)
            stated = product.state.budget.whole.load
            assert min(stated, product.state.bound) >= checked.load()


SHARDS = Declared(
    Partitions((HashPartition("a", 3), HashPartition("b", 2))),
    {"a": range(3), "b": range(2)},
)
EVERYWHERE = Scope({})


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            [
                (Step("reserve", 6, {"a": [0]}, "jb_1"), True),
                (Step("reserve", 6, {"b": [1]}, "jb_2"), False),
                (Step("reserve", 4, {"b": [1]}, "jb_3"), True),
                (Step("reserve", 1, {"a": [0], "b": [1]}, "jb_4"), False),
                (Step("reserve", 10, {"a": [2], "b": [0]}, "jb_5"), True),
            ],
            id="the sum over partitions reaches the cap exactly",
        ),
        pytest.param(
            [
                (Step("cap", 12), True),
                (Step("cap", 5), True),
                (Step("reserve", 5, EVERYWHERE, "jb_1"), True),
                (Step("cap", 3), True),
                (Step("void", 5, EVERYWHERE, "jb_1"), True),
                (Step("cap", 2), True),
                (Step("reserve", 2, EVERYWHERE, "jb_2"), True),
                (Step("charge", 2, EVERYWHERE, "jb_2"), True),
                (Step("cap", 0), True),
                (Step("cap", 9), False),
                (Step("reserve", 1, EVERYWHERE, "jb_3"), False),
            ],
            id="the highest cap falls only while nothing is spent",
        ),
        pytest.param(
            [
                (Step("load", 12, highest=14), True),
                (Step("reserve", 1, {"a": [0]}, "jb_1"), False),
                (Step("cap", 13), True),
                (Step("reserve", 1, {"a": [0]}, "jb_1"), True),
                (Step("reserve", 1, {"a": [1]}, "jb_2"), True),
                (Step("reserve", 1, {"b": [1]}, "jb_3"), False),
            ],
            id="an opening load counts everywhere",
        ),
        pytest.param(
            [
                (Step("load", 20, highest=12), False),
                (Step("load", 5, highest=9), False),
                (Step("load", 12, highest=12), True),
            ],
            id="an opening load and the cap are within the highest cap before",
        ),
        pytest.param(
            [
                (Step("reserve", 4, {"a": [0, 1]}, "jb_1"), True),
                (Step("charge", 4, {"a": [0, 1]}, "jb_2"), False),
                (Step("charge", 4, {"a": [0]}, "jb_1"), False),
                (Step("charge", 3, {"a": [0, 1]}, "jb_1"), False),
                (Step("charge", 4, {"a": [0, 1]}, "jb_1"), True),
                (Step("void", 4, {"a": [0, 1]}, "jb_1"), False),
                (Step("expire", 4, {"a": [0, 1]}, "jb_1"), False),
                (Step("reserve", 7, {"a": [1]}, "jb_3"), False),
                (Step("reserve", 6, {"a": [1]}, "jb_3"), True),
                (Step("void", 6, {"a": [1]}, "jb_3"), True),
                (Step("reserve", 6, {"a": [1]}, "jb_4"), True),
            ],
            id="a charge is final, and what is given back is free once",
        ),
    ],
)
def test_rare_steps_are_taken_as_the_proofs_do(
    program: list[tuple[Step, bool]],
) -> None:
    product = dataset_account("ds_1", SHARDS, 10)
    checked = Account(SHARDS.names, 10)
    for step, is_taken in program:
        if step.kind == "reserve":
            assert (admitted([product], (), [(0, step)]) is not None) is is_taken, step
        else:
            assert product.take(step) is is_taken, step
        assert checked.take(step) is is_taken, step
        assert checked.caps == (product.state.cap, product.state.highest_cap)
        assert checked.load() == product.state.budget.whole.load


def test_what_is_given_back_leaves_the_kept_bound() -> None:
    """Otherwise a search decides what the bound could, and the guard refuses more."""
    product = dataset_account("ds_1", SHARDS, 10)
    checked = Account(SHARDS.names, 10)
    step = Step("reserve", 6, {"a": [0]}, "jb_1")
    assert admitted([product], (), [(0, step)]) is not None
    assert checked.take(step)
    assert product.state.bound == checked.load() == 6
    void = step._replace(kind="void")
    assert product.take(void)
    assert checked.take(void)
    assert product.state.bound == checked.load() == 0

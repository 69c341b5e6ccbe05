"""Populations in memory decide every step as the checked function does: members that
join late or continue an erased dataset, and jobs on several accounts.
"""

import random
from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from app.ledger.admission import MemberTotal, Population
from app.ledger.statements import Limit, printable_at
from app.ledger.tables import EntryKind
from grovekeeper_forests import amounts
from grovekeeper_forests.privacy.accountants import WITHOUT_DELTA, Amount
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.support.chance import examples
from tests.support.ledger_oracle import Step, World
from tests.support.memory_ledger import (
    PLACES,
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


class People:
    """Datasets, some of them members of one population, and the checked world beside
    them.

    Attributes:
        accounts: of the datasets, by number.
        accountant: of the population.
        population: its account.
        is_exact: whether the product computes every largest load exactly.
    """

    def __init__(
        self,
        datasets: Sequence[tuple[Declared, int]],
        cap: int,
        *,
        accountant: str = "zcdp",
        is_exact: bool = True,
    ) -> None:
        self.accounts = [
            dataset_account(f"ds_{number}", dataset, own)
            for number, (dataset, own) in enumerate(datasets)
        ]
        self.accountant = accountant
        facts = {"population": "pop_1", "accountant": accountant}
        self.population = MemoryAccount("pop_1", cap, facts)
        self.is_exact = is_exact
        named = [(dataset.names, own) for dataset, own in datasets]
        self._world = World(named, cap, accountant)

    def is_member(self, at: int) -> bool:
        """Whether a dataset has joined."""
        return self.accounts[at].state.account_id in self.population.state.loads

    def load(self, at: int) -> int:
        """What the population's newest entry says about a member."""
        return self.population.state.loads[self.accounts[at].state.account_id]

    @property
    def printed(self) -> int:
        """The limit that the population's guarantee states."""
        state = self.population.state
        limit = Limit(Amount(self.accountant, state.highest_cap), WITHOUT_DELTA)
        together = sum(state.loads.values())
        return printable_at(limit, cap=state.cap, load=together).amount.steps

    def job(self, *parts: tuple[int, Step]) -> bool:
        """Asks for a job with parts on some datasets."""
        written = admitted(self.accounts, self._populations(), parts)
        for at, _, load in written or ():
            self._state_load(at, load)
        ordered = sorted(parts, key=lambda part: part[0])
        acts = [("Own", at, step) for at, step in ordered]
        return self._compare(written is not None, *acts)

    def change(self, at: int, step: Step) -> bool:
        """Ends a reservation or changes the cap of a dataset."""
        is_taken = self.accounts[at].take(step)
        if is_taken and step.kind in ("void", "expire") and self.is_member(at):
            whole = self.accounts[at].state.budget.whole.load
            self._state_load(at, min(whole, self.load(at)))
        return self._compare(is_taken, ("Own", at, step))

    def join(self, at: int) -> bool:
        """Makes a dataset a member, if it is none."""
        is_new = not self.is_member(at)
        if is_new:
            state = self.accounts[at].state
            self._join(at, state.budget.whole.load)
        return self._compare(is_new, ("Join", at))

    def continue_(self, at: int, erased: int) -> bool:
        """Lets a new dataset continue a member that is erased."""
        load, highest = self.load(erased), self.accounts[erased].state.highest_cap
        is_taken = self.accounts[at].take(Step("load", load, highest=highest))
        self._join(at, load, continues=f"ds_{erased}")
        return self._compare(is_taken, ("Continue", at, erased, highest))

    def cap(self, cap: int) -> bool:
        """Puts another cap of the population in force."""
        is_taken = self.population.take(Step("cap", cap))
        return self._compare(is_taken, ("PopulationCap", cap))

    def _populations(self) -> list[Population]:
        members = {
            name: MemberTotal(load, 0, True)
            for name, load in sorted(self.population.state.loads.items())
        }
        cap = self.population.state.cap
        return [Population("pop_1", "people", cap, members)]

    def _state_load(self, at: int, load: int | None) -> None:
        assert (load is not None) is self.is_member(at)
        if load is not None:
            member = {"dataset": f"ds_{at}"}
            self.population.write(EntryKind.LOAD, load, details={"member": member})

    def _join(self, at: int, load: int, **continued: str) -> None:
        highest = amounts.from_steps(self.accounts[at].state.highest_cap, PLACES)
        member = {"dataset": f"ds_{at}", "highest_cap": highest, **continued}
        self.population.write(EntryKind.JOIN, load, details={"member": member})

    def _compare(self, is_taken: bool, *acts: tuple[object, ...]) -> bool:
        """The checked world decides the same, and then stands where the product does."""
        if not self.is_exact and not is_taken:
            return False  # a bound may refuse more
        assert self._world.take(*acts) is is_taken, acts
        together, cap, highest, printed = self._world.standing
        state = self.population.state
        stated = sum(state.loads.values())
        assert cap == state.cap
        if self.is_exact:
            assert (stated, state.highest_cap, self.printed) == (
                together,
                highest,
                printed,
            )
        else:
            # A member that joins late with a bound counts as used where it may be unused.
            assert stated >= together
            assert state.highest_cap >= highest
        return is_taken


def _walk(seed: int, *, is_exact: bool) -> None:
    chance = random.Random(seed)
    accountant = chance.choice(["pure", "zcdp", "gdp"])
    cap = chance.choice([10, 30])
    n_first, n_heirs = chance.randint(1, 3), 2
    datasets = [
        (declared(chance, n_partitions=2, n_cells=3), chance.randint(cap // 2, cap))
        for _ in range(n_first)
    ]
    datasets += [
        (declared(chance, n_partitions=2, n_cells=3), cap // 4) for _ in range(n_heirs)
    ]
    people = People(
        datasets,
        chance.randint(cap // 2, 2 * cap),
        accountant=accountant,
        is_exact=is_exact,
    )
    present, heirs = list(range(n_first)), list(range(n_first, n_first + n_heirs))
    live: list[tuple[int, Step]] = []
    for number in range(chance.randint(5, 20)):
        at, pick = chance.choice(present), chance.random()
        state = people.accounts[at].state
        may_end = people.is_member(at) and not state.reservations and people.load(at)
        if pick > 0.85 and heirs and may_end and state.highest_cap >= cap // 4:
            people.continue_(heirs[-1], at)
            present.remove(at)
            present.append(heirs.pop())
        elif pick < 0.15:
            people.join(at)
        elif pick < 0.22:
            people.cap(chance.randint(1, 2 * cap))
        elif pick < 0.28:
            people.change(at, Step("cap", chance.randint(1, 2 * cap)))
        elif pick < 0.65 or not live:
            payers = chance.choices(present, k=chance.randint(1, 3))
            if pick > 0.38:
                payers = [at]
            largest = cap // 2 if len(payers) == 1 else cap // 3
            parts = [
                (payer, _part(chance, datasets[payer][0], largest, number))
                for payer in payers
            ]
            live += parts if people.job(*parts) else []
        else:
            payer, step = live.pop(chance.randrange(len(live)))
            end = chance.choice(["charge", "void", "expire"])
            people.change(payer, step._replace(kind=end))


def _part(chance: random.Random, dataset: Declared, largest: int, number: int) -> Step:
    amount = chance.randint(1, largest)
    return Step("reserve", amount, dataset.scope(chance), f"jb_{number}")


@settings(SEARCH, max_examples=examples(1000))
@given(seeds)
def test_a_population_takes_every_step_as_the_proofs_do(seed: int) -> None:
    _walk(seed, is_exact=True)


@settings(SEARCH, max_examples=examples(500))
@given(seeds)
def test_what_a_guarded_population_admits_the_proofs_admit(seed: int) -> None:
    with limits_of(MAX_COMPOSITION_WORK=0):
        _walk(seed, is_exact=False)


HALVES = Declared(
    Partitions((HashPartition("a", 2), HashPartition("b", 2))),
    {"a": range(2), "b": range(2)},
)
WHOLE = Declared(Partitions(()), {})


def _reserve(amount: int, job: str, **cells: list[int]) -> Step:
    return Step("reserve", amount, Scope(cells), job)


def test_a_population_over_its_cap_admits_nothing() -> None:
    """Not on a cell without load either. Random walks meet this in one of hundreds."""
    people = People([(HALVES, 10), (WHOLE, 10)], 10)
    people.join(0)
    assert people.job((0, _reserve(6, "jb_1", a=[0])))
    assert people.job((1, _reserve(5, "jb_2")))
    people.join(1)
    assert not people.job((0, _reserve(1, "jb_3", a=[1])))
    assert people.cap(11)
    assert people.job((0, _reserve(1, "jb_4", a=[1])))
    assert people.cap(10)
    assert not people.job((0, _reserve(1, "jb_5", a=[1])))
    assert people.change(1, _reserve(5, "jb_2")._replace(kind="void"))
    assert people.job((0, _reserve(3, "jb_6", a=[1])))


def test_a_member_counts_by_its_fullest_cell_alone() -> None:
    people = People([(HALVES, 10), (WHOLE, 10)], 10)
    people.join(0)
    people.join(1)
    assert people.job((0, _reserve(6, "jb_1", a=[0])), (1, _reserve(4, "jb_1")))
    assert people.job((0, _reserve(6, "jb_2", a=[1]))), "the person pays once"
    assert not people.job((0, _reserve(1, "jb_3", a=[1])))
    assert not people.job((1, _reserve(1, "jb_4")))
    assert people.change(0, _reserve(6, "jb_1", a=[0])._replace(kind="void"))
    assert not people.job((1, _reserve(1, "jb_5"))), "the other cell is as full"
    assert people.change(0, _reserve(6, "jb_2", a=[1])._replace(kind="expire"))
    assert people.job((1, _reserve(6, "jb_6")))


def test_a_late_member_raises_the_highest_cap_by_its_own() -> None:
    people = People([(HALVES, 7), (WHOLE, 9)], 10)
    people.join(1)
    assert people.population.state.highest_cap == 10, "it has spent nothing"
    assert people.job((0, _reserve(2, "jb_1", a=[0])))
    assert people.change(0, _reserve(2, "jb_1", a=[0])._replace(kind="charge"))
    people.join(0)
    assert people.population.state.highest_cap == 10 + 7
    assert people.cap(8)
    assert people.population.state.highest_cap == 10 + 7
    assert people.cap(0)
    assert not people.cap(5), "it is closed"
    assert not people.job((1, _reserve(1, "jb_2")))


def test_a_late_member_of_a_pure_population_raises_no_cap_but_what_is_printed() -> None:
    people = People([(HALVES, 7), (WHOLE, 10)], 10, accountant="pure")
    people.join(1)
    assert people.job((1, _reserve(9, "jb_1")))
    assert people.job((0, _reserve(2, "jb_2", a=[0])))
    people.join(0)
    assert people.population.state.highest_cap == 10
    assert people.printed == 9 + 2


def test_a_closed_pure_population_prints_what_joins_it_over_its_highest_cap() -> None:
    people = People([(HALVES, 7), (WHOLE, 10)], 10, accountant="pure")
    people.join(1)
    assert people.job((1, _reserve(9, "jb_1")))
    assert people.cap(0)
    assert people.printed == 10, "what was lost may have reached the cap"
    assert people.job((0, _reserve(2, "jb_2", a=[0])))
    people.join(0)
    assert people.printed == 9 + 2


def test_a_job_of_several_accounts_is_admitted_whole_or_not_at_all() -> None:
    people = People([(HALVES, 10), (WHOLE, 10)], 12)
    people.join(0)
    people.join(1)
    assert not people.job((1, _reserve(7, "jb_1")), (0, _reserve(6, "jb_1")))
    assert people.job((1, _reserve(6, "jb_2")), (0, _reserve(6, "jb_2")))
    assert not people.job((0, _reserve(1, "jb_3", b=[1])))


def test_what_continues_a_member_takes_its_place_and_its_load() -> None:
    people = People([(HALVES, 10), (WHOLE, 8), (HALVES, 10)], 12)
    people.join(0)
    people.join(1)
    assert people.job((0, _reserve(6, "jb_1", a=[0])))
    assert people.change(0, _reserve(6, "jb_1", a=[0])._replace(kind="charge"))
    assert people.continue_(2, 0)
    assert not people.job((2, _reserve(5, "jb_2", a=[1])))
    assert people.job((2, _reserve(4, "jb_2", a=[1])))
    assert not people.job((1, _reserve(3, "jb_3")))
    assert people.job((1, _reserve(2, "jb_3")))

"""Walks of admissions in memory, on accounts and populations, against brute force over
every joint cell.

The functions of the proofs state which jobs are admitted
(``test_checked_populations.py``). The brute force stays for the rooms, the parts that
are charged and reserved, and a job's first refused request, which they do not state.
"""

import random
from dataclasses import dataclass, field
from itertools import product

import pytest

from app.ledger import admission
from app.ledger.admission import (
    AccountState,
    AskedAmount,
    Budgets,
    CellBalance,
    MemberTotal,
    Population,
    Refused,
)
from grovekeeper_forests.privacy.joint_loads import Tightest
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope

SIZES = {"a": 2, "b": 3}
CELLS = [
    dict(zip(SIZES, cell, strict=True)) for cell in product(*map(range, SIZES.values()))
]
PARTITIONS = Partitions(
    tuple(HashPartition(name, size) for name, size in SIZES.items())
)
ACCOUNTS = ("ds_1", "ds_2", "ds_3", "ds_4")
POPULATIONS = {"pop_1": ("ds_1", "ds_2"), "pop_2": ("ds_3",)}


def covers(scope: Scope, cell: dict[str, int]) -> bool:
    return all(cell[name] in cells for name, cells in scope.items())


@dataclass
class Model:
    """Charged and reserved amounts on scopes, by account."""

    caps: dict[str, int]
    population_caps: dict[str, int]
    entries: dict[str, list[tuple[Scope, int, int]]]
    waiting: list[AskedAmount] = field(default_factory=list)

    @classmethod
    def drawn(cls, chance: random.Random) -> "Model":
        entries = {
            account_id: [
                (_scope(chance), chance.randint(0, 4), chance.randint(0, 4))
                for _ in range(chance.randint(0, 3))
            ]
            for account_id in ACCOUNTS
        }
        caps = {account_id: chance.randint(8, 30) for account_id in ACCOUNTS}
        return cls(
            caps, {name: chance.randint(10, 40) for name in POPULATIONS}, entries
        )

    def at(self, account_id: str, cell: dict[str, int]) -> tuple[int, int]:
        """Charged and reserved in one joint cell."""
        covering = [
            entry for entry in self.entries[account_id] if covers(entry[0], cell)
        ]
        return sum(charged for _, charged, _ in covering), sum(
            reserved for *_, reserved in covering
        )

    def largest(self, account_id: str, scope: Scope) -> int:
        return max(
            sum(self.at(account_id, cell)) for cell in CELLS if covers(scope, cell)
        )

    def room(self, request: AskedAmount) -> int:
        load = self.largest(request.account_id, request.scope)
        room = self.caps[request.account_id] - load
        for name, members in POPULATIONS.items():
            if request.account_id in members:
                whole = {member: self.largest(member, {}) for member in members}
                if sum(whole.values()) > self.population_caps[name]:
                    return 0
                others = sum(whole.values()) - whole[request.account_id]
                room = min(room, self.population_caps[name] - others - load)
        return max(room, 0)

    def room_beside(self, requests: list[AskedAmount], position: int) -> int:
        before = {
            account_id: list(entries) for account_id, entries in self.entries.items()
        }
        for request in [*requests[:position], *requests[position + 1 :]]:
            self.entries[request.account_id].append((request.scope, 0, request.amount))
        room = self.room(requests[position])
        self.entries = before
        return room

    def admit(self, requests: list[AskedAmount]) -> int | None:
        """The position of the first request that does not fit; ``None`` if the job is
        admitted.
        """
        before = {
            account_id: list(entries) for account_id, entries in self.entries.items()
        }
        for position in sorted(
            range(len(requests)), key=lambda at: requests[at].account_id
        ):
            request = requests[position]
            if request.amount > self.room(request):
                self.entries = before
                return position
            self.entries[request.account_id].append((request.scope, 0, request.amount))
        return None

    def budgets(self, chance: random.Random) -> Budgets:
        accounts = {}
        for account_id, entries in self.entries.items():
            scopes, totals = Numbering(SIZES), dict[str, tuple[int, int]]()
            for scope, charged, reserved in entries:
                digest = scope.digest
                if digest not in totals:
                    scopes.add(digest, scope)
                before = totals.get(digest, (0, 0))
                totals[digest] = before[0] + charged, before[1] + reserved
            whole = self.largest(account_id, {})
            loose = sum(charged + reserved for _, charged, reserved in entries)
            bound = chance.choice([None, loose, whole])
            highest = max(self.caps[account_id], whole)
            accounts[account_id] = AccountState(
                self.caps[account_id], highest, PARTITIONS, scopes, totals, bound
            )
        populations = [
            Population(
                name,
                name,
                self.population_caps[name],
                {member: self.total(accounts[member], member) for member in members},
            )
            for name, members in POPULATIONS.items()
        ]
        return Budgets(accounts, populations)

    def total(self, state: AccountState, member: str) -> MemberTotal:
        whole = state.whole
        assert (whole.charged, whole.reserved) == self.at(member, dict(whole.cell))  # type: ignore[arg-type]
        return MemberTotal(self.largest(member, {}), whole.reserved, is_exact=True)


def _scope(chance: random.Random) -> Scope:
    names = sorted(chance.sample(sorted(SIZES), chance.randint(0, 2)))
    return Scope(
        {
            name: chance.sample(range(SIZES[name]), chance.randint(1, SIZES[name] - 1))
            for name in names
        }
    )


def check_state(budgets: Budgets, model: Model, scope: Scope) -> None:
    for account_id, state in budgets.accounts.items():
        found, cells = state.by_cell(scope)
        for balance in (state.tightest(Scope(scope)), found):
            assert balance.is_exact
            assert balance.load == model.largest(account_id, scope)
            assert covers(scope, dict(balance.cell))  # type: ignore[arg-type]
            assert (balance.charged, balance.reserved) == model.at(
                account_id, dict(balance.cell)
            )  # type: ignore[arg-type]
        for name, balances in cells.items():
            assert [balance.load for balance in balances] == [
                model.largest(account_id, {**scope, name: (cell,)})
                for cell in scope.get(name, range(SIZES[name]))
            ]
        assert state.whole.load == model.largest(account_id, {})
        if state.bound is not None:
            assert state.bound >= state.whole.load
    for population in budgets.populations:
        wholes = {
            member: budgets.accounts[member].whole
            for member in POPULATIONS[population.id]
        }
        assert population.loads == {
            member: whole.load for member, whole in wholes.items()
        }
        assert population.is_exact
        assert (
            population.charged + population.reserved
            == population.together
            == sum(population.loads.values())
        )
        assert population.reserved == sum(
            total.reserved for total in population.members.values()
        )
        assert all(
            total.charged + total.reserved == total.load
            for total in population.members.values()
        )
        for member, whole in wholes.items():
            assert population.members[member].reserved == whole.reserved


@pytest.mark.parametrize("walk", range(20))
def test_a_walk_of_jobs_is_judged_as_by_brute_force(walk: int) -> None:
    chance = random.Random(walk)
    model = Model.drawn(chance)
    budgets = model.budgets(chance)
    for _ in range(25):
        payers = chance.choices(ACCOUNTS, k=chance.randint(0, 3))
        requests = [
            AskedAmount(account_id, chance.randint(1, 5), _scope(chance))
            for account_id in payers
        ]
        positions = range(len(requests))
        assert [room.amount for room in admission.rooms(budgets, requests)] == [
            model.room_beside(requests, position) for position in positions
        ]
        beside = [model.room_beside(requests, position) for position in positions]
        refused = model.admit(requests)
        decision = admission.admit(budgets, requests)
        if refused is None:
            assert not isinstance(decision, Refused)
            budgets = budgets.with_reservations(requests)
            assert [placed.position for placed in decision] == sorted(
                positions, key=lambda at: payers[at]
            )
            last = {payers[placed.position]: placed.member for placed in decision}
            for payer, member in last.items():
                is_member = any(payer in members for members in POPULATIONS.values())
                assert (member is None) is not is_member
                if member is not None:
                    assert member.load == model.largest(payer, {})
        else:
            assert isinstance(decision, Refused)
            assert (decision.position, decision.fits) == (refused, beside[refused])
        check_state(budgets, model, _scope(chance))


def test_a_request_that_a_loose_bound_does_not_admit_is_judged_by_the_tightest_cell() -> (
    None
):
    scopes, disjoint = Numbering(SIZES), (Scope({"a": [0]}), Scope({"a": [1]}))
    for scope in disjoint:
        scopes.add(scope.digest, scope)
    totals = {scope.digest: (5, 0) for scope in disjoint}
    loose = Budgets(
        {"ds": AccountState(10, 10, PARTITIONS, scopes, totals, bound=10)}, []
    )
    request = AskedAmount("ds", 5, Scope({"b": (0,)}))
    assert not isinstance(admission.admit(loose, [request]), Refused)
    budgets = loose.with_reservations([request])
    assert budgets.accounts["ds"].bound == 15
    assert isinstance(
        admission.admit(budgets, [AskedAmount("ds", 1, Scope({"b": (0,)}))]), Refused
    )


@pytest.mark.parametrize(("highest_cap", "charged"), [(5, 3), (2, 1), (9, 5)])
def test_a_bound_above_the_load_counts_as_charged_up_to_the_highest_cap(
    highest_cap: int, charged: int
) -> None:
    scopes, scope = Numbering(SIZES), Scope({"a": [0]})
    scopes.add(scope.digest, scope)
    state = AccountState(5, highest_cap, PARTITIONS, scopes, {scope.digest: (1, 2)})
    cell = {"a": 0, "b": 0}
    balance = state._balance(Tightest(7, cell, is_exact=False), state._loads(WHOLE))
    assert balance == CellBalance(cell, charged, 2, is_exact=False)
    assert balance.load == charged + 2


def test_a_reservation_that_may_not_be_committed_leaves_nothing_in_the_process() -> (
    None
):
    """The numbering belongs to the process and loses nothing, and a caller may ask for
    quotes without end.
    """
    scopes = Numbering(SIZES)
    state = AccountState(10, 10, PARTITIONS, scopes, {})
    size = scopes.size
    for cells in ((0,), (1,), (0, 2)):
        reserved = state.with_reservation(Scope({"b": cells}), 3)
        assert reserved._loads({}).largest().load == 3
    assert scopes.size == size


def test_the_smaller_of_two_bounds_of_a_cell_is_its_load() -> None:
    balance = CellBalance({"a": 0}, 4, 2, is_exact=False)
    assert [balance.at_most(load).load for load in (5, 6, 7)] == [5, 6, 6]
    assert balance.at_most(5) == CellBalance({"a": 0}, 3, 2, is_exact=False)


def test_a_population_over_its_cap_has_no_room_and_one_at_its_cap_has_room_below_its_tightest_cell() -> (
    None
):
    """Two members of 6 each, the second by its tightest cell: in its other cells it
    carries 2.
    """
    members = {
        "ds_1": MemberTotal(6, 1, is_exact=True),
        "ds_2": MemberTotal(6, 2, is_exact=False),
    }
    at_cap, over = (Population("pop", "patients", cap, members) for cap in (12, 11))
    assert (at_cap.room("ds_2", 2), at_cap.room("ds_2", 6), over.room("ds_2", 2)) == (
        4,
        0,
        0,
    )
    assert (at_cap.together, at_cap.reserved, at_cap.charged, at_cap.is_exact) == (
        12,
        3,
        9,
        False,
    )
    assert members["ds_1"].charged == 5

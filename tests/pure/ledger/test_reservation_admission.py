"""Tests the admission of many jobs at once against brute force over the joint cells of
small accounts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.ledger import admission
from app.ledger.admission import (
    AccountState,
    Admitted,
    AskedAmount,
    Budgets,
    MemberTotal,
    Population,
    Refused,
)
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support.chance import examples

pytestmark = pytest.mark.property

ACCOUNTS = ("ds_1", "ds_2", "ds_3")
SIZES = {"a": 2, "b": 3}
PARTITIONS = Partitions(
    tuple(HashPartition(name, size) for name, size in SIZES.items())
)

scopes = st.fixed_dictionaries(
    {},
    optional={
        name: st.sets(st.integers(0, size - 1), min_size=1)
        for name, size in SIZES.items()
    },
).map(Scope)
amounts = st.integers(1, 6)
jobs = st.lists(
    st.builds(AskedAmount, st.sampled_from(ACCOUNTS), amounts, scopes), max_size=3
)


@dataclass
class World:
    """Caps, earlier charges, and a population of two of the three accounts."""

    caps: Mapping[str, int]
    charged: Mapping[str, Sequence[tuple[int, Scope]]]
    population_cap: int
    members: frozenset[str]
    bounds: Mapping[str, str]
    reserved: list[AskedAmount] = field(default_factory=list)

    def load(self, account_id: str, cell: Mapping[str, int]) -> int:
        on_account = [
            (request.amount, request.scope)
            for request in self.reserved
            if request.account_id == account_id
        ]
        covering = [*self.charged[account_id], *on_account]
        return sum(
            amount
            for amount, scope in covering
            if all(cell[name] in scope[name] for name in scope)
        )

    def largest(self, account_id: str, scope: Scope) -> int:
        cells = product(*(scope.get(name, range(size)) for name, size in SIZES.items()))
        return max(
            self.load(account_id, dict(zip(SIZES, cell, strict=True))) for cell in cells
        )

    def room(self, request: AskedAmount) -> int:
        """The largest amount that fits, in every joint cell and, for a member, in the
        sum of the members' loads.
        """
        load = self.largest(request.account_id, request.scope)
        room = self.caps[request.account_id] - load
        if request.account_id in self.members:
            others = sum(
                self.largest(member, {})
                for member in self.members
                if member != request.account_id
            )
            together = others + self.largest(request.account_id, {})
            room = (
                min(room, self.population_cap - others - load)
                if together <= self.population_cap
                else 0
            )
        return max(room, 0)

    def fits(self, requests: Sequence[AskedAmount], position: int) -> int:
        """The room of a request beside the other requests of its job."""
        before = list(self.reserved)
        self.reserved += [
            request for at, request in enumerate(requests) if at != position
        ]
        room = self.room(requests[position])
        self.reserved = before
        return room

    def admit(self, requests: Sequence[AskedAmount]) -> tuple[int, int] | None:
        """``None`` if the job is admitted; otherwise the position of the refused
        request and the amount that fits.
        """
        before = list(self.reserved)
        for position in sorted(
            range(len(requests)), key=lambda at: requests[at].account_id
        ):
            if requests[position].amount > self.room(requests[position]):
                self.reserved = before
                return position, self.fits(requests, position)
            self.reserved.append(requests[position])
        return None

    def bound(self, account_id: str) -> int | None:
        """A bound of the account's loads, as after the entries that were charged or
        after a look at all cells.
        """
        match self.bounds[account_id]:
            case "loose":
                return sum(amount for amount, _ in self.charged[account_id])
            case "tight":
                return self.largest(account_id, {})
        return None

    def budgets(self) -> Budgets:
        accounts = {}
        for account_id in ACCOUNTS:
            scopes, totals = Numbering(SIZES), dict[str, tuple[int, int]]()
            for amount, scope in self.charged[account_id]:
                digest = scope.digest
                scopes.add(digest, scope)
                totals[digest] = (totals.get(digest, (0, 0))[0] + amount, 0)
            highest = max(self.caps[account_id], self.largest(account_id, {}))
            accounts[account_id] = AccountState(
                self.caps[account_id],
                highest,
                PARTITIONS,
                scopes,
                totals,
                self.bound(account_id),
            )
        members = {
            member: MemberTotal(self.largest(member, {}), 0, is_exact=True)
            for member in sorted(self.members)
        }
        return Budgets(
            accounts,
            [Population("pop", "patients", self.population_cap, members)]
            if members
            else [],
        )


def admitted(
    budgets: Budgets, batch: Sequence[Sequence[AskedAmount]]
) -> list[Admitted | Refused]:
    """Judges jobs in order, each after the jobs before it."""
    decisions = []
    for requests in batch:
        decision = admission.admit(budgets, requests)
        decisions.append(decision)
        if not isinstance(decision, Refused):
            budgets = budgets.with_reservations(requests)
    return decisions


worlds = st.builds(
    World,
    st.fixed_dictionaries({account_id: st.integers(0, 15) for account_id in ACCOUNTS}),
    st.fixed_dictionaries(
        {
            account_id: st.lists(st.tuples(st.integers(1, 4), scopes), max_size=3)
            for account_id in ACCOUNTS
        }
    ),
    st.integers(0, 20),
    st.sampled_from([frozenset[str](), frozenset(ACCOUNTS[:2]), frozenset(ACCOUNTS)]),
    st.fixed_dictionaries(
        {
            account_id: st.sampled_from(["none", "loose", "tight"])
            for account_id in ACCOUNTS
        }
    ),
)


@settings(max_examples=examples(500), deadline=None)
@given(world=worlds, batch=st.lists(jobs, max_size=6))
def test_a_batch_of_jobs_is_admitted_as_by_brute_force(
    world: World, batch: list[list[AskedAmount]]
) -> None:
    decisions = admitted(world.budgets(), batch)
    assert len(decisions) == len(batch)
    for requests, decision in zip(batch, decisions, strict=True):
        refused = world.admit(requests)
        if refused is None:
            assert not isinstance(decision, Refused)
            order = [placed.position for placed in decision]
            assert order == sorted(
                range(len(requests)), key=lambda at: requests[at].account_id
            )
            last = {
                requests[placed.position].account_id: placed.member
                for placed in decision
            }
            for account_id, total in last.items():
                assert (None if total is None else total.load) == (
                    world.largest(account_id, {})
                    if account_id in world.members
                    else None
                )
        else:
            assert isinstance(decision, Refused)
            assert (decision.position, decision.fits) == refused


@settings(max_examples=examples(500), deadline=None)
@given(
    world=worlds,
    requests=st.lists(
        st.builds(AskedAmount, st.just("ds_3"), amounts, scopes),
        min_size=6,
        max_size=20,
    ),
)
def test_a_bound_of_the_loads_changes_no_decision(
    world: World, requests: list[AskedAmount]
) -> None:
    """Most requests fit by the bound alone, and the tightest cell decides about the
    others.
    """
    world = replace(
        world, members=frozenset(), caps={**world.caps, "ds_3": 12 + world.caps["ds_3"]}
    )
    budgets = world.budgets()
    for request in requests:
        is_refused = isinstance(admission.admit(budgets, [request]), Refused)
        assert is_refused is (world.admit([request]) is not None)
        budgets = budgets if is_refused else budgets.with_reservations([request])
        bound = budgets.accounts["ds_3"].bound
        assert bound is None or bound >= world.largest("ds_3", {})


@settings(max_examples=examples(500), deadline=None)
@given(world=worlds, requested=st.tuples(amounts, amounts), scope=scopes)
def test_a_job_is_admitted_if_each_part_fits_its_room(
    world: World, requested: tuple[int, int], scope: Scope
) -> None:
    """Quote and admission agree."""
    requests = [
        AskedAmount("ds_1", requested[0], scope),
        AskedAmount("ds_2", requested[1], WHOLE),
    ]
    rooms = admission.rooms(world.budgets(), requests)
    assert [room.amount for room in rooms] == [
        world.fits(requests, at) for at in range(2)
    ]
    fits = all(
        request.amount <= room.amount
        for request, room in zip(requests, rooms, strict=True)
    )
    assert fits is (world.admit(requests) is None)


def test_a_job_that_pays_for_nothing_is_admitted() -> None:
    assert admitted(Budgets({}, []), [[]]) == [()]

"""Decides in memory whether accounts admit reservations: no session, no I/O, no clock.

A request is admitted if ``charged + reserved + amount`` stays within the account's cap
in every joint cell of its scope, and if the totals of all members of its population
together stay within the population's cap. A job's requests are admitted all or not at
all. Quotes and admissions share this code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grovekeeper_common.limit_words import LimitedBy
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy.joint_loads import Loads, Tightest
from grovekeeper_forests.privacy.numbering import Boxes, Numbering, Table, table
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, JointCell, Scope


@dataclass(frozen=True)
class AskedAmount:
    """An amount that a job asks of one account.

    Attributes:
        account_id: the account that pays.
        amount: steps of the account's unit, positive.
        scope: in normal form; the amount is set aside in every joint cell of it.
    """

    account_id: str
    amount: int
    scope: Scope


@dataclass(frozen=True)
class CellBalance:
    """One joint cell. Where not ``is_exact``, ``charged + reserved`` is an upper bound
    for every joint cell.
    """

    cell: JointCell
    charged: int
    reserved: int
    is_exact: bool

    @property
    def load(self) -> int:
        """Charges and reservations together."""
        return self.charged + self.reserved

    def at_most(self, load: int) -> "CellBalance":
        """The balance under another upper bound of the load: the smaller of two bounds
        is a bound.
        """
        return replace(self, charged=min(self.load, load) - self.reserved)


@dataclass(frozen=True)
class AccountState:
    """The cap of an account, and the totals of every distinct scope of its charges and
    reservations.

    Attributes:
        cap: in force now.
        highest_cap: no admission was above it, so no joint cell carries more.
        partitions: the partitions of the dataset.
        scopes: the scopes of ``totals``, by their digests.
        totals: charged and reserved amounts of a scope, by its digest.
        bound: what no joint cell exceeds, if known; ``None`` if not
            (:attr:`app.ledger.state.State.bound`).
        added: amounts reserved since ``totals``, by digest.
    """

    cap: int
    highest_cap: int
    partitions: Partitions
    scopes: Numbering
    totals: Mapping[str, tuple[int, int]]
    bound: int | None = None
    added: Mapping[str, int] = field(default_factory=dict)

    def tightest(self, scope: Scope) -> CellBalance:
        """The joint cell of a scope with the largest ``charged + reserved``; of equal
        loads as :class:`Tightest`.
        """
        if not scope:
            return self.whole
        loads = self._loads(scope)
        return self._balance(loads.largest(), loads)

    @kept_property
    def whole(self) -> CellBalance:
        """The tightest joint cell of the whole account."""
        loads = self._loads(WHOLE)
        return self._balance(loads.largest(), loads)

    def by_cell(
        self, scope: Scope, *, only: str | None = None
    ) -> tuple[CellBalance, dict[str, list[CellBalance]]]:
        """The tightest joint cell of a scope, and of every cell of every partition (or
        of one) inside the scope.
        """
        loads = self._loads(scope)
        names = [
            partition.name
            for partition in self.partitions.declared
            if only in (None, partition.name)
        ]
        cells = {
            name: [self._balance(tightest, loads) for tightest in loads.by_cell(name)]
            for name in names
        }
        return self._balance(loads.largest(), loads), cells

    def with_reservation(self, scope: Scope, amount: int) -> "AccountState":
        """The state with one more reservation."""
        digest = scope.digest
        scopes = self.scopes
        if digest not in scopes:
            scopes = scopes.with_scope(digest, scope)
        added = {**self.added, digest: self.added.get(digest, 0) + amount}
        bound = None if self.bound is None else self.bound + amount
        return replace(self, scopes=scopes, added=added, bound=bound)

    def _loads(self, scope: Scope) -> Loads:
        return Loads(self.partitions, self._boxes, inside=scope)

    @kept_property
    def _totals(self) -> Mapping[str, tuple[int, int]]:
        """:attr:`totals` and :attr:`added` together."""
        totals = dict(self.totals)
        for digest, amount in self.added.items():
            charged, reserved = totals.get(digest, (0, 0))
            totals[digest] = (charged, reserved + amount)
        return totals

    @kept_property
    def _boxes(self) -> Boxes:
        return self.scopes.boxes(
            list(self._totals), [sum(amounts) for amounts in self._totals.values()]
        )

    @kept_property
    def _charged(self) -> Table:
        return table([charged for charged, _ in self._totals.values()])

    def _balance(self, tightest: Tightest, loads: Loads) -> CellBalance:
        """Splits a load into its charged and its reserved part.

        A bound above the true load of the named cell counts as charged, but not beyond
        the highest cap.
        """
        covering = loads.covering(tightest.cell)
        load = int(self._boxes.amounts[covering].sum())
        charged = int(self._charged[covering].sum())
        excess = min(tightest.load, max(self.highest_cap, load)) - load
        return CellBalance(
            tightest.cell, charged + excess, load - charged, tightest.is_exact
        )


@dataclass(frozen=True)
class MemberTotal:
    """The largest loss of one person in a member of a population: the load of its
    tightest joint cell.

    Where not ``is_exact``, ``load`` is an upper bound, and its excess counts as
    charged.
    """

    load: int
    reserved: int
    is_exact: bool

    @property
    def charged(self) -> int:
        """The part of the load that is not reserved."""
        return self.load - self.reserved


@dataclass(frozen=True)
class Population:
    """The cap of a population, and the totals of its members, by account."""

    id: str
    name: str
    cap: int
    members: Mapping[str, MemberTotal]

    @property
    def loads(self) -> Mapping[str, int]:
        """The largest loss of one person in each member, by account."""
        return {account_id: total.load for account_id, total in self.members.items()}

    @property
    def together(self) -> int:
        """The largest loss of one person in all members together."""
        return sum(total.load for total in self.members.values())

    @property
    def reserved(self) -> int:
        """The part of :attr:`together` that is not charged yet."""
        return sum(total.reserved for total in self.members.values())

    @property
    def charged(self) -> int:
        """The part of :attr:`together` that is charged."""
        return self.together - self.reserved

    @property
    def is_exact(self) -> bool:
        """Whether :attr:`together` is a sum of maxima rather than an upper bound."""
        return all(total.is_exact for total in self.members.values())

    def room(self, account_id: str, load: int) -> int:
        """The largest amount that fits into a scope of a member; negative or zero where
        none does.

        The member counts by its tightest joint cell, so jobs on disjoint cells of one
        member cost a person the largest of their amounts, in the population as in the
        account.

        Args:
            account_id: the member.
            load: of the tightest joint cell of the scope.
        """
        if self.together > self.cap:
            return 0
        return self.cap - (self.together - self.members[account_id].load) - load

    def with_member(self, account_id: str, total: MemberTotal) -> "Population":
        """The population with another total of one member."""
        return replace(self, members={**self.members, account_id: total})


@dataclass(frozen=True)
class Room:
    """The room for a request: the tightest joint cell of its scope, and the largest
    amount that would be admitted.

    ``limited_by`` is ``population`` where the cap of the population leaves less than
    the account's cap, else ``cap``.
    """

    tightest: CellBalance
    amount: int
    limited_by: LimitedBy
    population: Population | None


@dataclass(frozen=True)
class Budgets:
    """The states of accounts and of their populations, as read in one transaction."""

    accounts: Mapping[str, AccountState]
    populations: Sequence[Population]

    def room(self, request: AskedAmount) -> Room:
        """The room for a request alone."""
        return self.room_at(
            request.account_id,
            self.accounts[request.account_id].tightest(request.scope),
        )

    def room_at(self, account_id: str, tightest: CellBalance) -> Room:
        """The room in a scope of an account, whose tightest joint cell is given."""
        population = self.population_of(account_id)
        room = max(self.accounts[account_id].cap - tightest.load, 0)
        if population is not None:
            shared = max(population.room(account_id, tightest.load), 0)
            if shared < room:
                return Room(tightest, shared, "population", population)
        return Room(tightest, room, "cap", population)

    def population_of(self, account_id: str) -> Population | None:
        """The population that an account belongs to."""
        for population in self.populations:
            if account_id in population.members:
                return population
        return None

    def with_reservations(self, requests: Sequence[AskedAmount]) -> "Budgets":
        """The budgets with some more reservations, admissible or not."""
        budgets = self
        for request in requests:
            budgets, _ = budgets.with_reservation(request, budgets.room(request))
        return budgets

    def with_reservation(
        self, request: AskedAmount, room: Room
    ) -> "tuple[Budgets, CellBalance | None]":
        """The budgets with one more reservation; for a population's member also its
        tightest joint cell afterwards.
        """
        account = self.accounts[request.account_id].with_reservation(
            request.scope, request.amount
        )
        if room.population is None:
            return self.with_account(request.account_id, account), None
        accounts = {**self.accounts, request.account_id: account}
        # Outside the scope no load changes. So the larger of the load before and the new
        # load inside the scope is a bound, too, by which the verifier can repeat the step
        # (docs/proofs/lemmas.md, Theorem L).
        whole = account.whole
        before = room.population.loads[request.account_id]
        whole = whole.at_most(max(before, room.tightest.load + request.amount))
        total = MemberTotal(whole.load, whole.reserved, whole.is_exact)
        changed = room.population.with_member(request.account_id, total)
        populations = [
            changed if population.id == changed.id else population
            for population in self.populations
        ]
        return Budgets(accounts, populations), whole

    def has_room_everywhere(self, request: AskedAmount) -> bool:
        """Whether an account's bound shows that a request fits.

        A member of a population needs its tightest joint cell, because an entry of the
        population states the load.
        """
        account = self.accounts[request.account_id]
        if self.population_of(request.account_id) is not None or account.bound is None:
            return False
        return account.bound + request.amount <= account.cap

    def with_account(self, account_id: str, account: AccountState) -> "Budgets":
        """The budgets with another state of one account."""
        return replace(self, accounts={**self.accounts, account_id: account})


@dataclass(frozen=True)
class Placed:
    """One admitted request of a job.

    Attributes:
        position: of the request in its job.
        member: of a population's member, the tightest joint cell of the whole account
            after the reservation.
    """

    position: int
    member: CellBalance | None


Admitted = tuple[Placed, ...]
"""Every request of an admitted job, in the order in which their reservations are
written: by account, then position.
"""


@dataclass(frozen=True)
class Refused:
    """The first request of a job that does not fit, in the order of :data:`Admitted`.

    Attributes:
        position: of the request in its job.
        room: the room for the request after the requests before it.
        fits: the largest amount that would be admitted together with all other requests
            of the job.
    """

    position: int
    room: Room
    fits: int


def admit(budgets: Budgets, requests: Sequence[AskedAmount]) -> Admitted | Refused:
    """Judges one job; one without requests fits."""
    before, placed = budgets, []
    # By account, as the reservations are written. Each request is judged with those
    # before it, because members of one population share a cap.
    for position in sorted(
        range(len(requests)), key=lambda index: requests[index].account_id
    ):
        request = requests[position]
        if budgets.has_room_everywhere(request):
            account = budgets.accounts[request.account_id].with_reservation(
                request.scope, request.amount
            )
            budgets, member = budgets.with_account(request.account_id, account), None
        else:
            room = budgets.room(request)
            if request.amount > room.amount:
                room_beside = room
                if len(requests) > 1:
                    room_beside = _room_beside(before, requests, position)
                return Refused(position, room, room_beside.amount)
            budgets, member = budgets.with_reservation(request, room)
        placed.append(Placed(position, member))
    return tuple(placed)


def rooms(budgets: Budgets, requests: Sequence[AskedAmount]) -> list[Room]:
    """The room for every request of a job if the job's other requests are admitted.

    A job is admitted if and only if each request fits its room, since no joint cell
    lies in two requests of one job.
    """
    return [
        _room_beside(budgets, requests, position) for position in range(len(requests))
    ]


def _room_beside(
    budgets: Budgets, requests: Sequence[AskedAmount], position: int
) -> Room:
    others = [*requests[:position], *requests[position + 1 :]]
    return budgets.with_reservations(others).room(requests[position])

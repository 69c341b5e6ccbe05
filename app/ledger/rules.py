"""Decides what the rules of a dataset admit, and which changes loosen them; stores
rules on the caller's transaction.

Rules are limits below the cap of an account. They count whole jobs: the amounts of a
job's parts on the account add up, whatever their scopes. A reservation counts until it
is given back, whichever kind of request made it.

A change is made under the locks of the dataset and of its account. Admissions and
charges read rules under the lock of the account, so when a change is answered, nothing
is admitted and nothing is charged under the rules before it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Literal, Self, TypeVar

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from app.core import limits
from app.db.database import transaction_time
from app.ledger.admission import AskedAmount
from app.ledger.tables import ReservationRow, RulesRow, sum_in_halves, sum_of_halves
from grovekeeper_common.limit_words import LimitedBy

_Limit = TypeVar("_Limit", int, datetime)


@dataclass(frozen=True)
class Quota:
    """A limit of what several keys spend together.

    Attributes:
        keys: the keys whose amounts add up.
        cap: steps of the account's unit.
    """

    keys: frozenset[str]
    cap: int

    def implies(self, other: "Quota") -> bool:
        """Whether this quota refuses every request that the other quota refuses."""
        return other.keys <= self.keys and self.cap <= other.cap


@dataclass(frozen=True)
class Usage:
    """What keys have reserved or charged on an account and was not given back.

    Attributes:
        by_key: of the keys that share a quota with the asking key; a key without an
            amount may be missing.
        since_approval: of the asking key, since an owner last approved one of its jobs.
    """

    by_key: Mapping[str, int]
    since_approval: int


@dataclass(frozen=True)
class Allowance:
    """What the rules of an account leave to one key.

    Attributes:
        is_frozen: whether the account admits nothing.
        is_due: whether the rows are to be erased by now, so that the account admits
            nothing.
        room: the largest job that the rules admit; ``None`` where no rule sets a limit.
        limited_by: the rule that decides ``room``; ``None`` where no rule sets a limit.
        room_without_approval: the largest job that needs no approval; ``None`` where no
            job needs one.
        largest_job: the part of ``room`` that no job uses up; ``None`` where the rules
            have none.
        used_room: the part of ``room`` that jobs use up; ``None`` where no rule sets
            such a limit.
    """

    is_frozen: bool
    is_due: bool
    room: int | None
    limited_by: LimitedBy | None
    room_without_approval: int | None
    largest_job: int | None = None
    used_room: int | None = None

    def room_after(self, amount: int) -> int | None:
        """The largest job that the rules would admit after one of an amount; ``None``
        where no rule sets a limit.
        """
        rest = None if self.used_room is None else max(self.used_room - amount, 0)
        return min(
            (room for room in (rest, self.largest_job) if room is not None),
            default=None,
        )

    def needs_approval(self, amount: int) -> bool:
        """Whether a job of an amount waits for an approval."""
        return (
            self.room_without_approval is not None
            and amount > self.room_without_approval
        )


UNLIMITED = Allowance(
    is_frozen=False,
    is_due=False,
    room=None,
    limited_by=None,
    room_without_approval=None,
)
"""What an account without rules leaves to every key."""


@dataclass(frozen=True)
class Rules:
    """The rules of a dataset. ``None`` means no limit. Amounts are positive steps of
    the account's unit.

    Attributes:
        largest_job: limit of one job.
        approval_above: limit of what a key spends before an owner approves one of its
            jobs.
        quotas: limits of what keys spend; keys that no quota names have none.
        is_frozen: whether nothing is admitted and no job is started.
        erase_rows_at: when all rows are erased.
    """

    largest_job: int | None = None
    approval_above: int | None = None
    quotas: tuple[Quota, ...] = ()
    is_frozen: bool = False
    erase_rows_at: datetime | None = None

    def is_due(self, at: datetime) -> bool:
        """Whether the date of erasure has come, so that no row may be read."""
        return self.erase_rows_at is not None and self.erase_rows_at <= at

    def keys_beside(self, key: str) -> frozenset[str]:
        """The keys that share a quota with a key, and the key itself."""
        return frozenset({key}).union(
            *(quota.keys for quota in self.quotas if key in quota.keys)
        )

    def allowance(self, key: str, usage: Usage, *, at: datetime) -> Allowance:
        """What the rules leave to a key at a time."""
        rooms = list(self._rooms(key, usage, at=at))
        room, limited_by = min(rooms, default=(None, None), key=itemgetter(0))
        room_without_approval = None
        if self.approval_above is not None:
            room_without_approval = max(self.approval_above - usage.since_approval, 0)
        return Allowance(
            is_frozen=self.is_frozen,
            is_due=self.is_due(at),
            room=room,
            limited_by=limited_by,
            room_without_approval=room_without_approval,
            largest_job=self.largest_job,
            used_room=min(
                (room for room, rule in rooms if rule != "largest_job"), default=None
            ),
        )

    def _rooms(
        self, key: str, usage: Usage, *, at: datetime
    ) -> Iterator[tuple[int, LimitedBy]]:
        """The largest job that each rule admits; the first of the smallest is the cause
        that a person reads.
        """
        if self.is_due(at):
            yield 0, "erasure_due"
        if self.is_frozen:
            yield 0, "frozen"
        if self.largest_job is not None:
            yield self.largest_job, "largest_job"
        for quota in self.quotas:
            if key in quota.keys:
                spent = sum(usage.by_key.get(other, 0) for other in quota.keys)
                yield max(quota.cap - spent, 0), "quota"


def loosens(before: Rules, after: Rules) -> bool:
    """Whether a change of rules is a loosening.

    Every change after which some request is admitted that was refused, or admitted at
    once that had to wait, is a loosening, whatever was spent. So is a later erasure,
    because requests between the two dates were refused. Rules are compared one by one,
    also while the dataset is frozen. A few changes of quotas that admit no further
    request count as a loosening, too: one quota must imply the earlier one.
    """
    return (
        _is_wider(after.largest_job, before.largest_job)
        or _is_wider(after.approval_above, before.approval_above)
        or (before.is_frozen and not after.is_frozen)
        or _is_wider(after.erase_rows_at, before.erase_rows_at)
        or not all(
            any(quota.implies(earlier) for quota in after.quotas)
            for earlier in before.quotas
        )
    )


def room_beside(
    allowances: Mapping[str, Allowance], requests: Sequence[AskedAmount], position: int
) -> int | None:
    """The largest amount of one request of a job that the rules admit if the job's
    other requests keep their amounts.

    Args:
        allowances: by account; an account without rules is missing.
        requests: of one job.
        position: of the request in the job.

    Returns:
        An amount in steps, or ``None`` where no rule sets a limit.
    """
    allowance = allowances.get(requests[position].account_id)
    if allowance is None or allowance.room is None:
        return None
    request = requests[position]
    by_others = total_on(requests, request.account_id) - request.amount
    return max(allowance.room - by_others, 0)


def total_on(requests: Sequence[AskedAmount], account_id: str) -> int:
    """The amount of a job on an account."""
    return sum(
        request.amount for request in requests if request.account_id == account_id
    )


def _is_wider(after: _Limit | None, before: _Limit | None) -> bool:
    return before is not None and (after is None or after > before)


def row_of(session: Session, account_id: str) -> RulesRow | None:
    """The row of an account's rules; ``None`` where no rule was ever set."""
    return session.get(RulesRow, account_id, populate_existing=True)


def rules_of(row: RulesRow | None) -> Rules:
    """The rules of a row."""
    if row is None:
        return Rules()
    return Rules(
        largest_job=row.largest_job,
        approval_above=row.approval_above,
        quotas=tuple(
            Quota(frozenset(quota["keys"]), int(quota["cap"])) for quota in row.quotas
        ),
        is_frozen=row.is_frozen,
        erase_rows_at=row.erase_rows_at,
    )


def put(session: Session, account_id: str, rules: Rules, *, actor: str) -> None:
    """Puts rules in force and drops a proposal. The caller holds the locks of the
    dataset and of its account.
    """
    values = {
        "largest_job": rules.largest_job,
        "approval_above": rules.approval_above,
        "quotas": [
            {"keys": sorted(quota.keys), "cap": str(quota.cap)}
            for quota in rules.quotas
        ],
        "is_frozen": rules.is_frozen,
        "erase_rows_at": rules.erase_rows_at,
        "proposal": None,
        "changed_by": actor,
        "changed_at": transaction_time(session),
    }
    session.merge(RulesRow(account_id=account_id, **values))
    session.flush()


@dataclass(frozen=True)
class RulesInForce:
    """The rules of several accounts, and what keys spent under them."""

    rules: Mapping[str, Rules]
    spent: Mapping[str, "_Spent"]
    now: Callable[[], datetime]

    @classmethod
    def read(
        cls, session: Session, account_ids: Collection[str], keys: Collection[str]
    ) -> Self:
        """Reads the rules of accounts, as far as they concern some keys; accounts
        without rules are left out.
        """
        rows = session.scalars(
            select(RulesRow)
            .where(RulesRow.account_id.in_(account_ids))
            .execution_options(populate_existing=True)
        )
        return cls.of(session, {row.account_id: rules_of(row) for row in rows}, keys)

    @classmethod
    def of(
        cls, session: Session, rules: Mapping[str, Rules], keys: Collection[str]
    ) -> Self:
        """The rules of accounts, by account, as far as they concern some keys."""
        beside = set[str]()
        for in_force in rules.values():
            for key in keys:
                beside |= in_force.keys_beside(key)
        spent = _spent(session, rules, beside) if rules else {}
        return cls(rules, spent, partial(transaction_time, session))

    def allowances(self, key: str) -> dict[str, Allowance]:
        """What the rules leave to a key, by account; accounts without rules are
        missing.
        """
        return {
            account_id: rules.allowance(
                key, self.spent[account_id].usage(key), at=self.now()
            )
            for account_id, rules in self.rules.items()
        }

    def above_approval(
        self, requests: Sequence[AskedAmount], key: str
    ) -> dict[str, int]:
        """The accounts on which a job takes a key above what it may spend without an
        approval, and by how much.
        """
        excess: dict[str, int] = {}
        for account_id in sorted({request.account_id for request in requests}):
            rules = self.rules.get(account_id)
            if rules is None or rules.approval_above is None:
                continue
            spent = self.spent[account_id].usage(key).since_approval
            with_job = spent + total_on(requests, account_id)
            if with_job > rules.approval_above:
                excess[account_id] = with_job - rules.approval_above
        return excess


@dataclass
class _Spent:
    """What keys have reserved or charged on an account: in all, and since an owner last
    approved a job of the key.
    """

    in_all: Counter[str]
    since_approval: Counter[str]

    def usage(self, key: str) -> Usage:
        return Usage(self.in_all, self.since_approval[key])


def usage(session: Session, account_id: str, keys: Iterable[str], *, key: str) -> Usage:
    """What some keys have reserved or charged on an account."""
    return _spent(session, [account_id], frozenset(keys))[account_id].usage(key)


def _spent(
    session: Session, account_ids: Collection[str], keys: Collection[str]
) -> dict[str, _Spent]:
    """What some keys spent on each of several accounts, by one query, whatever the
    number of accounts.
    """
    columns = (
        ReservationRow.account_id,
        ReservationRow.reserved_by,
        ReservationRow.is_approved,
    )
    query = select(*columns, *sum_in_halves(ReservationRow.amount)).group_by(*columns)
    query = query.where(
        ReservationRow.account_id.in_(sorted(account_ids)),
        ReservationRow.state.in_(("reserved", "charged")),
    )
    # a query has no place for all keys of many accounts
    if len(keys) <= limits.MAX_QUOTAS * limits.MAX_QUOTA_KEYS:
        query = query.where(ReservationRow.reserved_by.in_(sorted(keys)))
    spent = {account_id: _Spent(Counter(), Counter()) for account_id in account_ids}
    for account_id, reserved_by, is_approved, high, low in session.execute(query):
        total = sum_of_halves(high, low)
        spent[account_id].in_all[reserved_by] += total
        if not is_approved:
            spent[account_id].since_approval[reserved_by] = total
    return spent


def allowances(
    session: Session, account_ids: Collection[str], key: str
) -> dict[str, Allowance]:
    """What the rules of several accounts leave to a key, by account; accounts without
    rules are missing.
    """
    return RulesInForce.read(session, account_ids, [key]).allowances(key)


def allowance(session: Session, account_id: str, key: str) -> Allowance:
    """What the rules of one account leave to a key."""
    return allowances(session, [account_id], key).get(account_id, UNLIMITED)


def approve(
    session: Session, account_id: str, key: str, *, waiting: Collection[str]
) -> None:
    """Covers what a key has reserved or charged on an account by an approval, so that
    it does not count any more.

    Args:
        session: of the transaction that holds the account's lock.
        account_id: the account.
        key: the submitter of the approved job.
        waiting: the key's other jobs that wait for a decision; their reservations are
            not covered.
    """
    session.execute(
        update(ReservationRow)
        .where(
            ReservationRow.account_id == account_id,
            ReservationRow.reserved_by == key,
            ReservationRow.is_approved.is_(False),
            or_(ReservationRow.job_id.is_(None), ReservationRow.job_id.not_in(waiting)),
        )
        .values(is_approved=True)
        .execution_options(synchronize_session=False)
    )


def frozen_accounts(session: Session) -> list[str]:
    """The accounts whose rules admit nothing until they are loosened, in order of id."""
    return list(
        session.scalars(
            select(RulesRow.account_id)
            .where(RulesRow.is_frozen)
            .order_by(RulesRow.account_id)
        )
    )


def proposed(session: Session, *, among: Collection[str] | None) -> list[RulesRow]:
    """The rules with a proposal, expired ones included, of some accounts (``None`` =
    all).
    """
    query = select(RulesRow).where(RulesRow.proposal.is_not(None))
    if among is not None:
        query = query.where(RulesRow.account_id.in_(among))
    return list(session.scalars(query))


def due_accounts(session: Session) -> list[str]:
    """Ids of the accounts whose date of erasure has come, in order; deleted datasets
    among them.
    """
    is_due = RulesRow.erase_rows_at <= transaction_time(session)
    due = select(RulesRow.account_id).where(is_due)
    return list(session.scalars(due.order_by(RulesRow.account_id)))


HeldBy = Literal["frozen", "erasure-due"]
"""Why the jobs of an account are not started."""


def closed_accounts(session: Session) -> frozenset[str]:
    """Ids of the accounts whose jobs are not started; see :func:`holds`."""
    return frozenset(holds(session))


def holds(session: Session) -> dict[str, HeldBy]:
    """Why jobs are not started, by account: frozen, or with rows that are to be erased
    by now, frozen or not.
    """
    is_due = RulesRow.erase_rows_at <= transaction_time(session)
    held = session.execute(
        select(RulesRow.account_id, is_due).where(or_(RulesRow.is_frozen, is_due))
    )
    return {account_id: "erasure-due" if due else "frozen" for account_id, due in held}

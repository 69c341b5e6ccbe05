"""Decides what the rules of a dataset admit, and which changes loosen them: no session, no I/O, no clock.

Rules are limits below the cap of an account. They count whole jobs: the amounts of a job's parts on the account add up,
whatever their scopes. A reservation counts until it is given back, whichever kind of request made it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.ledger.admission import Request


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
        by_key: of the keys that share a quota with the asking key; a key without an amount may be missing.
        since_approval: of the asking key, since an owner last approved one of its jobs.
    """

    by_key: Mapping[str, int]
    since_approval: int


@dataclass(frozen=True)
class Allowance:
    """What the rules of an account leave to one key.

    Attributes:
        is_frozen: whether the account admits nothing.
        is_due: whether the rows are to be erased by now, so that the account admits nothing.
        room: the largest job that the rules admit; ``None`` where no rule sets a limit.
        room_without_approval: the largest job that needs no approval; ``None`` where no job needs one.
    """

    is_frozen: bool
    is_due: bool
    room: int | None
    room_without_approval: int | None

    def at_most(self, amount: int) -> int:
        """The smaller of an amount and what the rules admit."""
        return amount if self.room is None else min(amount, self.room)

    def at_once(self, amount: int) -> int:
        """The smallest of an amount, what the rules admit, and what needs no approval."""
        admitted = self.at_most(amount)
        return admitted if self.room_without_approval is None else min(admitted, self.room_without_approval)

    def needs_approval(self, amount: int) -> bool:
        """Whether a job of an amount waits for an approval."""
        return self.room_without_approval is not None and amount > self.room_without_approval


UNLIMITED = Allowance(is_frozen=False, is_due=False, room=None, room_without_approval=None)
"""What an account without rules leaves to every key."""


@dataclass(frozen=True)
class Rules:
    """The rules of a dataset. ``None`` means no limit. Amounts are positive steps of the account's unit.

    Attributes:
        largest_job: limit of one job.
        approval_above: limit of what a key spends before an owner approves one of its jobs.
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
        return frozenset({key}).union(*(quota.keys for quota in self.quotas if key in quota.keys))

    def allowance(self, key: str, usage: Usage, *, at: datetime) -> Allowance:
        """What the rules leave to a key at a time."""
        rooms = [] if self.largest_job is None else [self.largest_job]
        for quota in self.quotas:
            if key in quota.keys:
                rooms.append(quota.cap - sum(usage.by_key.get(other, 0) for other in quota.keys))
        return Allowance(
            is_frozen=self.is_frozen,
            is_due=self.is_due(at),
            room=0 if self.is_frozen or self.is_due(at) else max(min(rooms), 0) if rooms else None,
            room_without_approval=(
                None if self.approval_above is None else max(self.approval_above - usage.since_approval, 0)
            ),
        )


def loosens(before: Rules, after: Rules) -> bool:
    """Whether a change of rules is a loosening.

    Every change after which some request is admitted that was refused, or admitted at once that had to wait, is a
    loosening, whatever was spent. So is a later erasure, because requests between the two dates were refused. Rules are
    compared one by one, also while the dataset is frozen. A few changes of quotas that admit no further request count
    as a loosening, too: one quota must imply the earlier one.
    """
    return (
        _is_higher(after.largest_job, before.largest_job)
        or _is_higher(after.approval_above, before.approval_above)
        or (before.is_frozen and not after.is_frozen)
        or _is_later(after.erase_rows_at, before.erase_rows_at)
        or not all(any(quota.implies(earlier) for quota in after.quotas) for earlier in before.quotas)
    )


def room_beside(allowances: Mapping[str, Allowance], requests: Sequence[Request], position: int) -> int | None:
    """The largest amount of one request of a job that the rules admit if the job's other requests keep their amounts.

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
    return max(allowance.room - total_on(requests, requests[position].account_id) + requests[position].amount, 0)


def total_on(requests: Sequence[Request], account_id: str) -> int:
    """The amount of a job on an account."""
    return sum(request.amount for request in requests if request.account_id == account_id)


def _is_higher(after: int | None, before: int | None) -> bool:
    return before is not None and (after is None or after > before)


def _is_later(after: datetime | None, before: datetime | None) -> bool:
    return before is not None and (after is None or after > before)

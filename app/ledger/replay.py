"""Recomputes the balance of an account from its entries and checks their chain: no session, no I/O, no clock."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

from app.core.errors import BalanceMismatch
from app.ledger.account_facts import delta_steps
from app.ledger.admission import Bound
from app.ledger.entries import FIRST_PREVIOUS_HASH, OPENING_LOAD_SEQUENCE, Entry, EntryKind
from app.ledger.scope_digest import digest_of
from app.ledger.stored_totals import Sums
from app.privacy.accountants import pure
from app.privacy.accountants.accountant import steps_down

_NOTHING = Bound(0, is_tight=True)


@dataclass
class Replay:
    """The state of an account after its first entries.

    Attributes:
        account_id: of a dataset or a population.
        sequence: of the last entry; with ``hash`` the head of the chain.
        facts: as the first entry states them (:mod:`app.ledger.account_facts`).
        totals: charged and reserved amounts of a scope, by its digest; no scope without an amount.
        charged: the sum of all charged amounts.
        reserved: the sum of all reserved amounts.
        deltas: charged δ of a scope, by its digest, in steps of 10⁻¹⁸.
        reservations: open reservations, as (job or reservation, digest of the scope, amount).
        loads: of a population, the load of each member.
        bound: of a dataset, what no joint cell exceeds; what is given back does not lower it.
    """

    account_id: str
    sequence: int = 0
    hash: str = FIRST_PREVIOUS_HASH
    cap: int = 0
    highest_cap: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    charged: int = 0
    reserved: int = 0
    deltas: dict[str, int] = field(default_factory=dict)
    reservations: Counter[tuple[str | None, str, int]] = field(default_factory=Counter)
    loads: dict[str, int] = field(default_factory=dict)
    bound: Bound = _NOTHING

    @property
    def sums(self) -> Sums:
        """Of the totals of all scopes."""
        return Sums(len(self.totals), self.charged, self.reserved)

    def copy(self) -> Self:
        """A state that can be advanced while threads read this one."""
        return type(self)(
            **vars(self)
            | {
                "totals": dict(self.totals),
                "deltas": dict(self.deltas),
                "reservations": self.reservations.copy(),
                "loads": dict(self.loads),
            }
        )

    def take(self, entry: Entry) -> None:
        """Advances the state by the next entry.

        Raises:
            BalanceMismatch: the entry does not continue the chain, or cannot follow the entries before it.
        """
        follows = entry.sequence == self.sequence + 1 and entry.previous_hash == self.hash
        if not follows or entry.sealed().hash != entry.hash or (entry.kind is EntryKind.OPEN) != (entry.sequence == 1):
            raise BalanceMismatch(self.account_id, "chain")
        match entry.kind:
            case EntryKind.OPEN:
                self.cap = self.highest_cap = entry.amount
                self.facts = entry.details or {}
            case EntryKind.CAP:
                is_used = bool(self.totals) or any(self.loads.values())
                self.cap = entry.amount
                # A cap of 0 closes an account whose lost entries may have spent anything.
                keeps_highest = is_used or entry.amount == 0
                self.highest_cap = max(self.highest_cap, entry.amount) if keeps_highest else entry.amount
            case EntryKind.LOAD if "continues" in (entry.details or {}):
                self._set_opening_load(entry)
            case EntryKind.JOIN | EntryKind.LOAD:
                self._set_load(entry)
            case _:
                self._step_reservation(entry)
        self.sequence, self.hash = entry.sequence, entry.hash

    def _set_opening_load(self, entry: Entry) -> None:
        if entry.sequence != OPENING_LOAD_SEQUENCE:
            raise BalanceMismatch(self.account_id, "chain")
        continued, whole = (entry.details or {})["continues"], digest_of(entry.scope)
        self.highest_cap = max(self.cap, steps_down(Fraction(continued["highest_cap"]), entry.places))
        self.totals[whole], self.charged = (entry.amount, 0), entry.amount
        self.bound = Bound(entry.amount, is_tight=True)
        delta = delta_steps(continued.get("delta"))
        if delta:
            self.deltas[whole] = delta

    def _set_load(self, entry: Entry) -> None:
        member = (entry.details or {})["member"]
        if (member["dataset"] in self.loads) != (entry.kind is EntryKind.LOAD):
            raise BalanceMismatch(self.account_id, "chain")
        self.loads[member["dataset"]] = entry.amount
        if (erased := member.get("continues")) is not None:  # its load is part of the new member's
            if self.loads.get(erased) != entry.amount:
                raise BalanceMismatch(self.account_id, "chain")
            self.loads[erased] = 0
        elif entry.kind is EntryKind.JOIN and entry.amount and self.facts["accountant"] != pure.NAME:
            self.highest_cap += steps_down(Fraction(member["highest_cap"]), entry.places)

    def _step_reservation(self, entry: Entry) -> None:
        digest = digest_of(entry.scope)
        reservation = (entry.job_id, digest, entry.amount)
        charged, reserved = self.totals.get(digest, (0, 0))
        if entry.kind is EntryKind.RESERVE:
            self.reservations[reservation] += 1
            self.totals[digest] = (charged, reserved + entry.amount)
            self.reserved += entry.amount
            self.bound = Bound(self.bound.load + entry.amount, is_tight=False)
            return
        if not self.reservations[reservation]:
            raise BalanceMismatch(self.account_id, "chain")
        self.reservations[reservation] -= 1
        if not self.reservations[reservation]:
            del self.reservations[reservation]
        if entry.kind is EntryKind.CHARGE:
            charged += entry.amount
            self.charged += entry.amount
            delta = delta_steps((entry.details or {}).get("delta"))
            if delta:
                self.deltas[digest] = self.deltas.get(digest, 0) + delta
        self.totals[digest] = (charged, reserved - entry.amount)
        self.reserved -= entry.amount
        if not any(self.totals[digest]):
            del self.totals[digest]

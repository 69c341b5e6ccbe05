"""Appends entries to the chain of an account, and folds them to its state.

No other code makes entries, and the fold is the only source of balances, quotes and admissions. No row of the database
but the entries says what was spent. A process keeps the state of an account after the last
entry that it read, and reads the entries since. A state is identified by the hash of its last entry, which fixes all
entries before it, so a state in memory is never wrong, only older than the database. Under the lock of the account's
row, the state after the head of the row is the state that an admission is decided on.

So that a long history starts fast, every ``STATE_EVERY``-th entry of an account states the account's state. The entry
is hashed and exported like every other, and the verifier recomputes the state in it. It names each scope by its digest
and by an entry that states the scope, so that its size does not depend on the cells (docs/adr/0051).
"""

import hashlib
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from threading import Lock
from typing import Any, Final, NamedTuple, Self

import rfc8785
from cachetools import LRUCache
from sqlalchemy import Text, event, select, type_coerce
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from app.core import amounts, limits, stamps
from app.core.errors import BalanceMismatch
from app.core.kept import kept_property
from app.db.database import KEPT, transaction_time
from app.ledger import tables
from app.ledger.admission import AccountState
from app.ledger.checkpoints import Log
from app.ledger.tables import (
    CONTROL_CHAIN,
    FIRST_PREVIOUS_HASH,
    OPENING_LOAD_SEQUENCE,
    AccountRow,
    Entry,
    EntryKind,
    EntryRow,
    PopulationRow,
    ReservationRow,
    StatedScope,
    digest_of,
)
from app.privacy import accountants
from app.privacy.accountants import delta_steps, delta_text, pure
from app.privacy.accountants.accountant import steps_down
from app.privacy.joint_loads import Loads
from app.privacy.numbering import Numbering, size_of
from app.privacy.partitions import Cell, JointCell, Partitions, Scope, narrowest

STATE_EVERY: Final = 1024
"""The sequence of an entry that states the state is a multiple of this."""
_FORM = 2  # of stated states of datasets; the first form has no number

_READ_AT_ONCE = 100
_CHECKED_AT_ONCE = 1_000
_OF_TRANSACTION = "ledger states"

_OF_PROCESS = "states"
_keeping = Lock()  # an LRUCache moves what is read
_STATE_BYTES = 2_500  # measured, as the next two
_ITEM_BYTES = 400
_CELL_BYTES = 48

_log = logging.getLogger(__name__)


class Source(NamedTuple):
    """The entry that reserved an amount on a scope, the key that caused it, and the number of cells that it lists."""

    sequence: int
    actor: str
    n_listed: int


@dataclass
class State:
    """The state of an account after its first entries.

    Attributes:
        account_id: of a dataset or a population.
        sequence: of the last entry; with ``hash`` the head of the chain.
        cap: in force now.
        highest_cap: the cap that guarantees state (:func:`app.ledger.accounts.change_cap`).
        facts: as the first entry states them (:func:`facts_of`).
        totals: charged and reserved amounts of a scope, by its digest; no scope without an amount.
        scopes: the scopes of ``totals``, by digest.
        sources: of each of these scopes, the newest entry that reserved an amount on it.
        uploads: those that entries named in their details, in the order of the entries; a scope may be the first n.
        scopes_size: the number of these scopes plus the number of cells that they list.
        deltas: charged δ of a scope, by its digest, in steps of 10⁻¹⁸.
        reservations: open reservations, as (job or reservation, digest of the scope, amount).
        loads: of a population, the load of each member.
        widened: of a dataset, the amounts of scopes in the cells of the one partition of which a scope covers the
            smallest share.
        population_id: the population whose entries state that the dataset joined it.
    """

    account_id: str
    sequence: int = 0
    hash: str = FIRST_PREVIOUS_HASH
    cap: int = 0
    highest_cap: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    scopes: dict[str, Scope] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    uploads: tuple[str, ...] = ()
    scopes_size: int = 0
    deltas: dict[str, int] = field(default_factory=dict)
    reservations: Counter[tuple[str | None, str, int]] = field(default_factory=Counter)
    loads: dict[str, int] = field(default_factory=dict)
    widened: dict[tuple[str, Cell], int] = field(default_factory=dict)
    population_id: str | None = None
    _numbering: Numbering | None = None
    _newest_range: tuple[StatedScope, str, Scope] | None = None

    def copy(self) -> Self:
        """A state that can be advanced while threads read this one."""
        fields = {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}
        copies = {name: value.copy() for name, value in fields.items() if isinstance(value, dict) and name != "facts"}
        return type(self)(**fields | copies)

    @kept_property
    def budget(self) -> AccountState:
        """The state as admissions of a dataset's account read it; nobody advances the state afterwards."""
        partitions = self.partitions
        scopes = self._numbered(partitions)
        return AccountState(self.cap, self.highest_cap, partitions, scopes, self.totals, bound=self.bound)

    @property
    def bound(self) -> int:
        """What no joint cell exceeds, so that most admissions need not find the tightest cell.

        The bound depends on the entries alone, and not on what a process has computed before: so the verifier has it,
        too, and can check every admission that it decides (docs/proofs/lemmas.md, Theorem L).
        """
        largest: Counter[str] = Counter()
        for (name, _), amount in self.widened.items():
            largest[name] = max(largest[name], amount)
        return largest.total()

    @kept_property
    def _n_cells(self) -> dict[str, int]:
        return self.partitions.n_cells

    @property
    def partitions(self) -> Partitions:
        """The partitions of a dataset's account; a population has none."""
        return Partitions.from_json(self.facts.get("partitions", []))

    @property
    def accountant(self) -> str:
        """The name of the accountant."""
        return str(self.facts["accountant"])

    def admits_cells(self, key_id: str, scopes: Sequence[Scope]) -> bool:
        """Whether entries may list the cells of some scopes for a key: as many as it leaves for others to list.

        So no key closes an account to further scopes of others. What has an amount already, and a range of uploads,
        lists no further cells.
        """
        added = [self.as_stated(scope, names=True)[0] for scope in scopes if digest_of(scope) not in self.totals]
        n_added = sum(map(tables.n_listed, added))
        if not n_added:
            return True
        n_listed = n_added + sum(source.n_listed for source in self.sources.values())
        n_of_key = n_added + sum(source.n_listed for source in self.sources.values() if source.actor == key_id)
        return n_of_key <= limits.MAX_LISTED_CELLS - n_listed

    def as_stated(self, scope: Scope, *, names: bool) -> tuple[dict[str, Any], list[str]]:
        """A scope as the next entry states it, and the uploads that the entry has to name for that.

        Args:
            scope: in normal form.
            names: whether the entry may name uploads; otherwise a range consists of uploads that entries have named.
        """
        stated: dict[str, Any] = {name: list(cells) for name, cells in scope.items()}
        by_upload = (part["name"] for part in self.facts.get("partitions", ()) if part["kind"] == "epoch")
        name = next(by_upload, "")
        cells = stated.get(name, [])
        known = self.uploads[: len(cells)]
        added = sorted(set(cells).difference(known))
        begins_with_known = len(added) == len(cells) - len(known)
        if len(cells) < limits.MIN_RANGE_UPLOADS or not begins_with_known or (added and not names):
            return stated, []
        return {**stated, name: len(cells)}, added

    def tightest_delta(self, scope: Scope) -> "CellDelta":
        """The joint cell of a scope with the largest charged δ."""
        partitions = self.partitions
        boxes = self._numbered(partitions).boxes(list(self.deltas), self.deltas.values())
        largest = Loads(partitions, boxes, inside=scope).largest()
        return CellDelta(largest.cell, largest.load, largest.is_exact)

    def _numbered(self, partitions: Partitions) -> Numbering:
        """The scopes of the state, as copies of the state share them: a digest never denotes another scope.

        Scopes of jobs that were cancelled stay numbered, at most until they are more than those of the state: a
        caller may reserve and cancel without end. The comparison comes first, so that copies which are rolled back
        add nothing more to a numbering that is too large.
        """
        known = self._numbering
        missing: Set[str] = self.scopes.keys() if known is None else known.missing(self.scopes.keys())
        if known is None or (missing and known.size > 2 * self.scopes_size):
            known, missing = Numbering(partition.name for partition in partitions.declared), self.scopes.keys()
        for digest in missing:
            known.add(digest, self.scopes[digest])
        self._numbering = known
        return known

    def take(self, entry: Entry) -> None:
        """Advances the state by the next entry, as it was read.

        Raises:
            BalanceMismatch: the entry does not continue the chain, or cannot follow the entries before it.
        """
        self._require(entry.sealed().hash == entry.hash)
        self.apply(entry)

    def apply(self, entry: Entry) -> None:
        """Advances the state by the next entry, which was just sealed; see :meth:`take`."""
        self._require(entry.sequence == self.sequence + 1 and entry.previous_hash == self.hash)
        self._require((entry.kind is EntryKind.OPEN) == (entry.sequence == 1))
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
            case _ if self.account_id == CONTROL_CHAIN:
                pass  # acts have no balance
            case EntryKind.STATE:
                form = (entry.details or {}).get("state")
                # No process starts at a state of the first form, so only the verifier compares it.
                self._require(_is_of_first_form(form) or form == self.to_json())
            case _:
                self._step_reservation(entry)
        self.sequence, self.hash = entry.sequence, entry.hash

    def _require(self, holds: bool) -> None:
        if not holds:
            raise mismatch(self.account_id, "chain")

    def _set_opening_load(self, entry: Entry) -> None:
        self._require(entry.sequence == OPENING_LOAD_SEQUENCE)
        continued = (entry.details or {})["continues"]
        self.highest_cap = max(self.cap, steps_down(Fraction(continued["highest_cap"]), entry.places))
        self._add(digest_of({}), {}, charged=entry.amount, delta=delta_steps(continued.get("delta")))
        self.sources[digest_of({})] = Source(entry.sequence, entry.actor, 0)

    def _set_load(self, entry: Entry) -> None:
        member = (entry.details or {})["member"]
        self._require((member["dataset"] in self.loads) == (entry.kind is EntryKind.LOAD))
        self.loads[member["dataset"]] = entry.amount
        if (erased := member.get("continues")) is not None:  # its load is part of the new member's
            self._require(self.loads.get(erased) == entry.amount)
            self.loads[erased] = 0
        elif entry.kind is EntryKind.JOIN and entry.amount and self.accountant != pure.NAME:
            self.highest_cap += steps_down(Fraction(member["highest_cap"]), entry.places)

    def _step_reservation(self, entry: Entry) -> None:
        if entry.kind is EntryKind.RESERVE:
            self._name_uploads((entry.details or {}).get("uploads", ()))
        digest, scope = self._listed(entry.scope)
        reservation = (entry.job_id, digest, entry.amount)
        if entry.kind is EntryKind.RESERVE:
            self.reservations[reservation] += 1
            self._add(digest, scope, reserved=entry.amount)
            self.sources[digest] = Source(entry.sequence, entry.actor, tables.n_listed(entry.scope))
            return
        self._require(self.reservations[reservation] > 0)
        self.reservations[reservation] -= 1
        if not self.reservations[reservation]:
            del self.reservations[reservation]
        if entry.kind is EntryKind.CHARGE:
            delta = delta_steps((entry.details or {}).get("delta"))
            self._add(digest, scope, charged=entry.amount, reserved=-entry.amount, delta=delta)
            return
        self._add(digest, scope, reserved=-entry.amount)

    def _name_uploads(self, uploads: Sequence[str]) -> None:
        self.uploads = (*self.uploads, *uploads) if uploads else self.uploads
        self._require(len(set(self.uploads)) == len(self.uploads))

    def _listed(self, stated: StatedScope) -> tuple[str, Scope]:
        """The digest of a scope, and its cells. All steps of a job state one range; its digest takes a millisecond."""
        if self._newest_range is not None and self._newest_range[0] == stated:
            return self._newest_range[1:]
        n_uploads = [cells for cells in stated.values() if isinstance(cells, int)]
        self._require(all(n <= len(self.uploads) for n in n_uploads))
        scope = tables.listed(stated, self.uploads)
        digest = digest_of(scope)
        if n_uploads:
            self._newest_range = stated, digest, scope
        return digest, scope

    def _add(self, digest: str, scope: Scope, *, charged: int = 0, reserved: int = 0, delta: int = 0) -> None:
        if digest not in self.scopes:
            self.scopes_size += size_of(scope)
        before = self.totals.get(digest, (0, 0))
        self.totals[digest], self.scopes[digest] = (before[0] + charged, before[1] + reserved), scope
        if delta:
            self.deltas[digest] = self.deltas.get(digest, 0) + delta
        if not any(self.totals[digest]):
            del self.totals[digest], self.scopes[digest]
            self.sources.pop(digest, None)
            self.scopes_size -= size_of(scope)
        if moved := charged + reserved:
            name = narrowest(scope, self._n_cells)
            for cell in scope.get(name, ("",)):
                self.widened[name, cell] = self.widened.get((name, cell), 0) + moved

    def to_json(self) -> dict[str, Any]:
        """The state in public JSON form, as an entry of the kind ``state`` has it."""
        places = accountants.by_name(self.accountant).PLACES

        def text(steps: int) -> str:
            return amounts.from_steps(steps, places)

        form = {"facts": self.facts, "cap": text(self.cap), "highest_cap": text(self.highest_cap)}
        if "population" in self.facts:
            return {**form, "loads": {member: text(load) for member, load in self.loads.items()}}
        return {
            **form,
            "form": _FORM,
            "facts": _digest_of_facts(self.facts),
            "uploads": list(self.uploads),
            "totals": [
                {
                    "scope": digest,
                    "entry": self.sources[digest].sequence,
                    "charged": text(charged),
                    "reserved": text(reserved),
                    "delta": delta_text(self.deltas.get(digest, 0)),
                }
                for digest, (charged, reserved) in sorted(self.totals.items())
            ],
            "reservations": [
                {"job_id": job_id, "scope": digest, "amount": text(amount)}
                for job_id, digest, amount in sorted(self.reservations.elements(), key=str)
            ],
        }

    @classmethod
    def stated_by(cls, session: Session, row: AccountRow, entry: Entry) -> Self:
        """The state that an entry of an account states.

        The entries that it names are not compared with their hashes: the digests of their scopes are. A changed actor
        changes only whose share of the listed cells a scope takes.

        Raises:
            BalanceMismatch: the entry does not have its hash, or states other facts than the row or the named entries.
        """
        state = cls(row.id, entry.sequence, entry.hash, facts=facts_of(row))
        state._require(entry.sealed().hash == entry.hash)
        form = (entry.details or {})["state"]

        def steps(text: str) -> int:
            return steps_down(Fraction(text), entry.places)

        state.cap, state.highest_cap = steps(form["cap"]), steps(form["highest_cap"])
        state.loads = {member: steps(load) for member, load in form.get("loads", {}).items()}
        if form["facts"] != (state.facts if "loads" in form else _digest_of_facts(state.facts)):
            raise mismatch(row.id, "facts")
        state._name_uploads(form.get("uploads", ()))
        totals = form.get("totals", ())
        named = _named_entries(session, row.id, [total["entry"] for total in totals])
        for total in totals:
            stated, actor = named.get(total["entry"], ({}, ""))
            digest, scope = state._listed(stated)
            state._require(digest == total["scope"])
            charged, reserved, delta = steps(total["charged"]), steps(total["reserved"]), delta_steps(total["delta"])
            state._add(digest, scope, charged=charged, reserved=reserved, delta=delta)
            state.sources[digest] = Source(total["entry"], actor, tables.n_listed(stated))
        for reservation in form.get("reservations", ()):
            digest = sys.intern(reservation["scope"])
            state.reservations[reservation["job_id"], digest, steps(reservation["amount"])] += 1
        return state


def _is_of_first_form(form: dict[str, Any] | None) -> bool:
    """Whether a state of a dataset lists the cells of its scopes, as earlier versions stated it."""
    return form is not None and "loads" not in form and "form" not in form


def _digest_of_facts(facts: dict[str, Any]) -> str:
    return hashlib.sha256(rfc8785.dumps(facts)).hexdigest()


def _named_entries(session: Session, account_id: str, sequences: Sequence[int]) -> dict[int, tuple[StatedScope, str]]:
    """The scopes that some entries of an account state, each with the actor, by sequence."""
    columns = EntryRow.sequence, EntryRow.scope, EntryRow.actor
    named: dict[int, tuple[StatedScope, str]] = {}
    for first in range(0, len(sequences), _CHECKED_AT_ONCE):
        chosen = EntryRow.sequence.in_(sequences[first : first + _CHECKED_AT_ONCE])
        query = select(*columns).where(EntryRow.account_id == account_id, chosen)
        named |= {row.sequence: (row.scope, row.actor) for row in session.execute(query)}
    return named


def facts_of(row: AccountRow) -> dict[str, Any]:
    """The facts of a dataset's or a population's account.

    A population has no adjacency, privacy unit and partitions; its members have. ``delta_set_aside`` is present only
    where a part of δ is set aside.
    """
    if row.privacy_unit is None:
        return {"population": row.id, "accountant": row.accountant, "delta": row.delta}
    facts = {
        "dataset": row.id,
        "accountant": row.accountant,
        "delta": row.delta,
        "adjacency": row.adjacency,
        "privacy_unit": row.privacy_unit,
        "partitions": row.partitions,
    }
    return facts if row.delta_set_aside is None else {**facts, "delta_set_aside": row.delta_set_aside}


@dataclass(frozen=True)
class CellDelta:
    """One joint cell and the δ that was charged there, in steps of 10⁻¹⁸; where not ``is_exact``, an upper bound for
    every joint cell."""

    cell: JointCell
    charged: int
    is_exact: bool


def mismatch(account_id: str, part: str) -> BalanceMismatch:
    """The refusal of an account whose rows contradict each other, after the operator is told."""
    _log.error("an account differs from its entries", extra={"account_id": account_id, "problem": part})
    return BalanceMismatch(account_id, part)


def state_of(session: Session, row: AccountRow) -> State:
    """The state of an account after all entries up to the head of its row, or newer. Nobody may change it.

    A transaction that does not lock the row may read it shortly before an entry that the process has read already.

    Raises:
        BalanceMismatch: the entries do not follow each other up to the head, or the facts in the row are not those of
            the first entry.
    """
    own = _of_transaction(session).get(row.id)
    if own is not None and own.hash == row.last_hash:
        return own
    state = _kept(session, row.id)
    is_behind = state is None or state.sequence < row.last_sequence
    if state is None or is_behind or (state.sequence == row.last_sequence and state.hash != row.last_hash):
        state = _caught_up(session, row, state if is_behind else None)
        _keep(session, state)
    if facts_of(row) != state.facts:
        raise mismatch(row.id, "facts")
    return state


def require_declared(session: Session, row: AccountRow, facts: Mapping[str, Any]) -> None:
    """Compares facts that a dataset's row repeats with those of the account's first entry.

    Prices, uploads and reads of rows follow the dataset's row, which no hash holds.

    Raises:
        BalanceMismatch: they differ.
    """
    declared = state_of(session, row).facts
    if any(declared.get(name) != fact for name, fact in facts.items()):
        raise mismatch(row.id, "declaration")


@dataclass(frozen=True)
class NewEntry:
    """The content of an entry without its position in the chain; see :class:`app.ledger.tables.Entry`."""

    kind: EntryKind
    amount: int
    _: KW_ONLY
    actor: str
    scope: dict[str, Any] = field(default_factory=dict)
    event: dict[str, Any] | None = None
    job_id: str | None = None
    details: dict[str, Any] | None = None


def of_reservation(kind: EntryKind, reservation: ReservationRow, *, actor: str) -> NewEntry:
    """The entry of one step of a reservation: every step repeats its amount, scope, event, job and details.

    The reservation's id links the entries of an external mechanism, which has no job.
    """
    return NewEntry(
        kind,
        reservation.amount,
        actor=actor,
        scope=reservation.scope,
        event=reservation.event,
        job_id=reservation.job_id or reservation.id,
        details=reservation.details,
    )


def is_intact(session: Session, account_id: str) -> bool:
    """Whether every entry of an account, from the first on, follows the entries before it, up to the head."""
    row = tables.account(session, account_id)
    after = State(account_id)
    while entries := tables.entries(session, account_id, after=after.sequence, limit=_CHECKED_AT_ONCE):
        for entry in entries:
            try:
                after.take(entry)
            except BalanceMismatch:
                return False
        session.expunge_all()
    return (row.last_sequence, row.last_hash) == (after.sequence, after.hash)


def append(session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = "") -> Entry:
    """Writes the next entry of an account whose row the caller has locked; returns it with its hash."""
    entries = extend(session, row, new_entry, not_before=not_before)
    write(session, entries)
    return entries[0][1]


def extend(session: Session, row: AccountRow, new_entry: NewEntry, *, not_before: str = "") -> list[tuple[str, Entry]]:
    """Seals the next entry of an account and moves its state and its head, in memory; the caller writes the entry and
    the head before the commit (:func:`app.ledger.tables.insert_entries`).

    Args:
        session: of the transaction, whose time the entry states.
        row: the account, which the caller has locked.
        new_entry: the content of the entry.
        not_before: a time in another account's chain that the entry follows, whatever the clock says.

    Returns:
        The entry and, at its turn, the entry that states the state after it, each with the id of the account.
    """
    scope, details = new_entry.scope, new_entry.details
    if scope:
        names = new_entry.kind is EntryKind.RESERVE
        scope, uploads = state_of(session, row).as_stated(scope, names=names)
        details = {**(details or {}), "uploads": uploads} if uploads else details
    entry = Entry(
        sequence=row.last_sequence + 1,
        kind=new_entry.kind,
        amount=new_entry.amount,
        scope=scope,
        event=new_entry.event,
        job_id=new_entry.job_id,
        actor=new_entry.actor,
        at=max(stamps.to_text(transaction_time(session)), row.last_at, not_before),  # the clock may have stepped back
        previous_hash=row.last_hash,
        places=accountants.by_name(row.accountant).PLACES,
        details=details or None,
    ).sealed()
    after = None if row.id == CONTROL_CHAIN else _advanced(session, row, entry)
    for name, value in tables.head_after(entry).items():
        set_committed_value(row, name, value)  # the database gets the head together with the entries
    if after is None or (entry.sequence + 1) % STATE_EVERY:
        return [(row.id, entry)]
    stated = NewEntry(EntryKind.STATE, 0, actor=new_entry.actor, details={"state": after.to_json()})
    return [(row.id, entry), *extend(session, row, stated, not_before=entry.at)]


def write(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes sealed entries, each with the id of its account, the heads of the accounts, and complete subtrees."""
    session.flush()  # a new account
    tables.insert_entries(session, entries)
    complete_subtrees(session, entries)


def complete_subtrees(session: Session, entries: Sequence[tuple[str, Entry]]) -> None:
    """Writes the subtrees that entries complete, which were written in the same transaction."""
    for account_id, entry in entries:
        Log(session, account_id).complete(entry.sequence)


def _advanced(session: Session, row: AccountRow, entry: Entry) -> State:
    """Advances the state of a locked account by an entry that the transaction is about to write; returns the state."""
    state = State(row.id) if entry.sequence == 1 else state_of(session, row)
    states = _of_transaction(session)
    if state is not states.get(row.id) or "budget" in vars(state):  # somebody reads it
        state = states[row.id] = state.copy()
    state.apply(entry)
    return state


def _kept(session: Session, account_id: str) -> State | None:
    """The state of an account that this process keeps, if it does; any other is read from the entries again."""
    with _keeping:
        return _states(session).get(account_id)


def _keep(session: Session, state: State) -> None:
    """Keeps a state; those that were used least recently make room."""
    with _keeping:
        _states(session)[state.account_id] = state


def _states(session: Session) -> LRUCache[str, State]:
    kept: dict[str, LRUCache[str, State]] = session.info.setdefault(KEPT, {})
    return kept.setdefault(_OF_PROCESS, LRUCache(limits.MAX_KEPT_STATE_BYTES, getsizeof=_size))


def _size(state: State) -> int:
    """Approximate bytes of memory of a state and of its numbering: its facts list cells, and so do its scopes.

    A large account counts as half of what is kept, so that it does not displace all others at every use.
    """
    listed = [partition["cells"] for partition in state.facts.get("partitions", ()) if partition["kind"] == "column"]
    declared = [sys.getsizeof(cell) for cells in listed for cell in cells]
    n_items = len(state.totals) + len(state.reservations) + len(state.loads) + len(state.widened)
    n_cells = len(declared) + state.scopes_size
    of_cells = n_cells * (_CELL_BYTES + max(declared, default=0))
    return min(_STATE_BYTES + n_items * _ITEM_BYTES + of_cells, limits.MAX_KEPT_STATE_BYTES // 2)


def _of_transaction(session: Session) -> dict[str, State]:
    """The states after entries that the transaction has written, which no other transaction may see."""
    states: dict[str, State] = session.info.setdefault(_OF_TRANSACTION, {})
    return states


@event.listens_for(Session, "after_commit")
def _publish(session: Session) -> None:
    """Keeps the states of a committed transaction, so that the next one need not read its entries."""
    for state in session.info.pop(_OF_TRANSACTION, {}).values():
        known = _kept(session, state.account_id)
        if known is None or known.sequence < state.sequence:
            _keep(session, state)


@event.listens_for(Session, "after_rollback")
def _forget(session: Session) -> None:
    session.info.pop(_OF_TRANSACTION, None)


def _caught_up(session: Session, row: AccountRow, known: State | None) -> State:
    """The state at the head of a row, from an older one; ``None``: from the newest state that an entry states."""
    batch = [] if known is None else _following(session, row, known.sequence)
    if known is None or not batch or batch[0].previous_hash != known.hash:  # another database stands at this address
        known = _stated(session, row)
        batch = _following(session, row, known.sequence)
    state = known.copy()
    while batch:
        for entry in batch:
            state.take(entry)
        batch = _following(session, row, state.sequence)
    if (state.sequence, state.hash) != (row.last_sequence, row.last_hash):
        raise mismatch(row.id, "head")
    return state


def _following(session: Session, row: AccountRow, sequence: int) -> Sequence[Entry]:
    n_entries = min(row.last_sequence - sequence, _READ_AT_ONCE)
    return tables.entries(session, row.id, after=sequence, limit=n_entries) if n_entries > 0 else []


def _stated(session: Session, row: AccountRow) -> State:
    """The newest state that an entry of an account states, or the state before its first entry."""
    query = select(EntryRow).where(EntryRow.account_id == row.id, EntryRow.kind == EntryKind.STATE.value)
    query = query.where(EntryRow.sequence <= row.last_sequence).order_by(EntryRow.sequence.desc()).limit(1)
    entries = tables.read_entries(session, row.id, query)
    is_usable = bool(entries) and not _is_of_first_form((entries[0].details or {}).get("state"))
    state = State.stated_by(session, row, entries[0]) if is_usable else State(row.id)
    if row.privacy_unit is not None:
        state.population_id = _population_by_entries(session, row.id)
    return state


def _population_by_entries(session: Session, account_id: str) -> str | None:
    """The population whose entries state that an account joined it."""
    joins = select(EntryRow.account_id, EntryRow.details).where(
        EntryRow.account_id.in_(select(PopulationRow.id)),
        EntryRow.kind == EntryKind.JOIN.value,
        EntryRow.job_id.is_(None),  # the index finds joins among the loads, which name jobs
        type_coerce(EntryRow.details, Text).contains(account_id, autoescape=True),
    )
    # All rows: on SQLite, a cursor with rows left keeps its snapshot, which the connection's next transaction reads.
    for population_id, details in session.execute(joins).all():
        if details["member"]["dataset"] == account_id:
            return str(population_id)
    return None

"""Defines the state of an account after its first entries, and how an entry advances
it.

The fold of the entries is the only source of balances, quotes and admissions: no row of
the database but the entries says what was spent. A state is identified by the hash of
its last entry, which fixes all entries before it. Nobody changes a state that others
may read: the state after further entries is another object. One field is set once, when
a dataset has joined a population, whose entries say so (``_read_accounts`` of
:mod:`app.ledger.reservations`).

A state can be stated in an entry, so that a long history starts fast. Such an entry
names each scope by its digest and by an entry that states the scope, so that its size
does not depend on the cells (docs/adr/0051).
"""

import hashlib
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple, Self

import rfc8785

from app.core import limits
from app.core.errors import BalanceMismatch
from app.ledger import tables
from app.ledger.admission import AccountState
from app.ledger.tables import (
    CONTROL_CHAIN,
    FIRST_PREVIOUS_HASH,
    OPENING_LOAD_SEQUENCE,
    AccountRow,
    Entry,
    EntryKind,
    StatedScope,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import amounts
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import delta_steps, delta_text, pure
from grovekeeper_forests.privacy.accountants.accountant import steps_down
from grovekeeper_forests.privacy.joint_loads import Loads
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Cell, JointCell, Scope

_FORM: Final = 2  # of stated states of datasets; the first form has no number

_log = logging.getLogger(__name__)


class Source(NamedTuple):
    """The entry that reserved an amount on a scope, the key that caused it, and the
    number of cells that it lists.
    """

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
        highest_cap: the cap that guarantees state
            (:func:`app.ledger.accounts.change_cap`).
        facts: as the first entry states them (:func:`facts_of`).
        totals: charged and reserved amounts of a scope, by its digest; no scope without
            an amount.
        scopes: the scopes of ``totals``, by digest.
        sources: of each of these scopes, the newest entry that reserved an amount on
            it.
        uploads: those that entries named in their details, in the order of the entries;
            a scope may be the first n.
        scopes_size: the number of these scopes plus the number of cells that they list.
        deltas: charged δ of a scope, by its digest, in steps of 10⁻¹⁸.
        reservations: open reservations, as (job or reservation, digest of the scope,
            amount).
        loads: of a population, the load of each member.
        widened: of a dataset, the amounts of scopes in the cells of the one partition
            of which a scope covers the smallest share.
        population_id: the population whose entries state that the dataset joined it.
    """

    account_id: str
    sequence: int = 0
    hash: str = FIRST_PREVIOUS_HASH
    cap: int = 0
    highest_cap: int = 0
    facts: JsonObject = field(default_factory=dict)
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
    _partitions: Partitions | None = None
    _numbering: Numbering | None = None
    _newest_range: tuple[StatedScope, Scope] | None = None

    @kept_property
    def budget(self) -> AccountState:
        """The state as admissions of a dataset's account read it."""
        partitions = self.partitions
        scopes = self._numbered(partitions)
        return AccountState(
            self.cap,
            self.highest_cap,
            partitions,
            scopes,
            self.totals,
            bound=self.bound,
        )

    @property
    def bound(self) -> int:
        """What no joint cell exceeds, so that most admissions need not find the
        tightest cell.

        The bound depends on the entries alone, and not on what a process has computed
        before: so the verifier has it, too, and can check every admission that it
        decides (docs/proofs/lemmas.md, Theorem L).
        """
        largest: Counter[str] = Counter()
        for (name, _), amount in self.widened.items():
            largest[name] = max(largest[name], amount)
        return largest.total()

    @property
    def partitions(self) -> Partitions:
        """The partitions of a dataset's account; a population has none."""
        if self._partitions is None:
            self._partitions = Partitions.from_json(self.facts.get("partitions", []))
        return self._partitions

    @property
    def accountant(self) -> str:
        """The name of the accountant."""
        return str(self.facts["accountant"])

    def admits_cells(self, key_id: str, scopes: Sequence[Scope]) -> bool:
        """Whether entries may list the cells of some scopes for a key: as many as it
        leaves for others to list.

        So no key closes an account to further scopes of others. What has an amount
        already, and a range of uploads, lists no further cells.
        """
        added = [
            self.as_stated(scope, names=True)[0]
            for scope in scopes
            if scope.digest not in self.totals
        ]
        n_added = sum(map(tables.n_listed, added))
        if not n_added:
            return True
        n_listed = n_added + sum(source.n_listed for source in self.sources.values())
        n_of_key = n_added + sum(
            source.n_listed
            for source in self.sources.values()
            if source.actor == key_id
        )
        return n_of_key <= limits.MAX_LISTED_CELLS - n_listed

    def as_stated(self, scope: Scope, *, names: bool) -> tuple[JsonObject, list[str]]:
        """A scope as the next entry states it, and the uploads that the entry has to
        name for that.

        Args:
            scope: of the entry.
            names: whether the entry may name uploads; otherwise a range consists of
                uploads that entries have named.
        """
        stated = scope.to_json()
        by_upload = (
            part["name"]
            for part in self.facts.get("partitions", ())
            if part["kind"] == "epoch"
        )
        name = next(by_upload, "")
        cells = stated.get(name, [])
        if len(cells) < limits.MIN_RANGE_UPLOADS:
            return stated, []
        known = self.uploads[: len(cells)]
        added = sorted(set(cells).difference(known))
        # A range is the first n uploads that entries have named: all of ``known``, and
        # then only what this entry names.
        begins_with_known = len(added) == len(cells) - len(known)
        if not begins_with_known or (added and not names):
            return stated, []
        return {**stated, name: len(cells)}, added

    def tightest_delta(self, scope: Scope) -> "CellDelta":
        """The joint cell of a scope with the largest charged δ."""
        partitions = self.partitions
        boxes = self._numbered(partitions).boxes(self.deltas, self.deltas.values())
        largest = Loads(partitions, boxes, inside=scope).largest()
        return CellDelta(largest.cell, largest.load, largest.is_exact)

    def _numbered(self, partitions: Partitions) -> Numbering:
        """The scopes of the state, as copies of the state share them: a digest never
        denotes another scope.

        Scopes of jobs that were cancelled stay numbered, at most until they are more
        than those of the state: a caller may reserve and cancel without end. The
        comparison comes first, so that copies which are rolled back add nothing more to
        a numbering that is too large.
        """
        known = self._numbering
        missing: Set[str] = (
            self.scopes.keys() if known is None else known.missing(self.scopes.keys())
        )
        if known is None or (missing and known.size > 2 * self.scopes_size):
            known, missing = (
                Numbering(partition.name for partition in partitions.declared),
                self.scopes.keys(),
            )
        for digest in missing:
            known.add(digest, self.scopes[digest])
        self._numbering = known
        return known

    def advanced(self, entries: Iterable[Entry]) -> Self:
        """The state after the next entries. Their hashes are believed: the caller has just
        sealed them, or compared them with the content.

        Raises:
            BalanceMismatch: an entry does not continue the chain, or cannot follow the
                entries before it.
        """
        after = self._copy()
        for entry in entries:
            after._apply(entry)
        return after

    def _copy(self) -> Self:
        fields = {
            name: value
            for name, value in vars(self).items()
            if name in self.__dataclass_fields__
        }
        copies = {
            name: value.copy()
            for name, value in fields.items()
            if isinstance(value, dict) and name != "facts"
        }
        return type(self)(**fields | copies)

    def _apply(self, entry: Entry) -> None:
        self._require(
            entry.sequence == self.sequence + 1 and entry.previous_hash == self.hash
        )
        self._require((entry.kind is EntryKind.OPEN) == (entry.sequence == 1))
        match entry.kind:
            case EntryKind.OPEN:
                self.cap = self.highest_cap = entry.amount
                self.facts, self._partitions = entry.details or {}, None
            case EntryKind.CAP:
                # Earlier versions closed an account twice, if it was restored twice.
                self._require(self.cap > 0 or entry.amount == 0)
                is_used = bool(self.totals) or any(self.loads.values())
                self.cap = entry.amount
                # A cap of 0 closes an account whose lost entries may have spent
                # anything.
                keeps_highest = is_used or entry.amount == 0
                self.highest_cap = (
                    max(self.highest_cap, entry.amount)
                    if keeps_highest
                    else entry.amount
                )
            case EntryKind.LOAD if "continues" in (entry.details or {}):
                self._set_opening_load(entry)
            case EntryKind.JOIN | EntryKind.LOAD:
                self._set_load(entry)
            case _ if self.account_id == CONTROL_CHAIN:
                pass  # acts have no balance
            case EntryKind.STATE:
                form = (entry.details or {}).get("state")
                # No process starts at a state of the first form, so only the verifier
                # compares it.
                self._require(is_of_first_form(form) or form == self.to_json())
            case _:
                self._step_reservation(entry)
        self.sequence, self.hash = entry.sequence, entry.hash

    def _require(self, holds: bool) -> None:
        if not holds:
            raise mismatch(self.account_id, "chain")

    def _set_opening_load(self, entry: Entry) -> None:
        self._require(entry.sequence == OPENING_LOAD_SEQUENCE)
        continued = (entry.details or {})["continues"]
        highest_before = steps_down(Fraction(continued["highest_cap"]), entry.places)
        self._require(entry.amount <= highest_before)
        self._require(self.cap <= highest_before)
        self.highest_cap = highest_before
        self._add(
            WHOLE, charged=entry.amount, delta=delta_steps(continued.get("delta"))
        )
        self.sources[WHOLE.digest] = Source(entry.sequence, entry.actor, 0)

    def _set_load(self, entry: Entry) -> None:
        member = (entry.details or {})["member"]
        self._require(
            (member["dataset"] in self.loads) == (entry.kind is EntryKind.LOAD)
        )
        self.loads[member["dataset"]] = entry.amount
        # its load is part of the new member's
        if (erased := member.get("continues")) is not None:
            self._require(self.loads.get(erased) == entry.amount)
            self.loads[erased] = 0
        elif (
            entry.kind is EntryKind.JOIN
            and entry.amount
            and self.accountant != pure.NAME
        ):
            # A late join: what the member spent was not counted when its jobs were
            # admitted here (docs/proofs/accounting.md, A8).
            self.highest_cap += steps_down(
                Fraction(member["highest_cap"]), entry.places
            )

    def _step_reservation(self, entry: Entry) -> None:
        if entry.kind is EntryKind.RESERVE:
            self._name_uploads((entry.details or {}).get("uploads", ()))
        scope = self._listed(entry.scope)
        reservation = (entry.job_id, scope.digest, entry.amount)
        if entry.kind is EntryKind.RESERVE:
            self.reservations[reservation] += 1
            self._add(scope, reserved=entry.amount)
            self.sources[scope.digest] = Source(
                entry.sequence, entry.actor, tables.n_listed(entry.scope)
            )
            return
        self._require(self.reservations[reservation] > 0)
        self.reservations[reservation] -= 1
        if not self.reservations[reservation]:
            del self.reservations[reservation]
        if entry.kind is EntryKind.CHARGE:
            delta = delta_steps((entry.details or {}).get("delta"))
            self._add(scope, charged=entry.amount, reserved=-entry.amount, delta=delta)
            return
        self._add(scope, reserved=-entry.amount)

    def _name_uploads(self, uploads: Sequence[str]) -> None:
        self.uploads = (*self.uploads, *uploads) if uploads else self.uploads
        self._require(len(set(self.uploads)) == len(self.uploads))

    def _listed(self, stated: StatedScope) -> Scope:
        """A scope that an entry states. All steps of a job state one range, whose
        digest takes a millisecond.
        """
        if self._newest_range is not None and self._newest_range[0] == stated:
            return self._newest_range[1]
        n_uploads = [cells for cells in stated.values() if isinstance(cells, int)]
        self._require(all(n <= len(self.uploads) for n in n_uploads))
        scope = tables.listed(stated, self.uploads)
        if n_uploads:
            self._newest_range = stated, scope
        return scope

    def _add(
        self, scope: Scope, *, charged: int = 0, reserved: int = 0, delta: int = 0
    ) -> None:
        digest, size = scope.digest, 1 + scope.n_cells
        if digest not in self.scopes:
            self.scopes_size += size
        before = self.totals.get(digest, (0, 0))
        self.totals[digest] = before[0] + charged, before[1] + reserved
        self.scopes[digest] = scope
        if delta:
            self.deltas[digest] = self.deltas.get(digest, 0) + delta
        if not any(self.totals[digest]):
            del self.totals[digest], self.scopes[digest]
            self.sources.pop(digest, None)
            self.scopes_size -= size
        # A charge of a reservation changes no load.
        if moved := charged + reserved:
            name = scope.narrowest(self.partitions.n_cells)
            for cell in scope.get(name, ("",)):
                self.widened[name, cell] = self.widened.get((name, cell), 0) + moved

    def to_json(self) -> JsonObject:
        """The state in public JSON form, as an entry of the kind ``state`` has it."""
        places = accountants.by_name(self.accountant).PLACES

        def text(steps: int) -> str:
            return amounts.from_steps(steps, places)

        form = {
            "facts": self.facts,
            "cap": text(self.cap),
            "highest_cap": text(self.highest_cap),
        }
        if "population" in self.facts:
            return {
                **form,
                "loads": {member: text(load) for member, load in self.loads.items()},
            }
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
                for job_id, digest, amount in sorted(
                    self.reservations.elements(), key=str
                )
            ],
        }

    @classmethod
    def stated_by(
        cls, row: AccountRow, entry: Entry, named: Mapping[int, tuple[StatedScope, str]]
    ) -> Self:
        """The state that an entry of an account states.

        Args:
            row: the account.
            entry: states the state; its hash is its own.
            named: scope and actor of each entry that ``entry`` names
                (:func:`named_by`). They are not compared with their hashes: the digests
                of their scopes are. A changed actor changes only whose share of the
                listed cells a scope takes.

        Raises:
            BalanceMismatch: the entry states other facts than the row or the named
                entries.
        """
        state = cls(row.id, entry.sequence, entry.hash, facts=facts_of(row))
        form = (entry.details or {})["state"]

        def steps(text: str) -> int:
            return steps_down(Fraction(text), entry.places)

        state.cap, state.highest_cap = steps(form["cap"]), steps(form["highest_cap"])
        state.loads = {
            member: steps(load) for member, load in form.get("loads", {}).items()
        }
        if form["facts"] != (
            state.facts if "loads" in form else _digest_of_facts(state.facts)
        ):
            raise mismatch(row.id, "facts")
        state._name_uploads(form.get("uploads", ()))
        for total in form.get("totals", ()):
            stated, actor = named.get(total["entry"], ({}, ""))
            scope = state._listed(stated)
            state._require(scope.digest == total["scope"])
            state._add(
                scope,
                charged=steps(total["charged"]),
                reserved=steps(total["reserved"]),
                delta=delta_steps(total["delta"]),
            )
            state.sources[scope.digest] = Source(
                total["entry"], actor, tables.n_listed(stated)
            )
        for reservation in form.get("reservations", ()):
            digest = sys.intern(reservation["scope"])
            state.reservations[
                reservation["job_id"], digest, steps(reservation["amount"])
            ] += 1
        return state


def is_of_first_form(form: JsonObject | None) -> bool:
    """Whether a state of a dataset lists the cells of its scopes, as earlier versions
    stated it.
    """
    return form is not None and "loads" not in form and "form" not in form


def named_by(entry: Entry) -> list[int]:
    """The sequences of the entries whose scopes a stated state names."""
    return [
        total["entry"] for total in (entry.details or {})["state"].get("totals", ())
    ]


def _digest_of_facts(facts: JsonObject) -> str:
    return hashlib.sha256(rfc8785.dumps(facts)).hexdigest()


def facts_of(row: AccountRow) -> JsonObject:
    """The facts of a dataset's or a population's account.

    A population has no adjacency, privacy unit and partitions; its members have.
    ``delta_set_aside`` is present only where a part of δ is set aside.
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
    if row.delta_set_aside is None:
        return facts
    return {**facts, "delta_set_aside": row.delta_set_aside}


@dataclass(frozen=True)
class CellDelta:
    """One joint cell and the δ that was charged there, in steps of 10⁻¹⁸; where not
    ``is_exact``, an upper bound for every joint cell.
    """

    cell: JointCell
    charged: int
    is_exact: bool


def mismatch(account_id: str, part: str) -> BalanceMismatch:
    """The refusal of an account whose rows contradict each other, after the operator is
    told.
    """
    _log.error(
        "an account differs from its entries",
        extra={"account_id": account_id, "problem": part},
    )
    return BalanceMismatch(account_id, part)

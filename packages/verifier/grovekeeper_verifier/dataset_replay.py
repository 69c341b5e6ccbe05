"""Replays a dataset's export line by line and stops at the first line that fails a
check.

Checks of every line: its form; its place in the chain (:mod:`.chain`); the life of
every charge (one reservation, then at most one of charge, void and expire, with equal
amount, scope, event and details); the header against the details of the first entry;
charged and reserved of every joint cell against the cap in force, after every
reservation; the recomputed price of every reservation against its amount; every stated
state. An account may continue that of an erased dataset: its opening load counts as
charged in every joint cell. With the export of the erased dataset, the opening load is
compared with the largest load of that account.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from grovekeeper_verifier import amounts, canonical_json, json_fields, prices
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.chain import (
    Broken,
    Chain,
    Link,
    check_open,
    check_reason,
    check_repeated,
    check_stated_state,
    is_of_first_form,
)
from grovekeeper_verifier.checkpoints import Checkpoint
from grovekeeper_verifier.dataset_export import (
    BOUND_FIELDS,
    SET_ASIDE,
    Continued,
    Entry,
    Header,
    Scope,
    read_continued,
    read_entry,
    read_header,
)
from grovekeeper_verifier.export_lines import Reading, check_logs
from grovekeeper_verifier.joint_cells import Balance, JointCells
from grovekeeper_verifier.largest_load import Largest

STATE_FORM = 2
"""The form of stated states; the first form has no number and lists the cells of every
scope.
"""
OPENING_LOAD_SEQUENCE = 2
"""The place of an opening load: it follows the opening."""
OPENING_LOAD_LINE = OPENING_LOAD_SEQUENCE + 1
"""Its line in an export, whose first line is the header."""


@dataclass(frozen=True)
class Summary:
    """The result of a verified export of a dataset.

    Attributes:
        header: the first line.
        kinds: number of entries of each kind.
        cap: in force at the end, in steps of the account's unit.
        highest_cap: the highest in force since the first reservation that was neither
            voided nor expired; the cap of the guarantee on accounts with a δ.
        attested: number of charges for external mechanisms, by the attester's key.
        tightest: the joint cell with the largest load at the end; no load is above the
            highest cap.
        last: the newest entry.
        checkpoints: of this log, all of which agree with the entries, the smallest
            first.
        continued: the account of an erased dataset that this account continues, if
            there is one.
        opening_load: what was spent there, in steps.
        compared: the result of the export of the erased dataset, if it was given.
    """

    header: Header
    kinds: dict[str, int]
    cap: int
    highest_cap: int
    attested: dict[str, int]
    tightest: Balance
    last: Link
    checkpoints: tuple[Checkpoint, ...]
    continued: Continued | None
    opening_load: int
    compared: "Summary | None" = None


def verify(
    lines: Iterable[bytes],
    checkpoints: Sequence[Checkpoint] = (),
    erased: "Sequence[Reading[Account]]" = (),
) -> Summary:
    """Verifies a dataset's export.

    Args:
        lines: the file's lines with line ends, as iteration over a binary file yields
            them.
        checkpoints: with valid signatures, to compare the entries with.
        erased: exports of the erased datasets whose accounts continue here, read up to
            their headers: of the account that this one continues, of the account that
            that one continues, and so on.
    """
    reading = read(lines, checkpoints)
    by_dataset = {each.account.header.dataset: each for each in erased}
    datasets = [each.account.header.dataset for each in (reading, *erased)]
    check_logs(checkpoints, datasets)
    return _compared(reading, by_dataset)


def _compared(
    reading: "Reading[Account]", erased: "dict[str, Reading[Account]]"
) -> Summary:
    """Verifies an export to its end, then the export of the erased dataset that its
    account continues.
    """
    summary = reading.read_to_the_end(reading.account.summary)
    before = None
    if summary.continued is not None:
        before = erased.pop(summary.continued.dataset, None)
    if before is None:
        for other in erased.values():
            with other.named(1):
                raise Broken(
                    "no account that was verified continues this dataset's account"
                )
        return summary
    largest = _followed(before)
    compared = _compared(before, erased)
    with reading.named(OPENING_LOAD_LINE):
        _check_opening_load(summary, before.account, compared, at_most=largest.load)
    return replace(summary, compared=compared)


def _followed(reading: "Reading[Account]") -> Largest:
    """Verifies the entries of an erased dataset, and follows the largest load as a
    population that it is in does.
    """
    largest = Largest(reading.account.cells)
    while reading.advance():
        assert reading.account.last is not None, "the loop has read one"
        largest.follow(reading.account.last)
        largest.refine()
    return largest


def _check_opening_load(
    summary: Summary, before: "Account", compared: Summary, *, at_most: int
) -> None:
    """Compares an opening load with the complete export of the erased dataset.

    Args:
        at_most: what no joint cell of the erased dataset's account exceeds.
    """
    continued, header, erased = summary.continued, summary.header, compared.header
    assert continued is not None, "the caller has compared the names"
    if compared.last.sequence < continued.sequence:
        ends, names = compared.last.sequence, continued.sequence
        raise Broken(
            f"the export of {erased.dataset} is too short: it ends with entry {ends}, and entry {names} was its last"
        )
    for field, stated, actual in (
        ("accountant", header.accountant, erased.accountant),
        ("delta", header.delta, erased.delta),
        ("delta_set_aside", header.delta_set_aside, erased.delta_set_aside),
        ("adjacency", header.adjacency, erased.adjacency),
        ("unit column", header.unit_column, erased.unit_column),
        (
            "form of the unit column",
            header.unit_form if erased.unit_form else None,
            erased.unit_form,
        ),
        ("sequence", continued.sequence, compared.last.sequence),
        ("hash", continued.hash, compared.last.hash),
        ("highest_cap", continued.highest_cap, compared.highest_cap),
    ):
        if stated != actual:
            raise Broken(
                f"the opening load states another {field} than the ledger of {erased.dataset}"
            )
    if compared.tightest.reserved or before.has_reservations:
        raise Broken(
            f"the account of {erased.dataset} has reservations that were not given back"
        )
    load, delta = min(compared.tightest.load, at_most), before.tightest_delta
    # Where jobs restrict several partitions, the service may state a bound above the
    # largest load.
    exact = not before.cells.has_several
    if not load <= summary.opening_load or (exact and load != summary.opening_load):
        compared.tightest.require_exact()
        stated, actual = header.text(summary.opening_load), header.text(load)
        raise Broken(
            f"the opening load is {stated}, and the ledger of {erased.dataset} ends with {actual}"
        )
    if not delta.load <= continued.delta or (exact and delta.load != continued.delta):
        delta.require_exact()
        raise Broken(
            f"the opening load states another charged delta than the ledger of {erased.dataset}"
        )


def read(
    lines: Iterable[bytes],
    checkpoints: Sequence[Checkpoint],
    *,
    file: str | None = None,
) -> "Reading[Account]":
    """Opens an export for verification line by line."""
    return Reading(
        lines,
        lambda header: Account(read_header(header), header, checkpoints),
        file=file,
    )


class Account:
    """A dataset's account after the entries up to the newest."""

    def __init__(
        self, header: Header, first_line: Json, checkpoints: Sequence[Checkpoint]
    ) -> None:
        self.header = header
        self.chain = Chain(header.dataset, checkpoints)
        self.cells = JointCells(header.partitions)
        self.cap = self.highest_cap = 0
        self.last: Entry | None = None
        self._first_line = first_line
        self._partitions = {
            partition.name: partition for partition in header.partitions
        }
        self._deltas = JointCells(header.partitions)
        self._uploads: tuple[str, ...] = ()
        self._sources: dict[Scope, int] = {}
        self._digests: dict[Scope, str] = {}
        self._continued: Continued | None = None
        self._opening_load = 0
        self._n_living = 0
        self._attested: Counter[str] = Counter()
        self._reserved: dict[str, tuple[Entry, ...]] = {}
        self._settled: dict[str, str] = {}
        self._charged: Counter[Scope] = Counter()
        self._charged_delta: Counter[Scope] = Counter()

    def take(self, value: Json) -> None:
        """Checks one entry against the entries before it, and applies it."""
        entry = read_entry(
            value, self._partitions, places=self.header.places, uploads=self._uploads
        )
        self.chain.take(entry, value)
        self._uploads += entry.uploads
        match entry.kind:
            case "open":
                self._open(entry)
            case "load":
                self._continue(entry)
            case "cap":
                self._change_cap(entry)
            case "state":
                is_first_form = is_of_first_form(entry.details)
                state = self._first_state() if is_first_form else self._state()
                check_stated_state(entry, state)
            case "reserve":
                self._reserve(entry)
            case _:
                self._settle(entry)
        self.last = entry

    def summary(self) -> Summary:
        """The result of the entries up to the newest, of which there is at least one."""
        assert self.last is not None, "the caller has seen an entry"
        return Summary(
            header=self.header,
            kinds=dict(self.chain.kinds),
            cap=self.cap,
            highest_cap=self.highest_cap,
            attested=dict(sorted(self._attested.items())),
            tightest=self.cells.tightest(()).at_most(self.highest_cap),
            last=self.last,
            checkpoints=self.chain.checkpoints,
            continued=self._continued,
            opening_load=self._opening_load,
        )

    @property
    def continues(self) -> str | None:
        """The erased dataset whose account this account continues."""
        return None if self._continued is None else self._continued.dataset

    @property
    def has_reservations(self) -> bool:
        """Whether a reservation has not ended."""
        return bool(self._reserved)

    @property
    def tightest_delta(self) -> Balance:
        """The joint cell with the largest charged δ, in steps of 10⁻¹⁸."""
        return self._deltas.tightest(()).at_most(self.header.delta_set_aside)

    def _first_state(self) -> dict[str, Json]:
        """The state after the entries up to the newest, as earlier versions of the
        service stated it.
        """
        text, reserved = self.header.text, self._reserved_amounts()
        return {
            "facts": self._facts(),
            "cap": text(self.cap),
            "highest_cap": text(self.highest_cap),
            "totals": [
                {"scope": _as_json(scope), **self._amounts(scope, reserved)}
                for scope in {**self._charged, **reserved}
            ],
            "reservations": [
                {
                    "job_id": part.job_id,
                    "scope": _as_json(part.scope),
                    "amount": text(part.amount),
                }
                for part in self._parts()
            ],
        }

    def _state(self) -> dict[str, Json]:
        """The state after the entries up to the newest, as an entry of kind ``state``
        states it.
        """
        text, reserved = self.header.text, self._reserved_amounts()
        return {
            "form": STATE_FORM,
            "facts": hashlib.sha256(canonical_json.dumps(self._facts())).hexdigest(),
            "cap": text(self.cap),
            "highest_cap": text(self.highest_cap),
            "uploads": list(self._uploads),
            "totals": [
                {
                    "scope": self._digest(scope),
                    "entry": self._sources[scope],
                    **self._amounts(scope, reserved),
                }
                for scope in {**self._charged, **reserved}
            ],
            "reservations": [
                {
                    "job_id": part.job_id,
                    "scope": self._digest(part.scope),
                    "amount": text(part.amount),
                }
                for part in self._parts()
            ],
        }

    def _amounts(self, scope: Scope, reserved: Counter[Scope]) -> dict[str, Json]:
        delta = self._charged_delta[scope]
        return {
            "charged": self.header.text(self._charged[scope]),
            "reserved": self.header.text(reserved[scope]),
            "delta": amounts.from_steps(delta, amounts.DELTA_PLACES),
        }

    def _facts(self) -> dict[str, Json]:
        assert isinstance(self._first_line, dict), "read_header takes objects only"
        return {
            name: self._first_line[name]
            for name in (*BOUND_FIELDS, SET_ASIDE)
            if name in self._first_line
        }

    def _parts(self) -> list[Entry]:
        return [part for parts in self._reserved.values() for part in parts]

    def _reserved_amounts(self) -> Counter[Scope]:
        reserved: Counter[Scope] = Counter()
        for part in self._parts():
            reserved[part.scope] += part.amount
        return reserved

    def _digest(self, scope: Scope) -> str:
        """The digest by which a state names a scope: of its JSON without white space,
        names and cells sorted.
        """
        if scope not in self._digests:
            text = json.dumps(
                _as_json(scope),
                sort_keys=True,
                separators=(",", ":"),
                ensure_ascii=False,
            )
            self._digests[scope] = hashlib.sha256(text.encode("utf-8")).hexdigest()
        return self._digests[scope]

    def _open(self, entry: Entry) -> None:
        self.cap = self.highest_cap = entry.amount
        assert isinstance(entry.details, dict), (
            "read_entry takes no opening without details"
        )
        assert isinstance(self._first_line, dict), "read_header takes objects only"
        set_aside = {SET_ASIDE} & (entry.details.keys() | self._first_line.keys())
        check_repeated(entry.details, self._first_line, (*BOUND_FIELDS, *set_aside))

    def _continue(self, entry: Entry) -> None:
        """Applies an opening load, which may be above the cap: then nothing is
        admitted.
        """
        if self.chain.kinds.total() != OPENING_LOAD_SEQUENCE:
            raise Broken(
                "an opening load follows the opening of an account, and no other entry"
            )
        continued = read_continued(entry, self.header)
        if entry.amount > continued.highest_cap:
            raise Broken(
                "the opening load is above the highest cap of the erased dataset's account"
            )
        if self.cap > continued.highest_cap:
            raise Broken(
                "the cap is above the highest cap of the erased dataset's account, without a reason"
            )
        self._continued, self._opening_load, self._n_living = continued, entry.amount, 1
        self.highest_cap = max(self.cap, continued.highest_cap)
        self.cells.reserve((), entry.amount)
        self.cells.charge((), entry.amount)
        self._charge_delta((), continued.delta)
        self._charged[()], self._charged_delta[()] = entry.amount, continued.delta
        self._sources[()] = entry.sequence

    def _change_cap(self, entry: Entry) -> None:
        check_reason(entry.details)
        check_open(self.cap)
        self.cap = entry.amount
        keeps_highest = self._n_living or not self.cap
        self.highest_cap = (
            max(self.highest_cap, self.cap) if keeps_highest else self.cap
        )

    def _reserve(self, entry: Entry) -> None:
        job_id = str(entry.job_id)
        others = self._reserved.get(job_id, ())
        if job_id in self._settled or not all(
            _are_disjoint(other.scope, entry.scope) for other in others
        ):
            raise Broken("this job has a reservation already")
        witness = prices.check(entry, self.header)
        if witness is not None:
            self._attested[witness.by] += 1
            self._charge_delta(entry.scope, witness.delta_charged)
        self.cells.reserve(entry.scope, entry.amount)
        if self.cells.exceeds(entry.scope, self.cap):
            tightest = self.cells.tightest(entry.scope)
            tightest.require_exact()
            where = "".join(
                f" in cell {name}={cell}" for name, cell in tightest.cell.items()
            )
            over, cap = self.header.text(tightest.load), self.header.text(self.cap)
            raise Broken(
                f"charged and reserved{where} are {over}, over the cap of {cap}"
            )
        self._reserved[job_id] = (*others, entry)
        self._sources[entry.scope] = entry.sequence
        self._n_living += 1

    def _charge_delta(self, scope: Scope, delta: int) -> None:
        """An external mechanism is charged when it is reserved, so its δ counts at
        once.
        """
        if delta == 0:
            return
        self._deltas.reserve(scope, delta)
        if self._deltas.exceeds(scope, self.header.delta_set_aside):
            self._deltas.tightest(scope).require_exact()
            raise Broken("the charged delta is more than the delta set aside")

    def _settle(self, entry: Entry) -> None:
        job_id = str(entry.job_id)
        reservations = self._reserved.get(job_id, ())
        if self._settled.get(job_id, entry.kind) != entry.kind or not reservations:
            raise Broken(self._without_reservation(job_id, entry.kind))
        # Of several reservations the one of equal scope; if none has it, any serves to
        # name the difference.
        reservation = next(
            (part for part in reservations if part.scope == entry.scope),
            reservations[0],
        )
        same = {
            "amount": entry.amount == reservation.amount,
            "scope": entry.scope == reservation.scope,
            "event": canonical_json.dumps(entry.event)
            == canonical_json.dumps(reservation.event),
            "details": canonical_json.dumps(entry.details)
            == canonical_json.dumps(reservation.details),
        }
        for name, holds in same.items():
            if not holds:
                raise Broken(
                    f"{name} is not that of the reservation, sequence {reservation.sequence}"
                )
        self._reserved[job_id] = tuple(
            part for part in reservations if part is not reservation
        )
        if not self._reserved[job_id]:
            del self._reserved[job_id]
        self._settled[job_id] = entry.kind
        if entry.kind == "charge":
            self.cells.charge(entry.scope, entry.amount)
            self._charged[entry.scope] += entry.amount
            if isinstance(entry.details, dict) and "delta" in entry.details:
                delta = json_fields.amount(
                    entry.details["delta"], "delta", amounts.DELTA_PLACES
                )
                self._charged_delta[entry.scope] += delta
        elif (
            isinstance(reservation.details, dict)
            and "attested_by" in reservation.details
        ):
            raise Broken(
                "a charge for an external mechanism cannot be given back: nothing shows that the mechanism did not run"
            )
        else:
            self._n_living -= 1
            self.cells.reserve(entry.scope, -entry.amount)

    def _without_reservation(self, job_id: str, kind: str) -> str:
        if job_id in self._settled:
            return f"the reservation of this job has ended already, by {self._settled[job_id]}"
        return f"an entry of kind {kind} without a reservation"


def _as_json(scope: Scope) -> Json:
    return {name: list(cells) for name, cells in scope}


def _are_disjoint(one: Scope, other: Scope) -> bool:
    """Whether no row is in both scopes. The reservations of one job on one account have
    disjoint scopes.
    """
    sides = dict(other)
    return any(
        set(cells).isdisjoint(sides[name]) for name, cells in one if name in sides
    )

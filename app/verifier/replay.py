"""Replays an export line by line and stops at the first one that does not hold.

Checked for every line: its form; the sequence 1, 2, 3 … without gaps; the chain (``previous_hash`` is the hash before
it, ``hash`` is its own); times that never go back; the life of every charge (one reservation, then at most one of
charge, void and expire, with the same amount, scope, event and details); the header against what the first entry says
of the account; the cap in force, over every joint cell, after every admission; the signed root, wherever a checkpoint
ends; and that each event, recomputed, costs no more than its entry's amount.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.verifier import canonical, prices
from app.verifier.checkpoints import ORIGIN, Checkpoint
from app.verifier.composition import Balance, JointCells, TooComplex
from app.verifier.export import (
    BOUND_FIELDS,
    GENESIS,
    SET_ASIDE,
    Entry,
    Header,
    Malformed,
    Scope,
    read_entry,
    read_header,
)
from app.verifier.tree import GrowingTree, leaf

MAX_LINE_BYTES = 64 * 1024 * 1024


@dataclass
class NotVerified(Exception):
    """The first line that does not hold, and why. The header is line 1."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True)
class Summary:
    """What a verified export says.

    Attributes:
        header: the account.
        kinds: number of entries of each kind.
        cap: in force at the end, in steps of the account's unit.
        highest_cap: the highest in force since something was held or charged that was not given back; what can be
            printed of an account with a δ.
        attested: number of charges for mechanisms that ran elsewhere, by the key whose word they rest on.
        tightest: the joint cell with the largest load at the end.
        last: the newest entry.
        checkpoints: that the entries agree with, the smallest first.
        header_bound: whether the first entry repeats the header's facts, so that the chain holds them too. Ledgers that
            were opened by early versions do not.
    """

    header: Header
    kinds: dict[str, int]
    cap: int
    highest_cap: int
    attested: dict[str, int]
    tightest: Balance
    last: Entry
    header_bound: bool
    checkpoints: tuple[Checkpoint, ...]


def verify(lines: Iterable[bytes], checkpoints: Sequence[Checkpoint] = ()) -> Summary:
    """Checks an export.

    Args:
        lines: the file's lines with their line ends, as iterating over a binary file gives them.
        checkpoints: whose signatures hold, to which the entries are held.

    Raises:
        NotVerified: at the first line that does not hold.
    """
    replay: _Replay | None = None
    number = 0
    for number, line in enumerate(lines, start=1):
        try:
            value = _read_line(line)
            if replay is None:
                replay = _Replay(read_header(value), value, checkpoints)
            else:
                replay.take(value)
        except (Malformed, TooComplex, prices.NoPrice, _Broken) as error:
            raise NotVerified(number, str(error)) from error
    if replay is None or replay.last is None:
        raise NotVerified(number + 1, "the export ends before its first entry")
    for checkpoint in checkpoints:
        if checkpoint.size > replay.last.sequence:
            ends, covers = replay.last.sequence, checkpoint.size
            raise NotVerified(
                number + 1, f"the export was cut: it ends with entry {ends}, a checkpoint covers {covers}"
            )
    if replay.cap != replay.header.cap:
        stated, found = replay.header.text(replay.header.cap), replay.header.text(replay.cap)
        raise NotVerified(1, f"the header says a cap of {stated}, the entries end with {found}")
    return Summary(
        header=replay.header,
        kinds=dict(replay.kinds),
        cap=replay.cap,
        highest_cap=replay.highest_cap,
        attested=dict(sorted(replay.attested.items())),
        tightest=replay.cells.tightest(()),
        last=replay.last,
        header_bound=replay.header_bound,
        checkpoints=tuple(sorted(checkpoints, key=lambda checkpoint: checkpoint.size)),
    )


class _Broken(ValueError):
    """A line that is well formed but does not fit the ones before it."""


def _read_line(line: bytes) -> canonical.Json:
    if not line.endswith(b"\n"):
        raise Malformed("the line has no line end: the file was cut, or the line is longer than any entry")
    try:
        return canonical.loads(line)
    except canonical.NotStrictJson as error:
        raise Malformed(f"the line cannot be read: {error}") from error


@dataclass
class _Replay:
    """The account after the lines so far."""

    header: Header
    first_line: canonical.Json
    checkpoints: Sequence[Checkpoint]
    tree: GrowingTree = field(default_factory=GrowingTree)
    kinds: Counter[str] = field(default_factory=Counter)
    cap: int = 0
    highest_cap: int = 0
    n_living: int = 0
    attested: Counter[str] = field(default_factory=Counter)
    header_bound: bool = False
    last: Entry | None = None
    reserved: dict[str, Entry] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.partitions = {partition.name: partition for partition in self.header.partitions}
        self.cells = JointCells(self.header.partitions)
        self.deltas = JointCells(self.header.partitions)
        for checkpoint in self.checkpoints:
            if checkpoint.origin != f"{ORIGIN}{self.header.dataset}":
                raise _Broken("a checkpoint is of another log, not of this dataset's account")

    def take(self, value: canonical.Json) -> None:
        """Checks one entry against everything before it, and takes it in."""
        entry = read_entry(value, self.partitions, places=self.header.places)
        self._check_place(entry)
        self._check_hash(entry, value)
        if (entry.kind == "open") is not (self.last is None):
            raise _Broken("the first entry, and only the first, must be of kind open")
        match entry.kind:
            case "open":
                self._open(entry)
            case "cap":
                self._change_cap(entry)
            case "reserve":
                self._reserve(entry)
            case _:
                self._settle(entry)
        self.kinds[entry.kind] += 1
        self.last = entry
        self._check_root(entry)

    def _check_root(self, entry: Entry) -> None:
        if not self.checkpoints:
            return
        self.tree.add(leaf(entry.hash))
        for checkpoint in self.checkpoints:
            if checkpoint.size == entry.sequence and checkpoint.root != self.tree.root():
                raise _Broken(
                    f"the entries up to here are not the {checkpoint.size} whose root was signed at {checkpoint.at}"
                )

    def _check_place(self, entry: Entry) -> None:
        expected = self.last.sequence + 1 if self.last else 1
        if entry.sequence != expected:
            raise _Broken(f"sequence is {entry.sequence} where {expected} must stand")
        if entry.previous_hash != (self.last.hash if self.last else GENESIS):
            raise _Broken("previous_hash is not the hash of the entry before")
        if self.last and entry.at < self.last.at:
            raise _Broken("the time is before that of the entry before")

    def _check_hash(self, entry: Entry, value: canonical.Json) -> None:
        assert isinstance(value, dict), "read_entry takes objects only"
        hashed = canonical.dumps({name: item for name, item in value.items() if name != "hash"})
        if hashlib.sha256(hashed).hexdigest() != entry.hash:
            raise _Broken("hash is not that of the entry's content: something in it was changed")

    def _change_cap(self, entry: Entry) -> None:
        details = entry.details
        if not isinstance(details, dict) or set(details) != {"reason"} or not isinstance(details["reason"], str):
            raise _Broken("an entry of kind cap gives its reason in its details, and nothing else")
        if not details["reason"]:
            raise _Broken("an entry of kind cap gives no reason")
        self.cap = entry.amount
        self.highest_cap = max(self.highest_cap, self.cap) if self.n_living else self.cap

    def _open(self, entry: Entry) -> None:
        self.cap = self.highest_cap = entry.amount
        if entry.details is None:
            return
        assert isinstance(entry.details, dict), "details are read as an object"
        assert isinstance(self.first_line, dict), "read_header takes objects only"
        for name in (*BOUND_FIELDS, *({SET_ASIDE} & (entry.details.keys() | self.first_line.keys()))):
            if name not in entry.details:
                raise _Broken(f"the first entry's details do not say {name}")
            if canonical.dumps(entry.details[name]) != canonical.dumps(self.first_line.get(name)):
                raise _Broken(f"the header's {name} is not what the first entry says")
        self.header_bound = True

    def _reserve(self, entry: Entry) -> None:
        job_id = str(entry.job_id)
        if job_id in self.reserved or job_id in self.settled:
            raise _Broken("this job has a reservation already")
        witness = prices.check(entry, self.header)
        if witness is not None:
            self.attested[witness.by] += 1
            self._charge_delta(entry.scope, witness.delta_charged)
        self.cells.reserve(entry.scope, entry.amount)
        if self.cells.exceeds(entry.scope, self.cap):
            tightest = self.cells.tightest(entry.scope)
            where = "".join(f" in cell {name}={cell}" for name, cell in tightest.cell.items())
            over, cap = self.header.text(tightest.load), self.header.text(self.cap)
            raise _Broken(f"charged and reserved{where} come to {over}, over the cap of {cap}")
        self.reserved[job_id] = entry
        self.n_living += 1

    def _charge_delta(self, scope: Scope, delta: int) -> None:
        """What ran elsewhere is charged when it is reserved, so its δ is never held."""
        if delta == 0:
            return
        self.deltas.reserve(scope, delta)
        if self.deltas.exceeds(scope, self.header.delta_set_aside):
            raise _Broken("the delta that was charged comes to more than what is set aside")

    def _settle(self, entry: Entry) -> None:
        job_id = str(entry.job_id)
        if job_id in self.settled:
            raise _Broken(f"the reservation of this job has ended already, by {self.settled[job_id]}")
        reservation = self.reserved.get(job_id)
        if reservation is None:
            raise _Broken(f"an entry of kind {entry.kind} without a reservation")
        same = {
            "amount": entry.amount == reservation.amount,
            "scope": entry.scope == reservation.scope,
            "event": canonical.dumps(entry.event) == canonical.dumps(reservation.event),
            "details": canonical.dumps(entry.details) == canonical.dumps(reservation.details),
        }
        for name, holds in same.items():
            if not holds:
                raise _Broken(f"{name} is not that of the reservation, sequence {reservation.sequence}")
        del self.reserved[job_id]
        self.settled[job_id] = entry.kind
        if entry.kind == "charge":
            self.cells.charge(entry.scope, entry.amount)
        elif reservation.details is not None:
            raise _Broken("what ran elsewhere cannot be given back: nothing shows that it did not run")
        else:
            self.n_living -= 1
            self.cells.reserve(entry.scope, -entry.amount)

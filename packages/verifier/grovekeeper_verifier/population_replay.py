"""Replays a population's export line by line, with the exports of its members where
they are given.

Checks of every line: its form; its place in the chain (:mod:`.chain`); the header
against the details of the first entry; each dataset joins once, with the adjacency and
unit of the other members; a load names a member, and a later entry of the member than
the load before; a member that continues the account of an erased member carries the
load of that member, which carries none from then on; every stated state; the sum of the
loads against the cap in force, whenever a load grows. The exports of members are read
in step (:mod:`grovekeeper_verifier.member_comparison`).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from grovekeeper_verifier import json_fields
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.chain import (
    Broken,
    Chain,
    Link,
    check_open,
    check_reason,
    check_repeated,
    check_stated_state,
)
from grovekeeper_verifier.checkpoints import Checkpoint
from grovekeeper_verifier.export_lines import Reading, check_logs
from grovekeeper_verifier.member_comparison import Compared, MemberLedger
from grovekeeper_verifier.population_export import (
    BOUND_FIELDS,
    Joined,
    Named,
    PopulationEntry,
    PopulationHeader,
    read_entry,
    read_header,
)


@dataclass(frozen=True)
class Standing:
    """A member in the population's newest entry about it.

    Attributes:
        load: the stated load, in steps.
        sequence: the named entry of the member.
    """

    load: int
    sequence: int


@dataclass(frozen=True)
class PopulationSummary:
    """The result of a verified export of a population.

    Attributes:
        header: the first line.
        kinds: number of entries of each kind.
        cap: in force at the end, in steps.
        highest_cap: the highest in force since the sum of the loads was last zero; on
            accounts with a δ plus the highest cap of every member that joined with a
            load. On these accounts the guarantee states this cap.
        unit: adjacency and unit column of all members; None without members.
        members: by dataset, in the order of joining.
        compared: the members whose exports were given, by dataset.
        last: the newest entry.
        checkpoints: of this log, all of which agree with the entries, the smallest
            first.
    """

    header: PopulationHeader
    kinds: dict[str, int]
    cap: int
    highest_cap: int
    unit: tuple[str, str | None] | None
    members: dict[str, Standing]
    compared: dict[str, Compared]
    last: Link
    checkpoints: tuple[Checkpoint, ...]

    @property
    def together(self) -> int:
        """The sum of the loads of all members."""
        return sum(member.load for member in self.members.values())

    @property
    def printable(self) -> int:
        """The amount of the guarantee for all members together.

        On accounts with a δ only a limit that was set in advance has a guarantee: the
        highest cap. On pure accounts it is the larger of the cap and the sum of the
        loads. A closed account has lost entries, which may have reached the highest
        cap, so this takes the place of the cap.
        """
        if self.header.accountant != "pure":
            return self.highest_cap
        return max(self.cap or self.highest_cap, self.together)


def verify(
    lines: Iterable[bytes],
    members: Sequence[MemberLedger] = (),
    checkpoints: Sequence[Checkpoint] = (),
) -> PopulationSummary:
    """Verifies a population's export, and compares it with the exports of members.

    Args:
        lines: of the population's export, with line ends.
        members: at most one export of each dataset, read up to its header.
        checkpoints: with valid signatures, of the population's log or of a member's
            log.
    """
    ledgers = {member.dataset: member for member in members}
    assert len(ledgers) == len(members), "one export of each dataset"
    reading: Reading[PopulationAccount] = Reading(
        lines,
        lambda header: PopulationAccount(
            read_header(header), header, ledgers, checkpoints
        ),
    )
    check_logs(checkpoints, [reading.account.header.population, *ledgers])
    return reading.read_to_the_end(reading.account.summary)


class PopulationAccount:
    """A population's account after the entries up to the newest."""

    def __init__(
        self,
        header: PopulationHeader,
        first_line: Json,
        ledgers: Mapping[str, MemberLedger],
        checkpoints: Sequence[Checkpoint],
    ) -> None:
        self.header = header
        self.chain = Chain(header.population, checkpoints)
        self.cap = self.highest_cap = 0
        self._first_line = first_line
        self._ledgers = ledgers
        self._members: dict[str, Standing] = {}
        self._together = 0
        self._unit: tuple[str, str | None] | None = None
        self._unit_forms = set[str | None]()

    def take(self, value: Json) -> None:
        """Checks one entry against the entries before it, and applies it."""
        entry, before = read_entry(value, places=self.header.places), self.chain.last
        self.chain.take(entry, value)
        match entry.kind:
            case "open":
                check_repeated(entry.details, self._first_line, BOUND_FIELDS)
                self.cap = self.highest_cap = entry.amount
            case "cap":
                check_reason(entry.details)
                check_open(self.cap)
                self.cap = entry.amount
                keeps_highest = self._together or not self.cap
                self.highest_cap = (
                    max(self.highest_cap, self.cap) if keeps_highest else self.cap
                )
            case "join":
                assert isinstance(entry.member, Joined), (
                    "an entry of kind join has a member"
                )
                self._join(entry.member, entry)
            case "state":
                check_stated_state(entry, self._state())
            case _:
                assert entry.member is not None, "an entry of kind load has a member"
                assert before is not None, "the first entry is no load"
                self._load(entry.member, entry, after=before)

    def _state(self) -> dict[str, Json]:
        """The state after the entries up to the newest, as an entry of kind ``state``
        states it.
        """
        assert isinstance(self._first_line, dict), "read_header takes objects only"
        text = self.header.text
        return {
            "facts": {name: self._first_line[name] for name in BOUND_FIELDS},
            "cap": text(self.cap),
            "highest_cap": text(self.highest_cap),
            "loads": {
                member: text(standing.load)
                for member, standing in self._members.items()
            },
        }

    def summary(self) -> PopulationSummary:
        """The result of the entries up to the newest, after the rest of the members'
        exports.
        """
        last = self.chain.last
        assert last is not None, "the caller has seen an entry"
        complete_at = self._complete_at(last)
        return PopulationSummary(
            header=self.header,
            kinds=dict(self.chain.kinds),
            cap=self.cap,
            highest_cap=self.highest_cap,
            unit=self._unit,
            members=dict(self._members),
            compared={
                dataset: ledger.finish(last.at, complete_at)
                for dataset, ledger in self._ledgers.items()
            },
            last=last,
            checkpoints=self.chain.checkpoints,
        )

    def _complete_at(self, last: Link) -> datetime | None:
        """Time of the newest checkpoint of exactly these entries. A signed note may
        hold a time of any form.
        """
        times = []
        for checkpoint in self.chain.checkpoints:
            with suppress(json_fields.Malformed):
                times += (
                    [json_fields.time(checkpoint.at)]
                    if checkpoint.size == last.sequence
                    else []
                )
        return max(times, default=None)

    def _join(self, joined: Joined, entry: PopulationEntry) -> None:
        if joined.dataset in self._members:
            raise Broken(f"{joined.dataset} is a member already")
        unit = joined.adjacency, joined.unit_column
        if self._unit not in (None, unit):
            raise Broken(
                f"{joined.dataset} has another adjacency or unit than the members before it"
            )
        if entry.amount > joined.highest_cap:
            raise Broken(f"the load of {joined.dataset} is above its highest cap")
        self._unit = unit
        if joined.continues is not None:
            self._move(joined.continues, joined, entry)
        elif entry.amount and self.header.accountant != "pure":
            self.highest_cap += joined.highest_cap
        self._stand(joined, entry)
        if joined.dataset in self._ledgers:
            self._ledgers[joined.dataset].join(joined, entry, self.header)
            self._compare_form(self._ledgers[joined.dataset])

    def _compare_form(self, ledger: MemberLedger) -> None:
        """The same person has the same spelling in every member, as far as exports are
        given.
        """
        if self._unit_forms - {ledger.unit_form}:
            raise Broken(
                f"{ledger.dataset} spells the values of the unit column in another form than other members"
            )
        self._unit_forms.add(ledger.unit_form)

    def _move(self, erased: str, joined: Joined, entry: PopulationEntry) -> None:
        """Takes the load of an erased member away, which the new member carries."""
        before = self._members.get(erased)
        if before is None:
            raise Broken(
                f"{joined.dataset} continues the account of {erased}, which is not a member"
            )
        if before.load != entry.amount:
            text = self.header.text
            raise Broken(
                f"{joined.dataset} continues the account of {erased} with a load of {text(entry.amount)}, and the load "
                f"of {erased} is {text(before.load)}"
            )
        self._together -= before.load
        self._members[erased] = Standing(0, before.sequence)

    def _load(self, named: Named, entry: PopulationEntry, *, after: Link) -> None:
        before = self._members.get(named.dataset)
        if before is None:
            raise Broken(f"{named.dataset} is not a member")
        if named.sequence <= before.sequence:
            raise Broken(
                f"it names entry {named.sequence} of {named.dataset}, and an earlier load names entry {before.sequence}"
            )
        self._stand(named, entry)
        admits = entry.amount > before.load
        if named.dataset in self._ledgers:
            is_reserve = (
                self._ledgers[named.dataset].load(named, entry, after=after).kind
                == "reserve"
            )
            if admits and not is_reserve:
                raise Broken(f"the load of {named.dataset} grew at a void or expire")
            admits = is_reserve
        if admits and self._together > self.cap:
            together, cap = self.header.text(self._together), self.header.text(self.cap)
            raise Broken(
                f"the loads of the members add up to {together}, over the cap of {cap}"
            )

    def _stand(self, named: Named, entry: PopulationEntry) -> None:
        before = self._members.get(named.dataset)
        self._together += entry.amount - (before.load if before else 0)
        self._members[named.dataset] = Standing(entry.amount, named.sequence)

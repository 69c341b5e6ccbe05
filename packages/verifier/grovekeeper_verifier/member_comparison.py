"""Compares the entries of a population with the export of a member.

Both exports are read in step. Where the population names an entry of the member, the
member's export is verified up to that entry. The entry must have the named hash, the
stated load must be the largest load of the member's joint cells at that entry, and
every entry in between that changes a load must have a load in the population.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from grovekeeper_verifier import dataset_replay
from grovekeeper_verifier.chain import Broken, Link
from grovekeeper_verifier.checkpoints import Checkpoint
from grovekeeper_verifier.dataset_export import Entry
from grovekeeper_verifier.export_lines import NotVerified, Reading
from grovekeeper_verifier.joint_cells import TooComplex
from grovekeeper_verifier.largest_load import Largest, moves_load
from grovekeeper_verifier.population_export import (
    Joined,
    Named,
    PopulationEntry,
    PopulationHeader,
)


@dataclass(frozen=True)
class Compared:
    """The result of comparing a population with one member.

    Attributes:
        ledger: the result of the member's export.
        n_bounds: stated loads above the largest load of the joint cells, or compared
            with an upper bound of it. The service may state such a bound where jobs
            restrict several partitions.
        n_later: entries of the member that change a load, after the last one that the
            population names.
        n_overdue: those of them that are older than a checkpoint of exactly the
            population's entries.
    """

    ledger: dataset_replay.Summary
    n_bounds: int
    n_later: int
    n_overdue: int


class MemberLedger:
    """A member's export, verified up to the newest entry that the population names."""

    def __init__(
        self, lines: Iterable[bytes], checkpoints: Sequence[Checkpoint], *, file: str
    ) -> None:
        """Reads the header.

        Args:
            lines: of the export, with line ends.
            checkpoints: of any logs; those of the member's log are compared.
            file: path for messages.
        """
        self._reading: Reading[dataset_replay.Account] = dataset_replay.read(
            lines, checkpoints, file=file
        )
        self._largest = Largest(self._account.cells)
        self._file = file
        self._has_joined = False
        self._n_bounds = 0

    @property
    def dataset(self) -> str:
        """Id of the member."""
        return self._account.header.dataset

    @property
    def unit_form(self) -> str | None:
        """The form of the member's unit column."""
        return self._account.header.unit_form

    def join(
        self, joined: Joined, entry: PopulationEntry, population: PopulationHeader
    ) -> None:
        """Compares a join with the member's export.

        Raises:
            Broken: the two exports disagree.
            NotVerified: the member's export fails a check or is truncated.
        """
        self._read_to(joined)
        header = self._account.header
        facts: list[tuple[str, object, object]] = [
            ("accountant", population.accountant, header.accountant),
            ("delta", population.delta, header.delta),
            ("adjacency", joined.adjacency, header.adjacency),
            ("unit_column", joined.unit_column, header.unit_column),
            ("highest_cap", joined.highest_cap, self._account.highest_cap),
        ]
        if joined.continues:
            facts.append(("continues", joined.continues, self._account.continues))
        for field, stated, actual in facts:
            if stated != actual:
                raise Broken(f"{field} is not that of the ledger of {self.dataset}")
        if header.delta_set_aside:
            raise Broken(
                f"{self.dataset} sets a part of its delta aside, which the sum over members does not cover"
            )
        self._has_joined = True
        self._compare(entry)

    def load(self, named: Named, entry: PopulationEntry, *, after: Link) -> Entry:
        """Compares a load with the member's export and returns the member's entry.

        The service writes both entries in one transaction under the population's lock,
        so the time of the member's entry is between those of the population's previous
        entry and of the load, on any clock.

        Args:
            named: the member's entry, as the population names it.
            entry: the load.
            after: the population's previous entry.

        Raises:
            Broken: the two exports disagree.
            NotVerified: the member's export fails a check or is truncated.
        """
        member_entry = self._read_to(named)
        if not moves_load(member_entry.kind):
            raise Broken(
                f"it names an entry of kind {member_entry.kind} of {self.dataset}, and such entries change no load"
            )
        if member_entry.job_id != entry.job_id:
            raise Broken(
                f"job_id is not that of entry {member_entry.sequence} of {self.dataset}"
            )
        if not after.at <= member_entry.at <= entry.at:
            than = (
                "older than the entry before"
                if member_entry.at < after.at
                else "newer than"
            )
            raise Broken(
                f"entry {member_entry.sequence} of {self.dataset} is {than} its load"
            )
        self._compare(entry)
        return member_entry

    def finish(self, newest_at: datetime, complete_at: datetime | None) -> Compared:
        """Verifies the rest of the member's export.

        Args:
            newest_at: time of the population's newest entry.
            complete_at: time of the newest checkpoint of exactly the population's
                entries, or None.

        Raises:
            Broken: an entry that changes a load is older than the population's newest
                entry and has no load there.
            NotVerified: the member's export fails a check.
        """
        n_later = n_overdue = 0
        while self._reading.advance():
            member_entry = self._follow()
            if self._has_joined and moves_load(member_entry.kind):
                n_later += 1
                if member_entry.at < newest_at:
                    raise _unseen(member_entry, self.dataset)
                # Not a failure: the entry may have been in progress while the
                # checkpoint was signed.
                n_overdue += complete_at is not None and member_entry.at < complete_at
        ledger = self._reading.finished(self._account.summary)
        if not self._has_joined:
            raise NotVerified(
                1, "this dataset is not a member of the population", self._file
            )
        return Compared(ledger, self._n_bounds, n_later, n_overdue)

    @property
    def _account(self) -> dataset_replay.Account:
        return self._reading.account

    def _read_to(self, named: Named) -> Entry:
        """Verifies the export up to an entry that the population names, and returns the
        entry.
        """
        while (
            self._account.last is None or self._account.last.sequence < named.sequence
        ):
            if not self._reading.advance():
                last = self._account.last
                ends = (
                    "before its first entry"
                    if last is None
                    else f"with entry {last.sequence}"
                )
                truncated = f"the export was truncated: it ends {ends}, the population names entry {named.sequence}"
                raise NotVerified(self._reading.n_lines + 1, truncated, self._file)
            member_entry = self._follow()
            if (
                self._has_joined
                and moves_load(member_entry.kind)
                and member_entry.sequence < named.sequence
            ):
                raise _unseen(member_entry, self.dataset)
        assert self._account.last is not None, "the loop has read one"
        if self._account.last.hash != named.hash:
            raise Broken(
                f"the hash that it names is not that of entry {named.sequence} of {self.dataset}"
            )
        return self._account.last

    def _follow(self) -> Entry:
        assert self._account.last is not None, "the caller has read an entry"
        self._largest.follow(self._account.last)
        return self._account.last

    def _compare(self, entry: PopulationEntry) -> None:
        """Compares the stated load with the largest load of the member's joint cells,
        or with an upper bound of it.

        The load before was not below the largest load. So the service may state, after
        a reservation, the larger of the load before and the largest load in the scope,
        where the largest load of all cells is known as a bound only.
        """
        stated, account = entry.amount, self._account
        if stated < self._largest.load:
            self._largest.refine()
        actual = min(self._largest.load, account.highest_cap)
        is_exact = self._largest.is_exact
        if is_exact and stated == actual:
            return
        if account.cells.has_several and actual <= stated <= account.highest_cap:
            self._n_bounds += 1
            return
        if stated < actual and not is_exact:
            raise TooComplex
        less = "less" if stated < actual else "more"
        text = account.header.text
        raise Broken(
            f"the load is {text(stated)}, {less} than the {text(actual)} in the ledger of {self.dataset}"
        )


def _unseen(member_entry: Entry, dataset: str) -> Broken:
    return Broken(
        f"entry {member_entry.sequence} of {dataset}, of kind {member_entry.kind}, has no load in the population"
    )

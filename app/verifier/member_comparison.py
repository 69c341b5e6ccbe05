"""A member's own ledger beside its population's: what the population says of the member is held to what it says itself.

Both are read in step. Wherever the population names an entry of the member, the member's export is read up to that
entry, and checked by all of its own rules on the way. The entry must have the hash that was named, the load that was
stated must be the largest joint cell there, and no entry in between may have moved the sum unseen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.verifier import dataset_replay
from app.verifier.chain import Broken, Link
from app.verifier.checkpoints import Checkpoint
from app.verifier.dataset_export import Entry
from app.verifier.dataset_replay import Account, Summary
from app.verifier.export_lines import NotVerified, Reading
from app.verifier.largest_load import Largest, moves_load
from app.verifier.population_export import Joined, Named, PopulationEntry, PopulationHeader


@dataclass(frozen=True)
class Compared:
    """What came of reading a member's own ledger beside its population's.

    Attributes:
        ledger: what the member's export says.
        n_bounds: loads that are more than the largest joint cell carries. They are bounds, which is legal where jobs
            restrict several partitions.
        n_too_complex: loads that were not recomputed: the joint cells were too entangled for this verifier.
        n_later: entries that hold something or give it back, made after the last line of the population's export.
        n_overdue: those of them that are older than a checkpoint which covers just the lines of that export.
    """

    ledger: Summary
    n_bounds: int
    n_too_complex: int
    n_later: int
    n_overdue: int


class MemberLedger:
    """A member's export, read as far as its population has named entries of it."""

    def __init__(self, lines: Iterable[bytes], checkpoints: Sequence[Checkpoint], *, file: str) -> None:
        """Reads the header.

        Args:
            lines: of the export, with their line ends.
            checkpoints: of any logs; the member is held to its own.
            file: what failures call it.

        Raises:
            NotVerified: the header does not hold.
        """
        self._reading: Reading[Account] = dataset_replay.read(lines, checkpoints, file=file)
        self._largest = Largest(self._account.cells)
        self._file = file
        self._has_joined = False
        self._n_bounds = self._n_too_complex = 0

    @property
    def dataset(self) -> str:
        """Whose export it is."""
        return self._account.header.dataset

    def join(self, joined: Joined, entry: PopulationEntry, population: PopulationHeader) -> None:
        """Holds what the population says of the member at its join to the member's own ledger.

        Raises:
            Broken: one of the two says otherwise.
            NotVerified: the member's own ledger does not hold, or was cut.
        """
        self._read_to(joined)
        header = self._account.header
        for what, stated, own in (
            ("accountant", population.accountant, header.accountant),
            ("delta", population.delta, header.delta),
            ("adjacency", joined.adjacency, header.adjacency),
            ("unit_column", joined.unit_column, header.unit_column),
            ("highest_cap", joined.highest_cap, self._account.highest_cap),
        ):
            if stated != own:
                raise Broken(f"{what} is not what the ledger of {self.dataset} says")
        if header.delta_set_aside:
            raise Broken(f"{self.dataset} sets a part of its delta aside, which no sum over members covers")
        self._has_joined = True
        self._compare(entry)

    def load(self, named: Named, entry: PopulationEntry, *, after: Link) -> Entry:
        """Holds a load that the population states to the member's own ledger, and gives the entry it was made for.

        Both are written in one transaction, under the population's lock: so the entry's time lies between those of the
        population's two lines, whichever clocks they are of.

        Args:
            named: the member's entry.
            entry: the load.
            after: the line before it in the population's export.

        Raises:
            Broken: one of the two says otherwise.
            NotVerified: the member's own ledger does not hold, or was cut.
        """
        own = self._read_to(named)
        if not moves_load(own.kind):
            raise Broken(f"it names an entry of kind {own.kind} of {self.dataset}, which changes no load")
        if own.job_id != entry.job_id:
            raise Broken(f"job_id is not that of entry {own.sequence} of {self.dataset}")
        if not after.at <= own.at <= entry.at:
            line = "older than the population's line before" if own.at < after.at else "newer than"
            raise Broken(f"entry {own.sequence} of {self.dataset} is {line} its load")
        self._compare(entry)
        return own

    def finish(self, newest_at: datetime, complete_at: datetime | None) -> Compared:
        """Reads the rest of the member's export.

        Args:
            newest_at: the time of the newest entry of the population.
            complete_at: a later one, if any, at which it was signed that there is no newer entry.

        Raises:
            Broken: an entry that holds something, or gives it back, is older than that, and the population has no load
                for it.
            NotVerified: the member's own ledger does not hold.
        """
        n_later = n_overdue = 0
        while self._reading.advance():
            own = self._follow()
            if self._has_joined and moves_load(own.kind):
                n_later += 1
                if own.at < newest_at:
                    raise _unseen(own, self.dataset)
                # No failure: it may have been on its way while the checkpoint was signed.
                n_overdue += complete_at is not None and own.at < complete_at
        ledger = self._reading.finished(self._account.summary)
        if not self._has_joined:
            raise NotVerified(1, "this dataset is not a member of the population", self._file)
        return Compared(ledger, self._n_bounds, self._n_too_complex, n_later, n_overdue)

    @property
    def _account(self) -> Account:
        return self._reading.account

    def _read_to(self, named: Named) -> Entry:
        """Reads up to an entry that the population names, and gives it."""
        while self._account.last is None or self._account.last.sequence < named.sequence:
            if not self._reading.advance():
                last = self._account.last
                ends = "before its first entry" if last is None else f"with entry {last.sequence}"
                cut = f"the export was cut: it ends {ends}, the population names entry {named.sequence}"
                raise NotVerified(self._reading.n_lines + 1, cut, self._file)
            own = self._follow()
            if self._has_joined and moves_load(own.kind) and own.sequence < named.sequence:
                raise _unseen(own, self.dataset)
        assert self._account.last is not None, "the loop has read one"
        if self._account.last.hash != named.hash:
            raise Broken(f"it names entry {named.sequence} of {self.dataset} by another hash than that entry has")
        return self._account.last

    def _follow(self) -> Entry:
        assert self._account.last is not None, "the caller has read an entry"
        self._largest.follow(self._account.last)
        return self._account.last

    def _compare(self, entry: PopulationEntry) -> None:
        """The load that is stated against the largest joint cell of the member at this entry."""
        stated, own, account = entry.amount, self._largest.load, self._account
        if own is None:
            self._n_too_complex += 1
        elif stated > own and account.cells.has_several and stated <= account.highest_cap:
            self._n_bounds += 1
        elif stated != own:
            less = "less" if stated < own else "more"
            text = account.header.text
            raise Broken(f"the load is {text(stated)}, {less} than the {text(own)} in the ledger of {self.dataset}")


def _unseen(own: Entry, dataset: str) -> Broken:
    return Broken(f"entry {own.sequence} of {dataset}, of kind {own.kind}, has no load in the population")

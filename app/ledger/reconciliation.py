"""Compares the stored balance of an account with its entries before anything is admitted.

The stored totals of scopes, caps, facts and loads of members are functions of the entries (:mod:`app.ledger.replay`). A
process recomputes them once from all entries of an account, and afterwards from the entries after the last one that it
verified. A verified state is identified by the hash of its last entry, which fixes all entries before it, so a state in
memory is never stale. A comparison under the account's lock sees the rows that the admission uses.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy import URL
from sqlalchemy.orm import Session

from app.core import limits
from app.core.errors import BalanceMismatch, Unavailable
from app.ledger import account_facts, population_totals, repository, state, stored_totals
from app.ledger.admission import Budgets, Population
from app.ledger.entries import Entry
from app.ledger.replay import Replay
from app.ledger.scope_digest import digest_of
from app.ledger.stored_totals import Sums
from app.ledger.tables import AccountRow

_log = logging.getLogger(__name__)


class Unverified(Unavailable):
    """A process has not verified enough entries of an account yet; every attempt verifies some more."""

    def __init__(self) -> None:
        super().__init__("the balance of the account is being compared with its entries")


@dataclass(frozen=True)
class _Verified:
    """The last verified state of an account in this process.

    Attributes:
        population_id: the population that the account is a member of, by the population's entries.
    """

    replay: Replay
    population_id: str | None


_verified: dict[tuple[URL, str], _Verified] = {}
"""By database and account: 2.5 KB for an account, and 0.4 KB for each distinct scope and open reservation."""
_differing: set[tuple[URL, str]] = set()
"""Databases and accounts of which a scope or an open reservation differed at the last comparison of all of them."""


def doubts(
    session: Session,
    rows: Mapping[str, AccountRow],
    sums: Mapping[str, Sums],
    populations: Sequence[Population],
) -> dict[str, Unavailable]:
    """Compares what is stored of accounts and populations with the entries, before admissions. The log names the
    accounts that differ.

    Amounts by scope are compared as sums. An admission does not rest on them: it is decided on the entries' amounts.

    Args:
        session: of the transaction that holds the locks of all rows.
        rows: of the accounts and of their populations, by id.
        sums: of the accounts' totals, by id, as the transaction read them.
        populations: as the transaction read them.

    Returns:
        By account or population whose balance is not confirmed: :class:`BalanceMismatch`, or :class:`Unverified` if it
        has too many entries that this process has not verified.
    """
    comparison = _Comparison(session)
    doubted: dict[str, Unavailable] = {}

    def compare(account_id: str, comparing: Callable[[], None]) -> None:
        try:
            with _mismatch_logged():
                comparing()
        except (BalanceMismatch, Unverified) as error:
            doubted[account_id] = error

    for account_id, of_totals in sums.items():
        population_id = next((each.id for each in populations if account_id in each.members), None)
        compare(account_id, partial(comparison.of_account, rows[account_id], of_totals, population_id))
    for population in populations:
        compare(population.id, partial(comparison.of_population, rows[population.id], population.loads))
    return doubted


def confirm_account(session: Session, row: AccountRow) -> None:
    """Compares the balance of a locked account, of a dataset or a population, with its entries, scope by scope."""
    with _mismatch_logged():
        comparison = _Comparison(session)
        comparison.of_every_scope(row)
        comparison.of_last_comparison(row)


def confirm_everything(session: Session, row: AccountRow) -> None:
    """Compares the balance, scope by scope, and the open reservations of a locked account with its entries.

    Reads every reservation of the account, so no admission waits for it. If anything differs, admissions are refused
    until the next comparison.
    """
    with _mismatch_logged():
        _Comparison(session).of_everything(row)


def is_everything_equal(session: Session, row: AccountRow) -> bool:
    """Compares as :func:`confirm_everything` does, without a lock.

    A difference is no proof: another thread may have verified newer entries than the transaction sees.

    Raises:
        Unverified: the account has too many entries that this process has not verified.
    """
    try:
        _Comparison(session, is_locked=False).of_everything(row)
    except BalanceMismatch:
        return False
    return True


def verified(session: Session, row: AccountRow) -> Replay | None:
    """The state after all entries of an account, if this process has verified them. Nobody may change it."""
    known = _verified.get(_place(session, row.id))
    return None if known is None or known.replay.hash != row.last_hash else known.replay


def _place(session: Session, account_id: str) -> tuple[URL, str]:
    """Where a state is kept: a copy of a database has accounts of the same ids."""
    return session.get_bind().engine.url, account_id


def remember(session: Session, entries: Sequence[tuple[str, Entry]], budgets: Budgets) -> None:
    """Advances verified states by entries that this process has committed, so that no comparison reads them.

    Args:
        session: of the transaction.
        entries: all entries of the transaction, each with the id of its account, in the order of their sequences.
        budgets: after the entries.
    """
    advanced: dict[str, _Verified | None] = {}
    for account_id, entry in entries:
        if account_id not in advanced:
            known = _verified.get(_place(session, account_id))
            continues = known is not None and known.replay.hash == entry.previous_hash
            advanced[account_id] = replace(known, replay=known.replay.copy()) if known and continues else None
        if (known := advanced[account_id]) is not None:
            known.replay.take(entry)
    for account_id, known in advanced.items():
        if known is None:
            continue
        account = budgets.accounts.get(account_id)
        if account is not None and account.bound is not None:
            known.replay.bound = account.bound
        _verified[_place(session, account_id)] = known


@dataclass(frozen=True)
class _Comparison:
    """Comparisons within one transaction. Raises what :func:`doubts` returns."""

    session: Session
    is_locked: bool = True

    def of_everything(self, row: AccountRow) -> None:
        replay = self._caught_up(row).replay
        reservations = repository.open_reservations(self.session, row.id)
        stored = Counter((item.job_id or item.id, digest_of(item.scope), item.amount) for item in reservations)
        try:
            _require(row.id, "reservations", equal=stored == replay.reservations)
            self.of_every_scope(row)
        except BalanceMismatch:
            if self.is_locked:
                _differing.add(_place(self.session, row.id))
            raise
        _differing.discard(_place(self.session, row.id))

    def of_every_scope(self, row: AccountRow) -> None:
        if row.privacy_unit is None:
            self.of_population(row, population_totals.of_population(self.session, row.id).loads)
            return
        verified, totals = self._facts(row), stored_totals.by_digest(self.session, [row.id])[row.id]
        _require(row.id, "totals", equal=totals == verified.replay.totals)
        self._of_dataset(row, verified, population_totals.id_of(self.session, row.id))

    def of_account(self, row: AccountRow, sums: Sums, population_id: str | None) -> None:
        verified = self._facts(row)
        _require(row.id, "totals", equal=sums == verified.replay.sums)
        self.of_last_comparison(row)
        self._of_dataset(row, verified, population_id)

    def of_last_comparison(self, row: AccountRow) -> None:
        _require(row.id, "a scope or a reservation", equal=_place(self.session, row.id) not in _differing)

    def _of_dataset(self, row: AccountRow, verified: _Verified, population_id: str | None) -> None:
        if row.delta_set_aside is not None:
            _require(row.id, "delta", equal=state.charged_deltas(self.session, row.id) == verified.replay.deltas)
        if population_id != verified.population_id:
            _require(row.id, "population", equal=verified.population_id is None)
            _verified[_place(self.session, row.id)] = replace(verified, population_id=population_id)

    def of_population(self, row: AccountRow, loads: Mapping[str, int]) -> None:
        verified = self._facts(row)
        _require(row.id, "loads", equal=loads == verified.replay.loads)

    def _facts(self, row: AccountRow) -> _Verified:
        verified = self._caught_up(row)
        replay = verified.replay
        _require(row.id, "head", equal=(row.last_sequence, row.last_hash) == (replay.sequence, replay.hash))
        _require(row.id, "caps", equal=(row.cap, row.highest_cap) == (replay.cap, replay.highest_cap))
        _require(row.id, "facts", equal=account_facts.of_account(row) == replay.facts)
        return verified

    def _caught_up(self, row: AccountRow) -> _Verified:
        """The state after all entries of an account, of which one call reads at most a fixed number."""
        place = _place(self.session, row.id)
        known = _verified.get(place)
        if known is not None and (known.replay.sequence, known.replay.hash) == (row.last_sequence, row.last_hash):
            return known
        if known is not None and known.replay.sequence > row.last_sequence and not self.is_locked:
            raise BalanceMismatch(row.id, "head")
        following = [] if known is None else self._entries(row, after=known.replay.sequence)
        if known is None or not following or following[0].previous_hash != known.replay.hash:
            # No state, or a state whose transaction was rolled back.
            known = _Verified(Replay(row.id), population_totals.joined_by_entries(self.session, row.id))
            following = self._entries(row, after=0)
        replay = known.replay.copy()
        for entry in following:
            replay.take(entry)
        verified = _verified[place] = replace(known, replay=replay)
        if len(following) == limits.MAX_ENTRIES_VERIFIED_AT_ONCE and replay.sequence < row.last_sequence:
            raise Unverified
        return verified

    def _entries(self, row: AccountRow, *, after: int) -> list[Entry]:
        return repository.entries(self.session, row.id, after=after, limit=limits.MAX_ENTRIES_VERIFIED_AT_ONCE)


def _require(account_id: str, part: str, *, equal: bool) -> None:
    if not equal:
        raise BalanceMismatch(account_id, part)


@contextmanager
def _mismatch_logged() -> Iterator[None]:
    try:
        yield
    except BalanceMismatch as error:
        _log.error(
            "the stored balance of an account differs from its entries",
            extra={"account_id": error.account_id, "problem": error.part},
        )
        raise

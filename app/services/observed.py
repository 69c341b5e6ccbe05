"""Reads the public facts of an installation that metrics show: queue, accounts near
their caps, heads.

None of them depends on a row: they follow from submissions, declared budgets and
amounts in the ledger.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from app.core import limits
from app.core.errors import BalanceMismatch
from app.core.files import newest_backup
from app.datasets import catalog
from app.db.database import transaction_time
from app.db.revisions import revision_of
from app.jobs import outbox, queue
from app.jobs.states import EndReason, JobState
from app.ledger import populations, statements, tables
from app.services.installation import Installation
from app.services.ledger.heads import Heads

NEAR_CAP = (Fraction(4, 5), Fraction(19, 20), Fraction(1))
"""Shares of a cap; metrics count the accounts that have spent or reserved at least such
a share.
"""
WAITING = (JobState.QUEUED, JobState.WAITING)
"""States of jobs that metrics count. How long a job runs may depend on rows, so running
jobs are not counted.
"""


@dataclass(frozen=True)
class Observed:
    """Facts about an installation at one time.

    Attributes:
        jobs: number of queued and of waiting jobs, by state.
        accounts: number of accounts, with the control chain.
        near_cap: number of living accounts that have spent or reserved at least a share
            of their cap, by share.
        heads_behind: accounts whose newest entries are in no head outside the database
            yet.
        longest_wait_s: whole seconds that the first job of the queue has waited; 0
            without a job.
        backup_at: when the newest backup of this home was made, if there is one.
        revision: of the database.
    """

    jobs: Mapping[JobState, int]
    accounts: int
    near_cap: Mapping[Fraction, int]
    heads_behind: int
    failed: Mapping[EndReason, int]
    longest_wait_s: int
    deliveries: int
    workers: int
    backup_at: str | None
    revision: str | None


def observe(installation: Installation, heads: Heads) -> Observed:
    """Reads the facts in several short transactions."""
    with installation.database.read() as session:
        sizes = tables.sizes(session)
        jobs = queue.counts(session, WAITING)
        failed = queue.failed(session)
        deliveries = outbox.n_waiting_in_all(session)
        at = transaction_time(session)
        since = queue.oldest_wait(session)
        wait_s = 0 if since is None else max(int((at - since).total_seconds()), 0)
        n_workers = queue.n_workers(session, at=at)
        revision = revision_of(session)
    spent = list(_shares_spent(installation))
    near_cap = {share: sum(it >= share for it in spent) for share in NEAR_CAP}
    return Observed(
        jobs,
        len(sizes),
        near_cap,
        heads.n_behind(sizes),
        failed,
        wait_s,
        deliveries,
        n_workers,
        newest_backup(installation.home),
        revision,
    )


def _shares_spent(installation: Installation) -> Iterator[Fraction]:
    with installation.database.read() as session:
        living = catalog.living_ids(session)
    for start in range(0, len(living), limits.MAX_PAGE_SIZE):
        page = living[start : start + limits.MAX_PAGE_SIZE]
        # The log tells the operator which account differs; those of other pages are
        # counted.
        with suppress(BalanceMismatch), installation.database.read() as session:
            for balance in statements.balances(session, page).values():
                yield _share(balance.load, balance.cap)
    with installation.database.read() as session:
        after: str | None = None
        while rows := populations.page(
            session, declared_by=None, after=after, limit=limits.MAX_PAGE_SIZE
        ):
            after = rows[-1].id
            with suppress(BalanceMismatch):
                for population in populations.of_ids(
                    session, [row.id for row in rows]
                ).values():
                    yield _share(population.together, population.cap)


def _share(load: int, cap: int) -> Fraction:
    return Fraction(load, cap) if cap else Fraction(1)

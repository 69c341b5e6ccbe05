"""Defines the type of ``/attention``: what a caller has to decide or to know."""

from app.wire.approvals import ApprovalOut
from app.wire.base import Answer, DecimalText, OfDataset
from app.wire.datasets import AccountOut, DatasetState, PaceOut
from app.wire.jobs import ListedJob
from app.wire.ledger import VerificationOut
from grovekeeper_common.limit_words import LimitedBy


class RulesProposal(OfDataset):
    """Looser rules that another owner proposed for a dataset of the caller.

    ``by_name`` is the name of the key, if the caller may know it.
    """

    by: str
    by_name: str | None
    at: str


class ExpiringKey(Answer):
    """A key that ends soon: the caller's own, or, for an administrator, any."""

    id: str
    name: str
    expires_at: str


class JobCounts(Answer):
    """How many jobs that the caller may see have not ended, by state."""

    waiting: int
    queued: int
    running: int


class BudgetOut(OfDataset):
    """What is left of the budget of a dataset, and the largest ε of one job of the key.

    ``role`` is the role that the key was granted; ``may_submit``: it may submit jobs;
    ``has_rows``: there was an upload. ``state`` is that of :class:`DatasetOut`.
    """

    account: AccountOut
    pace: PaceOut | None
    population: str | None
    protects: str
    role: str | None
    may_submit: bool
    largest_that_fits: DecimalText
    limited_by: LimitedBy
    has_rows: bool
    state: DatasetState


class UnverifiedLedger(Answer):
    """An account whose verification failed, or that has entries which none of an auditor
    covers.

    ``verification`` is the last one, of the service itself if nobody else's is newer,
    or null.
    """

    account: str
    account_name: str
    entries: int
    not_covered: int
    verification: VerificationOut | None


class LedgerCounts(Answer):
    """How many accounts an auditor may verify, and how many of them wait for it."""

    accounts: int
    to_verify: int


class AttentionOut(Answer):
    """What needs the caller, what ran, and which budgets end first.

    Nothing here depends on a row, and everything is in other lists that the caller may
    read, which are complete: these have at most 20 items each. ``budgets`` are the
    fullest among the first 500 datasets. ``ledgers`` are those that an auditor has to
    verify: failures first, then those with the most entries that none of theirs covers.
    """

    at: str
    approvals: list[ApprovalOut]
    proposals: list[RulesProposal]
    held: list[ListedJob]
    failed: list[ListedJob]
    keys: list[ExpiringKey]
    jobs: JobCounts
    recent: list[ListedJob]
    budgets: list[BudgetOut]
    ledgers: list[UnverifiedLedger]
    ledger_counts: LedgerCounts

"""Ends jobs, and tells webhooks about jobs and low budgets in the transaction that
causes the event.

A refusal rolls its transaction back, so webhooks learn of it in another one. Every fact
is one that an owner of the dataset may read anyway. With public times of release, the
transactions themselves happen at public times.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction

from sqlalchemy.orm import Session

from app.core.errors import (
    BudgetExceeded,
    ErasureDue,
    Frozen,
    NeedsApproval,
    QuotaExceeded,
    TooManyCells,
)
from app.db.database import transaction_time
from app.jobs import outbox, queue
from app.jobs.states import UNFINISHED, EndReason, JobState
from app.jobs.tables import JobRow
from app.ledger import populations, reservations, statements
from app.services.installation import Installation
from grovekeeper_forests.errors import GrovekeeperError

JOB_QUEUED = "job.queued"
JOB_STARTED = "job.started"
JOB_ENDED = "job.ended"
REFUSED = "request.refused"
_REFUSALS = {
    BudgetExceeded: "budget-exceeded",
    QuotaExceeded: "quota-exceeded",
    NeedsApproval: "needs-approval",
    TooManyCells: "too-many-cells",
    Frozen: "frozen",
    ErasureDue: "erasure-due",
}
"""The problems of refused requests that webhooks are told about: those that the command
line calls refusals.
"""


def end_job(
    session: Session,
    row: JobRow,
    *,
    state: JobState,
    reason: EndReason | None,
) -> None:
    """Ends a job that the caller has locked, and its lease; every service ends jobs by
    this function.

    The caller has given back the reservations of a job that is not charged: so a budget
    may be low no more.
    """
    queue.finish(row, state=state, reason=reason, at=transaction_time(session))
    job_changed(session, row, JOB_ENDED)
    if row.charged_at is None:
        budgets_changed(session, {part.dataset for part in row.parts})


def end_locked(
    session: Session,
    rows: Sequence[JobRow],
    *,
    actor: str,
    state: JobState = JobState.CANCELLED,
    reason: EndReason = EndReason.CANCELLED,
) -> None:
    """Ends jobs that the caller has locked. Their workers lose the lease and kill
    the child.
    """
    unfinished = [row for row in rows if row.state in UNFINISHED]
    reservations.void_jobs(
        session, [row.id for row in unfinished if row.charged_at is None], actor=actor
    )
    for row in unfinished:
        end_job(session, row, state=state, reason=reason)


def job_changed(
    session: Session,
    row: JobRow,
    event: str,
    *,
    listeners: Sequence[outbox.WebhookRow] | None = None,
) -> None:
    """Tells the webhooks of every dataset of a job about the job's state.

    Args:
        listeners: these webhooks, if the caller has read them.
    """
    if listeners is None:
        datasets = {row.dataset_id, *(part.dataset for part in row.parts)}
        listeners = outbox.listening(session, datasets)
    for webhook in listeners:
        if event in webhook.events:
            facts = {
                "dataset": webhook.dataset_id,
                "job": row.id,
                **row.fields("kind", "algorithm", "state", "reason"),
            }
            outbox.put(session, webhook, event, facts, at=transaction_time(session))


def accepted(session: Session, row: JobRow) -> None:
    """Tells webhooks about a new job that is queued, and about budgets that its
    reservations made low.
    """
    listeners, watch_budgets = outbox.audience(
        session, {row.dataset_id, *(part.dataset for part in row.parts)}
    )
    if row.state == JobState.QUEUED:
        job_changed(session, row, JOB_QUEUED, listeners=listeners)
    if watch_budgets:
        budgets_changed(session, {part.dataset for part in row.parts})


def refused(installation: Installation, error: GrovekeeperError, *, by: str) -> None:
    """Tells the webhooks of a dataset that a request to spend was refused. The
    request's transaction has ended.
    """
    if not isinstance(
        error, BudgetExceeded | QuotaExceeded | TooManyCells | Frozen | ErasureDue
    ):
        return
    # A read first: refusals are frequent, and a write transaction would take the one
    # writer of SQLite.
    with installation.database.read() as session:
        webhooks = outbox.of_dataset(session, error.dataset)
    if not any(REFUSED in row.events for row in webhooks):
        return
    facts = {"dataset": error.dataset, "problem": _REFUSALS[type(error)], "by": by}
    with installation.database.write() as session:
        at = transaction_time(session)
        for webhook in outbox.listening(session, [error.dataset]):
            if REFUSED in webhook.events:
                outbox.put(session, webhook, REFUSED, facts, at=at)


def budgets_changed(session: Session, account_ids: Collection[str]) -> None:
    """Tells webhooks with a threshold that accounts have changed: of datasets, and of
    all members of their populations.

    Args:
        session: of a transaction that has locked the accounts, and their populations.
    """
    if not outbox.watch_budgets(session):
        return
    changed = {*account_ids, *populations.ids_of(session, account_ids).values()}
    # What a member spends leaves less to every other member.
    dataset_ids = set(account_ids)
    for population in populations.of_ids(session, changed).values():
        dataset_ids.update(population.members)
    tell_low(session, dataset_ids)


def tell_low(session: Session, dataset_ids: Collection[str]) -> None:
    """Tells webhooks with a threshold that what is available has fallen below that
    share of the dataset's cap.

    Available is the room of the dataset's account, or less where the cap of its
    population leaves less. A share that rises above the threshold makes the next fall
    an event again.
    """
    at = transaction_time(session)
    rows = outbox.with_threshold(session, dataset_ids)
    balances = statements.balances(session, sorted({row.dataset_id for row in rows}))
    for row in rows:
        balance = balances[row.dataset_id]
        share = Fraction(balance.room, balance.cap) if balance.cap else Fraction(0)
        is_low = share < Fraction(row.threshold or 0)
        if is_low and not row.is_low:
            facts = {
                "dataset": row.dataset_id,
                "unit": balance.unit,
                "threshold": row.threshold,
                "cap": balance.text(balance.cap),
                "remaining": balance.text(balance.remaining),
                "available": balance.text(balance.room),
                "limited_by": balance.limited_by,
            }
            # a dropped event is told by the next change
            is_low = outbox.put(session, row, outbox.BUDGET_LOW, facts, at=at)
        row.is_low = is_low

"""Serves ``/approvals``: lists jobs that wait for a decision, and decides about them."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET, Principal
from app.core import limits, stamps
from app.core.errors import NotFound, NotWaiting, RoleMissing, SameSubmitter
from app.jobs import approvals, queue
from app.jobs.states import EndReason, JobState
from app.jobs.tables import JobRow
from app.ledger import control, repository, rules
from app.ledger import service as ledger
from app.ledger.entries import EntryKind
from app.services.authorization import write_as
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.pages import PageRequest, page_of
from app.wire.rules import ApprovalList, ApprovalOut, DecisionIn

_ACTS = {"approve": EntryKind.JOB_APPROVED, "reject": EntryKind.JOB_REJECTED}


def list_approvals(installation: Installation, principal: Principal, page: PageRequest) -> ApprovalList:
    """Lists the jobs that wait for a decision for a dataset of the caller, oldest first."""
    with installation.database.read() as session:
        owned = grants.datasets_with(session, principal, MANAGE_DATASET)
        shown, following = page_of(
            page,
            lambda limit: approvals.page(session, dataset_ids=owned, after=page.cursor, limit=limit),
            lambda row: row.id,
        )
        undecided = approvals.open_of_each(session, [row.id for row in shown])
        listed = [
            _approval_out(
                session, principal, row, [each for each in undecided[row.id] if owned is None or each in owned]
            )
            for row in shown
        ]
        return ApprovalList(approvals=listed, next=following)


def decide(installation: Installation, principal: Principal, job_id: str, body: DecisionIn) -> ApprovalOut:
    """Approves or rejects a waiting job for every dataset of the caller for which a decision is open.

    A job whose last open decision is an approval is queued. A rejection ends the job and voids its reservations.

    Raises:
        NotFound: no such job, or it waits for nobody whom this key may see.
        RoleMissing: the key owns no dataset for which the job waits.
        SameSubmitter: the key submitted the job.
        NotWaiting: the job does not wait for a decision of this key.
    """
    with write_as(installation, principal) as (session, principal):
        row = queue.locked(session, job_id)
        asked = approvals.of_job(session, job_id)
        owned = _owned(session, principal, [each.dataset_id for each in asked] or [row.dataset_id])
        if row.submitted_by == principal.key_id:
            raise SameSubmitter
        at = installation.database.now(session)
        decided = [each for each in asked if each.decision is None and each.dataset_id in owned]
        if row.state != JobState.WAITING or at > _expires_at(row) or not decided:
            raise NotWaiting
        approvals.decide(decided, body.decision, by=principal.key_id, at=at)
        dataset_ids = [each.dataset_id for each in decided]
        if body.decision == "reject":
            ledger.void_jobs(session, [row.id], actor=principal.key_id)
            notices.end_job(session, row, state=JobState.CANCELLED, reason=EndReason.REJECTED, at=at)
        else:
            _cover(session, row, dataset_ids)
            if all(each.decision == "approve" for each in asked):
                queue.admit(row, at=at)
                notices.job_changed(session, row, notices.JOB_QUEUED, at=at)
        facts = {"job": row.id, "datasets": dataset_ids, "reason": body.reason}
        control.record(session, _ACTS[body.decision], actor=principal.key_id, **facts)
        return _approval_out(session, principal, row, dataset_ids)


def _cover(session: Session, row: JobRow, dataset_ids: Sequence[str]) -> None:
    """Ends the count of the submitter on the accounts of an approval, but for its other waiting jobs.

    Submissions lock the accounts, too, so no job of the submitter begins to wait there meanwhile.
    """
    for account_id in dataset_ids:
        repository.locked_account(session, account_id)
    waiting = [job_id for job_id in approvals.waiting_of(session, row.submitted_by) if job_id != row.id]
    for account_id in dataset_ids:
        rules.approve(session, account_id, row.submitted_by, waiting=waiting)


def _owned(session: Session, principal: Principal, dataset_ids: Sequence[str]) -> list[str]:
    """The datasets that the caller owns.

    Raises:
        NotFound: the caller may see none of the datasets.
        RoleMissing: the caller may see some, and owns none.
    """
    owned: list[str] = []
    refusal: NotFound | RoleMissing = NotFound("job")
    for dataset_id in dataset_ids:
        try:
            grants.require(session, principal, dataset_id, MANAGE_DATASET, kind="job")
        except NotFound:
            continue
        except RoleMissing as missing:
            refusal = missing
        else:
            owned.append(dataset_id)
    if not owned:
        raise refusal
    return owned


def _expires_at(row: JobRow) -> datetime:
    return row.waits_since + timedelta(seconds=limits.MAX_APPROVAL_S)


def _approval_out(session: Session, principal: Principal, row: JobRow, dataset_ids: Collection[str]) -> ApprovalOut:
    """Formats a job with its parts on some datasets, for a caller who owns them."""
    names: dict[str, str] = {}
    for dataset_id in dataset_ids:
        names |= grants.names_of_keys(session, principal, dataset_id, [row.submitted_by])
    parts = [
        {"dataset": part.dataset, "dataset_name": part.dataset_name, "scope": part.scope, "price": part.price}
        for part in row.parts
        if part.dataset in dataset_ids
    ]
    return ApprovalOut.model_validate(
        {
            "job": row.id,
            "kind": row.kind,
            "algorithm": row.algorithm,
            "name": row.name,
            "purpose": row.purpose,
            "state": row.state,
            "submitted_by": row.submitted_by,
            "submitted_by_name": names.get(row.submitted_by),
            "submitted_at": stamps.to_text(row.submitted_at),
            "expires_at": stamps.to_text(_expires_at(row)),
            "parts": parts,
        }
    )

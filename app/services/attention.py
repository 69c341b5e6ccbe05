"""Shows what needs a caller, what ran lately, and which budgets end first: the facts of
the first page of the dashboard.

All of them stand in lists that the caller may read, and none depends on a row.
"""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from app.access import grants, keys
from app.access.grants import (
    MANAGE_DATASET,
    STATE_VERIFICATION,
    TRAIN,
    Principal,
    Role,
)
from app.core import limits, stamps
from app.datasets import catalog
from app.db.database import transaction_time
from app.jobs.queue import JobFilter
from app.jobs.states import JobState
from app.ledger import rules, verifications
from app.services import dataset_rules
from app.services.datasets import show
from app.services.installation import Installation
from app.services.jobs import show_jobs
from app.services.pagination import PageRequest
from app.wire.approvals import ApprovalOut
from app.wire.attention import (
    AttentionOut,
    BudgetOut,
    ExpiringKey,
    JobCounts,
    LedgerCounts,
    RulesProposal,
    UnverifiedLedger,
)
from app.wire.datasets import DatasetOut
from grovekeeper_common.json_types import JsonObject

_FIRST = PageRequest(limit=limits.MAX_ATTENTION)


def show_attention(installation: Installation, principal: Principal) -> AttentionOut:
    """Shows what waits for the caller, jobs that no worker can run, that failed or
    began lately, keys that end soon, and the tightest budgets.
    """
    with installation.database.read() as session:
        at = transaction_time(session)
        proposals = _proposals(session, principal)
        ending = _ending_keys(session, principal)
        ledgers, ledger_counts = _unverified(session, principal)
    by = (installation, principal)
    counted = show_jobs.count_jobs(*by)
    failed = JobFilter(
        state=JobState.FAILED.value, since=at - timedelta(days=limits.FAILED_DAYS)
    )
    recent = JobFilter(since=at - timedelta(days=1))
    most = PageRequest(limit=limits.MAX_PAGE_SIZE)
    datasets = show.list_datasets(*by, most).datasets
    return AttentionOut(
        at=stamps.to_text(at),
        approvals=_approvals(installation, principal),
        proposals=proposals,
        held=show_jobs.list_jobs(*by, _FIRST, JobFilter(is_put_back=True)).jobs,
        failed=show_jobs.list_jobs(*by, _FIRST, failed).jobs,
        keys=ending,
        jobs=JobCounts(
            waiting=counted[JobState.WAITING],
            queued=counted[JobState.QUEUED],
            running=counted[JobState.RUNNING],
        ),
        recent=show_jobs.list_jobs(*by, _FIRST, recent).jobs,
        budgets=budgets(principal, datasets)[: limits.MAX_ATTENTION],
        ledgers=ledgers,
        ledger_counts=ledger_counts,
    )


def _approvals(installation: Installation, principal: Principal) -> list[ApprovalOut]:
    """The oldest jobs about which the caller may decide: nobody decides about a job of
    her own.
    """
    listed = dataset_rules.list_approvals(
        installation, principal, PageRequest(limit=limits.MAX_PAGE_SIZE)
    )
    others = (job for job in listed.approvals if job.submitted_by != principal.key_id)
    return list(others)[: limits.MAX_ATTENTION]


def _proposals(session: Session, principal: Principal) -> list[RulesProposal]:
    """The proposed rules that the caller may put in force: another owner's."""
    owned = grants.datasets_with(session, principal, MANAGE_DATASET)
    living: dict[str, JsonObject] = {}
    for row in rules.proposed(session, among=owned):
        proposal = dataset_rules.living_proposal(session, row)
        if proposal is not None and proposal["by"] != principal.key_id:
            living[row.account_id] = proposal
    datasets = catalog.named(session, list(living))
    pairs = [(dataset_id, proposal["by"]) for dataset_id, proposal in living.items()]
    names = grants.names_on_datasets(session, principal, pairs)
    shown = []
    for dataset_id, by in pairs:
        dataset = datasets[dataset_id]
        if dataset.deleted_at is not None:
            continue
        shown.append(
            RulesProposal(
                dataset=dataset_id,
                dataset_name=dataset.name,
                by=by,
                by_name=names.get((dataset_id, by)),
                at=living[dataset_id]["at"],
            )
        )
    shown.sort(key=lambda proposal: proposal.at)
    return shown[: limits.MAX_ATTENTION]


def _unverified(
    session: Session, principal: Principal
) -> tuple[list[UnverifiedLedger], LedgerCounts]:
    ids = grants.datasets_with(session, principal, STATE_VERIFICATION)
    rows, to_verify, accounts = verifications.unverified(
        session, ids, limit=limits.MAX_ATTENTION
    )
    last = verifications.last(session, [row.id for row, _ in rows])
    ledgers = []
    for row, not_covered in rows:
        facts = {
            "account": row.id,
            "account_name": row.name,
            "entries": row.last_sequence,
            "not_covered": not_covered,
            "verification": next(iter(last[row.id]), None),
        }
        ledgers.append(UnverifiedLedger.model_validate(facts))
    return ledgers, LedgerCounts(accounts=accounts, to_verify=to_verify)


def _ending_keys(session: Session, principal: Principal) -> list[ExpiringKey]:
    at = transaction_time(session)
    until = at + timedelta(days=limits.KEY_ENDS_SOON_DAYS)
    only = None if principal.is_admin else principal.key_id
    rows = keys.ending(
        session, after=at, until=until, only=only, limit=limits.MAX_ATTENTION
    )
    ending = []
    for row in rows:
        ends = stamps.text_or_none(row.expires_at)
        if ends is not None:
            ending.append(ExpiringKey(id=row.id, name=row.name, expires_at=ends))
    return ending


def budgets(principal: Principal, datasets: Sequence[DatasetOut]) -> list[BudgetOut]:
    """The budgets of those of a caller's datasets that live, the fullest first."""
    living = [item for item in datasets if item.deleted_at is None]
    return [
        _budget(principal, item)
        for item in sorted(living, key=show.share_used, reverse=True)
    ]


def _budget(principal: Principal, item: DatasetOut) -> BudgetOut:
    acts_as = principal.acts_as(None if item.role is None else Role(item.role))
    return BudgetOut(
        dataset=item.id,
        dataset_name=item.name,
        account=item.account,
        pace=item.pace,
        population=item.population,
        protects=item.protects,
        role=item.role,
        may_submit=not acts_as.isdisjoint(TRAIN),
        largest_that_fits=item.largest_that_fits,
        limited_by=item.account.limited_by,
        has_rows=bool(item.epochs),
        state=item.state,
    )

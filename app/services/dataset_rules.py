"""Shows and changes the rules of a dataset, and decides about the jobs that wait for an
owner because of them.

Amounts of rules are converted between whole steps and exact decimals here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial

from sqlalchemy.orm import Session

from app.access import grants, keys
from app.access.grants import MANAGE_DATASET, Principal, Role
from app.core import json_text, limits, stamps
from app.core.errors import (
    ChangedMeanwhile,
    ErasureDue,
    InvalidRequest,
    NotFound,
    NotWaiting,
    RoleMissing,
    SameSubmitter,
    SubmitterRevoked,
    Unauthenticated,
)
from app.core.preconditions import NOTHING, Condition, etag_of, require_unchanged
from app.datasets import catalog
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.states import EndReason, JobState
from app.jobs.tables import JobRow
from app.ledger import control, rules, statements, tables
from app.ledger.rules import Quota, Rules, loosens, put
from app.ledger.tables import EntryKind, RulesRow
from app.services.authorization import (
    authorized_dataset,
    require_submitter,
    write_as,
)
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.pagination import PageRequest, page_of
from app.wire.approvals import ApprovalList, ApprovalOut, DecisionIn
from app.wire.rules import RulesIn, RulesOut
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import Amount
from grovekeeper_forests.privacy.accountants.accountant import steps_down

_ACTS = {"approve": EntryKind.JOB_APPROVED, "reject": EntryKind.JOB_REJECTED}
_READ_DECISIONS = 100  # acts among which those of an owner are found


def rules_of(body: RulesIn, accountant: str) -> Rules:
    """Converts a request to rules in whole steps, rounded down.

    Raises:
        InvalidRequest: an amount is less than one step, or above every cap.
    """
    quotas = set[Quota]()
    for number, quota in enumerate(body.quotas):
        cap = _steps(quota.cap, accountant, at=f"/quotas/{number}/cap")
        quotas.add(Quota(frozenset(quota.keys), cap))
    # In one order: rules that another owner sends again are compared as JSON.
    in_order = sorted(quotas, key=lambda quota: (sorted(quota.keys), quota.cap))
    return Rules(
        largest_job=_optional_steps(body.largest_job, accountant, at="/largest_job"),
        approval_above=_optional_steps(
            body.approval_above, accountant, at="/approval_above"
        ),
        quotas=tuple(in_order),
        is_frozen=body.frozen,
        erase_rows_at=body.erase_rows_at,
    )


def json_of(rules: Rules, accountant: str) -> JsonObject:
    """The rules as answers and acts show them. Equal rules have equal forms."""
    return {
        "largest_job": _optional_text(accountant, rules.largest_job),
        "approval_above": _optional_text(accountant, rules.approval_above),
        "quotas": [
            {"keys": sorted(quota.keys), "cap": Amount(accountant, quota.cap).text}
            for quota in rules.quotas
        ],
        "frozen": rules.is_frozen,
        "erase_rows_at": stamps.text_or_none(rules.erase_rows_at),
    }


def _steps(amount: Fraction, accountant: str, *, at: str) -> int:
    # down: a limit that is rounded up would admit more than the owner wrote
    steps = steps_down(amount, accountants.by_name(accountant).PLACES)
    if steps == 0:
        smallest = Amount(accountant, 1).text
        raise InvalidRequest.at(at, "too-small", accepted=[f"at least {smallest}"])
    if steps > limits.MAX_STEPS:
        largest = Amount(accountant, limits.MAX_STEPS).text
        raise InvalidRequest.at(at, "too-large", accepted=[f"at most {largest}"])
    return steps


def _optional_steps(amount: Fraction | None, accountant: str, *, at: str) -> int | None:
    if amount is None:
        return None
    return _steps(amount, accountant, at=at)


def _optional_text(accountant: str, steps: int | None) -> str | None:
    if steps is None:
        return None
    return Amount(accountant, steps).text


def show_rules(
    installation: Installation, principal: Principal, reference: str
) -> RulesOut:
    """Shows the rules of a dataset."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        return rules_out(session, dataset)


def list_frozen(
    installation: Installation, principal: Principal
) -> list[tuple[str, str]]:
    """Lists the frozen datasets whose rows are not erased, by id and name."""
    principal.require(Role.ADMIN)
    with installation.database.read() as session:
        frozen = catalog.named(session, rules.frozen_accounts(session))
        return [
            (dataset_id, named.name)
            for dataset_id, named in sorted(frozen.items())
            if named.deleted_at is None
        ]


def living_proposal(session: Session, row: RulesRow | None) -> JsonObject | None:
    """The proposed rules, their owner and the time, until the proposal expires."""
    if row is None or row.proposal is None:
        return None
    proposed_at = stamps.from_text(row.proposal["at"])
    ends_at = proposed_at + timedelta(seconds=limits.MAX_PROPOSAL_S)
    if transaction_time(session) > ends_at:
        return None
    return row.proposal


def rules_out(session: Session, dataset: catalog.Dataset) -> RulesOut:
    """Formats the rules of a dataset."""
    row = rules.row_of(session, dataset.id)
    accountant = tables.account(session, dataset.id).accountant
    in_force = rules.rules_of(row)
    keys = frozenset[str]().union(*(quota.keys for quota in in_force.quotas))
    by_key = rules.usage(session, dataset.id, keys, key="").by_key
    shown = json_of(in_force, accountant)
    for quota, quota_out in zip(in_force.quotas, shown["quotas"], strict=True):
        steps = sum(by_key.get(key, 0) for key in quota.keys)
        quota_out["spent"] = Amount(accountant, steps).text
    return RulesOut.model_validate(
        {
            "dataset": dataset.id,
            "dataset_name": dataset.name,
            "unit": accountants.by_name(accountant).UNIT,
            **shown,
            "changed_by": None if row is None else row.changed_by,
            "changed_at": None if row is None else stamps.to_text(row.changed_at),
            "proposal": living_proposal(session, row),
            "etag": _etag(session, dataset, row),
        }
    )


def _etag(session: Session, dataset: catalog.Dataset, row: RulesRow | None) -> str:
    changed = None
    if row is not None:
        changed = [row.changed_by, stamps.to_text(row.changed_at)]
    return etag_of(dataset.id, changed, living_proposal(session, row))


def change_rules(
    installation: Installation,
    principal: Principal,
    reference: str,
    body: RulesIn,
    *,
    condition: Condition = None,
) -> RulesOut:
    """Replaces the rules of a dataset.

    A tightening is in force at once, and so is every change by an admin. A loosening by
    an owner is kept as a proposal. It is in force once another owner sends the same
    rules within ``limits.MAX_PROPOSAL_S``. Any other change drops the proposal; so does
    sending the rules in force again.

    Args:
        condition: on the rules and the proposal that a change replaces; a repeated
            request changes nothing. Every dataset has rules, so they are never new.

    Raises:
        ChangedMeanwhile: the condition does not hold.
        DatasetDeleted: the dataset's rows are erased.
        ErasureDue: their date has come.
        InvalidRequest: an amount or a date is out of range, or a quota names an unknown
            key or a key twice.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        # keys are never deleted, so no lock is needed
        body = _with_ids(session, principal, dataset.id, body)
        catalog.locked(session, dataset.id).living()
        change = _Change(session, principal, dataset, condition)
        change.request(rules_of(body, change.accountant))
        return rules_out(session, dataset)


class _Change:
    """One change, under the lock of the dataset."""

    def __init__(
        self,
        session: Session,
        principal: Principal,
        dataset: catalog.Dataset,
        condition: Condition,
    ) -> None:
        self._session = session
        self._principal = principal
        self._dataset = dataset
        self._at = transaction_time(session)
        self.accountant = tables.account(session, dataset.id).accountant
        self._row = rules.row_of(session, dataset.id)
        self._before = rules.rules_of(self._row)
        if self._before.is_due(self._at):
            raise ErasureDue(dataset.id, dataset.name)
        self._proposal = living_proposal(session, self._row)
        self._condition = condition

    def request(self, rules: Rules) -> None:
        if self._condition == NOTHING:
            raise ChangedMeanwhile
        erase_at = rules.erase_rows_at
        if erase_at is not None and erase_at <= self._at:
            raise InvalidRequest.at("/erase_rows_at", "past")
        if self._principal.is_admin or not loosens(self._before, rules):
            if rules != self._before or self._proposal is not None:
                self._put(rules, proposed_by=None)
            return
        proposer, is_proposed = None, False
        if self._proposal is not None:
            proposer = str(self._proposal["by"])
            is_proposed = self._proposal["rules"] == json_of(rules, self.accountant)
        # A key that sends its own proposal again changes nothing: it cannot agree with
        # itself, and the proposal keeps its time.
        if is_proposed and proposer == self._principal.key_id:
            return
        if is_proposed and proposer is not None and self._is_owner(proposer):
            self._put(rules, proposed_by=proposer)
        else:
            self._propose(rules)

    def _is_owner(self, key_id: str) -> bool:
        """Whether the key of a proposal is an owner still."""
        try:
            proposer = grants.read(self._session, key_id)
        except Unauthenticated:
            return False
        return grants.granted(self._session, proposer, self._dataset.id) is Role.OWNER

    def _require_unchanged(self) -> None:
        etag = _etag(self._session, self._dataset, self._row)
        require_unchanged(self._condition, etag)

    def _put(self, rules: Rules, *, proposed_by: str | None) -> None:
        self._require_unchanged()
        # Jobs that could not start while the dataset was frozen wait anew. They are
        # locked before the account, as everywhere.
        if self._before.is_frozen and not rules.is_frozen:
            queue.restart_waits(self._session, self._dataset.id, at=self._at)
        # a charge checks the rules under this lock
        tables.locked_account(self._session, self._dataset.id)
        put(self._session, self._dataset.id, rules, actor=self._principal.key_id)
        self._record(EntryKind.RULES_CHANGED, rules, proposed_by=proposed_by)

    def _propose(self, rules: Rules) -> None:
        self._require_unchanged()
        assert self._row is not None, "without rules no change is a loosening"
        proposed = json_of(rules, self.accountant)
        self._row.proposal = {
            "rules": proposed,
            "by": self._principal.key_id,
            "at": stamps.to_text(self._at),
        }
        self._session.flush()
        self._record(EntryKind.RULES_PROPOSED, rules)

    def _record(self, kind: EntryKind, rules: Rules, **details: object) -> None:
        facts = {
            "dataset": self._dataset.id,
            "rules": json_of(rules, self.accountant),
            **details,
        }
        control.record(self._session, kind, actor=self._principal.key_id, **facts)


def _with_ids(
    session: Session, principal: Principal, dataset_id: str, body: RulesIn
) -> RulesIn:
    """The rules with the ids of the keys that quotas name by id or by name. Refuses
    quotas that name a key twice, or a key that does not exist, which would limit
    nothing.
    """
    named = set[str]().union(*(quota.keys for quota in body.quotas))
    ids = {key: key for key in keys.existing(session, named)}
    quotas = []
    for number, quota in enumerate(body.quotas):
        pointer = f"/quotas/{number}/keys"
        for name in quota.keys:
            key = ids.get(name) or grants.key_named(
                session, principal, dataset_id, name, at=pointer
            )
            if key is None:
                raise InvalidRequest.at(pointer, "unknown-key")
            ids[name] = key
        of_quota = [ids[name] for name in quota.keys]
        if len(set(of_quota)) != len(of_quota):
            raise InvalidRequest.at(pointer, "not-distinct")
        quotas.append(quota.model_copy(update={"keys": of_quota}))
    return body.model_copy(update={"quotas": quotas})


def list_approvals(
    installation: Installation, principal: Principal, page: PageRequest
) -> ApprovalList:
    """Lists the jobs that wait for a decision for a dataset of the caller, oldest
    first.
    """
    with installation.database.read() as session:
        owned = grants.datasets_with(session, principal, MANAGE_DATASET)
        shown, following = page_of(
            page,
            lambda limit: queue.several(
                session,
                queue.page_of_waiting(
                    session, dataset_ids=owned, after=page.cursor, limit=limit
                ),
            ),
            lambda row: row.id,
            lambda row: json_text.n_bytes(row.task),
        )
        undecided = queue.open_approvals(session, [row.id for row in shown])
        approvals = []
        for row in shown:
            dataset_ids = undecided[row.id]
            # a job may wait for owners of other datasets, too
            if owned is not None:
                dataset_ids = [id_ for id_ in dataset_ids if id_ in owned]
            approvals.append(_approval_out(session, principal, row, dataset_ids))
        return ApprovalList(approvals=approvals, next=following)


@dataclass(frozen=True)
class Decision:
    """A decision about a job, with the state that the job has now."""

    job: ApprovalOut
    is_approval: bool
    by: str
    by_name: str | None
    at: str
    reason: str


def list_decisions(installation: Installation, principal: Principal) -> list[Decision]:
    """Lists the newest decisions about jobs of datasets that the caller owns, newest
    first. A decision that names another dataset, too, is left out.
    """
    with installation.database.read() as session:
        owned = grants.datasets_with(session, principal, MANAGE_DATASET)
        acts = statements.newest_entries(
            session,
            control.CHAIN,
            before=None,
            limit=_READ_DECISIONS,
            chosen=statements.EntryFilter(kinds=list(_ACTS.values())),
        )
        decisions: list[Decision] = []
        for act in acts:
            if len(decisions) == limits.MAX_ATTENTION:
                break  # each costs queries, and the scopes of its job are in memory
            details = act.details or {}
            dataset_ids = details["datasets"]
            if owned is not None and not set(owned).issuperset(dataset_ids):
                continue
            decider = (dataset_ids[0], act.actor)
            names = grants.names_on_datasets(session, principal, [decider])
            for row in queue.several(session, [details["job"]]):
                decision = Decision(
                    job=_approval_out(session, principal, row, dataset_ids),
                    is_approval=act.kind == EntryKind.JOB_APPROVED,
                    by=act.actor,
                    by_name=names.get(decider),
                    at=act.at,
                    reason=details["reason"],
                )
                decisions.append(decision)
        return decisions


def decide(
    installation: Installation, principal: Principal, job_id: str, body: DecisionIn
) -> ApprovalOut:
    """Approves or rejects a waiting job for every dataset of the caller for which a
    decision is open.

    A job whose last open decision is an approval is queued. A rejection ends the job
    and voids its reservations; so does an approval if the submitter may not train any
    more, and it is refused.

    Raises:
        NotFound: no such job, or it waits for nobody whom this key may see.
        RoleMissing: the key owns no dataset for which the job waits.
        SameSubmitter: the key submitted the job.
        NotWaiting: the job does not wait for a decision of this key.
        SubmitterRevoked: the submitter may not train any more; the job has ended.
    """
    with write_as(installation, principal) as (session, principal):
        row = queue.locked(session, job_id)
        approvals = queue.approvals_of_job(session, job_id)
        # a job that never waited is shown or hidden by its own dataset
        job_datasets = [approval.dataset_id for approval in approvals]
        owned = _owned_datasets(session, principal, job_datasets or [row.dataset_id])
        if row.submitted_by == principal.key_id:
            raise SameSubmitter
        at = transaction_time(session)
        undecided = [
            approval
            for approval in approvals
            if approval.decision is None and approval.dataset_id in owned
        ]
        if row.state != JobState.WAITING or at > _expires_at(row) or not undecided:
            raise NotWaiting
        dataset_ids = [approval.dataset_id for approval in undecided]
        end = partial(notices.end_locked, session, [row], actor=principal.key_id)
        try:
            if body.decision == "approve":
                require_submitter(session, row)
        except SubmitterRevoked as revoked:
            # raised after the commit, with which the job has ended
            refusal = revoked
            end(state=JobState.FAILED, reason=EndReason(revoked.reason))
        else:
            queue.record_decisions(undecided, body.decision, by=principal.key_id, at=at)
            if body.decision == "reject":
                end(reason=EndReason.REJECTED)
            else:
                _cover(session, row, dataset_ids)
                if all(approval.decision == "approve" for approval in approvals):
                    queue.enqueue_approved(row, at=at)
                    notices.job_changed(session, row, notices.JOB_QUEUED)
            act = _ACTS[body.decision]
            control.record(
                session,
                act,
                actor=principal.key_id,
                job=row.id,
                datasets=dataset_ids,
                reason=body.reason,
            )
            return _approval_out(session, principal, row, dataset_ids)
    raise refusal


def _cover(session: Session, row: JobRow, dataset_ids: Sequence[str]) -> None:
    """Ends the count of the submitter on the accounts of an approval, but for its other
    waiting jobs.

    Submissions lock the accounts, too, so no job of the submitter begins to wait there
    meanwhile.
    """
    for account_id in dataset_ids:
        tables.locked_account(session, account_id)
    waiting = [
        job_id
        for job_id in queue.waiting_of_key(session, row.submitted_by)
        if job_id != row.id
    ]
    for account_id in dataset_ids:
        rules.approve(session, account_id, row.submitted_by, waiting=waiting)


def _owned_datasets(
    session: Session, principal: Principal, dataset_ids: Sequence[str]
) -> list[str]:
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


def _approval_out(
    session: Session, principal: Principal, row: JobRow, dataset_ids: Collection[str]
) -> ApprovalOut:
    """Formats a job with its parts on some datasets, for a caller who owns them."""
    names: dict[str, str] = {}
    for dataset_id in dataset_ids:
        names |= grants.names_of_keys(
            session, principal, dataset_id, [row.submitted_by]
        )
    parts = [
        {
            "dataset": part.dataset,
            "dataset_name": part.dataset_name,
            "scope": part.scope,
            "price": part.price,
        }
        for part in row.parts
        if part.dataset in dataset_ids
    ]
    return ApprovalOut.model_validate(
        {
            **row.fields(
                "kind",
                "algorithm",
                "what",
                "name",
                "purpose",
                "state",
                "submitted_by",
                "submitted_at",
            ),
            "job": row.id,
            "submitted_by_name": names.get(row.submitted_by),
            "expires_at": stamps.to_text(_expires_at(row)),
            "parts": parts,
        }
    )

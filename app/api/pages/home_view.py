"""Prepares the first page: what needs the caller, the jobs of a day, and budgets."""

from dataclasses import dataclass

from app.api.pages import words
from app.wire.approvals import ApprovalOut
from app.wire.attention import (
    AttentionOut,
    BudgetOut,
    ExpiringKey,
    RulesProposal,
    UnverifiedLedger,
)
from app.wire.jobs import ListedJob
from grovekeeper_common.job_words import HOLDS
from grovekeeper_common.limit_words import is_used_up, limit_in_words
from grovekeeper_common.verification_words import verification_in_words


@dataclass(frozen=True)
class Need:
    """Something that needs the caller.

    Attributes:
        tone: the colour of its icon; ``amber`` or ``red``.
        title: what it is, with the amount.
        sentence: who asks, and until when.
        path: of the page on which the caller acts.
        verb: what the caller does there.
        is_decision: whether the caller decides there.
    """

    tone: str
    icon: str
    title: str
    sentence: str
    path: str
    verb: str
    is_decision: bool = False


def needs_of(attention: AttentionOut) -> list[Need]:
    """What needs the caller, decisions first."""
    return [
        *map(_approval, attention.approvals),
        *map(_proposal, attention.proposals),
        *map(_held, attention.held),
        *map(_failed, attention.failed),
        *(
            _used_up(budget)
            for budget in attention.budgets
            if is_used_up(budget.model_dump())
        ),
        *map(_refuted, filter(has_failed, attention.ledgers)),
        *map(_ending_key, attention.keys),
    ]


def has_failed(ledger: UnverifiedLedger) -> bool:
    """Whether the last verification of a ledger failed."""
    return ledger.verification is not None and ledger.verification.entries is None


def _approval(job: ApprovalOut) -> Need:
    prices = ", ".join(
        f"{words.price(part.price)} of {part.dataset_name}" for part in job.parts
    )
    purpose = f" Purpose: {job.purpose}." if job.purpose else ""
    return Need(
        "amber",
        "waiting",
        f"Decide: {_name(job)}, {prices}",
        f"Asked by {_submitter(job)} on {words.minute(job.submitted_at)} UTC.{purpose} "
        f"Without a decision it ends on {words.minute(job.expires_at)} UTC.",
        "/ui/approvals",
        "Decide",
        is_decision=True,
    )


def _proposal(proposal: RulesProposal) -> Need:
    return Need(
        "amber",
        "waiting",
        f"Decide: looser rules of {proposal.dataset_name}",
        f"Proposed by {proposal.by_name or proposal.by} on {words.minute(proposal.at)} UTC.",
        f"/ui/datasets/{proposal.dataset}/rules",
        "Decide",
        is_decision=True,
    )


def _submission(job: ListedJob) -> str:
    at = words.minute(job.submitted_at)
    return f"On {job.dataset_name}, submitted by {_submitter(job)} on {at} UTC."


def _held(job: ListedJob) -> Need:
    why = HOLDS.get(job.held_by or "", "workers try again")
    return Need(
        "amber",
        "waiting",
        f"Not started: {_name(job)}",
        f"{_submission(job)} {words.sentence(why)}",
        f"/ui/jobs/{job.id}",
        "See why",
    )


def _failed(job: ListedJob) -> Need:
    return Need(
        "red",
        "failed",
        f"Failed: {_name(job)}, {_fate(job)}",
        _submission(job),
        f"/ui/jobs/{job.id}",
        "Open",
    )


def _used_up(budget: BudgetOut) -> Need:
    limit = limit_in_words(budget.limited_by, budget.population)
    return Need(
        "red",
        "failed",
        f"No job on all of {budget.dataset_name} fits any more",
        f"Limited by {limit}.",
        f"/ui/datasets/{budget.dataset}",
        "Open",
    )


def _refuted(ledger: UnverifiedLedger) -> Need:
    assert ledger.verification is not None
    return Need(
        "red",
        "failed",
        f"The ledger of {ledger.account_name} was not verified",
        f"{verification_in_words(ledger.verification.model_dump())}.",
        f"/ui/ledger/{ledger.account}",
        "Open",
    )


def _ending_key(key: ExpiringKey) -> Need:
    return Need(
        "amber",
        "key",
        f"Key {key.name} ends on {words.minute(key.expires_at)} UTC",
        f"An administrator rotates it: {key.id}",
        f"/ui/admin/keys?name={key.id}",
        "Open",
    )


def _name(job: ApprovalOut | ListedJob) -> str:
    return job.name or job.what


def _fate(job: ListedJob) -> str:
    if job.charged:
        return f"{words.price(job.price)} stays charged"
    return "nothing was charged"


def _submitter(job: ApprovalOut | ListedJob) -> str:
    """The name of the key that submitted a job, where the reader may know it; else its
    id.
    """
    return job.submitted_by_name or job.submitted_by


@dataclass(frozen=True)
class BudgetRow:
    """A dataset in a table of budgets.

    Attributes:
        fits: the largest ε of one job that fits now; ``nothing`` if none does.
        why: which limit decides; empty where the cap leaves something.
    """

    budget: BudgetOut
    fits: str
    why: str


def budget_row(budget: BudgetOut) -> BudgetRow:
    """A dataset as its row in a table of budgets."""
    fits, why = f"ε = {words.left(budget.largest_that_fits)}", ""
    if budget.largest_that_fits == "0":
        fits = "nothing"
    if budget.limited_by != "cap" or budget.largest_that_fits == "0":
        why = f"limited by {limit_in_words(budget.limited_by, budget.population)}"
    return BudgetRow(budget, fits, why)

"""Prepares the first page: what needs the caller, the jobs of a day, and budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.api.pages import words
from app.wire.attention import AttentionOut, BudgetOut
from app.wire.jobs import ListedJob
from grovekeeper_common.limit_words import limit_in_words
from grovekeeper_forests.amounts import SYMBOLS


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


def needs_of(found: AttentionOut) -> list[Need]:
    """What needs the caller, decisions first."""
    needs = []
    for job in found.approvals:
        prices = ", ".join(
            f"{words.price(part.price)} of {part.dataset_name}" for part in job.parts
        )
        purpose = f" Purpose: {job.purpose}." if job.purpose else ""
        who = job.submitted_by_name or job.submitted_by
        needs.append(
            Need(
                "amber",
                "waiting",
                f"Decide: {job.name or job.algorithm or job.kind}, {prices}",
                f"Asked by {who} on {words.minute(job.submitted_at)} UTC.{purpose} "
                f"Without a decision it ends on {words.minute(job.expires_at)} UTC.",
                "/ui/approvals",
                "Decide",
                is_decision=True,
            )
        )
    for proposal in found.proposals:
        who = proposal.by_name or proposal.by
        needs.append(
            Need(
                "amber",
                "waiting",
                f"Decide: looser rules of {proposal.dataset_name}",
                f"Proposed by {who} on {words.minute(proposal.at)} UTC.",
                f"/ui/datasets/{proposal.dataset}/rules",
                "Decide",
                is_decision=True,
            )
        )
    for held in found.held:
        needs.append(
            Need(
                "amber",
                "waiting",
                f"Not started: {_name(held)}, {held.held_by}",
                f"On {held.dataset_name}, submitted by {who_submitted(held)} on "
                f"{words.minute(held.submitted_at)} UTC. Workers try again.",
                f"/ui/jobs/{held.id}",
                "See why",
            )
        )
    for failed in found.failed:
        needs.append(
            Need(
                "red",
                "failed",
                f"Failed: {_name(failed)}, {_fate(failed)}",
                f"On {failed.dataset_name}, submitted by {who_submitted(failed)} on "
                f"{words.minute(failed.submitted_at)} UTC.",
                f"/ui/jobs/{failed.id}",
                "See why",
            )
        )
    for budget in found.budgets:
        if _is_used_up(budget):
            limit = limit_in_words(budget.limited_by, budget.population)
            needs.append(
                Need(
                    "red",
                    "failed",
                    f"No job on all of {budget.dataset_name} fits any more",
                    f"Limited by {limit}.",
                    f"/ui/datasets/{budget.dataset}",
                    "Open",
                )
            )
    for key in found.keys:
        needs.append(
            Need(
                "amber",
                "key",
                f"Key {key.name} ends on {words.minute(key.expires_at)} UTC",
                f"An administrator rotates it: {key.id}",
                f"/ui/admin/keys?name={key.id}",
                "Open",
            )
        )
    return needs


def _is_used_up(budget: BudgetOut) -> bool:
    """Whether no more of the budget is left for a key that might spend it."""
    is_spent = budget.limited_by in ("cap", "population")
    fits = budget.largest_that_fits != "0"
    return is_spent and budget.may_submit and not fits


def _name(job: ListedJob) -> str:
    return job.name or job.algorithm or job.kind


def _fate(job: ListedJob) -> str:
    if job.charged:
        return f"{words.price(job.price)} stays charged"
    return "nothing was charged"


def who_submitted(job: ListedJob) -> str:
    """The name of the key that submitted a job, where the reader may know it; else its
    id.
    """
    return job.submitted_by_name or job.submitted_by


@dataclass(frozen=True)
class Line:
    """A job of the last day.

    Attributes:
        text: what happened, as the start of a sentence.
        amount: what was charged; empty for a job that is not charged.
    """

    path: str
    at: str
    text: str
    amount: str


_DID: Mapping[str, str] = {
    "waiting": "asked for",
    "queued": "queued",
    "running": "runs",
    "succeeded": "ran",
    "failed": "ran, and it failed:",
    "cancelled": "cancelled",
}
"""What the submitter of a job did, by the state of the job."""


def lines_of(jobs: Sequence[ListedJob]) -> list[Line]:
    """The jobs of the last day, newest first."""
    lines = []
    for job in jobs:
        did = f"{who_submitted(job)} {_DID[job.state]} {_name(job)}"
        line = Line(
            f"/ui/jobs/{job.id}",
            job.submitted_at,
            f"{did} on {job.dataset_name}",
            words.price(job.price) if job.charged else "",
        )
        lines.append(line)
    return lines


@dataclass(frozen=True)
class BudgetRow:
    """A dataset in a table of budgets.

    Attributes:
        fits: the largest ε of one job that fits now; ``nothing`` if none does.
        why: which limit decides; empty where the cap leaves something.
        tone: the colour of the state, which has an ``icon``.
    """

    budget: BudgetOut
    words: str
    left: str
    fits: str
    why: str
    state: str
    tone: str
    icon: str


def budget_row(budget: BudgetOut) -> BudgetRow:
    """A dataset as its row in a table of budgets."""
    account, symbol = budget.account, SYMBOLS[budget.account.unit]
    fits, why = f"ε = {words.left(budget.largest_that_fits)}", ""
    if budget.largest_that_fits == "0":
        fits = "nothing"
    if budget.limited_by != "cap" or budget.largest_that_fits == "0":
        why = f"limited by {limit_in_words(budget.limited_by, budget.population)}"
    reserved = (
        f", {words.spent(account.reserved)} reserved" if account.reserved != "0" else ""
    )
    state, tone, icon = _state(budget)
    return BudgetRow(
        budget,
        f"{words.spent(account.charged)} of {account.cap} {symbol} charged{reserved}",
        f"{words.left_beside(account.cap, account.charged, account.reserved)} {symbol}",
        fits,
        why,
        state,
        tone,
        icon,
    )


def _state(budget: BudgetOut) -> tuple[str, str, str]:
    """The state of a dataset in words, with the colour and the icon of the words."""
    if budget.limited_by == "frozen":
        return "frozen", "", "lock"
    if not budget.has_rows:
        return "no rows yet", "", "upload"
    if budget.largest_that_fits == "0":
        return "nothing fits", "red", "failed"
    return "active", "calm", "ok"

"""Serves the pages of jobs: the list, one job with live progress, and the jobs that
wait for an owner.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter, Response

from app.api.pages import words
from app.api.pages.dataset_view import tabs_of
from app.api.pages.forms import Form, checked, submitted
from app.api.pages.home_view import who_submitted
from app.api.pages.rendering import Visitor
from app.api.requests import BodyRoute, NameFilter, Page
from app.api.streams import job_events
from app.jobs.queue import JobFilter
from app.jobs.states import JobState
from app.services import dataset_rules, keys
from app.services.datasets import show
from app.services.jobs import show_jobs
from app.services.pagination import PageRequest
from app.wire.approvals import DecisionIn
from app.wire.jobs import JobOut
from app.wire.jobs import JobState as JobStateName
from app.wire.spending import PriceOut

job_pages = APIRouter(prefix="/ui/jobs", route_class=BodyRoute)


@job_pages.get("")
def list_jobs(
    visit: Visitor,
    page: Page,
    dataset: NameFilter = None,
    state: JobStateName | None = None,
) -> Response:
    """Show the jobs of all datasets on which the key may train, or of one dataset,
    newest first; all of them, or those in a state.
    """
    matching = JobFilter(dataset, state=state)
    listed = show_jobs.list_jobs(*visit.by, page, matching)
    undecided = dataset_rules.list_approvals(*visit.by, PageRequest(limit=1)).approvals
    of = None
    if dataset is not None:
        of = show.show_dataset(*visit.by, dataset)
    fields = {"dataset": "" if of is None else of.id, "state": state or ""}
    return visit.page(
        "jobs",
        jobs=[(job, who_submitted(job)) for job in listed.jobs],
        following=listed.next,
        undecided=undecided,
        of=of,
        dataset_parts=tabs_of(visit, of.id, "Jobs") if of else [],
        fields=fields,
        tabs=_tabs(show_jobs.count_jobs(*visit.by, dataset), fields),
    )


@dataclass(frozen=True)
class _Tab:
    """A link to the jobs in a state, or to all of them; ``query`` is its address."""

    label: str
    query: str
    is_current: bool


def _tabs(counted: Mapping[JobState, int], fields: Mapping[str, str]) -> list[_Tab]:
    of_all = {**fields, "state": ""}
    tabs = [_Tab("All", words.query_of(of_all), not fields["state"])]
    for state, number in counted.items():
        is_current = state.value == fields["state"]
        if number or is_current:
            query = words.query_of({**fields, "state": state.value})
            label = f"{state.value.capitalize()} {number}"
            tabs.append(_Tab(label, query, is_current))
    return tabs


@job_pages.get("/{job_id}")
def show_job(visit: Visitor, job_id: str) -> Response:
    """Show one job; the script replaces its state while the job runs."""
    job = show_jobs.show_job(*visit.by, job_id)
    names = keys.names_of_keys(*visit.by, job.dataset, [job.submitted_by])
    return visit.page("job", job=job, words=_in_words(job), names=names)


@dataclass(frozen=True)
class _JobInWords:
    """What the page of a job says.

    Attributes:
        title: the name of the job, or what it does.
        what: the kind of the job and its algorithm.
        has_ended: whether its state is its last one.
        shows_trees: whether the number of grown trees says how far it is.
        why_queued: why no worker runs it yet, if it is queued.
        why_failed: why it failed after its charge, as far as that is public.
        privacy_loss: its price as ε and δ, if the price is in another unit.
        command: shows a release that has no page.
    """

    title: str
    what: str
    has_ended: bool
    shows_trees: bool
    why_queued: str
    why_failed: str
    privacy_loss: str
    command: str


_WHY_QUEUED: Mapping[str | None, str] = {
    None: "It waits for a worker.",
    "frozen": "A dataset that it reads is frozen: no worker starts it until an owner or "
    "an admin ends the freeze.",
    "erasure-due": "The date has come at which a dataset that it reads is erased: no "
    "worker starts it, and the erasure cancels it.",
    "no-room": "The disk of its worker has no room for its output, or cannot be written; workers try again.",
    "rows-absent": "A file of its rows is absent or cannot be read; workers try again "
    "when the operator has brought it back.",
    "model-absent": "The file of a model that it evaluates is absent or cannot be read; "
    "workers try again when the operator has brought it back.",
    "cannot-load": "A process for it cannot load the code of jobs, or use what the job "
    "needs: the log of its worker says why. Workers try again.",
}
"""Why a queued job does not run, by what holds it."""

_WHY_FAILED = {
    "failed": "Why it failed is not shown: the reason could depend on them.",
    "lost": "Its worker stopped, or could not reach the database for too long.",
}
"""Why a charged job failed, by the reason of its end."""


def _in_words(job: JobOut) -> _JobInWords:
    kind = "training" if job.kind == "train" else job.kind
    default = f"{job.what} on {job.dataset_name}"
    return _JobInWords(
        title=job.name or default,
        what=kind if kind == job.what else f"{kind}, {job.what}",
        has_ended=job.state in ("succeeded", "failed", "cancelled"),
        shows_trees=job.n_trees > 0 and job.state == "running",
        why_queued=_WHY_QUEUED[job.held_by],
        # A reason of a newer version has no words here.
        why_failed=_WHY_FAILED.get(job.reason or "", ""),
        privacy_loss="" if job.unlabelled else _privacy_loss(job.price),
        command=_command(job),
    )


def _command(job: JobOut) -> str:
    if job.profile_id is not None:
        return f"grovekeeper profiles show {job.profile_id}"
    return ""


def _privacy_loss(price: PriceOut) -> str:
    if price.unit == "epsilon":
        return ""
    if price.delta:
        return f"(ε = {price.epsilon}, δ = {price.delta})"
    return f"(ε = {price.epsilon})"


@job_pages.post("/{job_id}/cancel")
async def cancel_job(visit: Visitor, job_id: str) -> Response:
    """Cancel a job and show it."""

    def act(form: Form) -> str:
        show_jobs.cancel_job(*visit.by, job_id)
        return f"/ui/jobs/{job_id}"

    return await submitted(visit, act, lambda refused: show_job(refused, job_id))


@job_pages.get("/{job_id}/events")
async def watch_job(visit: Visitor, job_id: str) -> Response:
    """Tell the script of a job's page about every change, until the job has ended."""
    return await job_events(
        visit.request, *visit.by, job_id, lambda _: b"data: changed\n\n"
    )


approval_pages = APIRouter(prefix="/ui/approvals", route_class=BodyRoute)


@approval_pages.get("")
def list_approvals(visit: Visitor, page: Page) -> Response:
    """Show the jobs that wait for a decision for a dataset that the key owns, oldest
    first.
    """
    listed = dataset_rules.list_approvals(*visit.by, page)
    return visit.page("approvals", approvals=listed.approvals, following=listed.next)


@approval_pages.post("/{job_id}")
async def decide(visit: Visitor, job_id: str) -> Response:
    """Approve or reject a waiting job."""

    def act(form: Form) -> str:
        body = checked(
            DecisionIn,
            {name: form.get(name, "").strip() for name in ("decision", "reason")},
        )
        dataset_rules.decide(*visit.by, job_id, body)
        return "/ui/approvals"

    return await submitted(
        visit, act, lambda refused: list_approvals(refused, PageRequest())
    )

"""Serves the pages of jobs: the list, one job with live progress, and the jobs that
wait for an owner.
"""

from fastapi import APIRouter, Response

from app.api.pages.forms import Form, checked, submitted
from app.api.pages.rendering import Visitor
from app.api.requests import BodyRoute, NameFilter, Page
from app.api.streams import job_events
from app.jobs.queue import JobFilter
from app.services import dataset_rules
from app.services.datasets import show
from app.services.jobs import show_jobs
from app.services.pagination import PageRequest
from app.wire.approvals import DecisionIn

job_pages = APIRouter(prefix="/ui/jobs", route_class=BodyRoute)


@job_pages.get("")
def list_jobs(visit: Visitor, page: Page, dataset: NameFilter = None) -> Response:
    """Show the jobs of all datasets on which the key may train, or of one dataset,
    newest first.
    """
    listed = show_jobs.list_jobs(*visit.by, page, JobFilter(dataset))
    undecided = dataset_rules.list_approvals(*visit.by, PageRequest(limit=1)).approvals
    of = None if dataset is None else show.show_dataset(*visit.by, dataset)
    return visit.page(
        "jobs", jobs=listed.jobs, following=listed.next, undecided=undecided, of=of
    )


@job_pages.get("/{job_id}")
def show_job(visit: Visitor, job_id: str) -> Response:
    """Show one job; the script replaces its state while the job runs."""
    return visit.page("job", job=show_jobs.show_job(*visit.by, job_id))


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

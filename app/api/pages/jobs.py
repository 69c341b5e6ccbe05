"""Serves the pages of jobs: the list, one job with live progress, and the jobs that wait for an owner."""

from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from app.access.grants import Principal
from app.api.pages.forms import Form, PageRoute, checked, submitted
from app.api.pages.rendering import rendered, rendered_with
from app.api.requests import Caller, CurrentInstallation, NameFilter, Page
from app.api.streams import JobEvents
from app.core.errors import GrovekeeperError
from app.jobs.queue import JobFilter
from app.services import dataset_rules
from app.services.datasets import show
from app.services.installation import Installation
from app.services.jobs import show_jobs
from app.services.pages import PageRequest
from app.wire.rules import DecisionIn

job_pages = APIRouter(prefix="/ui/jobs", route_class=PageRoute)


@job_pages.get("")
def list_jobs(
    request: Request, installation: CurrentInstallation, caller: Caller, page: Page, dataset: NameFilter = None
) -> Response:
    """Show the jobs of all datasets on which the key may train, or of one dataset, newest first."""
    listed = show_jobs.list_jobs(installation, caller, page, JobFilter(dataset))
    undecided = dataset_rules.list_approvals(installation, caller, PageRequest(limit=1)).approvals
    of = None if dataset is None else show.show_dataset(installation, caller, dataset)
    return rendered(request, "jobs", jobs=listed.jobs, following=listed.next, undecided=undecided, of=of)


@job_pages.get("/{job_id}")
def show_job(request: Request, installation: CurrentInstallation, caller: Caller, job_id: str) -> Response:
    """Show one job; the script replaces its state while the job runs."""
    return _job_page(request, installation, caller, job_id)


@job_pages.post("/{job_id}/cancel")
async def cancel_job(request: Request, installation: CurrentInstallation, caller: Caller, job_id: str) -> Response:
    """Cancel a job and show it."""

    def act(form: Form) -> str:
        show_jobs.cancel_job(installation, caller, job_id)
        return f"/ui/jobs/{job_id}"

    return await submitted(
        request, act, lambda refusal: _job_page(request, installation, caller, job_id, refusal=refusal)
    )


@job_pages.get("/{job_id}/events")
async def watch_job(
    request: Request, installation: CurrentInstallation, caller: Caller, job_id: str
) -> StreamingResponse:
    """Tell the script of a job's page about every change, until the job has ended."""
    events: JobEvents = request.app.state.job_events
    first = await events.checked_job(installation, caller, job_id)

    async def stream() -> AsyncIterator[bytes]:
        async for _ in events.follow(installation, caller, first):
            yield b"data: changed\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


def _job_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    job_id: str,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    return rendered_with(request, "job", refusal, job=show_jobs.show_job(installation, caller, job_id))


approval_pages = APIRouter(prefix="/ui/approvals", route_class=PageRoute)


@approval_pages.get("")
def list_approvals(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show the jobs that wait for a decision for a dataset that the key owns, oldest first."""
    return _approval_page(request, installation, caller, page)


@approval_pages.post("/{job_id}")
async def decide(request: Request, installation: CurrentInstallation, caller: Caller, job_id: str) -> Response:
    """Approve or reject a waiting job."""

    def act(form: Form) -> str:
        body = checked(DecisionIn, {name: form.get(name, "").strip() for name in ("decision", "reason")})
        dataset_rules.decide(installation, caller, job_id, body)
        return "/ui/approvals"

    return await submitted(request, act, lambda refusal: _approval_page(request, installation, caller, refusal=refusal))


def _approval_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    page: PageRequest | None = None,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    listed = dataset_rules.list_approvals(installation, caller, page or PageRequest())
    return rendered_with(request, "approvals", refusal, approvals=listed.approvals, following=listed.next)

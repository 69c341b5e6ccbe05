"""Defines the routes of ``/algorithms``, ``/plans``, ``/train`` and ``/jobs``: quote, train, follow and cancel jobs.

The algorithms and numpy take 0.1 s of CPU and 16 MB to import, so routes import what needs them at their first request.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from app.api import problems
from app.api.capacity import Work
from app.api.requests import BodyRoute, Caller, CurrentInstallation, Idempotency, NameFilter, Page, limited, sent
from app.api.streams import JobEvents
from app.core.errors import (
    AccountantMismatch,
    AdjacencyMismatch,
    BalanceMismatch,
    DatasetDeleted,
    JobFinished,
    NoRowsYet,
    NotFound,
    NotSupported,
    RoleMissing,
)
from app.forests import catalogue
from app.jobs.queue import JobFilter
from app.services.jobs import show_jobs
from app.services.spending.training import show_plan, submit_training
from app.wire.spending import (
    AlgorithmList,
    AlgorithmOut,
    JobKind,
    JobList,
    JobOut,
    JobState,
    PlanIn,
    PlanOut,
    TrainIn,
    TrainOut,
)

router = APIRouter(tags=["training"], route_class=BodyRoute)


@router.get("/algorithms", operation_id="list_algorithms", responses=problems.documented())
def list_algorithms(_: Caller) -> AlgorithmList:
    """List every algorithm with its source, and its parameters with ranges and defaults."""
    return AlgorithmList(algorithms=[AlgorithmOut.model_validate(item) for item in catalogue.algorithms()])


@router.post(
    "/plans",
    operation_id="create_plan",
    responses=problems.documented(
        NotFound,
        RoleMissing,
        DatasetDeleted,
        AccountantMismatch,
        AdjacencyMismatch,
        NotSupported,
        *problems.JSON_BODY,
    ),
)
def create_plan(installation: CurrentInstallation, caller: Caller, body: PlanIn) -> PlanOut:
    """Quote a training job: its parameters, its releases and its price. Reads no row and costs nothing."""
    return show_plan(installation, caller, body)


@router.post(
    "/train",
    operation_id="train_model",
    status_code=202,
    response_model=TrainOut,
    responses=problems.documented(
        NotFound, RoleMissing, AccountantMismatch, AdjacencyMismatch, NoRowsYet, NotSupported, *problems.SPENDING
    ),
)
@limited(work=Work.SUBMISSION)
def train_model(installation: CurrentInstallation, caller: Caller, body: TrainIn, request: Idempotency) -> Response:
    """Reserve the price and queue the job, or refuse and say what would fit."""
    return sent(submit_training(installation, caller, body, request=request))


def job_filter(
    dataset: NameFilter = None, kind: JobKind | None = None, algorithm: NameFilter = None, state: JobState | None = None
) -> JobFilter:
    return JobFilter(dataset=dataset, kind=kind, algorithm=algorithm, state=state)


@router.get("/jobs", operation_id="list_jobs", responses=problems.documented())
def list_jobs(
    installation: CurrentInstallation, caller: Caller, page: Page, matching: Annotated[JobFilter, Depends(job_filter)]
) -> JobList:
    """List the jobs of all datasets on which the key may train, newest first; query parameters filter the list."""
    return show_jobs.list_jobs(installation, caller, page, matching)


@router.get("/jobs/{job_id}", operation_id="show_job", responses=problems.documented(NotFound, RoleMissing))
def show_job(installation: CurrentInstallation, caller: Caller, job_id: str) -> JobOut:
    """Show a job's state and the number of finished trees."""
    return show_jobs.show_job(installation, caller, job_id)


@router.delete(
    "/jobs/{job_id}",
    operation_id="cancel_job",
    responses=problems.documented(NotFound, RoleMissing, JobFinished, BalanceMismatch),
)
def cancel_job(installation: CurrentInstallation, caller: Caller, job_id: str) -> JobOut:
    """Cancel a job. Before the charge its reservation is voided; after the charge, the charge stays."""
    return show_jobs.cancel_job(installation, caller, job_id)


@router.get(
    "/jobs/{job_id}/events",
    operation_id="watch_job",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One event per change, until the job ends or the key may not see it any more.",
            "content": {"text/event-stream": {}},
        },
        **problems.documented(NotFound, RoleMissing),
    },
)
async def watch_job(
    request: Request, installation: CurrentInstallation, caller: Caller, job_id: str
) -> StreamingResponse:
    """Stream a job as server-sent events: one `job` event per change, until the job has ended.

    The stream also ends when the key or its grant is revoked.
    """
    events: JobEvents = request.app.state.job_events
    first = await events.checked_job(installation, caller, job_id)

    async def stream() -> AsyncIterator[bytes]:
        async for job in events.follow(installation, caller, first):
            yield b"event: job\ndata: " + job.model_dump_json().encode("utf-8") + b"\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")

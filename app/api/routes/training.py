"""Defines the routes of algorithms, plans, training and jobs."""

from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse

from app.api.capacity import Work
from app.api.problems import QUOTED
from app.api.requests import (
    By,
    Caller,
    Idempotency,
    KeyFilter,
    NameFilter,
    Page,
    Router,
    limited,
    raises,
    sent,
)
from app.api.streams import job_events
from app.core.errors import (
    BalanceMismatch,
    JobFinished,
    NoRowsYet,
    NotFound,
    RoleMissing,
)
from app.jobs.queue import JobFilter
from app.services.jobs import show_jobs
from app.services.releases.requests import quote, submit
from app.services.releases.training import TrainingRequest
from app.wire.algorithms import AlgorithmList, AlgorithmOut
from app.wire.jobs import JobKind, JobList, JobOut, JobState, TrainOut
from app.wire.training import PlanIn, PlanOut, TrainIn
from grovekeeper_forests import catalogue
from grovekeeper_forests.errors import (
    AccountantMismatch,
    AdjacencyMismatch,
    NotSupported,
)

training_routes = Router(tags=["training"])


@training_routes.get("/algorithms")
def list_algorithms(_: Caller) -> AlgorithmList:
    """List every algorithm with its source, and its parameters with ranges and
    defaults.
    """
    return AlgorithmList(
        algorithms=list(map(AlgorithmOut.model_validate, catalogue.algorithms()))
    )


@training_routes.post(
    "/plans",
)
@raises(*QUOTED, AccountantMismatch, AdjacencyMismatch, NotSupported)
def create_plan(by: By, body: PlanIn) -> PlanOut:
    """Quote a training job: its parameters, its releases and its price. Reads no row
    and costs nothing.
    """
    return quote(*by, TrainingRequest(body=body))


@training_routes.post(
    "/train",
    status_code=202,
    response_model=TrainOut,
)
@limited(work=Work.SUBMISSION)
@raises(
    NotFound,
    RoleMissing,
    AccountantMismatch,
    AdjacencyMismatch,
    NoRowsYet,
    NotSupported,
)
def train_model(by: By, body: TrainIn, request: Idempotency) -> Response:
    """Reserve the price and queue the job, or refuse and say what would fit."""
    return sent(submit(*by, TrainingRequest(body=body), request=request))


def job_filter(
    dataset: NameFilter = None,
    kind: JobKind | None = None,
    algorithm: NameFilter = None,
    state: JobState | None = None,
) -> JobFilter:
    return JobFilter(dataset=dataset, kind=kind, algorithm=algorithm, state=state)


@training_routes.get("/jobs")
@raises(NotFound)
def list_jobs(
    by: By,
    page: Page,
    matching: Annotated[JobFilter, Depends(job_filter)],
    submitted_by: KeyFilter = None,
) -> JobList:
    """List the jobs of all datasets on which the key may train or is an auditor, newest
    first; query parameters filter the list.

    `submitted_by` is the id of a key, or a name that the caller may know.
    """
    return show_jobs.list_jobs(*by, page, matching, submitted_by=submitted_by)


@training_routes.get("/jobs/{job_id}")
def show_job(by: By, job_id: str) -> JobOut:
    """Show a job's state and the number of finished trees."""
    return show_jobs.show_job(*by, job_id)


@training_routes.delete(
    "/jobs/{job_id}",
)
@raises(JobFinished, BalanceMismatch)
def cancel_job(by: By, job_id: str) -> JobOut:
    """Cancel a job. Before the charge its reservation is voided; after the charge, the
    charge stays.
    """
    return show_jobs.cancel_job(*by, job_id)


@training_routes.get(
    "/jobs/{job_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One event per change, until the job ends or the key may not see it any more.",
            "content": {"text/event-stream": {}},
        },
    },
)
async def watch_job(request: Request, by: By, job_id: str) -> StreamingResponse:
    """Stream a job as server-sent events: one `job` event per change, until the job has
    ended.

    The stream also ends when the key or its grant is revoked.
    """
    return await job_events(
        request,
        *by,
        job_id,
        lambda job: (
            b"event: job\ndata: " + job.model_dump_json().encode("utf-8") + b"\n\n"
        ),
    )

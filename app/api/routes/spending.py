"""Defines the routes of what spends budget (training, profiles, evaluations), of jobs, and of approvals."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from app.api.capacity import Work
from app.api.problems import JSON_BODY, QUOTED, SPENDING, documented
from app.api.requests import BodyRoute, By, Caller, Idempotency, NameFilter, Page, limited, sent
from app.api.streams import job_events
from app.core.errors import BalanceMismatch, JobFinished, NoRowsYet, NotFound, NotWaiting, RoleMissing, SameSubmitter
from app.jobs.queue import JobFilter
from app.services import dataset_rules
from app.services.jobs import show_jobs
from app.services.releases import evaluations, profiles
from app.services.releases.evaluations import EvaluationRequest
from app.services.releases.profiles import ProfileRequest
from app.services.releases.requests import quote, submit
from app.services.releases.training import TrainingRequest
from app.wire import spending as wire
from app.wire.rules import ApprovalList, ApprovalOut, DecisionIn
from grovekeeper_forests import catalogue
from grovekeeper_forests.errors import AccountantMismatch, AdjacencyMismatch, NotSupported

training_routes = APIRouter(tags=["training"], route_class=BodyRoute)


@training_routes.get("/algorithms", responses=documented())
def list_algorithms(_: Caller) -> wire.AlgorithmList:
    """List every algorithm with its source, and its parameters with ranges and defaults."""
    return wire.AlgorithmList(algorithms=[wire.AlgorithmOut.model_validate(item) for item in catalogue.algorithms()])


@training_routes.post(
    "/plans",
    responses=documented(*QUOTED, AccountantMismatch, AdjacencyMismatch, NotSupported),
)
def create_plan(by: By, body: wire.PlanIn) -> wire.PlanOut:
    """Quote a training job: its parameters, its releases and its price. Reads no row and costs nothing."""
    return quote(*by, TrainingRequest(body=body))


@training_routes.post(
    "/train",
    status_code=202,
    response_model=wire.TrainOut,
    responses=documented(
        NotFound, RoleMissing, AccountantMismatch, AdjacencyMismatch, NoRowsYet, NotSupported, *SPENDING
    ),
)
@limited(work=Work.SUBMISSION)
def train_model(by: By, body: wire.TrainIn, request: Idempotency) -> Response:
    """Reserve the price and queue the job, or refuse and say what would fit."""
    return sent(submit(*by, TrainingRequest(body=body), request=request))


def job_filter(
    dataset: NameFilter = None,
    kind: wire.JobKind | None = None,
    algorithm: NameFilter = None,
    state: wire.JobState | None = None,
) -> JobFilter:
    return JobFilter(dataset=dataset, kind=kind, algorithm=algorithm, state=state)


@training_routes.get("/jobs", responses=documented(NotFound))
def list_jobs(by: By, page: Page, matching: Annotated[JobFilter, Depends(job_filter)]) -> wire.JobList:
    """List the jobs of all datasets on which the key may train, newest first; query parameters filter the list."""
    return show_jobs.list_jobs(*by, page, matching)


@training_routes.get("/jobs/{job_id}", responses=documented(NotFound, RoleMissing))
def show_job(by: By, job_id: str) -> wire.JobOut:
    """Show a job's state and the number of finished trees."""
    return show_jobs.show_job(*by, job_id)


@training_routes.delete("/jobs/{job_id}", responses=documented(NotFound, RoleMissing, JobFinished, BalanceMismatch))
def cancel_job(by: By, job_id: str) -> wire.JobOut:
    """Cancel a job. Before the charge its reservation is voided; after the charge, the charge stays."""
    return show_jobs.cancel_job(*by, job_id)


@training_routes.get(
    "/jobs/{job_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One event per change, until the job ends or the key may not see it any more.",
            "content": {"text/event-stream": {}},
        },
        **documented(NotFound, RoleMissing),
    },
)
async def watch_job(request: Request, by: By, job_id: str) -> StreamingResponse:
    """Stream a job as server-sent events: one `job` event per change, until the job has ended.

    The stream also ends when the key or its grant is revoked.
    """
    return await job_events(
        request, *by, job_id, lambda job: b"event: job\ndata: " + job.model_dump_json().encode("utf-8") + b"\n\n"
    )


profile_routes = APIRouter(tags=["profiles"], route_class=BodyRoute)


@profile_routes.post("/datasets/{dataset}/profiles/quote", responses=documented(*QUOTED))
def quote_profile(by: By, dataset: str, body: wire.ProfileIn) -> wire.ProfileQuoteOut:
    """Quote a profile: its releases and its price. Reads no row and costs nothing."""
    return quote(*by, ProfileRequest(dataset=dataset, body=body))


@profile_routes.post(
    "/datasets/{dataset}/profiles",
    status_code=202,
    response_model=wire.TrainOut,
    responses=documented(NotFound, RoleMissing, NoRowsYet, *SPENDING),
)
@limited(work=Work.SUBMISSION)
def release_profile(by: By, dataset: str, body: wire.ProfileIn, request: Idempotency) -> Response:
    """Reserve the price and queue a job that releases bins, class counts and a size, which later jobs reuse."""
    return sent(submit(*by, ProfileRequest(dataset=dataset, body=body), request=request))


@profile_routes.get("/datasets/{dataset}/profiles", responses=documented(NotFound, RoleMissing))
def list_profiles(by: By, dataset: str, page: Page) -> wire.ProfileList:
    """List the profiles of a dataset, newest first. Profiles stay when the rows are erased."""
    return profiles.list_profiles(*by, dataset, page)


@profile_routes.get("/profiles/{profile_id}", responses=documented(NotFound, RoleMissing))
def show_profile(by: By, profile_id: str) -> wire.ProfileOut:
    """Show a profile: the released numbers with their noise, guarantee and receipt."""
    return profiles.show_profile(*by, profile_id)


evaluation_routes = APIRouter(tags=["evaluations"], route_class=BodyRoute)

_QUOTED = documented(*QUOTED)
_SUBMITTED = documented(NotFound, RoleMissing, NoRowsYet, *SPENDING)


@evaluation_routes.post("/models/{model_id}/evaluations/quote", responses=_QUOTED)
def quote_evaluation(by: By, model_id: str, body: wire.EvaluationIn) -> wire.EvaluationQuoteOut:
    """Quote an evaluation: its releases, its price, and whether the scope covers rows of the model's training."""
    return quote(*by, EvaluationRequest(models=[model_id], body=body))


@evaluation_routes.post(
    "/models/{model_id}/evaluations", status_code=202, response_model=wire.TrainOut, responses=_SUBMITTED
)
@limited(work=Work.SUBMISSION)
def evaluate_model(by: By, model_id: str, body: wire.EvaluationIn, request: Idempotency) -> Response:
    """Reserve the price in the scope's cells and queue a job that counts the model's answers there, with noise."""
    return sent(submit(*by, EvaluationRequest(models=[model_id], body=body), request=request))


@evaluation_routes.get("/models/{model_id}/evaluations", responses=documented(NotFound, RoleMissing))
def list_evaluations(by: By, model_id: str, page: Page) -> wire.EvaluationList:
    """List the evaluations of a model, newest first."""
    return evaluations.list_evaluations(*by, model_id, page)


@evaluation_routes.post("/evaluations/quote", responses=_QUOTED)
def quote_selection(by: By, body: wire.SelectionIn) -> wire.EvaluationQuoteOut:
    """Quote the choice of the best of several models: its releases and its price."""
    return quote(*by, EvaluationRequest(models=body.models, body=body))


@evaluation_routes.post("/evaluations", status_code=202, response_model=wire.TrainOut, responses=_SUBMITTED)
@limited(work=Work.SUBMISSION)
def select_model(by: By, body: wire.SelectionIn, request: Idempotency) -> Response:
    """Queue a job that privately chooses the model with the most correct answers, for one charge."""
    return sent(submit(*by, EvaluationRequest(models=body.models, body=body), request=request))


@evaluation_routes.get("/evaluations/{evaluation_id}", responses=documented(NotFound, RoleMissing))
def show_evaluation(by: By, evaluation_id: str) -> wire.EvaluationOut:
    """Show an evaluation: accuracy with an interval, confusion matrix, AUROC, or the best model."""
    return evaluations.show_evaluation(*by, evaluation_id)


approval_routes = APIRouter(prefix="/approvals", tags=["approvals"], route_class=BodyRoute)


@approval_routes.get("", responses=documented())
def list_approvals(by: By, page: Page) -> ApprovalList:
    """List the jobs that wait for a decision about a dataset that the key owns, oldest first."""
    return dataset_rules.list_approvals(*by, page)


@approval_routes.post(
    "/{job_id}", responses=documented(NotFound, RoleMissing, SameSubmitter, NotWaiting, BalanceMismatch, *JSON_BODY)
)
def decide_job(by: By, job_id: str, body: DecisionIn) -> ApprovalOut:
    """Approve or reject a waiting job: an owner other than its submitter decides. A rejection voids the reservation."""
    return dataset_rules.decide(*by, job_id, body)

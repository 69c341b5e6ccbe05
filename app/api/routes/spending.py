"""Defines the routes of what spends budget (training, profiles, evaluations), of jobs, and of approvals."""

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
    NotWaiting,
    RoleMissing,
    SameSubmitter,
)
from app.forests import catalogue
from app.jobs.queue import JobFilter
from app.services import dataset_rules
from app.services.jobs import show_jobs
from app.services.spending import evaluations, profiles
from app.services.spending.evaluations import show_evaluation_quote, submit_evaluation
from app.services.spending.profiles import show_profile_quote, submit_profile
from app.services.spending.training import show_plan, submit_training
from app.wire.rules import ApprovalList, ApprovalOut, DecisionIn
from app.wire.spending import (
    AlgorithmList,
    AlgorithmOut,
    EvaluationIn,
    EvaluationList,
    EvaluationOut,
    EvaluationQuoteOut,
    JobKind,
    JobList,
    JobOut,
    JobState,
    PlanIn,
    PlanOut,
    ProfileIn,
    ProfileList,
    ProfileOut,
    ProfileQuoteOut,
    SelectionIn,
    TrainIn,
    TrainOut,
)

training_routes = APIRouter(tags=["training"], route_class=BodyRoute)


@training_routes.get("/algorithms", operation_id="list_algorithms", responses=problems.documented())
def list_algorithms(_: Caller) -> AlgorithmList:
    """List every algorithm with its source, and its parameters with ranges and defaults."""
    return AlgorithmList(algorithms=[AlgorithmOut.model_validate(item) for item in catalogue.algorithms()])


@training_routes.post(
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


@training_routes.post(
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


@training_routes.get("/jobs", operation_id="list_jobs", responses=problems.documented())
def list_jobs(
    installation: CurrentInstallation, caller: Caller, page: Page, matching: Annotated[JobFilter, Depends(job_filter)]
) -> JobList:
    """List the jobs of all datasets on which the key may train, newest first; query parameters filter the list."""
    return show_jobs.list_jobs(installation, caller, page, matching)


@training_routes.get("/jobs/{job_id}", operation_id="show_job", responses=problems.documented(NotFound, RoleMissing))
def show_job(installation: CurrentInstallation, caller: Caller, job_id: str) -> JobOut:
    """Show a job's state and the number of finished trees."""
    return show_jobs.show_job(installation, caller, job_id)


@training_routes.delete(
    "/jobs/{job_id}",
    operation_id="cancel_job",
    responses=problems.documented(NotFound, RoleMissing, JobFinished, BalanceMismatch),
)
def cancel_job(installation: CurrentInstallation, caller: Caller, job_id: str) -> JobOut:
    """Cancel a job. Before the charge its reservation is voided; after the charge, the charge stays."""
    return show_jobs.cancel_job(installation, caller, job_id)


@training_routes.get(
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


profile_routes = APIRouter(tags=["profiles"], route_class=BodyRoute)


@profile_routes.post(
    "/datasets/{dataset}/profiles/quote",
    operation_id="quote_profile",
    responses=problems.documented(NotFound, RoleMissing, DatasetDeleted, *problems.JSON_BODY),
)
def quote_profile(installation: CurrentInstallation, caller: Caller, dataset: str, body: ProfileIn) -> ProfileQuoteOut:
    """Quote a profile: its releases and its price. Reads no row and costs nothing."""
    return show_profile_quote(installation, caller, dataset, body)


@profile_routes.post(
    "/datasets/{dataset}/profiles",
    operation_id="release_profile",
    status_code=202,
    response_model=TrainOut,
    responses=problems.documented(NotFound, RoleMissing, NoRowsYet, *problems.SPENDING),
)
@limited(work=Work.SUBMISSION)
def release_profile(
    installation: CurrentInstallation, caller: Caller, dataset: str, body: ProfileIn, request: Idempotency
) -> Response:
    """Reserve the price and queue a job that releases bins, class counts and a size, which later jobs reuse."""
    return sent(submit_profile(installation, caller, dataset, body, request=request))


@profile_routes.get(
    "/datasets/{dataset}/profiles",
    operation_id="list_profiles",
    responses=problems.documented(NotFound, RoleMissing),
)
def list_profiles(installation: CurrentInstallation, caller: Caller, dataset: str, page: Page) -> ProfileList:
    """List the profiles of a dataset, newest first. Profiles stay when the rows are erased."""
    return profiles.list_profiles(installation, caller, dataset, page)


@profile_routes.get(
    "/profiles/{profile_id}", operation_id="show_profile", responses=problems.documented(NotFound, RoleMissing)
)
def show_profile(installation: CurrentInstallation, caller: Caller, profile_id: str) -> ProfileOut:
    """Show a profile: the released numbers with their noise, guarantee and receipt."""
    return profiles.show_profile(installation, caller, profile_id)


evaluation_routes = APIRouter(tags=["evaluations"], route_class=BodyRoute)

_QUOTED = problems.documented(NotFound, RoleMissing, DatasetDeleted, *problems.JSON_BODY)
_SUBMITTED = problems.documented(NotFound, RoleMissing, NoRowsYet, *problems.SPENDING)


@evaluation_routes.post("/models/{model_id}/evaluations/quote", operation_id="quote_evaluation", responses=_QUOTED)
def quote_evaluation(
    installation: CurrentInstallation, caller: Caller, model_id: str, body: EvaluationIn
) -> EvaluationQuoteOut:
    """Quote an evaluation: its releases, its price, and whether the scope covers rows of the model's training."""
    return show_evaluation_quote(installation, caller, [model_id], body)


@evaluation_routes.post(
    "/models/{model_id}/evaluations",
    operation_id="evaluate_model",
    status_code=202,
    response_model=TrainOut,
    responses=_SUBMITTED,
)
@limited(work=Work.SUBMISSION)
def evaluate_model(
    installation: CurrentInstallation, caller: Caller, model_id: str, body: EvaluationIn, request: Idempotency
) -> Response:
    """Reserve the price in the scope's cells and queue a job that counts the model's answers there, with noise."""
    return sent(submit_evaluation(installation, caller, [model_id], body, request=request))


@evaluation_routes.get(
    "/models/{model_id}/evaluations",
    operation_id="list_evaluations",
    responses=problems.documented(NotFound, RoleMissing),
)
def list_evaluations(installation: CurrentInstallation, caller: Caller, model_id: str, page: Page) -> EvaluationList:
    """List the evaluations of a model, newest first."""
    return evaluations.list_evaluations(installation, caller, model_id, page)


@evaluation_routes.post("/evaluations/quote", operation_id="quote_selection", responses=_QUOTED)
def quote_selection(installation: CurrentInstallation, caller: Caller, body: SelectionIn) -> EvaluationQuoteOut:
    """Quote the choice of the best of several models: its releases and its price."""
    return show_evaluation_quote(installation, caller, body.models, body)


@evaluation_routes.post(
    "/evaluations", operation_id="select_model", status_code=202, response_model=TrainOut, responses=_SUBMITTED
)
@limited(work=Work.SUBMISSION)
def select_model(
    installation: CurrentInstallation, caller: Caller, body: SelectionIn, request: Idempotency
) -> Response:
    """Queue a job that privately chooses the model with the most correct answers, for one charge."""
    return sent(submit_evaluation(installation, caller, body.models, body, request=request))


@evaluation_routes.get(
    "/evaluations/{evaluation_id}",
    operation_id="show_evaluation",
    responses=problems.documented(NotFound, RoleMissing),
)
def show_evaluation(installation: CurrentInstallation, caller: Caller, evaluation_id: str) -> EvaluationOut:
    """Show an evaluation: accuracy with an interval, confusion matrix, AUROC, or the best model."""
    return evaluations.show_evaluation(installation, caller, evaluation_id)


approval_routes = APIRouter(prefix="/approvals", tags=["approvals"], route_class=BodyRoute)


@approval_routes.get("", operation_id="list_approvals", responses=problems.documented())
def list_approvals(installation: CurrentInstallation, caller: Caller, page: Page) -> ApprovalList:
    """List the jobs that wait for a decision about a dataset that the key owns, oldest first."""
    return dataset_rules.list_approvals(installation, caller, page)


@approval_routes.post(
    "/{job_id}",
    operation_id="decide_job",
    responses=problems.documented(
        NotFound, RoleMissing, SameSubmitter, NotWaiting, BalanceMismatch, *problems.JSON_BODY
    ),
)
def decide_job(installation: CurrentInstallation, caller: Caller, job_id: str, body: DecisionIn) -> ApprovalOut:
    """Approve or reject a waiting job: an owner other than its submitter decides. A rejection voids the reservation."""
    return dataset_rules.decide(installation, caller, job_id, body)

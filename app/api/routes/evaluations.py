"""Defines the routes of ``/models/{id}/evaluations`` and ``/evaluations``: quote, submit and show evaluations.

Services that need numpy are imported at the first request, as in :mod:`app.api.routes.training`.
"""

from fastapi import APIRouter, Response

from app.api import problems
from app.api.capacity import Work
from app.api.requests import BodyRoute, Caller, CurrentInstallation, Idempotency, Page, limited, sent
from app.core.errors import (
    DatasetDeleted,
    NoRowsYet,
    NotFound,
    RoleMissing,
)
from app.services.evaluations import show_evaluations
from app.services.spending.evaluations import show_evaluation_quote, submit_evaluation
from app.wire.spending import EvaluationIn, EvaluationList, EvaluationOut, EvaluationQuoteOut, SelectionIn, TrainOut

router = APIRouter(tags=["evaluations"], route_class=BodyRoute)

_QUOTED = problems.documented(NotFound, RoleMissing, DatasetDeleted, *problems.JSON_BODY)
_SUBMITTED = problems.documented(NotFound, RoleMissing, NoRowsYet, *problems.SPENDING)


@router.post("/models/{model_id}/evaluations/quote", operation_id="quote_evaluation", responses=_QUOTED)
def quote_evaluation(
    installation: CurrentInstallation, caller: Caller, model_id: str, body: EvaluationIn
) -> EvaluationQuoteOut:
    """Quote an evaluation: its releases, its price, and whether the scope covers rows of the model's training."""
    return show_evaluation_quote(installation, caller, [model_id], body)


@router.post(
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


@router.get(
    "/models/{model_id}/evaluations",
    operation_id="list_evaluations",
    responses=problems.documented(NotFound, RoleMissing),
)
def list_evaluations(installation: CurrentInstallation, caller: Caller, model_id: str, page: Page) -> EvaluationList:
    """List the evaluations of a model, newest first."""
    return show_evaluations.list_evaluations(installation, caller, model_id, page)


@router.post("/evaluations/quote", operation_id="quote_selection", responses=_QUOTED)
def quote_selection(installation: CurrentInstallation, caller: Caller, body: SelectionIn) -> EvaluationQuoteOut:
    """Quote the choice of the best of several models: its releases and its price."""
    return show_evaluation_quote(installation, caller, body.models, body)


@router.post(
    "/evaluations", operation_id="select_model", status_code=202, response_model=TrainOut, responses=_SUBMITTED
)
@limited(work=Work.SUBMISSION)
def select_model(
    installation: CurrentInstallation, caller: Caller, body: SelectionIn, request: Idempotency
) -> Response:
    """Queue a job that privately chooses the model with the most correct answers, for one charge."""
    return sent(submit_evaluation(installation, caller, body.models, body, request=request))


@router.get(
    "/evaluations/{evaluation_id}",
    operation_id="show_evaluation",
    responses=problems.documented(NotFound, RoleMissing),
)
def show_evaluation(installation: CurrentInstallation, caller: Caller, evaluation_id: str) -> EvaluationOut:
    """Show an evaluation: accuracy with an interval, confusion matrix, AUROC, or the best model."""
    return show_evaluations.show_evaluation(installation, caller, evaluation_id)

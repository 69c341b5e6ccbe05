"""Defines the routes of evaluations, of one model and of several."""

from fastapi import Response

from app.api.capacity import Work
from app.api.problems import QUOTED
from app.api.requests import By, Idempotency, Page, Router, limited, raises, sent
from app.core.errors import NoRowsYet, NotFound, RoleMissing
from app.services.releases import evaluations
from app.services.releases.requests import quote, submit
from app.wire.evaluations import (
    EvaluationIn,
    EvaluationList,
    EvaluationOut,
    EvaluationQuoteOut,
    SelectionIn,
)
from app.wire.jobs import TrainOut

evaluation_routes = Router(tags=["evaluations"])


@evaluation_routes.post("/models/{model_id}/evaluations/quote")
@raises(*QUOTED)
def quote_evaluation(by: By, model_id: str, body: EvaluationIn) -> EvaluationQuoteOut:
    """Quote an evaluation: its releases, its price, and whether the scope covers rows
    of the model's training.
    """
    return quote(*by, evaluations.EvaluationRequest(models=[model_id], body=body))


@evaluation_routes.post(
    "/models/{model_id}/evaluations",
    status_code=202,
    response_model=TrainOut,
)
@limited(work=Work.SUBMISSION)
@raises(NoRowsYet)
def evaluate_model(
    by: By, model_id: str, body: EvaluationIn, request: Idempotency
) -> Response:
    """Reserve the price in the scope's cells and queue a job that counts the model's
    answers there, with noise.
    """
    return sent(
        submit(
            *by,
            evaluations.EvaluationRequest(models=[model_id], body=body),
            request=request,
        )
    )


@evaluation_routes.get("/models/{model_id}/evaluations")
def list_evaluations(by: By, model_id: str, page: Page) -> EvaluationList:
    """List the evaluations of a model, newest first."""
    return evaluations.list_evaluations(*by, model_id, page)


@evaluation_routes.post("/evaluations/quote")
@raises(*QUOTED)
def quote_selection(by: By, body: SelectionIn) -> EvaluationQuoteOut:
    """Quote the choice of the best of several models: its releases and its price."""
    return quote(*by, evaluations.EvaluationRequest(models=body.models, body=body))


@evaluation_routes.post("/evaluations", status_code=202, response_model=TrainOut)
@limited(work=Work.SUBMISSION)
@raises(NotFound, RoleMissing, NoRowsYet)
def select_model(by: By, body: SelectionIn, request: Idempotency) -> Response:
    """Queue a job that privately chooses the model with the most correct answers, for
    one charge.
    """
    return sent(
        submit(
            *by,
            evaluations.EvaluationRequest(models=body.models, body=body),
            request=request,
        )
    )


@evaluation_routes.get("/evaluations/{evaluation_id}")
def show_evaluation(by: By, evaluation_id: str) -> EvaluationOut:
    """Show an evaluation: accuracy with an interval, confusion matrix, AUROC, or the
    best model.
    """
    return evaluations.show_evaluation(*by, evaluation_id)

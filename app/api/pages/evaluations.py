"""Serves the page of one evaluation: its noisy numbers with their intervals, beside the share of the largest class."""

from fastapi import APIRouter, Request, Response

from app.api.deps import Caller, CurrentInstallation
from app.api.pages import pictures
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.services.evaluations import show_evaluations

router = APIRouter(prefix="/ui/evaluations", route_class=PageRoute)


@router.get("/{evaluation_id}")
def show_evaluation(
    request: Request, installation: CurrentInstallation, caller: Caller, evaluation_id: str
) -> Response:
    """Show one evaluation."""
    evaluation = show_evaluations.show_evaluation(installation, caller, evaluation_id)
    return rendered(
        request,
        "evaluation",
        evaluation=evaluation,
        scale=evaluation.accuracy and pictures.accuracy(evaluation.accuracy, evaluation.majority),
        roc=evaluation.auroc and pictures.roc(evaluation.auroc.histogram),
    )

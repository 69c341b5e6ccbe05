"""Serves the pages of models: the list, a model card, and a prediction for one row."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from app.access.roles import Principal
from app.api import problems
from app.api.capacity import Work, capacities
from app.api.deps import Caller, CurrentInstallation, Page
from app.api.pages.forms import read_form
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.core.errors import InvalidRequest, NotFound, RoleMissing
from app.services import models
from app.services import predict as predictions
from app.services.evaluations import show_evaluations
from app.services.installation import Installation
from app.services.pages import PageRequest

router = APIRouter(prefix="/ui/models", route_class=PageRoute)
_FIELD = "feature."


@router.get("")
def list_models(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show the models of all datasets on which the key may predict, newest first."""
    listed = models.list_models(installation, caller, page)
    return rendered(request, "models", models=listed.models, following=listed.next)


@router.get("/{model_id}")
def show_model(request: Request, installation: CurrentInstallation, caller: Caller, model_id: str) -> Response:
    """Show a model card."""
    return _card(request, installation, caller, model_id, row={})


@router.post("/{model_id}")
async def predict(request: Request, installation: CurrentInstallation, caller: Caller, model_id: str) -> Response:
    """Show a model card with the prediction for the row of the form."""
    form = await read_form(request)
    row = {name.removeprefix(_FIELD): text for name, text in form.items() if name.startswith(_FIELD)}
    return await capacities(request).run(
        Work.PREDICTION, lambda: _card(request, installation, caller, model_id, row=row)
    )


def _card(
    request: Request, installation: Installation, caller: Principal, model_id: str, *, row: Mapping[str, str]
) -> Response:
    model = models.show_model(installation, caller, model_id).model_dump(by_alias=True)
    prediction, refusal = None, None
    if row:
        try:
            prediction = _prediction(installation, caller, model, row)
        except InvalidRequest as error:
            refusal, _ = problems.problem_of(error)
    return rendered(
        request,
        "model",
        status=200 if refusal is None else 422,
        model=model,
        row=row,
        prediction=prediction,
        refusal=refusal,
        evaluations=_evaluations(installation, caller, model_id),
    )


def _prediction(
    installation: Installation, caller: Principal, model: Mapping[str, Any], row: Mapping[str, str]
) -> list[tuple[str, float, bool]]:
    """Class, probability, and whether the class is the label, in descending order of probability."""
    features = {feature["name"]: feature for feature in model["schema"]["features"]}
    values = {name: _value(features.get(name, {}), text) for name, text in row.items()}
    answer = json.loads(
        predictions.predict(installation, caller, model["id"], json.dumps({"rows": [values]}).encode("utf-8"))
    )
    (label,), (probabilities,) = answer["labels"], answer["probabilities"]
    listed = zip(answer["classes"], probabilities, strict=True)
    return sorted(((name, share, name == label) for name, share in listed), key=lambda item: -item[1])


def _value(feature: Mapping[str, Any], text: str) -> str | float | None:
    """A cell of the row as the API takes it; an empty field is a missing value."""
    if not text:
        return None
    if feature.get("type") == "categorical":
        return text
    try:
        return float(text)
    except ValueError:
        return text  # the service names the column


def _evaluations(installation: Installation, caller: Principal, model_id: str) -> list[dict[str, Any]] | None:
    try:
        listed = show_evaluations.list_evaluations(installation, caller, model_id, PageRequest())
    except (NotFound, RoleMissing):
        return None
    return [evaluation.model_dump(by_alias=True) for evaluation in listed.evaluations]

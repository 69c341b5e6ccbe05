"""Defines the routes of models and their predictions."""

from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response

from app.api.problems import JSON_BODY
from app.api.requests import By, Caller, NameFilter, Page, Router, raises
from app.api.streams import model_file
from app.core import limits
from app.core.errors import ModelHasAlias, NotFound
from app.registry.models import ModelFilter
from app.services import models
from app.services.predict import PredictionForm
from app.wire.models import (
    ComparisonOut,
    ImportancesOut,
    ModelList,
    ModelOut,
    PredictOut,
    TreeOut,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.errors import NotSupported

model_routes = Router(prefix="/models", tags=["models"])


_TABLE = {"schema": {"type": "string", "format": "binary"}}


_PREDICT_BODY: JsonObject = {
    "requestBody": {
        "description": "Rows in JSON, or a table as an Arrow IPC stream with a column for every feature.",
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/PredictIn"},
                "examples": {
                    "rows": {
                        "value": {
                            "rows": [
                                {"age": 39, "sex": "Male"},
                                {"age": 70, "sex": None},
                            ]
                        }
                    },
                    "columns": {
                        "value": {"columns": {"age": [39, 70], "sex": ["Male", None]}}
                    },
                },
            },
            PredictionForm.ARROW: _TABLE,
        },
    }
}


_TreeNumber = Annotated[int, Path(ge=0, lt=forest_limits.MAX_TREES)]
_Others = Annotated[str, Query(max_length=limits.MAX_SCOPE_CHARS)]


@model_routes.get("")
@raises(NotFound)
def list_models(
    by: By,
    page: Page,
    dataset: NameFilter = None,
    algorithm: NameFilter = None,
    alias: NameFilter = None,
) -> ModelList:
    """List the models of all datasets on which the key may predict, newest first; query
    parameters filter the list.
    """
    return models.list_models(*by, page, ModelFilter(dataset, algorithm, alias))


@model_routes.get("/{model_id}")
def show_model(by: By, model_id: str) -> ModelOut:
    """Show the model card: guarantee, algorithm, parameters, schema, receipt, ledger
    entries.
    """
    return models.show_model(*by, model_id)


@model_routes.get("/{model_id}/importances")
def show_importances(by: By, model_id: str) -> ImportancesOut:
    """Show what the trees of the model look at: splits and importance of each feature,
    and leaves by class. Costs nothing: it is post-processing of the released model.
    """
    return models.show_importances(*by, model_id)


@model_routes.get(
    "/{model_id}/trees/{number}",
)
def show_tree(by: By, model_id: str, number: _TreeNumber) -> TreeOut:
    """Show one tree of the model in words, its first four levels: what each split asks,
    and what each leaf alone answers. Costs nothing, as importances.
    """
    return models.show_tree(*by, model_id, number)


@model_routes.get(
    "/{model_id}/comparison",
)
def show_comparison(by: By, model_id: str, others: _Others) -> ComparisonOut:
    """Compare the model with others: dataset, ε, algorithm, parameters that differ,
    released accuracy, importances, receipts. No number is computed from rows.
    """
    return models.compare_models(*by, [model_id, *others.split(",")])


@model_routes.delete(
    "/{model_id}",
    status_code=204,
)
@raises(ModelHasAlias)
def delete_model(by: By, model_id: str) -> None:
    """Delete a model that no alias names. Its charge stays."""
    models.delete_model(*by, model_id)


@model_routes.get(
    "/{model_id}/artifact",
    response_class=Response,
    responses={
        200: {
            "description": "The model's bytes.",
            "content": {"application/octet-stream": {}},
        },
    },
)
@raises(NotSupported)
async def download_artifact(
    request: Request,
    by: By,
    model_id: str,
    form: Annotated[
        Literal["safetensors", "onnx"], Query(alias="format")
    ] = "safetensors",
    read_out: str | None = None,
) -> Response:
    """Download the model as safetensors or ONNX."""
    return await model_file(request, *by, model_id, form=form, read_out=read_out)


@model_routes.post(
    "/{model_id}/predict",
    response_model=PredictOut,
    openapi_extra=_PREDICT_BODY,
    responses={
        200: {"content": {PredictionForm.ARROW: _TABLE}},
    },
)
@raises(*JSON_BODY)
def predict(_: Caller, model_id: str) -> None:
    """Predict labels and probabilities for one row or many. Predictions cost no budget
    and change nothing.

    A table in Arrow is answered by a table, with the columns `label` and
    `probabilities`, unless `Accept` names JSON.
    """
    # The route documents the operation; app.api.predictions answers its requests before
    # the framework routes them.
    raise AssertionError("predictions are answered before routing")

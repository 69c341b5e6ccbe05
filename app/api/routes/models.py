"""Defines the routes of models: cards, downloads, predictions, aliases, and the Open Inference Protocol (``/v2``)."""

from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Path, Query, Request, Response

from app.api.authentication import Readiness
from app.api.problems import JSON_BODY, documented
from app.api.requests import BodyRoute, By, Caller, NameFilter, Page, Precondition, with_etag
from app.api.streams import model_file
from app.core.errors import ChangedMeanwhile, InvalidRequest, ModelHasAlias, NotFound, RoleMissing, Unavailable
from app.registry.models import ModelFilter
from app.services import inference, models
from app.services.inference import versioned_model
from app.services.predict import PredictionForm
from app.wire import models as wire
from grovekeeper_forests.errors import NotSupported

model_routes = APIRouter(prefix="/models", tags=["models"], route_class=BodyRoute)

_TABLE = {"schema": {"type": "string", "format": "binary"}}
_PREDICT_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "Rows in JSON, or a table as an Arrow IPC stream with a column for every feature.",
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/PredictIn"},
                "examples": {
                    "rows": {"value": {"rows": [{"age": 39, "sex": "Male"}, {"age": 70, "sex": None}]}},
                    "columns": {"value": {"columns": {"age": [39, 70], "sex": ["Male", None]}}},
                },
            },
            PredictionForm.ARROW: _TABLE,
        },
    }
}


@model_routes.get("", responses=documented(NotFound))
def list_models(
    by: By, page: Page, dataset: NameFilter = None, algorithm: NameFilter = None, alias: NameFilter = None
) -> wire.ModelList:
    """List the models of all datasets on which the key may predict, newest first; query parameters filter the list."""
    return models.list_models(*by, page, ModelFilter(dataset, algorithm, alias))


@model_routes.get("/{model_id}", responses=documented(NotFound, RoleMissing))
def show_model(by: By, model_id: str) -> wire.ModelOut:
    """Show the model card: guarantee, algorithm, parameters, schema, receipt, ledger entries."""
    return models.show_model(*by, model_id)


@model_routes.delete("/{model_id}", status_code=204, responses=documented(NotFound, RoleMissing, ModelHasAlias))
def delete_model(by: By, model_id: str) -> None:
    """Delete a model that no alias names. Its charge stays."""
    models.delete_model(*by, model_id)


@model_routes.get(
    "/{model_id}/artifact",
    response_class=Response,
    responses={
        200: {"description": "The model's bytes.", "content": {"application/octet-stream": {}}},
        **documented(NotFound, RoleMissing, NotSupported, InvalidRequest),
    },
)
async def download_artifact(
    request: Request,
    by: By,
    model_id: str,
    form: Annotated[Literal["safetensors", "onnx"], Query(alias="format")] = "safetensors",
    read_out: Annotated[str | None, Query(description="Read-out of an ONNX file; by default the model's.")] = None,
) -> Response:
    """Download the model as safetensors or ONNX."""
    return await model_file(request, *by, model_id, form=form, read_out=read_out)


@model_routes.post(
    "/{model_id}/predict",
    response_model=wire.PredictOut,
    openapi_extra=_PREDICT_BODY,
    responses={200: {"content": {PredictionForm.ARROW: _TABLE}}, **documented(NotFound, RoleMissing, *JSON_BODY)},
)
def predict(_: Caller, model_id: str) -> None:
    """Predict labels and probabilities for one row or many. Predictions cost no budget and change nothing.

    A table in Arrow is answered by a table, with the columns `label` and `probabilities`, unless `Accept` names JSON.
    """
    # The route documents the operation; app.api.middleware answers its requests before the framework routes them.
    raise AssertionError("predictions are answered before routing")


alias_routes = APIRouter(prefix="/datasets/{dataset}/aliases", tags=["models"], route_class=BodyRoute)

_Alias: TypeAlias = Annotated[wire.AliasName, Path()]


@alias_routes.get("", responses=documented(NotFound))
def list_aliases(by: By, dataset: str, page: Page) -> wire.AliasList:
    """List the aliases of the dataset's models. `dataset@alias` stands wherever a model's id does."""
    return models.list_aliases(*by, dataset, page)


@alias_routes.get("/{alias}", responses=documented(NotFound, RoleMissing))
def show_alias(by: By, dataset: str, alias: _Alias, page: Page, response: Response) -> wire.AliasHistory:
    """Show the model that an alias names, and who moved the alias when. For keys that may read the balance."""
    return with_etag(response, models.show_alias(*by, dataset, alias, page))


@alias_routes.put("/{alias}", responses=documented(NotFound, RoleMissing, ChangedMeanwhile, *JSON_BODY))
def put_alias(
    by: By, dataset: str, alias: _Alias, body: wire.AliasIn, condition: Precondition, response: Response
) -> wire.AliasOut:
    """Set an alias to a model of the dataset. Later requests that use the alias reach that model."""
    return with_etag(response, models.put_alias(*by, dataset, alias, model=body.model, condition=condition))


@alias_routes.delete(
    "/{alias}", status_code=204, responses=documented(NotFound, RoleMissing, ChangedMeanwhile, InvalidRequest)
)
def delete_alias(by: By, dataset: str, alias: _Alias, condition: Precondition) -> None:
    """Remove an alias. Its model and its history stay."""
    models.remove_alias(*by, dataset, alias, condition=condition)


inference_routes = APIRouter(prefix="/v2", tags=["inference"], route_class=BodyRoute)

_BINARY = "application/octet-stream"
_MODEL_RESPONSES = documented(NotFound, RoleMissing)
_INFERS: dict[str, Any] = {
    "response_model": wire.InferenceOut,
    "responses": {
        200: {"content": {_BINARY: {"schema": {"type": "string", "format": "binary"}}}},
        **documented(NotFound, RoleMissing, *JSON_BODY),
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "Inference-Header-Content-Length",
                "in": "header",
                "required": False,
                "description": "Bytes of the JSON object, if bytes of tensors follow it.",
                "schema": {"type": "string", "pattern": "^[0-9]{1,12}$"},
            }
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/InferenceIn"},
                    "example": {
                        "inputs": [
                            {"name": "age", "datatype": "INT64", "shape": [2], "data": [39, 70]},
                            {"name": "sex", "datatype": "BYTES", "shape": [2], "data": ["Male", ""]},
                        ]
                    },
                },
                _BINARY: {"schema": {"type": "string", "format": "binary"}},
            },
        },
    },
}


# What answers without a key takes no turn of a thread.
@inference_routes.get("/health/live", responses=documented(needs_key=False))
async def check_live() -> wire.ServerLive:
    """Answer 200 while the process runs. Needs no key."""
    return wire.ServerLive(live=True)


@inference_routes.get("/health/ready", responses=documented(Unavailable, needs_key=False))
async def check_ready(request: Request) -> wire.ServerReady:
    """Answer 200 if the service can answer requests, as `/readyz` does. Needs no key."""
    readiness: Readiness = request.app.state.readiness
    await readiness.confirm()
    return wire.ServerReady(ready=True)


@inference_routes.get("", responses=documented(needs_key=False))
async def show_server() -> wire.ServerMetadata:
    """Show name, version and extensions of the server. Needs no key."""
    return inference.describe_server(version("grovekeeper"))


@inference_routes.get("/models/{model_id}", responses=_MODEL_RESPONSES)
def show_metadata(by: By, model_id: str) -> wire.ModelMetadata:
    """Show the tensors of a model, by id or alias: one input per column, the label, the probabilities."""
    model = versioned_model(*by, model_id, None)
    return inference.describe_model(model_id, model.id, model.schema)


@inference_routes.get("/models/{model_id}/versions/{version_id}", responses=_MODEL_RESPONSES)
def show_version(by: By, model_id: str, version_id: str) -> wire.ModelMetadata:
    """Show the tensors of a model if the name still addresses this version, the model's id."""
    model = versioned_model(*by, model_id, version_id)
    return inference.describe_model(model_id, model.id, model.schema)


@inference_routes.get("/models/{model_id}/ready", responses=_MODEL_RESPONSES)
def check_model(by: By, model_id: str) -> wire.ModelReady:
    """Answer 200 if the key may predict with the model."""
    versioned_model(*by, model_id, None)
    return wire.ModelReady(name=model_id, ready=True)


@inference_routes.get("/models/{model_id}/versions/{version_id}/ready", responses=_MODEL_RESPONSES)
def check_version(by: By, model_id: str, version_id: str) -> wire.ModelReady:
    """Answer 200 if the key may predict with the model and the name still addresses this version."""
    versioned_model(*by, model_id, version_id)
    return wire.ModelReady(name=model_id, ready=True)


@inference_routes.post("/models/{model_id}/infer", **_INFERS)
def infer_model(_: Caller, model_id: str) -> None:
    """Predict the rows in the tensors of the request. Predictions cost no budget and change nothing."""
    raise AssertionError("predictions are answered before routing")


@inference_routes.post("/models/{model_id}/versions/{version_id}/infer", **_INFERS)
def infer_version(_: Caller, model_id: str, version_id: str) -> None:
    """Predict if the name still addresses this version of the model."""
    raise AssertionError("predictions are answered before routing")

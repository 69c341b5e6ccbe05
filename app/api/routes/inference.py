"""Defines the routes of the Open Inference Protocol."""

from importlib.metadata import version

from fastapi import Request

from app.api.authentication import Readiness
from app.api.problems import JSON_BODY
from app.api.requests import By, Caller, Router, raises
from app.core.errors import NotWritable, Unavailable
from app.services import inference
from app.services.inference import versioned_model
from app.wire.inference import (
    InferenceOut,
    ModelMetadata,
    ModelReady,
    ServerLive,
    ServerMetadata,
    ServerReady,
)
from grovekeeper_common.json_types import JsonObject

inference_routes = Router(prefix="/v2", tags=["inference"])


_BINARY = "application/octet-stream"


_INFERS: JsonObject = {
    "response_model": InferenceOut,
    "responses": {
        200: {"content": {_BINARY: {"schema": {"type": "string", "format": "binary"}}}},
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "Inference-Header-Content-Length",
                "in": "header",
                "required": False,
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
                            {
                                "name": "age",
                                "datatype": "INT64",
                                "shape": [2],
                                "data": [39, 70],
                            },
                            {
                                "name": "sex",
                                "datatype": "BYTES",
                                "shape": [2],
                                "data": ["Male", ""],
                            },
                        ]
                    },
                },
                _BINARY: {"schema": {"type": "string", "format": "binary"}},
            },
        },
    },
}


# What answers without a key takes no turn of a thread.
@inference_routes.get("/health/live")
async def check_live() -> ServerLive:
    """Answer 200 while the process runs. Needs no key."""
    return ServerLive(live=True)


@inference_routes.get("/health/ready")
@raises(NotWritable, Unavailable)
async def check_ready(request: Request) -> ServerReady:
    """Answer 200 if the service can answer requests, as `/readyz` does. Needs no key."""
    readiness: Readiness = request.app.state.readiness
    await readiness.confirm()
    return ServerReady(ready=True)


@inference_routes.get("")
async def show_server() -> ServerMetadata:
    """Show name, version and extensions of the server. Needs no key."""
    return inference.describe_server(version("grovekeeper"))


@inference_routes.get("/models/{model_id}")
def show_metadata(by: By, model_id: str) -> ModelMetadata:
    """Show the tensors of a model, by id or alias: one input per column, the label, the
    probabilities.
    """
    model = versioned_model(*by, model_id, None)
    return inference.describe_model(model_id, model.id, model.predictor.schema)


@inference_routes.get("/models/{model_id}/versions/{version_id}")
def show_version(by: By, model_id: str, version_id: str) -> ModelMetadata:
    """Show the tensors of a model if the name still addresses this version, the model's
    id.
    """
    model = versioned_model(*by, model_id, version_id)
    return inference.describe_model(model_id, model.id, model.predictor.schema)


@inference_routes.get("/models/{model_id}/ready")
def check_model(by: By, model_id: str) -> ModelReady:
    """Answer 200 if the key may predict with the model."""
    versioned_model(*by, model_id, None)
    return ModelReady(name=model_id, ready=True)


@inference_routes.get("/models/{model_id}/versions/{version_id}/ready")
def check_version(by: By, model_id: str, version_id: str) -> ModelReady:
    """Answer 200 if the key may predict with the model and the name still addresses
    this version.
    """
    versioned_model(*by, model_id, version_id)
    return ModelReady(name=model_id, ready=True)


@inference_routes.post("/models/{model_id}/infer", **_INFERS)
@raises(*JSON_BODY)
def infer_model(_: Caller, model_id: str) -> None:
    """Predict the rows in the tensors of the request. Predictions cost no budget and
    change nothing.
    """
    raise AssertionError("predictions are answered before routing")


@inference_routes.post("/models/{model_id}/versions/{version_id}/infer", **_INFERS)
@raises(*JSON_BODY)
def infer_version(_: Caller, model_id: str, version_id: str) -> None:
    """Predict if the name still addresses this version of the model."""
    raise AssertionError("predictions are answered before routing")

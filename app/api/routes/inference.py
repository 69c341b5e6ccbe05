"""Defines the routes of ``/v2``, the Open Inference Protocol: health, metadata, and predictions in tensors."""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request, Response

from app.access.grants import Principal
from app.api import problems
from app.api.authentication import Readiness
from app.api.capacity import Work, capacities
from app.api.requests import Body, BodyRoute, Caller, CurrentInstallation, limited
from app.core.errors import NotFound, RoleMissing, Unavailable
from app.services import inference
from app.services.inference import InferenceAnswer, infer, versioned_model
from app.services.installation import Installation
from app.wire.models import InferenceOut, ModelMetadata, ModelReady, ServerLive, ServerMetadata, ServerReady

router = APIRouter(prefix="/v2", tags=["inference"], route_class=BodyRoute)

JSON_LENGTH = "Inference-Header-Content-Length"
"""Header of a body with bytes of tensors: the number of bytes of the JSON object before them."""
_BINARY = "application/octet-stream"
_OF_A_MODEL = problems.documented(NotFound, RoleMissing)
_INFERS: dict[str, Any] = {
    "response_model": InferenceOut,
    "responses": {
        200: {"content": {_BINARY: {"schema": {"type": "string", "format": "binary"}}}},
        **problems.documented(NotFound, RoleMissing, *problems.JSON_BODY),
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": JSON_LENGTH,
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


@router.get("/health/live", operation_id="check_live", responses=problems.documented())
def check_live(_: Caller) -> ServerLive:
    """Answer 200 while the process runs."""
    return ServerLive(live=True)


@router.get("/health/ready", operation_id="check_ready", responses=problems.documented(Unavailable))
async def check_ready(request: Request, _: Caller) -> ServerReady:
    """Answer 200 if the service can answer requests, as `/readyz` does."""
    readiness: Readiness = request.app.state.readiness
    await readiness.confirm()
    return ServerReady(ready=True)


@router.get("", operation_id="show_server", responses=problems.documented())
def show_server(_: Caller) -> ServerMetadata:
    """Show name, version and extensions of the server."""
    return inference.describe_server(version("grovekeeper"))


@router.get("/models/{model_id}", operation_id="show_metadata", responses=_OF_A_MODEL)
def show_metadata(installation: CurrentInstallation, caller: Caller, model_id: str) -> ModelMetadata:
    """Show the tensors of a model, by id or alias: one input per column, the label, the probabilities."""
    return _metadata(installation, caller, model_id, None)


@router.get("/models/{model_id}/versions/{version_id}", operation_id="show_version", responses=_OF_A_MODEL)
def show_version(installation: CurrentInstallation, caller: Caller, model_id: str, version_id: str) -> ModelMetadata:
    """Show the tensors of a model if the name still addresses this version, the model's id."""
    return _metadata(installation, caller, model_id, version_id)


@router.get("/models/{model_id}/ready", operation_id="check_model", responses=_OF_A_MODEL)
def check_model(installation: CurrentInstallation, caller: Caller, model_id: str) -> ModelReady:
    """Answer 200 if the key may predict with the model."""
    return _ready(installation, caller, model_id, None)


@router.get("/models/{model_id}/versions/{version_id}/ready", operation_id="check_version", responses=_OF_A_MODEL)
def check_version(installation: CurrentInstallation, caller: Caller, model_id: str, version_id: str) -> ModelReady:
    """Answer 200 if the key may predict with the model and the name still addresses this version."""
    return _ready(installation, caller, model_id, version_id)


@router.post("/models/{model_id}/infer", operation_id="infer_model", **_INFERS)
@limited(body=Body.INFERENCE)
async def infer_model(request: Request, installation: CurrentInstallation, caller: Caller, model_id: str) -> Response:
    """Predict the rows in the tensors of the request. Predictions cost no budget and change nothing."""
    return await _infer(request, installation, caller, model_id, None)


@router.post("/models/{model_id}/versions/{version_id}/infer", operation_id="infer_version", **_INFERS)
@limited(body=Body.INFERENCE)
async def infer_version(
    request: Request, installation: CurrentInstallation, caller: Caller, model_id: str, version_id: str
) -> Response:
    """Predict if the name still addresses this version of the model."""
    return await _infer(request, installation, caller, model_id, version_id)


async def _infer(
    request: Request, installation: Installation, caller: Principal, name: str, version_id: str | None
) -> Response:
    body, lengths = await request.body(), request.headers.getlist(JSON_LENGTH)

    def work() -> "InferenceAnswer":
        return infer(installation, caller, name, version_id, body, json_lengths=lengths)

    answer = await capacities(request).run(Work.PREDICTION, work)
    if answer.json_length is None:
        return Response(answer.body, media_type="application/json")
    return Response(answer.body, media_type=_BINARY, headers={JSON_LENGTH: str(answer.json_length)})


def _metadata(installation: Installation, caller: Principal, name: str, version_id: str | None) -> ModelMetadata:
    model = versioned_model(installation, caller, name, version_id)
    return inference.describe_model(name, model.id, model.schema)


def _ready(installation: Installation, caller: Principal, name: str, version_id: str | None) -> ModelReady:
    versioned_model(installation, caller, name, version_id)
    return ModelReady(name=name, ready=True)

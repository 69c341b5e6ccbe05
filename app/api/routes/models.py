"""Defines the routes of ``/models``: list, show, download and delete trained forests, and predict with them."""

from functools import partial
from os import fstat
from typing import Annotated, Any, BinaryIO, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api import problems
from app.api.bodies import BodyRoute
from app.api.capacity import Capacities, Work, capacities
from app.api.deps import Caller, CurrentInstallation, NameFilter, Page
from app.core.errors import InvalidRequest, ModelHasAlias, NotFound, NotSupported, RoleMissing
from app.registry.models import ModelFilter
from app.services import models
from app.services.predict import Form
from app.wire.models import ModelList, ModelOut, PredictIn, PredictOut

router = APIRouter(prefix="/models", tags=["models"], route_class=BodyRoute)

_PIECE_BYTES = 1024 * 1024

_TABLE = {"schema": {"type": "string", "format": "binary"}}
_PREDICT_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "Rows in JSON, or a table as an Arrow IPC stream with a column for every feature.",
        "required": True,
        "content": {
            "application/json": {
                "schema": PredictIn.model_json_schema(),
                "examples": {
                    "rows": {"value": {"rows": [{"age": 39, "sex": "Male"}, {"age": 70, "sex": None}]}},
                    "columns": {"value": {"columns": {"age": [39, 70], "sex": ["Male", None]}}},
                },
            },
            Form.ARROW: _TABLE,
        },
    }
}


@router.get("", operation_id="list_models", responses=problems.documented())
def list_models(
    installation: CurrentInstallation,
    caller: Caller,
    page: Page,
    dataset: NameFilter = None,
    algorithm: NameFilter = None,
    alias: NameFilter = None,
) -> ModelList:
    """List the models of all datasets on which the key may predict, newest first; query parameters filter the list."""
    return models.list_models(installation, caller, page, ModelFilter(dataset, algorithm, alias))


@router.get("/{model_id}", operation_id="show_model", responses=problems.documented(NotFound, RoleMissing))
def show_model(installation: CurrentInstallation, caller: Caller, model_id: str) -> ModelOut:
    """Show the model card: guarantee, algorithm, parameters, schema, receipt, ledger entries."""
    return models.show_model(installation, caller, model_id)


@router.delete(
    "/{model_id}",
    operation_id="delete_model",
    status_code=204,
    responses=problems.documented(NotFound, RoleMissing, ModelHasAlias),
)
def delete_model(installation: CurrentInstallation, caller: Caller, model_id: str) -> None:
    """Delete a model that no alias names. Its charge stays."""
    models.delete_model(installation, caller, model_id)


@router.get(
    "/{model_id}/artifact",
    operation_id="download_artifact",
    response_class=Response,
    responses={
        200: {"description": "The model's bytes.", "content": {"application/octet-stream": {}}},
        **problems.documented(NotFound, RoleMissing, NotSupported, InvalidRequest),
    },
)
async def download_artifact(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    model_id: str,
    form: Annotated[Literal["safetensors", "onnx"], Query(alias="format")] = "safetensors",
    read_out: Annotated[str | None, Query(description="Read-out of an ONNX file; by default the model's.")] = None,
) -> Response:
    """Download the model as safetensors or ONNX."""
    threads = capacities(request)
    if form == "onnx":
        file = await threads.run(
            Work.CONVERSION, lambda: models.take_onnx(installation, caller, model_id, read_out=read_out)
        )
    elif read_out is None:
        file = await threads.run(Work.EXPORT, lambda: models.take_artifact(installation, caller, model_id))
    else:
        raise InvalidRequest.at("/read_out", "not-with-safetensors")
    return _OpenFile(file, threads)


class _OpenFile(StreamingResponse):
    """Sends a file in pieces, so that a slow client holds one piece in memory, and closes the file."""

    def __init__(self, file: BinaryIO, threads: Capacities) -> None:
        size = {"Content-Length": str(fstat(file.fileno()).st_size)}
        pieces = threads.iterate(Work.EXPORT, iter(partial(file.read, _PIECE_BYTES), b""))
        super().__init__(pieces, media_type="application/octet-stream", headers=size)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


@router.post(
    "/{model_id}/predict",
    operation_id="predict",
    response_model=PredictOut,
    openapi_extra=_PREDICT_BODY,
    responses={
        200: {"content": {Form.ARROW: _TABLE}},
        **problems.documented(NotFound, RoleMissing, *problems.JSON_BODY),
    },
)
def predict(_: Caller, model_id: str) -> None:
    """Predict labels and probabilities for one row or many. Predictions cost no budget and change nothing.

    A table in Arrow is answered by a table, with the columns `label` and `probabilities`, unless `Accept` names JSON.
    """
    # The route documents the operation; app.api.predictions answers its requests before the framework routes them.
    raise AssertionError("predictions are answered before routing")

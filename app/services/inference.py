"""Answers requests of the Open Inference Protocol: predicts the rows in their tensors
(:mod:`.inference_requests`), and describes the server and its models.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from app.access.grants import Principal
from app.core import limits
from app.core.errors import InvalidRequest, NotFound
from app.services.inference_requests import (
    LENGTH_OF_TEXT,
    Cells,
    InferenceRequest,
    read_request,
)
from app.services.installation import Installation
from app.services.predict import (
    Predicted,
    PredictingModel,
    loaded_model,
    predicting_model,
)
from app.wire.inference import (
    LABEL,
    OUTPUTS,
    PROBABILITIES,
    ModelMetadata,
    ServerMetadata,
    TensorMetadata,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.array_types import Float64Array
from grovekeeper_forests.data.sanitiser import (
    JsonCells,
    NumberCells,
    SanitisedColumns,
    sanitise_prediction_columns,
)
from grovekeeper_forests.data.schema import Feature, Schema


@dataclass(frozen=True)
class InferenceAnswer:
    """The body of an answer, and the length of its JSON object if bytes of tensors
    follow it.
    """

    body: bytes
    json_length: int | None


def infer(
    installation: Installation,
    principal: Principal,
    name: str,
    version: str | None,
    body: bytes,
    *,
    json_lengths: Sequence[str],
) -> InferenceAnswer:
    """Answers a request of the Open Inference Protocol; see
    :func:`app.services.inference.read_request`.

    Args:
        name: id or alias of the model.
        version: id of the model that the name is expected to address; ``None``: any.
    """
    # first: what a body may cost depends on the model
    model = versioned_model(installation, principal, name, version)
    schema = model.predictor.schema
    answer = _predicted(model, name, *read_request(body, json_lengths, schema))
    installation.cache.recount(model.digest)
    return answer


def infer_at_once(
    installation: Installation,
    principal: Principal,
    name: str,
    version: str | None,
    body: bytes,
    *,
    json_lengths: Sequence[str],
) -> InferenceAnswer | None:
    """Answers a small request on the event loop, because nothing waits or takes long.
    The body has at most ``limits.MAX_BYTES_AT_ONCE`` bytes.

    Returns:
        ``None`` if :func:`infer` has to answer in a thread; see
        :func:`app.services.predict.answer_at_once`.
    """
    model = loaded_model(installation, principal, name)
    if model is None:
        return None
    _check_version(model, version)
    schema = model.predictor.schema
    request, columns = read_request(body, json_lengths, schema)
    n_rows = max(map(len, columns.values()), default=0)
    n_cells = n_rows * model.predictor.row_cells
    if request.read_out is not None or n_cells > limits.MAX_CELLS_AT_ONCE:
        return None
    return _predicted(model, name, request, columns)


def _predicted(
    model: PredictingModel,
    name: str,
    request: InferenceRequest,
    columns: Mapping[str, Cells],
) -> InferenceAnswer:
    wanted = _wanted(request, model.predictor.schema)
    offered = model.predictor.read_outs
    if request.read_out not in (None, *offered):
        raise InvalidRequest.at(
            "/parameters/read_out", "unknown-choice", accepted=offered
        )
    predicted = model.predict(_sanitised(model, columns), read_out=request.read_out)
    head: JsonObject = {"model_name": name, "model_version": model.id}
    if request.id is not None:
        head["id"] = request.id
    return _answer(head, predicted, wanted)


def _sanitised(
    model: PredictingModel, columns: Mapping[str, Cells]
) -> SanitisedColumns:
    predictor, place = model.predictor, ("inputs",)
    lists: dict[str, list[Any]] = {}
    cells: dict[str, JsonCells | NumberCells] = {}
    for name, values in columns.items():
        if isinstance(values, list):
            lists[name], cells[name] = values, JsonCells(values)
        else:
            cells[name] = NumberCells(values)
    if len(lists) == len(columns):
        return predictor.rows.sanitise_columns(lists, place=place)
    return sanitise_prediction_columns(predictor.schema, cells, place=place)


def versioned_model(
    installation: Installation, principal: Principal, name: str, version: str | None
) -> PredictingModel:
    """Loads a model by its name. The only version of a model is its id, so an alias
    that moves changes its version.

    Raises:
        NotFound: no such model, the name addresses another version, or it is not
            visible to this key.
    """
    model = predicting_model(installation, principal, name)
    _check_version(model, version)
    return model


def _check_version(model: PredictingModel, version: str | None) -> None:
    if version not in (None, model.id):
        raise NotFound("version", only=model.id)


def _wanted(request: InferenceRequest, schema: Schema) -> dict[str, bool]:
    """The outputs of the answer, each with whether it is sent as bytes. A model of
    numbers has no probabilities.
    """
    offered: tuple[str, ...] = OUTPUTS
    if schema.label.is_number:
        offered = (LABEL,)
    default = request.parameters is not None and bool(
        request.parameters.binary_data_output
    )
    if not request.outputs:
        return dict.fromkeys(offered, default)
    wanted: dict[str, bool] = {}
    for index, output in enumerate(request.outputs):
        if output.name not in offered:
            raise InvalidRequest.at(
                f"/outputs/{index}/name", "unknown-choice", accepted=offered
            )
        said = None if output.parameters is None else output.parameters.binary_data
        wanted[output.name] = default if said is None else said
    if len(wanted) < len(request.outputs):
        raise InvalidRequest.at("/outputs", "not-distinct")
    return wanted


def _answer(
    head: JsonObject, predicted: Predicted, wanted: dict[str, bool]
) -> InferenceAnswer:
    outputs, contents = [], []
    for name, is_binary in wanted.items():
        output, values = _output(name, predicted)
        if is_binary:
            content = _contents(values)
            contents.append(content)
            output["parameters"] = {"binary_data_size": len(content)}
        else:
            output["data"] = values
            if not isinstance(values, list):
                output["data"] = values.ravel().tolist()
        outputs.append(output)
    text = json.dumps({**head, "outputs": outputs}, allow_nan=False).encode("ascii")
    return InferenceAnswer(b"".join((text, *contents)), len(text) if contents else None)


def _output(
    name: str, predicted: Predicted
) -> tuple[JsonObject, list[str] | Float64Array]:
    """The head of an output and its values: texts of classes, or numbers."""
    # classes travel as texts, numbers as they are
    if name == LABEL and predicted.classes:
        labels = [predicted.classes[code] for code in predicted.codes.tolist()]
        return {"name": name, "datatype": "BYTES", "shape": [len(labels)]}, labels
    numbers: NDArray[Any] | None = predicted.probabilities
    if name == LABEL:
        numbers = predicted.codes
    assert numbers is not None, "a model of numbers has no probabilities"
    head = {"name": name, "datatype": "FP64", "shape": list(numbers.shape)}
    return head, numbers.astype("<f8")


def _contents(values: list[str] | Float64Array) -> bytes:
    """The values of an output as bytes."""
    if isinstance(values, list):
        return _bytes(values)
    return values.tobytes()


def _bytes(texts: Sequence[str]) -> bytes:
    parts = []
    for text in texts:
        encoded = text.encode("utf-8")
        parts += [LENGTH_OF_TEXT.pack(len(encoded)), encoded]
    return b"".join(parts)


_ANY_NUMBER = -1


def describe_server(version: str) -> ServerMetadata:
    """The server: its name, its version, and the extension that it supports."""
    return ServerMetadata(
        name="grovekeeper", version=version, extensions=["binary_tensor_data"]
    )


def describe_model(name: str, model_id: str, schema: Schema) -> ModelMetadata:
    """The tensors of a model: one per feature, the label, and the probabilities in the
    order of ``classes``, unless the label is a number.
    """
    classes = list(schema.label.classes)
    label = TensorMetadata(name=LABEL, datatype="BYTES", shape=[_ANY_NUMBER])
    shares = TensorMetadata(
        name=PROBABILITIES, datatype="FP64", shape=[_ANY_NUMBER, len(classes)]
    )
    outputs = [label, shares]
    if schema.label.is_number:
        outputs = [TensorMetadata(name=LABEL, datatype="FP64", shape=[_ANY_NUMBER])]
    return ModelMetadata(
        name=name,
        versions=[model_id],
        platform="grovekeeper",
        inputs=[
            TensorMetadata(
                name=feature.name, datatype=_datatype(feature), shape=[_ANY_NUMBER]
            )
            for feature in schema.features
        ],
        outputs=outputs,
        classes=classes,
    )


def _datatype(feature: Feature) -> str:
    """The datatype that can carry every value of a column, also a missing one."""
    if feature.has_texts:
        return "BYTES"
    if feature.missing or feature.type == "numeric":
        return "FP64"
    return "INT64"

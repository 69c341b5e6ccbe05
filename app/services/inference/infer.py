"""Serves ``POST /v2/models/{name}/infer``: predicts the rows in the tensors of a request."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.access.grants import Principal
from app.core.errors import InvalidRequest, NotFound
from app.forests.data.request_cells import JsonCells, NumberCells
from app.forests.data.sanitiser import sanitise_prediction_columns
from app.services.inference import requests, tensors
from app.services.installation import Installation
from app.services.predict import Predicted, PredictingModel, predicting_model
from app.wire.inference import LABEL, OUTPUTS, PROBABILITIES


@dataclass(frozen=True)
class InferenceAnswer:
    """The body of an answer, and the length of its JSON object if bytes of tensors follow it."""

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
    """Answers a request of the Open Inference Protocol; see :func:`app.services.inference.requests.read`.

    Args:
        installation: this installation.
        principal: the caller.
        name: id or alias of the model.
        version: id of the model that the name is expected to address; ``None``: any.
        body: of the request.
        json_lengths: values of the header ``Inference-Header-Content-Length``.

    Raises:
        MalformedRequest: the body cannot be read.
        InvalidRequest: a field, a tensor or a cell breaks a rule.
        TooLarge: the request has too many rows, or too many values and names.
        NotFound: no such model or version, or it is not visible to this key.
        RoleMissing: the key's role on the model's dataset does not allow this.
    """
    model = versioned_model(installation, principal, name, version)  # first: what a body may cost depends on the model
    request, columns = requests.read(body, json_lengths, n_features=len(model.schema.features))
    cells = {
        column: JsonCells(values) if isinstance(values, list) else NumberCells(values)
        for column, values in columns.items()
    }
    sanitised = sanitise_prediction_columns(model.schema, cells, at="/inputs")
    predicted = model.predict(sanitised, read_out=request.parameters.read_out)
    head: dict[str, Any] = {"model_name": name, "model_version": model.id}
    if request.id is not None:
        head["id"] = request.id
    return _answer(head, predicted, _wanted(request))


def versioned_model(
    installation: Installation, principal: Principal, name: str, version: str | None
) -> PredictingModel:
    """Loads a model by its name. The only version of a model is its id, so an alias that moves changes its version.

    Raises:
        NotFound: no such model, the name addresses another version, or it is not visible to this key.
        RoleMissing: the key's role on the model's dataset does not allow this.
    """
    model = predicting_model(installation, principal, name)
    if version not in (None, model.id):
        raise NotFound("model")
    return model


def _wanted(request: requests.InferenceRequest) -> dict[str, bool]:
    """The outputs of the answer, each with whether it is sent as bytes."""
    default = request.parameters.binary_data_output
    if not request.outputs:
        return dict.fromkeys(OUTPUTS, default)
    wanted = {
        output.name: default if output.parameters.binary_data is None else output.parameters.binary_data
        for output in request.outputs
    }
    if not wanted.keys() <= set(OUTPUTS):
        raise InvalidRequest.at("/outputs", "unknown-choice", accepted=OUTPUTS)
    if len(wanted) < len(request.outputs):
        raise InvalidRequest.at("/outputs", "not-distinct")
    return wanted


def _answer(head: dict[str, Any], predicted: Predicted, wanted: dict[str, bool]) -> InferenceAnswer:
    outputs, contents = [], []
    for name, is_binary in wanted.items():
        output, content = _label(predicted, is_binary) if name == LABEL else _probabilities(predicted, is_binary)
        if is_binary:
            output["parameters"] = {"binary_data_size": len(content)}
            contents.append(content)
        outputs.append(output)
    text = json.dumps({**head, "outputs": outputs}, allow_nan=False).encode("ascii")
    return InferenceAnswer(b"".join((text, *contents)), len(text) if contents else None)


def _label(predicted: Predicted, is_binary: bool) -> tuple[dict[str, Any], bytes]:
    output = {"name": LABEL, "datatype": "BYTES", "shape": [len(predicted.labels)]}
    if is_binary:
        return output, tensors.bytes_of_strings(predicted.labels)
    return {**output, "data": predicted.labels}, b""


def _probabilities(predicted: Predicted, is_binary: bool) -> tuple[dict[str, Any], bytes]:
    output = {"name": PROBABILITIES, "datatype": "FP64", "shape": list(predicted.probabilities.shape)}
    if is_binary:
        return output, tensors.bytes_of_numbers(predicted.probabilities)
    return {**output, "data": predicted.probabilities.ravel().tolist()}, b""

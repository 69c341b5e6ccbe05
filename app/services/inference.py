"""Serves the Open Inference Protocol: reads tensors, predicts their rows, and describes the server and its models.

A request is a JSON object, and behind it the bytes of tensors. Every number of a request is a claim: lengths and shapes
are compared with the bytes that are there before anything of that size is made.

A number is an ``FP64`` or an ``INT64``, a category or a label a ``BYTES``. Bytes are little-endian. An element of
``BYTES`` is its length as four bytes, and then its UTF-8. A missing value is ``null`` in JSON, NaN among the bytes of
``FP64``, the empty string in ``BYTES``; ``INT64`` has none.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.access.grants import Principal
from app.core import json_text, limits
from app.core.errors import InvalidRequest, MalformedRequest, NotFound, TooLarge
from app.forests.data.sanitiser import JsonCells, NumberCells, max_rows, sanitise_prediction_columns
from app.forests.data.schema import Feature, Schema
from app.services.installation import Installation
from app.services.predict import Predicted, PredictingModel, predicting_model
from app.wire.models import LABEL, OUTPUTS, PROBABILITIES, ModelMetadata, ServerMetadata, TensorMetadata

_PREFIX = struct.Struct("<I")

Cells: TypeAlias = list[Any] | NDArray[np.float64]
"""The values of a column: a list in which ``None`` is a missing value, or numbers of which NaN is one."""


@dataclass(frozen=True)
class Datatype:
    """A datatype of tensors.

    Attributes:
        types: types of values in JSON.
        cells_of_list: cells of values in JSON that have these types.
        cells_of_bytes: cells of so many elements; ``None`` if the bytes are no such tensor.
    """

    types: frozenset[type]
    cells_of_list: Callable[[list[Any]], Cells]
    cells_of_bytes: Callable[[memoryview, int], Cells | None]


def _numbers(dtype: str) -> Callable[[memoryview, int], Cells | None]:
    def cells(content: memoryview, n_rows: int) -> Cells | None:
        return np.frombuffer(content, dtype=dtype).astype(np.float64) if len(content) == 8 * n_rows else None

    return cells


def _strings(content: memoryview, n_rows: int) -> Cells | None:
    cells: list[Any] = []
    position = 0
    for _ in range(n_rows):
        if position + _PREFIX.size > len(content):
            return None
        (length,) = _PREFIX.unpack_from(content, position)
        position += _PREFIX.size
        if position + length > len(content):
            return None
        try:
            cells.append(str(content[position : position + length], "utf-8") or None)
        except UnicodeDecodeError:
            return None
        position += length
    return cells if position == len(content) else None


DATATYPES: Mapping[str, Datatype] = {
    "FP64": Datatype(frozenset({int, float, type(None)}), list, _numbers("<f8")),
    "INT64": Datatype(frozenset({int, type(None)}), list, _numbers("<i8")),
    "BYTES": Datatype(frozenset({str, type(None)}), lambda cells: [cell or None for cell in cells], _strings),
}


_LENGTH = re.compile(r"[0-9]{1,12}", re.ASCII)


class _InputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of an input: the number of its bytes after the JSON object, if its values are there."""

    binary_data_size: int | None = None


class _OutputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a requested output: whether its values are sent as bytes."""

    binary_data: bool | None = None


class _RequestParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a request: whether outputs are sent as bytes unless an output says otherwise, and the read-out."""

    binary_data_output: bool = False
    read_out: str | None = None


class _InputTensor(msgspec.Struct, forbid_unknown_fields=True):
    """A tensor of a request: the values of one column, in ``data`` or as bytes."""

    name: str
    shape: list[int]
    datatype: str
    parameters: _InputParameters = msgspec.field(default_factory=_InputParameters)
    data: list[Any] | None = None


class _RequestedOutput(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    parameters: _OutputParameters = msgspec.field(default_factory=_OutputParameters)


class InferenceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON object of a request."""

    inputs: list[_InputTensor]
    id: Annotated[str, msgspec.Meta(max_length=limits.MAX_REFERENCE_CHARS)] | None = None
    parameters: _RequestParameters = msgspec.field(default_factory=_RequestParameters)
    outputs: Annotated[list[_RequestedOutput], msgspec.Meta(max_length=len(OUTPUTS))] | None = None


def read_request(body: bytes, json_lengths: Sequence[str], schema: Schema) -> tuple[InferenceRequest, dict[str, Cells]]:
    """Reads a request and the columns in its tensors.

    Args:
        json_lengths: values of the header ``Inference-Header-Content-Length``: the number of bytes of the JSON object.
        schema: public, of the model.

    Returns:
        The request, and cells by column.

    Raises:
        MalformedRequest: the body is not JSON, a name occurs twice in one object, or the header is not the length of a
            part of the body.
        InvalidRequest: a field or a tensor breaks a rule.
        TooLarge: the request has too many rows, tensors, or values and names for the model.
    """
    text, rest = _parts(body, json_lengths)
    request = _decoded(text, len(schema.features))
    most_rows = max_rows(schema)
    columns: dict[str, Cells] = {}
    for index, tensor in enumerate(request.inputs):
        columns[tensor.name], rest = _cells(tensor, rest, max_rows=most_rows, at=f"/inputs/{index}")
    if len(columns) < len(request.inputs):
        raise InvalidRequest.at("/inputs", "not-distinct")
    if rest:
        raise MalformedRequest("the body has more bytes than its tensors")
    return request, columns


def _max_nodes(n_features: int) -> int:
    """Most values and names of members in the JSON of a request: those of its cells, and 16 of each tensor."""
    return min(limits.MAX_PREDICTION_BODY_NODES, 2 * (limits.MAX_PREDICTION_ROWS + 8) * n_features + 64)


def _parts(body: bytes, json_lengths: Sequence[str]) -> tuple[bytes, memoryview]:
    if not json_lengths:
        return body, memoryview(b"")
    if len(json_lengths) > 1 or not _LENGTH.fullmatch(json_lengths[0]) or int(json_lengths[0]) > len(body):
        raise MalformedRequest("Inference-Header-Content-Length is not the length of a part of the body")
    length = int(json_lengths[0])
    return body[:length], memoryview(body)[length:]


def _decoded(text: bytes, n_features: int) -> InferenceRequest:
    json_text.check_nodes(text, _max_nodes(n_features))
    try:
        value = json_text.loads(text)
    except (ValueError, RecursionError):
        raise json_text.not_json(text) from None
    inputs = value.get("inputs") if isinstance(value, dict) else None
    if isinstance(inputs, list) and len(inputs) > n_features:
        raise TooLarge("the number of inputs", n_features)
    try:
        return msgspec.convert(value, InferenceRequest)
    except msgspec.ValidationError:
        raise InvalidRequest.at("", "not-an-inference-request") from None


def _cells(tensor: _InputTensor, rest: memoryview, *, max_rows: int, at: str) -> tuple[Cells, memoryview]:
    """The cells of a tensor, and the bytes behind those of the tensor."""
    datatype = DATATYPES.get(tensor.datatype)
    if datatype is None:
        raise InvalidRequest.at(f"{at}/datatype", "unknown-choice", accepted=DATATYPES)
    n_rows = _n_rows(tensor.shape, max_rows=max_rows, at=at)
    size = tensor.parameters.binary_data_size
    if (size is None) == (tensor.data is None):
        raise InvalidRequest.at(at, "needs-data-or-bytes")
    if tensor.data is not None:
        return _listed(tensor.data, datatype, n_rows, is_nested=len(tensor.shape) == 2, at=at), rest
    assert size is not None
    if not 0 <= size <= len(rest):
        raise InvalidRequest.at(f"{at}/parameters/binary_data_size", "not-in-the-body")
    cells = datatype.cells_of_bytes(rest[:size], n_rows)
    if cells is None:
        raise InvalidRequest.at(at, "bytes-do-not-match-shape")
    return cells, rest[size:]


def _n_rows(shape: list[int], *, max_rows: int, at: str) -> int:
    """The number of rows of a column of shape ``[n]`` or ``[n, 1]``."""
    if len(shape) not in (1, 2) or shape[0] < 0 or shape[1:] not in ([], [1]):
        raise InvalidRequest.at(f"{at}/shape", "not-a-column", accepted=("[n]", "[n, 1]"))
    if shape[0] > max_rows:
        raise TooLarge("the number of rows", max_rows)
    return shape[0]


def _listed(cells: list[Any], datatype: Datatype, n_rows: int, *, is_nested: bool, at: str) -> Cells:
    """The values of ``data``; those of ``[n, 1]`` may be lists of one value."""
    if is_nested and all(type(cell) is list and len(cell) == 1 for cell in cells):
        cells = [cell[0] for cell in cells]
    if len(cells) != n_rows:
        raise InvalidRequest.at(at, "data-does-not-match-shape")
    if not datatype.types.issuperset(map(type, cells)):
        raise InvalidRequest.at(f"{at}/data", "not-of-datatype")
    return datatype.cells_of_list(cells)


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
    """Answers a request of the Open Inference Protocol; see :func:`app.services.inference.read_request`.

    Args:
        name: id or alias of the model.
        version: id of the model that the name is expected to address; ``None``: any.
    """
    model = versioned_model(installation, principal, name, version)  # first: what a body may cost depends on the model
    request, columns = read_request(body, json_lengths, model.schema)
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
    """
    model = predicting_model(installation, principal, name)
    if version not in (None, model.id):
        raise NotFound("model")
    return model


def _wanted(request: InferenceRequest) -> dict[str, bool]:
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
        is_label = name == LABEL
        shape = [len(predicted.labels)] if is_label else list(predicted.probabilities.shape)
        output: dict[str, Any] = {"name": name, "datatype": "BYTES" if is_label else "FP64", "shape": shape}
        if is_binary:
            contents.append(_bytes(predicted.labels) if is_label else predicted.probabilities.astype("<f8").tobytes())
            output["parameters"] = {"binary_data_size": len(contents[-1])}
        else:
            output["data"] = predicted.labels if is_label else predicted.probabilities.ravel().tolist()
        outputs.append(output)
    text = json.dumps({**head, "outputs": outputs}, allow_nan=False).encode("ascii")
    return InferenceAnswer(b"".join((text, *contents)), len(text) if contents else None)


def _bytes(texts: Sequence[str]) -> bytes:
    encoded = (text.encode("utf-8") for text in texts)
    return b"".join(part for text in encoded for part in (_PREFIX.pack(len(text)), text))


_ANY_NUMBER = -1


def describe_server(version: str) -> ServerMetadata:
    """The server: its name, its version, and the extension that it supports."""
    return ServerMetadata(name="grovekeeper", version=version, extensions=["binary_tensor_data"])


def describe_model(name: str, model_id: str, schema: Schema) -> ModelMetadata:
    """The tensors of a model: one per feature, the label, and the probabilities in the order of ``classes``."""
    classes = list(schema.label.classes)
    return ModelMetadata(
        name=name,
        versions=[model_id],
        platform="grovekeeper",
        inputs=[
            TensorMetadata(name=feature.name, datatype=_datatype(feature), shape=[_ANY_NUMBER])
            for feature in schema.features
        ],
        outputs=[
            TensorMetadata(name=LABEL, datatype="BYTES", shape=[_ANY_NUMBER]),
            TensorMetadata(name=PROBABILITIES, datatype="FP64", shape=[_ANY_NUMBER, len(classes)]),
        ],
        classes=classes,
    )


def _datatype(feature: Feature) -> str:
    """The datatype that can carry every value of a column, also a missing one."""
    if feature.is_categorical:
        return "BYTES"
    return "FP64" if feature.missing or feature.type == "numeric" else "INT64"

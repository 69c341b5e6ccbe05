"""Reads requests of the Open Inference Protocol: a JSON object, and behind it the bytes of tensors.

Every number of a request is a claim: lengths and shapes are compared with the bytes that are there before anything of
that size is made.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from app.core import json_text, limits
from app.core.errors import InvalidRequest, MalformedRequest, TooLarge
from app.services.inference.tensors import DATATYPES, Cells, Datatype
from app.wire.inference import OUTPUTS

_LENGTH = re.compile(r"[0-9]{1,12}", re.ASCII)


class InputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of an input: the number of its bytes after the JSON object, if its values are there."""

    binary_data_size: int | None = None


class OutputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a requested output: whether its values are sent as bytes."""

    binary_data: bool | None = None


class RequestParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a request: whether outputs are sent as bytes unless an output says otherwise, and the read-out."""

    binary_data_output: bool = False
    read_out: str | None = None


class Input(msgspec.Struct, forbid_unknown_fields=True):
    """A tensor of a request: the values of one column, in ``data`` or as bytes."""

    name: str
    shape: list[int]
    datatype: str
    parameters: InputParameters = msgspec.field(default_factory=InputParameters)
    data: list[Any] | None = None


class Output(msgspec.Struct, forbid_unknown_fields=True):
    """An output that the answer is to have."""

    name: str
    parameters: OutputParameters = msgspec.field(default_factory=OutputParameters)


class InferenceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON object of a request."""

    inputs: list[Input]
    id: Annotated[str, msgspec.Meta(max_length=limits.MAX_REFERENCE_CHARS)] | None = None
    parameters: RequestParameters = msgspec.field(default_factory=RequestParameters)
    outputs: Annotated[list[Output], msgspec.Meta(max_length=len(OUTPUTS))] | None = None


def read(body: bytes, json_lengths: Sequence[str], *, n_features: int) -> tuple[InferenceRequest, dict[str, Cells]]:
    """Reads a request and the columns in its tensors.

    Args:
        body: of the request.
        json_lengths: values of the header ``Inference-Header-Content-Length``: the number of bytes of the JSON object.
        n_features: of the model.

    Returns:
        The request, and cells by column.

    Raises:
        MalformedRequest: the body is not JSON, a name occurs twice in one object, or the header is not the length of a
            part of the body.
        InvalidRequest: a field or a tensor breaks a rule.
        TooLarge: the request has too many rows, tensors, or values and names for the model.
    """
    text, rest = _parts(body, json_lengths)
    request = _decoded(text, n_features)
    max_rows = limits.prediction_rows(n_features)
    columns: dict[str, Cells] = {}
    for index, tensor in enumerate(request.inputs):
        columns[tensor.name], rest = _cells(tensor, rest, max_rows=max_rows, at=f"/inputs/{index}")
    if len(columns) < len(request.inputs):
        raise InvalidRequest.at("/inputs", "not-distinct")
    if rest:
        raise MalformedRequest("the body has more bytes than its tensors")
    return request, columns


def _parts(body: bytes, json_lengths: Sequence[str]) -> tuple[bytes, memoryview]:
    if not json_lengths:
        return body, memoryview(b"")
    if len(json_lengths) > 1 or not _LENGTH.fullmatch(json_lengths[0]) or int(json_lengths[0]) > len(body):
        raise MalformedRequest("Inference-Header-Content-Length is not the length of a part of the body")
    length = int(json_lengths[0])
    return body[:length], memoryview(body)[length:]


def _decoded(text: bytes, n_features: int) -> InferenceRequest:
    json_text.check_nodes(text, limits.inference_nodes(n_features))
    try:
        value = json_text.loads(text)
    except (ValueError, RecursionError):
        raise MalformedRequest("the body is not JSON, or a name occurs twice in one object") from None
    inputs = value.get("inputs") if isinstance(value, dict) else None
    if isinstance(inputs, list) and len(inputs) > n_features:
        raise TooLarge("the number of inputs", n_features)
    try:
        return msgspec.convert(value, InferenceRequest)
    except msgspec.ValidationError:
        raise InvalidRequest.at("", "not-an-inference-request") from None


def _cells(tensor: Input, rest: memoryview, *, max_rows: int, at: str) -> tuple[Cells, memoryview]:
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

"""Reads requests of the Open Inference Protocol: the JSON object, and the tensors in it
and behind it.

A request is a JSON object, and behind it the bytes of tensors. Every number of a
request is a claim: lengths and shapes are compared with the bytes that are there before
anything of that size is made. The protocol lets clients add members and parameters;
those that this module does not know are ignored.

A tensor is a column; one tensor of numbers with a row for each row is all columns of a
model without categories. Numbers of every datatype become ``FP64``, without a loss
where the bounds of their column matter. A category or a label is a ``BYTES``. Bytes are
little-endian. An element of ``BYTES`` is its length as four bytes, and then its UTF-8.
A missing value is ``null`` in JSON, NaN among the bytes of ``FP64``, ``FP32`` and
``FP16``, the empty string in ``BYTES``; bytes of the other datatypes have none.
"""

import math
import re
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np

from app.core import json_text, limits
from app.core.errors import InvalidRequest, MalformedRequest, TooLarge
from app.wire.inference import (
    OUTPUTS,
)
from grovekeeper_common import strict_json
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.array_types import Float64Array
from grovekeeper_forests.data.sanitiser import (
    unknown_column,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid

LENGTH_OF_TEXT = struct.Struct("<I")
"""The bytes before an element of ``BYTES``."""

_LENGTH = re.compile(r"[0-9]{1,12}", re.ASCII)

Cells = list[Any] | Float64Array
"""The values of a column: a list in which ``None`` is a missing value, or numbers of
which NaN is one.
"""

_STRINGS, _BOOLEANS = "BYTES", "BOOL"
_DTYPES = {
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    _BOOLEANS: np.dtype("u1"),
}
"""The elements of datatypes among bytes."""

_TYPES: dict[str, frozenset[type]] = {
    **{name: frozenset({int, type(None)}) for name in _DTYPES},
    **dict.fromkeys(("FP16", "FP32", "FP64"), frozenset({int, float, type(None)})),
    _BOOLEANS: frozenset({bool, type(None)}),
    _STRINGS: frozenset({str, type(None)}),
}
"""The types of elements in JSON."""


class _InputParameters(msgspec.Struct):
    """Parameters of an input: the number of its bytes after the JSON object, if its
    values are there, and its codec.
    """

    binary_data_size: int | None = None
    content_type: str | None = None


class _OutputParameters(msgspec.Struct):
    """Parameters of a requested output: whether its values are sent as bytes. The
    others ask for another answer, and are refused: what their sender waits for would
    never come.
    """

    binary_data: bool | None = None
    classification: Any = None
    shared_memory_region: Any = None
    shared_memory_offset: Any = None
    shared_memory_byte_size: Any = None


class _RequestParameters(msgspec.Struct):
    """Parameters of a request: whether outputs are sent as bytes unless an output says
    otherwise, and the read-out.
    """

    binary_data_output: bool | None = None
    read_out: str | None = None


class _InputTensor(msgspec.Struct):
    """A tensor of a request: the values of a column or of all columns, in ``data`` or
    as bytes.
    """

    name: str
    shape: list[int]
    datatype: str
    parameters: _InputParameters | None = None
    data: list[Any] | None = None


class _RequestedOutput(msgspec.Struct):
    name: str
    parameters: _OutputParameters | None = None


class InferenceRequest(msgspec.Struct):
    """The JSON object of a request."""

    inputs: list[_InputTensor]
    id: Annotated[str, msgspec.Meta(max_length=limits.MAX_REFERENCE_CHARS)] | None = (
        None
    )
    parameters: _RequestParameters | None = None
    outputs: (
        Annotated[list[_RequestedOutput], msgspec.Meta(max_length=len(OUTPUTS))] | None
    ) = None

    @property
    def read_out(self) -> str | None:
        """The read-out that the request names."""
        return None if self.parameters is None else self.parameters.read_out


def read_request(
    body: bytes, json_lengths: Sequence[str], schema: Schema
) -> tuple[InferenceRequest, dict[str, Cells]]:
    """Reads a request and the columns in its tensors.

    Args:
        json_lengths: values of the header ``Inference-Header-Content-Length``: the
            number of bytes of the JSON object.
        schema: public, of the model.

    Returns:
        The request, and cells by column.

    Raises:
        MalformedRequest: the body is not JSON, a name occurs twice in one object, or
            the header is not the length of a part of the body.
        InvalidRequest: a field or a tensor breaks a rule.
        TooLarge: the request has too many rows, tensors, or values and names for the
            model.
    """
    text, rest = _parts(body, json_lengths)
    request = _decoded(text, schema)
    _refuse_other_answers(request.outputs or ())
    names = _columns_of_one_tensor(request.inputs, schema)
    if names is None:
        _check_names(request.inputs, schema.feature_names)
    with_texts = {feature.name for feature in schema.features if feature.has_texts}
    columns: dict[str, Cells] = {}
    most_rows = schema.max_request_rows
    for index, tensor in enumerate(request.inputs):
        at, of_tensor = f"/inputs/{index}", names or [tensor.name]
        n_rows = _n_rows(tensor.shape, len(of_tensor), most_rows, at=at)
        cells, rest = _cells(
            tensor, rest, n_rows=n_rows, n_columns=len(of_tensor), at=at
        )
        if tensor.datatype == _BOOLEANS and tensor.name not in with_texts:
            cells = [None if cell is None else int(cell) for cell in cells]
        for place, name in enumerate(of_tensor):
            columns[name] = cells[place :: len(of_tensor)]
    if len(columns) < len(request.inputs):
        raise InvalidRequest.at("/inputs", "not-distinct")
    if rest:
        raise MalformedRequest("the body has more bytes than its tensors")
    return request, columns


def _max_nodes(n_features: int) -> int:
    """Most values and names of members in the JSON of a request: those of its cells, 64
    of each tensor, and 256.
    """
    return min(
        limits.MAX_PREDICTION_BODY_NODES,
        2 * (forest_limits.MAX_PREDICTION_ROWS + 32) * n_features + 256,
    )


def _parts(body: bytes, json_lengths: Sequence[str]) -> tuple[bytes, memoryview]:
    if not json_lengths:
        return body, memoryview(b"")
    if (
        len(json_lengths) > 1
        or not _LENGTH.fullmatch(json_lengths[0])
        or int(json_lengths[0]) > len(body)
    ):
        raise MalformedRequest(
            "Inference-Header-Content-Length is not the length of a part of the body"
        )
    length = int(json_lengths[0])
    return body[:length], memoryview(body)[length:]


def _decoded(text: bytes, schema: Schema) -> InferenceRequest:
    json_text.check_nodes(text, _max_nodes(len(schema.features)))
    try:
        value = strict_json.loads(text)
    except (ValueError, RecursionError):
        raise json_text.not_json(text) from None
    try:
        return msgspec.convert(value, InferenceRequest)
    except msgspec.ValidationError as error:
        refusal = _refusal(str(error))
    raise refusal  # out of the handler: the library's error holds the input


def _refuse_other_answers(outputs: Sequence[_RequestedOutput]) -> None:
    for index, output in enumerate(outputs):
        if output.parameters is None:
            continue
        for name, value in msgspec.structs.asdict(output.parameters).items():
            if name != "binary_data" and value is not None:
                raise InvalidRequest.at(
                    f"/outputs/{index}/parameters/{name}", "not-offered"
                )


def _check_names(inputs: list[_InputTensor], known: list[str]) -> None:
    """Checks that the model reads every tensor, before shapes are. A tensor that it
    does not read, such as the label, is named: too many tensors are its consequence.
    """
    names = set(known)
    unknown = [tensor.name for tensor in inputs if tensor.name not in names]
    if unknown:
        raise ParameterInvalid(
            [unknown_column(unknown[0], known, place=("inputs",), count=len(unknown))]
        )
    if len(inputs) > len(known):
        raise TooLarge("the number of inputs", len(known))


_REASON = re.compile(
    r"(?:Object missing required field `(?P<field>\w+)`|Expected `(?P<type>\w+))"
)
_SLUGS = {
    "int": "not-an-integer", "str": "not-a-string", "bool": "not-a-boolean", "array": "not-a-list",
    "object": "not-an-object",
}  # fmt: skip


def _refusal(reason: str) -> InvalidRequest:
    """What is wrong and where, from the library's sentence, which names members of this
    module's types and no value.
    """
    what, _, path = reason.partition(" - at `$")
    place = re.sub(r"\]?[.\[]|\]?`", "/", path).rstrip("/")
    matched = _REASON.match(what)
    if matched and matched["field"]:
        return InvalidRequest.at(f"{place}/{matched['field']}", "required")
    if not place:  # the body is no object
        return InvalidRequest.at("/inputs", "required")
    if "of length" in what:
        return InvalidRequest.at(
            place, "too-long" if matched and matched["type"] == "str" else "too-many"
        )
    return InvalidRequest.at(
        place, _SLUGS.get(matched["type"], "invalid") if matched else "invalid"
    )


def _columns_of_one_tensor(
    inputs: Sequence[_InputTensor], schema: Schema
) -> list[str] | None:
    """All columns, in declared order, if one tensor of two dimensions has them;
    ``None`` if tensors are columns.
    """
    if len(inputs) != 1 or any(feature.has_texts for feature in schema.features):
        return None
    (tensor,) = inputs
    names = schema.feature_names
    is_column = tensor.shape[1:] == [1] and len(names) > 1
    if len(tensor.shape) != 2 or tensor.datatype not in _DTYPES or is_column:
        return None
    return names


def _n_rows(shape: list[int], n_columns: int, most_rows: int, *, at: str) -> int:
    """The number of rows of a tensor of shape ``[n, n_columns]``; ``[n]`` is the shape
    of one column, too.
    """
    is_one = n_columns == 1
    if (
        not 1 <= len(shape) <= 2
        or shape[0] < 0
        or shape[1:] not in ([n_columns], [] if is_one else [n_columns])
    ):
        accepted = ("[n]", "[n, 1]") if is_one else (f"[n, {n_columns}]",)
        raise InvalidRequest.at(
            f"{at}/shape",
            "not-a-column" if is_one else "not-all-columns",
            accepted=accepted,
        )
    if shape[0] > most_rows:
        raise TooLarge("the number of rows", most_rows)
    return shape[0]


def _cells(
    tensor: _InputTensor, rest: memoryview, *, n_rows: int, n_columns: int, at: str
) -> tuple[Cells, memoryview]:
    """The elements of a tensor, row by row, and the bytes behind those of the tensor."""
    if tensor.datatype not in _TYPES:
        raise InvalidRequest.at(f"{at}/datatype", "unknown-choice", accepted=_TYPES)
    parameters = tensor.parameters or _InputParameters()
    if parameters.content_type == "base64":  # whose text is no category
        raise InvalidRequest.at(
            f"{at}/parameters/content_type",
            "unknown-choice",
            accepted=("str", "np", "pd"),
        )
    size = parameters.binary_data_size
    if (size is None) == (tensor.data is None):
        raise InvalidRequest.at(at, "needs-data-or-bytes")
    if tensor.data is not None:
        return _listed(tensor, tensor.data, n_rows, n_columns, at=at), rest
    assert size is not None
    if not 0 <= size <= len(rest):
        raise InvalidRequest.at(f"{at}/parameters/binary_data_size", "not-in-the-body")
    cells = _unpacked(rest[:size], tensor.datatype, n_rows * n_columns)
    if cells is None:
        raise InvalidRequest.at(at, "bytes-do-not-match-shape")
    return cells, rest[size:]


def _listed(
    tensor: _InputTensor, data: list[Any], n_rows: int, n_columns: int, *, at: str
) -> list[Any]:
    """The elements of ``data``; those of two dimensions may be lists of rows."""
    if len(tensor.shape) == 2 and all(
        type(row) is list and len(row) == n_columns for row in data
    ):
        data = list(chain.from_iterable(data))
    if len(data) != n_rows * n_columns:
        raise InvalidRequest.at(at, "data-does-not-match-shape")
    if not _TYPES[tensor.datatype].issuperset(map(type, data)) or not _is_in_range(
        data, tensor.datatype
    ):
        raise InvalidRequest.at(f"{at}/data", "not-of-datatype")
    if tensor.datatype == _STRINGS:
        return [cell or None for cell in data]
    return data


def _is_in_range(data: list[Any], datatype: str) -> bool:
    """Whether the elements of a datatype of whole numbers lie in its range."""
    numbers = [number for number in data if number is not None]
    if "INT" not in datatype or not numbers:
        return True
    bounds = np.iinfo(_DTYPES[datatype])
    return bool(bounds.min <= min(numbers) and max(numbers) <= bounds.max)


def _unpacked(content: memoryview, datatype: str, n_elements: int) -> Cells | None:
    """The elements among bytes; ``None`` if the bytes are not so many elements."""
    if datatype == _STRINGS:
        return _strings(content, n_elements)
    dtype = _DTYPES[datatype]
    if len(content) != dtype.itemsize * n_elements:
        return None
    numbers = np.frombuffer(content, dtype=dtype)
    if datatype == _BOOLEANS:
        if bytes(content).strip(b"\0\1") == b"":
            return list(map(bool, numbers.tolist()))
        return None
    if n_elements > limits.MAX_CELLS_AT_ONCE:
        return numbers.astype(np.float64)
    # faster for a few
    return [None if math.isnan(number) else number for number in numbers.tolist()]


def _strings(content: memoryview, n_elements: int) -> list[Any] | None:
    cells: list[Any] = []
    position = 0
    for _ in range(n_elements):
        if position + LENGTH_OF_TEXT.size > len(content):
            return None
        (length,) = LENGTH_OF_TEXT.unpack_from(content, position)
        position += LENGTH_OF_TEXT.size
        if position + length > len(content):
            return None
        try:
            cells.append(str(content[position : position + length], "utf-8") or None)
        except UnicodeDecodeError:
            return None
        position += length
    return cells if position == len(content) else None

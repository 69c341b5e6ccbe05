"""Defines the types of ``/v2``, the Open Inference Protocol.

``services.inference_requests`` decodes the bodies of requests.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.wire.base import Answer, Reference
from grovekeeper_forests import limits as forest_limits

LABEL = "label"


PROBABILITIES = "probabilities"


OUTPUTS = (LABEL, PROBABILITIES)


InputDatatype = Literal[
    "FP16",
    "FP32",
    "FP64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "BOOL",
    "BYTES",
]


class ServerLive(Answer):
    live: bool


class ServerReady(Answer):
    ready: bool


class ModelReady(Answer):
    name: str
    ready: bool


class ServerMetadata(Answer):
    name: str
    version: str
    extensions: list[str]


class TensorMetadata(Answer):
    """A tensor; −1 in a shape is any number."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(Answer):
    """The tensors of a model. ``classes`` are the columns of ``probabilities``."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    classes: list[str]


class _Extensible(BaseModel):
    """A part of a request of the protocol, which lets clients add members. Those of
    other names are ignored.
    """

    model_config = ConfigDict(extra="allow")


class InputParameters(_Extensible):
    """Bytes of the tensor after the JSON object, in place of ``data``."""

    binary_data_size: Annotated[int, Field(ge=0)] | None = None


class InputTensor(_Extensible):
    """A column, or all columns of numbers: the values in ``data``, or as bytes after
    the JSON object.
    """

    name: str
    datatype: InputDatatype
    shape: Annotated[list[int], Field(min_length=1, max_length=2)]
    data: list[Any] | None = None
    parameters: InputParameters | None = None


class OutputParameters(_Extensible):
    binary_data: bool | None = None


class RequestedOutput(_Extensible):
    name: Literal["label", "probabilities"]
    parameters: OutputParameters | None = None


class RequestParameters(_Extensible):
    """Whether outputs are sent as bytes, and the read-out of the model."""

    binary_data_output: bool | None = None
    read_out: Reference | None = None


class InferenceIn(_Extensible):
    """A request of the Open Inference Protocol."""

    inputs: Annotated[list[InputTensor], Field(max_length=forest_limits.MAX_FEATURES)]
    id: Reference | None = None
    parameters: RequestParameters | None = None
    outputs: Annotated[list[RequestedOutput], Field(max_length=len(OUTPUTS))] | None = (
        None
    )


class OutputTensor(Answer):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class InferenceOut(Answer):
    """The answer in JSON. It has an ``id`` if the request has one."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OutputTensor]

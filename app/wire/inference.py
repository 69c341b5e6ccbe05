"""Defines the types of ``/v2``, the Open Inference Protocol. ``services.inference`` decodes the bodies of requests."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from app.core import limits
from app.wire.base import Answer, Reference, Request
from app.wire.datasets import ColumnName

LABEL = "label"
PROBABILITIES = "probabilities"
OUTPUTS = (LABEL, PROBABILITIES)
InputDatatype: TypeAlias = Literal["FP64", "INT64", "BYTES"]


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


class InputParameters(Request):
    """Bytes of the tensor after the JSON object, in place of ``data``."""

    binary_data_size: Annotated[int, Field(ge=0)]


class InputTensor(Request):
    """One column: its values in ``data``, or as bytes after the JSON object."""

    name: ColumnName
    datatype: InputDatatype
    shape: Annotated[list[int], Field(min_length=1, max_length=2)]
    data: Annotated[list[Any], Field(max_length=limits.MAX_PREDICTION_ROWS)] | None = None
    parameters: InputParameters | None = None


class OutputParameters(Request):
    binary_data: bool


class RequestedOutput(Request):
    name: Literal["label", "probabilities"]
    parameters: OutputParameters | None = None


class RequestParameters(Request):
    """Whether outputs are sent as bytes, and the read-out of the model."""

    binary_data_output: bool = False
    read_out: Reference | None = None


class InferenceIn(Request):
    """A request of the Open Inference Protocol."""

    inputs: Annotated[list[InputTensor], Field(max_length=limits.MAX_FEATURES)]
    id: Reference | None = None
    parameters: RequestParameters | None = None
    outputs: Annotated[list[RequestedOutput], Field(max_length=len(OUTPUTS))] | None = None


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

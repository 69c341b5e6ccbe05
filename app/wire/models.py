"""Defines the types of ``/models``, of aliases, and of ``/v2``: cards, predictions, names, the Open Inference Protocol.

``services.inference`` decodes the bodies of requests of the protocol.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from app.core import limits
from app.wire.base import Answer, JsonObject, OfDataset, Reference, Request
from app.wire.datasets import PUBLIC_NAME, ColumnName
from grovekeeper_forests import limits as forest_limits


class OnlyAnswerOut(Answer):
    """The class that a model answers whatever the row is, and the public numbers that may explain it, in words."""

    label: str
    text: str


class ModelOut(Answer):
    """The model card. All of it is public and comes from the artifact.

    ``scope`` has the cells of the rows that the model was trained on; empty: all; null: the model is older than this
    field. ``only_answer`` is null unless the leaves show that every row gets the same class.
    """

    id: str
    name: str | None
    aliases: list[str]
    dataset: str
    dataset_name: str
    job_id: str
    scope: JsonObject | None
    only_answer: OnlyAnswerOut | None
    algorithm: str
    parameters: JsonObject
    schema_: Annotated[JsonObject, Field(alias="schema", serialization_alias="schema")]
    guarantee: JsonObject
    receipt: str
    event: JsonObject
    ledger: JsonObject
    profile_id: str | None
    unlabelled: JsonObject | None
    read_outs: list[str]
    digest: str
    size_bytes: int
    created_at: str


class ModelSummary(Answer):
    id: str
    name: str | None
    aliases: list[str]
    dataset: str
    dataset_name: str
    algorithm: str
    digest: str
    created_at: str


class ModelList(Answer):
    models: list[ModelSummary]
    next: str | None


_Row: TypeAlias = Annotated[dict[ColumnName, Any], Field(max_length=forest_limits.MAX_FEATURES)]
_Cells: TypeAlias = Annotated[list[Any], Field(max_length=forest_limits.MAX_PREDICTION_ROWS)]


class PredictIn(Request):
    """Rows to predict, either as ``rows`` or as ``columns``."""

    # For the OpenAPI document alone: services.predict decodes the raw bytes into a type of its own, twice as fast.
    rows: Annotated[list[_Row], Field(max_length=forest_limits.MAX_PREDICTION_ROWS)] | None = None
    columns: Annotated[dict[ColumnName, _Cells], Field(max_length=forest_limits.MAX_FEATURES)] | None = None
    read_out: Literal["mv", "ta", "pa", "log", "sum"] | None = None
    counts: Annotated[bool | None, Field(description="Whether the answer has `counts`.")] = None


class ChangedCells(Answer):
    """Cells that the model does not see as they were sent, by column; columns without any are left out.

    ``clamped`` numbers are out of the declared bounds, ``unseen`` categories are not declared.
    """

    clamped: dict[str, int]
    unseen: dict[str, int]


class PredictOut(Answer):
    """Predictions: one label and one row of probabilities, in the order of ``classes``, for each row.

    ``model`` is the id of the model that answered: an alias means another model after it moved. ``counts`` is ``null``
    unless the request asks for them.
    """

    model: str
    classes: list[str]
    labels: list[str]
    probabilities: list[list[float]]
    counts: ChangedCells | None


AliasName: TypeAlias = Annotated[str, Field(max_length=limits.MAX_ALIAS_CHARS, pattern=PUBLIC_NAME)]


class AliasIn(Request):
    """The model that the alias names: its id, or another alias such as ``bank@staging``, whose model is then meant."""

    model: Annotated[Reference, Field(examples=["md_4hmasneqg5v2os6a", "bank@staging"])]


class ListedAlias(Answer):
    """An alias of a dataset; ``dataset@alias`` addresses its model."""

    alias: str
    model_id: str
    moved_at: str


class AliasOut(ListedAlias):
    dataset: str
    dataset_name: str
    etag: str


class AliasList(OfDataset):
    aliases: list[ListedAlias]
    next: str | None


class AliasMove(Answer):
    """A move of an alias to a model, or with ``null`` its removal."""

    model_id: str | None
    moved_by: str
    moved_at: str


class AliasHistory(OfDataset):
    """The model that an alias names (``null``: none), and its moves, newest first. ``etag`` names the last move."""

    alias: str
    model_id: str | None
    etag: str
    moves: list[AliasMove]
    next: str | None


LABEL = "label"
PROBABILITIES = "probabilities"
OUTPUTS = (LABEL, PROBABILITIES)
InputDatatype: TypeAlias = Literal[
    "FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL", "BYTES"
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
    """A part of a request of the protocol, which lets clients add members. Those of other names are ignored."""

    model_config = ConfigDict(extra="allow")


class InputParameters(_Extensible):
    """Bytes of the tensor after the JSON object, in place of ``data``."""

    binary_data_size: Annotated[int, Field(ge=0)] | None = None


class InputTensor(_Extensible):
    """A column, or all columns of numbers: the values in ``data``, or as bytes after the JSON object."""

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

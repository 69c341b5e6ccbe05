"""Defines the types of ``/models``: the card of a trained forest, and predictions."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from app.core import limits
from app.wire.base import Answer, JsonObject, Privacy, Request
from app.wire.datasets import ColumnName


class OnlyAnswerOut(Answer):
    """The class that a model answers whatever the row is, and the public numbers that may explain it, in words."""

    label: str
    text: str


class ModelOut(Answer):
    """The model card. All of it is public and comes from the artifact.

    ``scope`` has the cells of the rows that the model was trained on; empty: all; null: the model is older than this
    field. ``only_answer`` is null unless the leaves show that every row gets the same class.

    A model of a public dataset has ``privacy`` ``none``, and no account paid for it.
    """

    id: str
    name: str | None
    aliases: list[str]
    dataset: str
    dataset_name: str
    job_id: str
    privacy: Privacy
    scope: JsonObject | None
    only_answer: OnlyAnswerOut | None
    algorithm: str
    parameters: JsonObject
    schema_: Annotated[JsonObject, Field(alias="schema", serialization_alias="schema")]
    guarantee: JsonObject
    receipt: str
    event: JsonObject
    ledger: JsonObject | None
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
    privacy: Privacy
    algorithm: str
    digest: str
    created_at: str


class ModelList(Answer):
    models: list[ModelSummary]
    next: str | None


_Row: TypeAlias = Annotated[dict[ColumnName, Any], Field(max_length=limits.MAX_FEATURES)]
_Cells: TypeAlias = Annotated[list[Any], Field(max_length=limits.MAX_PREDICTION_ROWS)]


class PredictIn(Request):
    """Rows to predict, either as ``rows`` or as ``columns``."""

    # For the OpenAPI document alone: services.predict decodes the raw bytes into a type of its own, twice as fast.
    rows: Annotated[list[_Row], Field(max_length=limits.MAX_PREDICTION_ROWS)] | None = None
    columns: Annotated[dict[ColumnName, _Cells], Field(max_length=limits.MAX_FEATURES)] | None = None
    read_out: Literal["mv", "ta", "pa", "log", "sum"] | None = None


class PredictOut(Answer):
    """Predictions. ``privacy`` is ``none`` where the model was trained on a public dataset."""

    privacy: Privacy
    classes: list[str]
    labels: list[str]
    probabilities: list[list[float]]

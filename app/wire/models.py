"""Defines the types of ``/models``: lists, cards, comparisons, importances, predictions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.wire.base import Answer, LabelOfJob, Request
from app.wire.datasets import ColumnName
from app.wire.evaluations import ReleasedAccuracyOut, ReleasedErrorOut
from app.wire.spending import PriceOut
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import limits as forest_limits


class OnlyAnswerOut(Answer):
    """The class that a model answers whatever the row is, and the public numbers that
    may explain it, in words.
    """

    label: str
    text: str


class ModelOut(Answer):
    """The model card. All of it is public and comes from the artifact.

    ``scope`` has the cells of the rows that the model was trained on; empty: all; null:
    the model is older than this field. ``only_answer`` is null unless the leaves show
    that every row gets the same class.
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


class FeatureUseOut(Answer):
    """What the trees of a model make of one feature."""

    name: str
    n_splits: int
    importance: float | None


class LeafShareOut(Answer):
    """The share of a model's leaves that favour one class."""

    label: str
    share: float


class TreeNodeOut(Answer):
    """A node of a tree: a split with a test, a leaf with its answer, or the end of what
    is shown.
    """

    test: str | None
    yes: int | None
    no: int | None
    label: str | None
    share: float | None
    number: float | None
    n_leaves: int | None


class TreeOut(Answer):
    """One tree of a model in words: post-processing of the released artifact, which
    reads no row and costs nothing.
    """

    model: str
    tree: int
    n_trees: int
    nodes: list[TreeNodeOut]


class ImportancesOut(Answer):
    """What the trees of a model look at: post-processing of the released artifact,
    which reads no row and costs nothing.

    ``features`` are in declared order. ``importance`` is a share of the decrease of
    Gini impurity, computed from released noisy counts; null in models whose leaves
    release none.
    """

    model: str
    features: list[FeatureUseOut]
    leaves: list[LeafShareOut]


class ModelSummary(Answer):
    """A model in a list.

    ``scope`` has the cells of the rows that it was trained on (empty: all), ``price``
    is what its dataset was charged, and ``n_leaves`` counts the leaves of all its
    trees; they are null if its job is unknown. ``purpose`` and ``submitted_by`` are
    those of the job, for callers who may see it, and ``submitted_by_name`` the name of
    the key, if the caller may know it. ``label`` is what it predicts, absent
    where its dataset declares no other. ``accuracy`` is the newest that was
    released on a dataset where the key may train; null: none. Where the label is a
    number, ``error`` stands in its place.
    """

    id: str
    name: str | None
    aliases: list[str]
    dataset: str
    dataset_name: str
    label: LabelOfJob
    algorithm: str
    scope: JsonObject | None
    price: PriceOut | None
    n_leaves: int | None
    purpose: str | None
    submitted_by: str | None
    submitted_by_name: str | None
    accuracy: ReleasedAccuracyOut | None
    error: ReleasedErrorOut | None
    digest: str
    created_at: str


class ComparedModelOut(ModelSummary):
    """A model beside others: ``parameters`` are those that differ among them."""

    parameters: JsonObject
    features: list[FeatureUseOut]
    receipt: str


class ComparisonOut(Answer):
    """Models side by side, in the order of the request. Nothing in it is computed from
    rows.
    """

    models: list[ComparedModelOut]


class ModelList(Answer):
    models: list[ModelSummary]
    next: str | None


_Row = Annotated[dict[ColumnName, Any], Field(max_length=forest_limits.MAX_FEATURES)]


_Cells = Annotated[list[Any], Field(max_length=forest_limits.MAX_PREDICTION_ROWS)]


class PredictIn(Request):
    """Rows to predict, either as ``rows`` or as ``columns``."""

    # For the OpenAPI document alone: services.predict decodes the raw bytes into a type
    # of its own, twice as fast.
    rows: (
        Annotated[list[_Row], Field(max_length=forest_limits.MAX_PREDICTION_ROWS)]
        | None
    ) = None
    columns: (
        Annotated[
            dict[ColumnName, _Cells], Field(max_length=forest_limits.MAX_FEATURES)
        ]
        | None
    ) = None
    read_out: Literal["mv", "ta", "pa", "log", "sum"] | None = None
    counts: bool | None = None


class ChangedCells(Answer):
    """Cells that the model does not see as they were sent, by column; columns without
    any are left out.

    ``clamped`` numbers are out of the declared bounds, ``unseen`` categories are not
    declared.
    """

    clamped: dict[str, int]
    unseen: dict[str, int]


class PredictOut(Answer):
    """Predictions: one label and one row of probabilities, in the order of ``classes``,
    for each row. Where the label is a number, ``labels`` has numbers, and there are no
    ``classes`` and no ``probabilities``.

    ``model`` is the id of the model that answered: an alias means another model after
    it moved. ``counts`` is ``null`` unless the request asks for them.
    """

    model: str
    classes: list[str]
    labels: list[str] | list[float]
    probabilities: list[list[float]]
    counts: ChangedCells | None

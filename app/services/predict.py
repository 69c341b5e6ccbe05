"""Finds the model that a request addresses, and serves ``POST /models/{id}/predict``
for rows of the caller.

Prediction is post-processing: it reads no ledger and no private rows.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Set
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import PREDICT, Principal, Role
from app.core import json_text, limits
from app.core.errors import InvalidRequest, NotFound, TooLarge
from app.core.logging import Tally
from app.registry import models, releases
from app.registry.tables import ReleaseRow
from app.services.installation import Installation
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.array_types import Float64Array, Int32Array, Int64Array
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    sanitise_prediction_columns,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.names import MODEL


def max_nodes(n_features: int) -> int:
    """Most values and names of members in a request for a model of so many features:
    those of its rows.
    """
    return min(
        limits.MAX_PREDICTION_BODY_NODES,
        (forest_limits.MAX_PREDICTION_ROWS + 1) * (2 * n_features + 1) + 64,
    )


class PredictionForm(StrEnum):
    """The form of a request or an answer, by its media type."""

    JSON = "application/json"
    ARROW = "application/vnd.apache.arrow.stream"


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a prediction before its cells are built; see :class:`PredictBody`."""

    rows: list[msgspec.Raw] | None = None
    columns: dict[str, msgspec.Raw] | None = None
    read_out: str | None = None
    counts: bool | None = None


class PredictBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a prediction: exactly one of ``rows`` and ``columns``."""

    rows: list[JsonObject] | None = None
    columns: dict[str, list[Any]] | None = None
    read_out: str | None = None
    counts: bool | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, of columns of unequal lengths those of the longest."""
        if self.rows is not None:
            return len(self.rows)
        return max(map(len, (self.columns or {}).values()), default=0)


class ChangedCells(msgspec.Struct, frozen=True):
    """Cells of a request that the model does not see as they were sent, by column;
    columns without any are left out.

    Attributes:
        clamped: numbers out of the declared bounds, which count as the nearer bound.
        unseen: categories that are not declared, which count as OTHER.
    """

    clamped: dict[str, int]
    unseen: dict[str, int]

    @classmethod
    def of(cls, schema: Schema, changed: Int64Array) -> ChangedCells:
        """Names the columns of :attr:`SanitisedColumns.changed`."""
        names = schema.feature_names
        counted = [
            {name: n for name, n in zip(names, row, strict=True) if n}
            for row in changed.tolist()
        ]
        return cls(*counted)


class JsonPredictions(msgspec.Struct):
    """The answer in JSON: the id of the model, class names, and one label and one row
    of probabilities per row. Where the label is a number, there are no classes and no
    probabilities.

    ``counts`` is ``None`` unless the request asks for them.
    """

    model: str
    classes: tuple[str, ...]
    labels: list[str] | list[float]
    probabilities: list[list[float]]
    counts: ChangedCells | None


class Predicted(msgspec.Struct, frozen=True):
    """Labels and class probabilities of rows; or numbers, where the label is one.

    Attributes:
        classes: the declared classes, in the order of the columns of ``probabilities``;
            none where the label is a number.
        codes: the code of one class per row, int32 ``(n_rows,)``; or its number,
            float64.
        probabilities: float64 ``(n_rows, n_classes)``; ``None`` for numbers.
    """

    classes: tuple[str, ...]
    codes: Int32Array | Float64Array
    probabilities: Float64Array | None
    changed: ChangedCells

    def answer(self, form: PredictionForm, *, model_id: str, counts: bool) -> bytes:
        """The body of an answer of a model."""
        if form is PredictionForm.ARROW:
            from app.services import arrow_tables

            metadata = {"model": model_id}
            if counts:
                metadata["counts"] = _encoder.encode(self.changed).decode("utf-8")
            return arrow_tables.write(
                self.codes, self.classes, self.probabilities, metadata=metadata
            )
        changed = self.changed if counts else None
        labels, shares = self.codes.tolist(), []
        if self.probabilities is not None:
            labels = [self.classes[code] for code in labels]
            shares = self.probabilities.tolist()
        return _encoder.encode(
            JsonPredictions(model_id, self.classes, labels, shares, changed)
        )


class PredictingModel(msgspec.Struct, frozen=True):
    """A loaded model and its id.

    Attributes:
        digest: of the artifact.
        changed_cells: where all cells of requests are counted that the model does not
            see as they were sent.
    """

    id: str
    digest: str
    predictor: Predictor
    changed_cells: Tally[str]

    def answer(self, request: PredictBody, answer_form: PredictionForm) -> bytes:
        """Answers a request in JSON; see :func:`predict`."""
        sanitiser = self.predictor.rows
        if request.rows is not None:
            columns = sanitiser.sanitise(request.rows)
        else:
            columns = sanitiser.sanitise_columns(request.columns or {})
        predicted = self.predict(columns, read_out=request.read_out)
        return predicted.answer(
            answer_form, model_id=self.id, counts=bool(request.counts)
        )

    def answer_table(self, body: bytes, answer_form: PredictionForm) -> bytes:
        """Answers a request in Arrow; see :func:`predict`."""
        from app.services import arrow_tables

        schema = self.predictor.schema
        table = arrow_tables.read(body, schema)
        columns = sanitise_prediction_columns(schema, table.columns)
        predicted = self.predict(columns, read_out=table.read_out)
        return predicted.answer(answer_form, model_id=self.id, counts=table.counts)

    def predict(self, columns: SanitisedColumns, *, read_out: str | None) -> Predicted:
        """Predicts sanitised rows."""
        schema = self.predictor.schema
        values = self.predictor.read(columns, read_out=read_out)
        probabilities = None
        codes: Int32Array | Float64Array
        if schema.label.is_number:
            # a number has no probabilities that a label would be chosen by
            codes = values[:, 0]
        else:
            probabilities = values
            codes = self.predictor.labels(probabilities, read_out=read_out)
        changed = _UNCHANGED
        if columns.changed is not None:
            changed = ChangedCells.of(schema, columns.changed)
            self.changed_cells.add("clamped", sum(changed.clamped.values()))
            self.changed_cells.add("unseen", sum(changed.unseen.values()))
        return Predicted(schema.label.classes, codes, probabilities, changed)


class Addressed(NamedTuple):
    """The model that an address means to a caller who may predict with it."""

    model_id: str
    digest: str


_UNCHANGED = ChangedCells({}, {})
_bodies = msgspec.json.Decoder(PredictBody)
_outlines = msgspec.json.Decoder(_Outline)
_rows = msgspec.json.Decoder(dict[str, Any])
_cells = msgspec.json.Decoder(list[Any])
_encoder = msgspec.json.Encoder()
_BODIES_IN_WORDS = (
    'an object with rows, each an object of values by column: {"rows": [{"COLUMN": value}]}',
    'an object with columns, each a list of values: {"columns": {"COLUMN": [value]}}',
    "beside them no members but read_out and counts",
)
"""What a prediction takes."""


def predict(
    installation: Installation,
    principal: Principal,
    address: str,
    body: bytes,
    *,
    form: PredictionForm = PredictionForm.JSON,
    answer_form: PredictionForm = PredictionForm.JSON,
) -> bytes:
    """Answers a prediction request.

    Args:
        installation: this installation.
        principal: the caller.
        address: of the model.
        body: of the request.
        form: of the body.
        answer_form: of the answer.
    """
    # first: what a body may cost depends on the model
    model = predicting_model(installation, principal, address)
    if form is PredictionForm.ARROW:
        answer = model.answer_table(body, answer_form)
    else:
        answer = model.answer(decode(body, model.predictor.schema), answer_form)
    installation.cache.recount(model.digest)
    return answer


def answer_at_once(
    installation: Installation, principal: Principal, address: str, body: bytes
) -> bytes | None:
    """Answers a small request in JSON on the event loop, because nothing waits or takes
    long. The body has at most ``limits.MAX_BYTES_AT_ONCE`` bytes.

    Returns:
        ``None`` if :func:`loaded_model` finds no model, or if the request is not small
        or names a read-out, which may have to be prepared: :func:`predict` has to
        answer in a thread.
    """
    model = loaded_model(installation, principal, address)
    if model is None:
        return None
    request = decode(body, model.predictor.schema)
    n_cells = request.n_rows * model.predictor.row_cells
    if request.read_out is not None or n_cells > limits.MAX_CELLS_AT_ONCE:
        return None
    return model.answer(request, PredictionForm.JSON)


def loaded_model(
    installation: Installation, principal: Principal, address: str
) -> PredictingModel | None:
    """Finds a model that this process has loaded and prepared, and that it has read
    just now as the caller's.
    """
    name = principal.key_id, address
    addressed: Addressed | None = installation.authority.get(name)
    if addressed is None:
        return None
    artifact = installation.cache.loaded(addressed.digest)
    if artifact is None or not artifact.predictor.is_prepared:
        return None
    return PredictingModel(*addressed, artifact.predictor, installation.changed_cells)


def predicting_model(
    installation: Installation, principal: Principal, address: str
) -> PredictingModel:
    """Loads a model with which the caller may predict."""
    addressed = address_of(installation, principal, address)
    artifact = installation.cache.get(addressed.digest)
    return PredictingModel(*addressed, artifact.predictor, installation.changed_cells)


def address_of(
    installation: Installation, principal: Principal, address: str
) -> Addressed:
    """Finds a model with which the caller may predict, and keeps it; raises what
    :func:`addressed_model` raises.
    """
    name = principal.key_id, address

    def read() -> tuple[Addressed, float]:
        with installation.database.read() as session:
            row = addressed_model(session, principal, address, PREDICT)
            return Addressed(row.id, row.file), math.inf

    known: Addressed | None = installation.authority.get(name)
    return installation.authority.read(name, read) if known is None else known


def addressed_model(
    session: Session, principal: Principal, address: str, roles: Set[Role]
) -> ReleaseRow:
    """Finds a model by its id or by ``dataset@alias``, with the id or the name of the
    dataset.

    A name of a dataset may stand for several datasets, because the name of an erased
    one is free. The address then means the dataset that had the alias first, among
    those on which the caller has a role: declaring a dataset moves no address of
    callers who use it already, and no answer depends on a dataset that the caller may
    not see.

    Raises:
        NotFound: no such model or alias, or it is not visible to this key.
        RoleMissing: the key has other roles on its dataset.
    """
    parts = models.split_address(address)
    if parts is None:
        row = releases.find(session, MODEL, address)
        grants.require(session, principal, row.dataset_id, roles, kind="model")
        return row
    for dataset_id in models.datasets_at(session, *parts):
        move = models.last_move(session, dataset_id, parts[1])
        role = grants.granted(session, principal, dataset_id)
        if principal.acts_as(role) and move is not None and move.model_id is not None:
            grants.check(principal, role, roles, kind="model")
            return releases.find(session, MODEL, move.model_id)
    raise NotFound("model")


def decode(body: bytes, schema: Schema) -> PredictBody:
    """Reads the body of a prediction request for a model with this schema.

    Raises:
        MalformedRequest: the body is no JSON, or repeats a name.
        InvalidRequest: it is no prediction request.
        TooLarge: it has too many rows, or too many values and names.
    """
    if body.startswith(codecs.BOM_UTF8):
        body = body[len(codecs.BOM_UTF8) :]
    most_rows = schema.max_request_rows
    try:
        # a small body has fewer bytes than the narrowest model may have nodes
        if len(body) <= limits.MAX_BYTES_AT_ONCE:
            request = _bodies.decode(body)
        else:
            json_text.check_nodes(body, max_nodes(len(schema.features)))
            request = _built(_outlines.decode(body), most_rows)
    except msgspec.ValidationError as error:
        if str(error).startswith("Number out of range"):
            raise InvalidRequest.at(
                "", "number-too-large", accepted=["numbers that a 64-bit float holds"]
            ) from None
        raise InvalidRequest.at(
            "", "not-a-prediction-request", accepted=_BODIES_IN_WORDS
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise json_text.not_json(body) from None
    rows, columns = request.rows, request.columns
    members = rows, columns, request.read_out, request.counts
    n_named = len(members) - members.count(None)
    # Every member has a colon. If the body has no other colons, no member was
    # overwritten by a later one of its name.
    if body.count(b":") != n_named + sum(map(len, rows or ())) + len(columns or ()):
        _refuse_repeated_names(body)
    if (rows is None) == (columns is None):
        raise InvalidRequest.at("", "needs-rows-or-columns", accepted=_BODIES_IN_WORDS)
    if request.n_rows > most_rows:
        raise TooLarge("the number of rows", most_rows)
    return request


def _built(outline: _Outline, most_rows: int) -> PredictBody:
    """Builds rows and columns one by one: while the decoder builds values, no other
    thread of the process runs.
    """
    if len(outline.rows or ()) > most_rows:
        raise TooLarge("the number of rows", most_rows)
    rows = None if outline.rows is None else list(map(_rows.decode, outline.rows))
    columns = None
    if outline.columns is not None:
        columns = {
            name: _cells.decode(column) for name, column in outline.columns.items()
        }
    return PredictBody(rows, columns, outline.read_out, outline.counts)


def _refuse_repeated_names(body: bytes) -> None:
    """Parses a body with surplus colons again (in strings, nulls, nested objects) and
    refuses repeated names.
    """
    try:
        json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise json_text.not_json(body) from None


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")


def prepare_newest(installation: Installation) -> None:
    """Prepares the first prediction of this process, which would otherwise wait for the
    model and for compiled code.

    Models that nobody asks take no more memory than ``limits.MAX_AHEAD_BYTES`` and one
    model.
    """
    if installation.cache.size_bytes > limits.MAX_AHEAD_BYTES:
        return
    with installation.database.read() as session:
        newest = models.page(session, dataset_ids=None, before=None, limit=1)
    for row in newest:
        artifact = installation.cache.get(row.file)
        artifact.predictor.prepare()
        installation.cache.recount(row.file)

"""``POST /models/{id}/predict``: post-processing of a release that was paid for. No ledger, no rows, no log."""

import json
from typing import Any

import msgspec

from app.access import grants
from app.access.roles import PREDICT, Principal
from app.core import limits
from app.core.errors import InvalidRequest, MalformedRequest, TooLarge
from app.forests import predict as forests
from app.forests.data.rows import SanitisedColumns
from app.forests.data.sanitiser import sanitise_prediction_columns, sanitise_prediction_rows
from app.forests.data.schema import Schema
from app.registry import models
from app.services.installation import Installation


class PredictBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a prediction: exactly one of ``rows`` and ``columns``."""

    rows: list[dict[str, Any]] | None = None
    columns: dict[str, list[Any]] | None = None
    read_out: str | None = None

    @property
    def n_members(self) -> int:
        """Members of the body and of the objects right inside it; what is null is not counted."""
        named = sum(member is not None for member in (self.rows, self.columns, self.read_out))
        return named + sum(map(len, self.rows or ())) + len(self.columns or ())


class Predictions(msgspec.Struct):
    """The answer: class names, one label and one row of probabilities per row asked about."""

    classes: tuple[str, ...]
    labels: list[str]
    probabilities: list[list[float]]


_decoder = msgspec.json.Decoder(PredictBody)
_encoder = msgspec.json.Encoder()


def may_predict(installation: Installation, principal: Principal, model_id: str) -> str:
    """The digest of a model's artifact, if the principal may predict with it.

    Raises:
        NotFound: no such model, or none that this key may know of.
        RoleMissing: the key has another role on its dataset.
    """
    with installation.database.read() as session:
        row = models.find(session, model_id)
        grants.require(session, principal, row.dataset_id, PREDICT, kind="model")
        return row.digest


def decode(body: bytes) -> PredictBody:
    """Reads a body.

    Raises:
        MalformedRequest: not JSON, or a name stands twice in one object.
        InvalidRequest: JSON of another shape.
        TooLarge: more rows than one request may ask about.
    """
    try:
        asked = _decoder.decode(body)
    except msgspec.ValidationError:
        raise InvalidRequest.at("", "not-a-prediction-request") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedRequest("the body is not JSON") from None
    # Each member has a colon. Where there are no others, none was dropped for a later one of its name.
    if body.count(b":") != asked.n_members:
        _refuse_repeated_names(body)
    if (asked.rows is None) == (asked.columns is None):
        raise InvalidRequest.at("", "needs-rows-or-columns")
    if _n_rows(asked) > limits.MAX_PREDICTION_ROWS:
        raise TooLarge("the number of rows", limits.MAX_PREDICTION_ROWS)
    return asked


def predict(installation: Installation, digest: str, asked: PredictBody) -> bytes:
    """The answer's bytes.

    Raises:
        InvalidRequest: a column that the model does not know, a cell that it cannot read, or no such read-out.
    """
    artifact = installation.cache.get(digest)
    columns = _sanitised(artifact.schema, asked)
    forest, schema = artifact.forest, artifact.schema
    probabilities = forests.probabilities(forest, schema, columns, read_out=asked.read_out)
    codes = forests.labels(forest, schema, columns, probabilities, read_out=asked.read_out)
    classes = schema.label.classes
    return _encoder.encode(Predictions(classes, [classes[code] for code in codes], probabilities.tolist()))


def _sanitised(schema: Schema, asked: PredictBody) -> SanitisedColumns:
    if asked.rows is not None:
        return sanitise_prediction_rows(schema, asked.rows)
    assert asked.columns is not None
    return sanitise_prediction_columns(schema, asked.columns)


def _refuse_repeated_names(body: bytes) -> None:
    """Reads a body once more, slowly: its texts hold colons, it has nulls or deeper objects, or a name stands twice."""
    try:
        json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise MalformedRequest("the body is not JSON, or a name stands twice in one object") from None


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name stands twice")


def _n_rows(asked: PredictBody) -> int:
    if asked.rows is not None:
        return len(asked.rows)
    return max((len(cells) for cells in (asked.columns or {}).values()), default=0)

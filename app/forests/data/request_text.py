"""Reads the usual form of a prediction request from its JSON text, to the columns that the sanitiser would make."""

import re

from app.core import limits
from app.forests.data.rows import SanitisedTable
from app.forests.data.schema import Feature, Schema
from app.forests.kernels.json_rows import ColumnText, RowText

_READ_OUT = re.compile(rb',[ \t\r\n]*"read_out"[ \t\r\n]*:[ \t\r\n]*"([a-z]{1,8})"[ \t\r\n]*\}[ \t\r\n]*\Z')
_TAIL_BYTES = 64
_BEGIN_BYTES = 32
_NODES_OF_THE_FRAME = 6


class RequestText:
    """Reads the requests of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._n_features = len(schema.features)
        self._is_categorical = tuple(feature.is_categorical for feature in schema.features)
        self._rows = RowText([_column(feature) for feature in schema.features])

    def read(self, body: bytes) -> tuple[SanitisedTable, str | None] | None:
        """Reads ``{"rows": [{name: value, …}, …]}`` or ``{"columns": {name: [value, …], …}}``; ``read_out`` may follow.

        Args:
            body: of a request, of any content.

        Returns:
            What :mod:`app.forests.data.sanitiser` returns for the rows or columns, and the read-out; ``None`` for every
            text that the sanitiser or a limit refuses, and for some that they accept.
        """
        read_out = None
        tail = _READ_OUT.search(body, max(len(body) - _TAIL_BYTES, 0)) if b'"read_out"' in body[-_TAIL_BYTES:] else None
        if tail is not None:  # without this member, the rest is a whole request or is not read
            body, read_out = body[: tail.start()] + b"}", tail[1].decode("ascii")
        by_columns = b'"columns"' in body[:_BEGIN_BYTES]
        n_rows = _n_listed(body) if by_columns else body.count(b"{") - 1
        n_values = (n_rows + 2) * self._n_features if by_columns else n_rows * (2 * self._n_features + 1)
        if not 0 < n_rows <= limits.prediction_rows(self._n_features):
            return None
        if n_values > limits.MAX_PREDICTION_BODY_NODES - _NODES_OF_THE_FRAME:
            return None
        table = self._rows.read(body, n_rows, by_columns=by_columns)
        return None if table is None else (SanitisedTable(table, self._is_categorical), read_out)


def _n_listed(body: bytes) -> int:
    """The number of values in the first list of a text, if none of them is a string with a comma or a bracket."""
    first = body.find(b"[")
    return body.count(b",", first, body.find(b"]", first)) + 1


def _column(feature: Feature) -> ColumnText:
    if feature.is_categorical:
        missing = feature.missing_code if feature.missing else None
        return ColumnText(feature.name, feature.categories, 0.0, 0.0, is_whole=False, missing=missing)
    is_whole, missing = feature.type == "integer", 0 if feature.missing else None
    return ColumnText(feature.name, None, feature.lower, feature.upper, is_whole=is_whole, missing=missing)

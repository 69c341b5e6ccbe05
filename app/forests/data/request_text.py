"""Reads the usual form of a prediction request from its JSON text, to the columns that the sanitiser would make."""

from app.core import limits
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Feature, Schema
from app.forests.kernels.json_rows import ColumnText, RowText


class RequestText:
    """Reads the requests of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._n_features = len(schema.features)
        self._rows = RowText([_column(feature) for feature in schema.features])

    def read(self, body: bytes) -> SanitisedColumns | None:
        """Reads ``{"rows": [{name: value, …}, …]}``.

        Args:
            body: of a request, of any content.

        Returns:
            What :func:`app.forests.data.sanitiser.sanitise_prediction_rows` returns for the rows; ``None`` for every
            text that the sanitiser or a limit refuses, and for some that they accept.
        """
        n_rows = body.count(b"{") - 1
        if not 0 < n_rows <= limits.MAX_PREDICTION_ROWS:
            return None
        if n_rows * (2 * self._n_features + 1) > limits.MAX_PREDICTION_BODY_NODES - 4:
            return None
        columns = self._rows.read(body, n_rows)
        return None if columns is None else SanitisedColumns(columns, n_rows)


def _column(feature: Feature) -> ColumnText:
    if feature.is_categorical:
        missing = feature.missing_code if feature.missing else None
        return ColumnText(feature.name, feature.categories, 0.0, 0.0, is_whole=False, missing=missing)
    is_whole, missing = feature.type == "integer", 0 if feature.missing else None
    return ColumnText(feature.name, None, feature.lower, feature.upper, is_whole=is_whole, missing=missing)

"""Predicts any number of rows, in requests within the limits of the API."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grovekeeper_client.calls import Json
from grovekeeper_client.client import Client
from grovekeeper_client.rows import read_stream, write_stream

MAX_ROWS = 10_000
"""Rows of one request."""
MAX_CELLS = 1_000_000
"""Rows times columns of one request."""
MAX_BYTES = 16 * 1024 * 1024
"""Bytes of one request."""


def predict_rows(
    client: Client, model_id: str, rows: Sequence[Mapping[str, Any]], *, read_out: str | None = None
) -> Json:
    """Predictions for rows, each a mapping from feature to cell; ``read_out``: default the model's."""
    shape = len(rows), max(map(len, rows), default=0)
    return _in_parts(client, model_id, lambda start, stop: {"rows": rows[start:stop]}, shape, read_out)


def predict_columns(
    client: Client, model_id: str, columns: Mapping[str, Sequence[Any]], *, n_rows: int, read_out: str | None = None
) -> Json:
    """Predictions for columns of equal length."""

    def part(start: int, stop: int) -> Json:
        return {"columns": {name: column[start:stop] for name, column in columns.items()}}

    return _in_parts(client, model_id, part, (n_rows, len(columns)), read_out)


def predict_table(client: Client, model_id: str, table: Any, *, read_out: str | None = None) -> Json:
    """Predictions for an Arrow table whose columns the service reads."""

    def body(start: int, stop: int) -> bytes:
        return write_stream(table, start, stop, read_out=read_out)

    size = _n_rows_at_once(table.num_columns)
    return _sent(body, lambda part: read_stream(client.predict_table(model_id, part)), table.num_rows, size=size)


def _in_parts(
    client: Client,
    model_id: str,
    part: Callable[[int, int], Json],
    shape: tuple[int, int],
    read_out: str | None,
) -> Json:
    """Sends parts of rows in JSON.

    Args:
        client: calls the service.
        model_id: of a model.
        part: the body with the rows from the first number up to the second.
        shape: number of rows, and of columns.
        read_out: default the model's.
    """
    options = {} if read_out is None else {"read_out": read_out}
    n_rows, n_columns = shape
    size = _n_rows_at_once(n_columns)

    def body(start: int, stop: int) -> bytes:
        return json.dumps({**part(start, stop), **options}, allow_nan=False).encode()

    return _sent(body, lambda text: client.predict(model_id, text), n_rows, size=size)


def _n_rows_at_once(n_columns: int) -> int:
    """Rows of one request with so many columns."""
    return max(1, min(MAX_ROWS, MAX_CELLS // max(n_columns, 1)))


def _sent(body: Callable[[int, int], bytes], send: Callable[[bytes], Json], n_rows: int, *, size: int) -> Json:
    """Sends bodies of at most ``size`` rows; one with too many bytes is halved."""
    answers: list[Json] = []
    start = 0
    while start < n_rows or not answers:
        content = body(start, start + size)
        if len(content) > MAX_BYTES and size > 1:
            size //= 2
            continue
        answers.append(send(content))
        start += size
    together = {name: [item for answer in answers for item in answer[name]] for name in ("labels", "probabilities")}
    return answers[0] | together

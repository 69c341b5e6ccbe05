"""Uploads the tables that polars writes, and predicts with one; prints the answer.

python with_polars.py URL KEY DATASET MODEL
"""

import io
import json
import sys
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import polars as pl

ROWS = pl.DataFrame(
    {
        "age": [39, 70, 100],
        "hours": pl.Series([40.5, None, 2.0], dtype=pl.Float32),
        "sex": ["Male", None, "Female"],
        "income": ["low", "high", "low"],
    }
)
CATEGORIES = ROWS.with_columns(
    pl.col("sex").cast(pl.Categorical), pl.col("income").cast(pl.Enum(["low", "high"]))
)
ARROW = "application/vnd.apache.arrow.stream"


def send(path: str, media_type: str, body: bytes) -> bytes:
    """Sends a body and returns the answer."""
    url, key = sys.argv[1:3]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": media_type}
    try:
        with urlopen(Request(f"{url}{path}", body, headers)) as answer:
            return bytes(answer.read())
    except HTTPError as refusal:
        sys.exit(refusal.read().decode())


def main() -> None:
    """Uploads each table in each form."""
    dataset, model = sys.argv[3:]
    stored = 0
    for table in (ROWS, CATEGORIES):
        for media_type, write in (
            ("text/csv", table.write_csv),
            ("application/vnd.apache.parquet", table.write_parquet),
            (ARROW, table.write_ipc_stream),
        ):
            body = io.BytesIO()
            write(body)
            report = json.loads(
                send(
                    f"/datasets/{dataset}/rows?again=true", media_type, body.getvalue()
                )
            )
            stored += report["rows"]
    print(json.dumps(stored))
    body = io.BytesIO()
    ROWS.drop("income").write_ipc_stream(body)
    answer = pl.read_ipc_stream(
        send(f"/models/{quote(model)}/predict", ARROW, body.getvalue())
    )
    print(
        json.dumps(
            [
                answer["label"].cast(pl.String).to_list(),
                answer["probabilities"].to_list(),
            ]
        )
    )


main()

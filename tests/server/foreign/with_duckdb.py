"""Uploads the files that DuckDB writes; prints how many rows were stored.

python with_duckdb.py URL KEY DATASET FOLDER
"""

import json
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import duckdb

_OPTIONS = {
    "v1.parquet": "FORMAT parquet, PARQUET_VERSION v1",
    "v2.parquet": "FORMAT parquet, PARQUET_VERSION v2",
    "zstd.parquet": "FORMAT parquet, CODEC zstd",
    "rows.csv": "FORMAT csv, HEADER",
}
_MEDIA_TYPES = {".parquet": "application/vnd.apache.parquet", ".csv": "text/csv"}


def main() -> None:
    """Writes and uploads each file."""
    url, key, dataset, folder = sys.argv[1:]
    rows = duckdb.sql(
        "SELECT (i % 100)::INTEGER AS age, (i % 60)::DOUBLE AS hours, if(i % 2 = 0, 'Male', 'Female') AS sex,"
        " if(i % 100 > 50, 'high', 'low') AS income FROM range(1000) t(i)"
    )
    stored = 0
    for name, options in _OPTIONS.items():
        path = Path(folder) / name
        duckdb.execute(f"COPY rows TO '{path}' ({options})")
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": _MEDIA_TYPES[path.suffix],
        }
        with urlopen(
            Request(
                f"{url}/datasets/{dataset}/rows?again=true", path.read_bytes(), headers
            )
        ) as answer:
            stored += json.loads(answer.read())["rows"]
    assert rows is not None
    print(json.dumps(stored))


main()

"""An empty or undeclared label has one meaning, whatever file it came in and whatever is
released: the table of docs/api.md.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from tests.server.test_http_statistics import _released, _submitted
from tests.support.server import CSV, Server, new_idempotency_key

SCHEMA: dict[str, Any] = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 99, "missing": True}
    ],
    "labels": [
        {"name": "ill", "classes": ["no", "yes"]},
        {"name": "stay", "cuts": [3, 7]},
        {"name": "days", "type": "number", "lower": 0, "upper": 60},
    ],
}
N_EMPTY, N_UNDECLARED, N_KNOWN = 40, 20, 140
ROWS: list[tuple[Any, ...]] = [
    *[(None, None, None, None)] * N_EMPTY,
    *[(50, "perhaps", 1.0, 30.0)] * N_UNDECLARED,
    *[(50, "yes", 8.0, 30.0)] * N_KNOWN,
]
"""Rows of empty cells alone, as a spreadsheet writes below a table, among them."""

COLUMNS = ("age", "ill", "stay", "days")


def _csv(rows: Sequence[tuple[Any, ...]]) -> tuple[bytes, dict[str, str]]:
    lines = [",".join(COLUMNS)]
    for row in rows:
        lines.append(",".join("" if cell is None else str(cell) for cell in row))
    return "\n".join(lines).encode(), dict(CSV)


def _table(
    write: Callable[[pd.DataFrame, io.BytesIO], object], media: str
) -> Callable[[Sequence[tuple[Any, ...]]], tuple[bytes, dict[str, str]]]:
    def written(rows: Sequence[tuple[Any, ...]]) -> tuple[bytes, dict[str, str]]:
        file = io.BytesIO()
        write(pd.DataFrame(rows, columns=list(COLUMNS)), file)
        return file.getvalue(), {"Content-Type": media}

    return written


WAYS_IN = {
    "csv": _csv,
    "parquet": _table(
        lambda frame, file: frame.to_parquet(file, index=False),
        "application/vnd.apache.parquet",
    ),
    "arrow": _table(
        lambda frame, file: frame.to_feather(file, compression="uncompressed"),
        "application/vnd.apache.arrow.file",
    ),
}


@pytest.fixture(params=WAYS_IN)
def dataset(request: pytest.FixtureRequest, server: Server) -> str:
    budget = {"accountant": "pure", "epsilon": "100000"}
    declared = server.declared(schema=SCHEMA, budget=budget, partitions=[])
    body, headers = WAYS_IN[request.param](ROWS)
    path = f"/datasets/{declared['id']}/rows"
    refused = server.admin.http.post(path, content=body, headers=headers).json()
    assert [
        (column["name"], column["row"], "no label" in column.get("suspected", ""))
        for column in refused["columns"]
    ] == [("ill", 1, False), ("stay", 1, True), ("days", 1, True)]
    answer = server.admin.http.post(
        f"{path}?accept_unknown=true", content=body, headers=headers
    )
    assert answer.status_code == 201, answer.text
    unknown = {column["name"]: column["unknown"] for column in answer.json()["columns"]}
    n_without_class = N_EMPTY + N_UNDECLARED
    assert unknown == {
        "age": 0,
        "ill": n_without_class,
        "stay": N_EMPTY,
        "days": N_EMPTY,
    }
    return str(declared["id"])


def _counts(table: dict[str, Any]) -> dict[str, int]:
    return {"".join(row["cells"]): round(row["value"]) for row in table["rows"]}


def test_an_empty_label_has_one_meaning(server: Server, dataset: str) -> None:
    nulls = [{"column": name, "in": [None]} for name in ("ill", "stay")]
    tables: list[dict[str, Any]] = [
        {"statistic": "histogram", "column": "ill"},
        {"statistic": "histogram", "column": "stay"},
        {"statistic": "histogram", "column": "days", "bins": {"days": 1}},
        {"statistic": "count"},
        *({"statistic": "count", "where": [condition]} for condition in nulls),
    ]
    shown = _released(server, dataset, epsilon="1000", tables=tables)
    ill, stay, days, every_row, of_ill, of_stay = map(_counts, shown["tables"])
    n_without_class = N_EMPTY + N_UNDECLARED
    assert ill == {"no": 0, "yes": N_KNOWN, "OTHER": n_without_class}
    assert stay == {
        "below 3": N_UNDECLARED,
        "3 to below 7": 0,
        "7 or more": N_KNOWN,
        "MISSING": N_EMPTY,
    }
    assert days == {"0 to 60": N_KNOWN + N_UNDECLARED, "MISSING": N_EMPTY}
    assert every_row == {"": len(ROWS)}
    assert of_ill == {"": n_without_class}
    assert of_stay == {"": N_EMPTY}
    titles = shown["titles"][-2:]
    assert titles == [
        "count, where ill is (no value)",
        "count, where stay is (no value)",
    ]
    range_of_none = {
        "statistic": "count",
        "where": [{"column": "days", "in": [None]}],
    }
    refused = _submitted(server, dataset, epsilon="1", tables=[range_of_none])
    assert refused.json()["errors"][0]["problem"] == "needs-a-range"


@pytest.mark.parametrize(
    ("label", "n_rows"),
    [
        ("ill", N_KNOWN),
        ("stay", N_KNOWN + N_UNDECLARED),
        ("days", N_KNOWN + N_UNDECLARED),
    ],
)
def test_rows_without_a_label_are_in_no_profile(
    server: Server, dataset: str, label: str, n_rows: int
) -> None:
    accepted = server.admin.http.post(
        f"/datasets/{dataset}/profiles",
        json={"epsilon": "5000", "label": label},
        headers=new_idempotency_key(),
    )
    job = server.ended(accepted.json()["job_id"])
    assert job["what"] == f"profile of {label}"
    profile = server.admin.http.get(f"/profiles/{job['profile_id']}").json()
    assert round(profile["size"]["count"]) == n_rows

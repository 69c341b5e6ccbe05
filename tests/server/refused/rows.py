"""Uploads that do not match the declaration, and prediction requests that do not match
the model.
"""

import gzip
from collections.abc import Iterator
from typing import Any

from tests.server.refused.case import CANARY, Refused
from tests.support.server import CSV, csv_rows

COLUMNAR_TYPES = {
    name: {"Content-Type": f"application/vnd.apache.{name}"}
    for name in ("parquet", "arrow.stream", "arrow.file")
}


def uploads() -> Iterator[Refused]:
    rows = "/datasets/{dataset}/rows"
    header = "age,height,sex,income\n"
    invalid: list[tuple[str, str | bytes]] = [
        ("missing-column", "age,height,income\n1,1,<=50K\n"),
        ("unknown-column", f"age,height,sex,income,{CANARY}\n1,1,Male,<=50K,1\n"),
        ("duplicate-column", "age,height,sex,income,age\n1,1,Male,<=50K,1\n"),
        ("not-a-number", header + f"{CANARY},1,Male,<=50K\n"),
        ("not-an-integer", header + "1.5,1,Male,<=50K\n"),
        ("empty", header + ",1,Male,<=50K\n"),
        ("ragged-row", header + f"1,1,Male,<=50K,{CANARY}\n"),
        ("not-text", header.encode() + b"1,1," + CANARY.encode() + b"\xff,<=50K\n"),
        ("not-text", header + f"1,1,{CANARY}\x00,<=50K\n"),
        ("no-header", ""),
    ]
    for index, (problem, content) in enumerate(invalid):
        for packed in (False, True):
            body = content if isinstance(content, bytes) else content.encode()
            options = {
                "content": gzip.compress(body) if packed else body,
                "headers": CSV | ({"Content-Encoding": "gzip"} if packed else {}),
            }
            yield Refused(
                f"rows-{index}-{packed}",
                "POST",
                rows,
                "rows-invalid",
                options,
                None,
                problem,
            )
    undeclared = {"content": header + f"1,1,Male,{CANARY}\n", "headers": CSV}
    yield Refused("cells-unread", "POST", rows, "cells-unread", undeclared)
    yield Refused(
        "no-rows", "POST", rows, "upload-empty", {"content": header, "headers": CSV}
    )
    whole = gzip.compress(csv_rows(500).encode())
    for name, content in (
        ("truncated", whole[:-20]),
        ("not-gzip", b"age" + CANARY.encode()),
        ("nothing", b""),
    ):
        options = {"content": content, "headers": CSV | {"Content-Encoding": "gzip"}}
        kind = "rows-invalid" if name == "nothing" else "malformed-request"
        yield Refused(f"gzip-{name}", "POST", rows, kind, options)
    nested = {
        "content": gzip.compress(gzip.compress(csv_rows(9).encode())),
        "headers": CSV | {"Content-Encoding": "gzip"},
    }
    yield Refused("gzip-twice", "POST", rows, "rows-invalid", nested, None, "not-text")
    for name, headers in COLUMNAR_TYPES.items():
        packed = headers | {"Content-Encoding": "gzip"}
        yield Refused(
            f"packed-{name}",
            "POST",
            rows,
            "unsupported-media-type",
            {"content": b"", "headers": packed},
        )
        for index, content in enumerate(
            (b"", CANARY.encode() * 99, csv_rows(9).encode())
        ):
            options = {"content": content, "headers": headers}
            yield Refused(
                f"{name}-{index}",
                "POST",
                rows,
                "rows-invalid",
                options,
                None,
                "malformed-file",
            )
    codings = (
        "br",
        "deflate",
        "x-compress",
        "zstd",
        "gzip, gzip",
        "identity, gzip",
        "",
    )
    types = (
        "application/json",
        "text/csv; charset=windows-1252",
        "text/csv; header=absent",
        f"text/{CANARY}; charset=x",
    )
    packed_csv = [CSV | {"Content-Encoding": coding} for coding in codings]
    for headers in (
        *({"Content-Type": media_type} for media_type in types),
        *packed_csv,
    ):
        options = {"content": csv_rows(1), "headers": headers}
        yield Refused(
            f"rows-{headers}", "POST", rows, "unsupported-media-type", options
        )
    for reference in ("nobody", "%00", "x" * 300):
        options = {"content": csv_rows(1), "headers": CSV}
        yield Refused(
            f"rows-to-{reference[:6]}",
            "POST",
            f"/datasets/{reference}/rows",
            "not-found",
            options,
        )


def predictions() -> Iterator[Refused]:
    predict = "/models/{model}/predict"
    repeated = [
        b'{"rows": [{"age": 1, "age": 2}]}',
        b'{"rows": [{"age": 1}], "rows": [{"age": 2}]}',
        b'{"columns": {"age": [1], "age": [2]}}',
        b'{"rows": [{"age": 1, "\\u0061ge": 2, "sex": ":"}]}',
        b'{"rows": null, "rows": [{"age": 1}], "columns": null}',
        b'{"rows": [{"age": {"a": 1, "a": 2}}]}',
    ]
    for index, content in enumerate(repeated):
        options = {"content": content, "headers": {"Content-Type": "application/json"}}
        yield Refused(
            f"predict-twice-{index}", "POST", predict, "malformed-request", options
        )
    rules: list[tuple[Any, str, str]] = [
        ({}, "", "needs-rows-or-columns"),
        ({"rows": [], "columns": {}}, "", "needs-rows-or-columns"),
        ({"rows": CANARY}, "", "not-a-prediction-request"),
        ({"rows": [CANARY]}, "", "not-a-prediction-request"),
        ([CANARY], "", "not-a-prediction-request"),
        ({"rows": [], CANARY: 1}, "", "not-a-prediction-request"),
        ({"rows": [{"agee": CANARY}]}, "/rows", "unknown-column"),
        ({"rows": [{"age": 1}, {"age": CANARY}]}, "/rows/1/age", "not-a-number"),
        ({"rows": [{"age": True}]}, "/rows/0/age", "not-a-number"),
        ({"rows": [{}]}, "/rows/0/age", "missing"),
        ({"rows": [{"age": None}]}, "/rows/0/age", "missing"),
        ({"rows": [{"age": 1, "sex": 1}]}, "/rows/0/sex", "not-a-string"),
        ({"rows": [{"age": 1, "sex": [CANARY]}]}, "/rows/0/sex", "not-a-string"),
        ({"columns": {"age": [1], "agee": [CANARY]}}, "/columns", "unknown-column"),
        (
            {"columns": {"age": [1, 2], "sex": ["Male"]}},
            "/columns/sex",
            "unequal-lengths",
        ),
        ({"columns": {"sex": ["Male"]}}, "/columns/age", "missing"),
        ({"columns": {"age": [1, None]}}, "/columns/age/1", "missing"),
        ({"rows": [{"age": 1}], "read_out": CANARY}, "/read_out", "unknown-choice"),
    ]
    for index, (body, at, problem) in enumerate(rules):
        yield Refused(
            f"predict-{index}",
            "POST",
            predict,
            "invalid-request",
            {"json": body},
            at,
            problem,
        )
    for name, content in (
        ("not-json", CANARY.encode()),
        ("empty", b""),
        ("nan", b'{"rows": [{"age": NaN}]}'),
        ("not-utf-8", b'{"rows": [{"age": "\xff"}]}'),
        ("deep", b'{"rows": [{"age": ' + b"[" * 20_000 + b"]" * 20_000 + b"}]}"),
    ):
        yield Refused(
            f"predict-{name}",
            "POST",
            predict,
            "malformed-request",
            {"content": content},
        )
    plain = {"content": b"{}", "headers": {"Content-Type": "text/plain"}}
    yield Refused(
        "predict-media-type", "POST", predict, "unsupported-media-type", plain
    )
    for rows in ({"rows": [{"age": 1}] * 10_001}, {"columns": {"age": [1] * 10_001}}):
        yield Refused(
            f"predict-10001-{next(iter(rows))}",
            "POST",
            predict,
            "too-large",
            {"json": rows},
        )

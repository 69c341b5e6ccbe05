"""The Python of the guide runs on a real service, in the order of the guide."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.server.conftest import StartServer
from tests.support.server import CSV

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"
SCHEMA = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 120, "missing": True},
        {"name": "hours", "type": "numeric", "lower": 0, "upper": 100, "missing": True},
        {
            "name": "sector",
            "type": "categorical",
            "categories": ["private", "public"],
            "missing": True,
        },
    ],
    "label": {"name": "income", "classes": ["low", "high"]},
}


def _rows(n_rows: int) -> str:
    random = np.random.default_rng(7)
    hours = random.uniform(0, 60, n_rows)
    lines = [
        f"{age},{hour:.1f},public,{'high' if hour > 35 else 'low'}"
        for age, hour in zip(random.integers(18, 90, n_rows), hours, strict=True)
    ]
    return "\n".join(["age,hours,sector,income", *lines, ""])


def test_the_guide_works_as_written(
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = start_server("sqlite", 1)
    shards = [{"name": "shard", "kind": "hash", "cells": 10}]
    # other tests declare the guide's census on the same server
    name = "census-of-python"
    declared = server.declared(
        name=name,
        schema=SCHEMA,
        partitions=shards,
        budget={"accountant": "pure", "epsilon": "3"},
    )
    assert (
        server.admin.http.post(
            f"/datasets/{name}/rows", content=_rows(500), headers=CSV
        ).status_code
        == 201
    )
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    analyst = server.granted(declared["id"], "analyst")
    monkeypatch.delenv("GROVEKEEPER_API_KEY_FILE", raising=False)
    snippets = re.findall(
        r"^```python\n(.*?)^```$",
        GUIDE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert len(snippets) >= 9
    names: dict[str, object] = {}
    for snippet in snippets:
        # declares a dataset, which an analyst may not
        uploads = "upload=True" in snippet
        monkeypatch.setenv(
            "GROVEKEEPER_API_KEY", (server.admin if uploads else analyst).key
        )
        exec(
            compile(snippet.replace('"census"', f'"{name}"'), str(GUIDE), "exec"), names
        )
    printed = capsys.readouterr().out
    assert "0.5 True 3" in printed, "the quote"
    assert "1000 2.5 2.5" in printed, "the refusal"
    assert server.admin.http.get(f"/ledger/{name}").json()["charged"] == "1.9"

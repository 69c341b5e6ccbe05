"""Every dataset is private: a declaration with ``visibility``, and an algorithm without
privacy, are refused.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from research.papers.forests.catalogue import REFERENCES
from tests.support.databases import on_one_server
from tests.support.server import Server, declaration, new_idempotency_key, training

PLACE = "research/papers/forests"


@on_one_server
@pytest.mark.parametrize("visibility", ["public", "private", None])
def test_a_declaration_with_visibility_is_told_where_the_forests_without_privacy_are(
    server: Server, visibility: str | None
) -> None:
    body = declaration(visibility=visibility)
    for path in ("/datasets", "/declarations"):
        answer = server.admin.http.post(path, json=body)
        assert answer.status_code == 422
        [problem] = answer.json()["errors"]
        assert (problem["at"], problem["problem"]) == (
            "/visibility",
            "every-dataset-is-private",
        )
        assert PLACE in problem["accepted"][0]
    assert (
        server.admin.http.get("/datasets", params={"name": body["name"]}).json()[
            "datasets"
        ]
        == []
    )


@on_one_server
def test_the_command_line_says_where_the_forests_without_privacy_are(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    file = tmp_path / "declaration.json"
    file.write_text(json.dumps(declaration(visibility="public")), encoding="utf-8")
    done = CliRunner().invoke(grovekeeper, ["datasets", "create", str(file)])
    assert done.exit_code != 0
    assert PLACE in done.output
    assert "every dataset is private" in done.output


@on_one_server
def test_no_algorithm_runs_without_a_charge(server: Server) -> None:
    listed: list[dict[str, Any]] = server.admin.http.get("/algorithms").json()[
        "algorithms"
    ]
    assert all(algorithm["accountants"] for algorithm in listed)
    assert REFERENCES.keys().isdisjoint(algorithm["slug"] for algorithm in listed)
    dataset, before = server.uploaded()["id"], server.footprint()
    for slug in REFERENCES:
        for path, headers in (("/plans", {}), ("/train", new_idempotency_key())):
            body = training(dataset, algorithm=slug, parameters={})
            answer = server.admin.http.post(path, json=body, headers=headers)
            assert (answer.status_code, answer.json()["errors"][0]["at"]) == (
                422,
                "/algorithm",
            )
    assert server.footprint() == before

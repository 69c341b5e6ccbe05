"""Records the examples of the OpenAPI document from a real server: ``python -m
tests.support.examples``.

The command sends the valid request of every operation (tests/support/operations.py) and
writes ``app/api/examples.json``. Secrets are replaced, and lists and texts of answers
are cut.
"""

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.api.main import FILE
from app.db import migrate
from tests.support.estate import (
    built_estate,
    upload_of,
    waiting_job,
    with_person,
    with_unit,
)
from tests.support.operations import REQUESTS
from tests.support.role_table import OPERATIONS
from tests.support.server import running_server

_SECRET = re.compile(r"(?<=[._])[A-Za-z0-9+/_-]{43}(?![A-Za-z0-9+/_-])")
_MAX_ITEMS = 2
_MAX_LINES = 12


def main() -> None:
    """Records every operation whose request or answer is JSON or text."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'database.sqlite3'}"
        migrate.upgrade(url)
        with running_server(url, folder / "home", n_workers=0) as server:
            estate = built_estate(server, folder)
            targets = estate.targets
            ruled = server.uploaded()["id"]
            special = {
                "decide_job": replace(
                    targets, dataset=ruled, job=waiting_job(server, ruled)
                ),
                "cancel_job": replace(
                    targets, job=server.submitted(targets.dataset).json()["job_id"]
                ),
                "erase_person": replace(targets, population=with_person(server)),
                "erase_unit": replace(targets, dataset=with_unit(server)),
                "erase_upload": replace(
                    targets, dataset=ruled, upload=upload_of(server, ruled)
                ),
                "join_population": replace(targets, dataset=server.declared()["id"]),
            }
            recorded: dict[str, dict[str, Any]] = {}
            # A list shows more before its items are used up; a deletion has no answer.
            for operation in sorted(
                OPERATIONS, key=lambda name: OPERATIONS[name][0] != "GET"
            ):
                method, path, options = REQUESTS[operation](
                    special.get(operation, targets)
                )
                if method == "DELETE" and operation not in (
                    "cancel_job",
                    "erase_upload",
                ):
                    continue
                answer = server.admin.http.request(method, path, **options)
                assert answer.is_success, (operation, answer.text)
                recorded[operation] = (
                    {"request": options["json"]} if "json" in options else {}
                )
                match answer.headers.get("content-type", "").partition(";")[0]:
                    case "application/json":
                        recorded[operation]["answer"] = _cut(answer.json())
                    case "text/plain":
                        recorded[operation]["answer"] = "".join(
                            answer.text.splitlines(keepends=True)[:_MAX_LINES]
                        )
    text = json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    FILE.write_text(_SECRET.sub("x" * 43, text), encoding="utf-8")
    print(f"{FILE}: {len(recorded)} operations, {FILE.stat().st_size:,} bytes")


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    return (
        [_cut(item) for item in value[:_MAX_ITEMS]]
        if isinstance(value, list)
        else value
    )


if __name__ == "__main__":
    main()

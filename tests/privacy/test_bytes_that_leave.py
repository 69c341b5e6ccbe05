"""A job's output and every answer about it depend on rows through the releases alone.

Two installations differ in one row. Their ids, times and releases are equal, so all
bytes must be equal: of the child's output, progress and exit status, and of the answers
to an analyst. A number of rows, a time or a size that reaches an artifact, a card or a
ledger entry would be a difference.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.orm import Session

from app.access import keys
from app.access.grants import Role
from app.api.main import create_app
from app.core import stamps
from app.core.files import Directory
from app.core.processes import scrubbed_environment
from app.core.sealed_files import StorageKeys
from app.datasets import catalog, private_rows, row_files
from app.datasets.private_rows import Selection
from app.jobs.tables import JobRow
from app.services.drawing import perform as drawing
from app.services.drawing.perform import perform
from app.services.execution import lease
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.releases.kinds import KINDS
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from tests.privacy.fixed_releases import FixedReleases
from tests.support import forked_program
from tests.support.crash_scene import open_installation
from tests.support.databases import MigratedDatabase
from tests.support.job_kinds import claimed, run_here
from tests.support.neighbours import (
    ALGORITHMS,
    BUDGETS,
    DECLARATION,
    HEADER,
    NEIGHBOURS,
    ROWS,
)

ROOT = Path(__file__).parents[2]


@dataclass
class World:
    """One installation, and a record of all bytes that left it."""

    installation: Installation
    app: FastAPI
    key: str
    has_children: bool
    left: dict[str, Any] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)

    def ask(
        self,
        method: str,
        path: str,
        *,
        expected: tuple[int, ...] = (200, 201, 202, 204),
        **body: Any,
    ) -> Any:
        """Sends a request with the key, and records the answer with its status and
        headers.
        """
        answer = asyncio.run(self._sent(method, path, body))
        headers = {
            name: value
            for name, value in answer.headers.items()
            if name != "x-request-id"
        }
        self.left[f"{next(self._numbers)} {method} {path}"] = (
            answer.status_code,
            headers,
            answer.content,
        )
        assert answer.status_code in expected, answer.text
        return (
            answer.json() if "/json" in answer.headers.get("content-type", "") else None
        )

    async def _sent(
        self, method: str, path: str, body: dict[str, Any]
    ) -> httpx.Response:
        # Sizes of compressed answers differ with ids. No answer with a secret is kept
        # for an idempotency key.
        headers = {"Authorization": f"Bearer {self.key}", "Accept-Encoding": "identity"}
        if (
            method == "POST"
            and not path.startswith("/keys")
            and not path.endswith("/webhooks")
        ):
            headers["Idempotency-Key"] = f"key-{len(self.left)}"
        content = body.pop("content", None)
        sent: dict[str, Any] = (
            {"json": body or None} if content is None else {"content": content}
        )
        if content is not None:
            headers["Content-Type"] = "text/csv"
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://here"
        ) as client:
            return await client.request(method, path, headers=headers, **sent)

    def run(self, accepted: dict[str, Any]) -> dict[str, Any]:
        """Runs the accepted job and records the output of its child."""
        claim = claimed(self.installation)
        assert claim.job_id == accepted["job_id"]
        run_here(self.installation, claim, self._child)
        shown: dict[str, Any] = self.ask("GET", f"/jobs/{claim.job_id}")
        assert shown["state"] == "succeeded"
        return shown

    def _child(self, task: JobTask, _kept: object) -> None:
        task.folder.mkdir(parents=True, exist_ok=True)
        log = self.installation.home.with_name("child.log")
        ended, progress = (
            _in_a_child(task, log) if self.has_children else _in_process(task)
        )
        files = {
            path.name: path.read_bytes()
            for path in sorted(task.folder.glob("*"))
            if path.is_file()
        }
        self.left[f"{next(self._numbers)} child of {task.kind}"] = (
            ended,
            progress,
            files,
        )
        assert files, "the child failed"


def _in_process(task: JobTask) -> tuple[int, bytes]:
    """Runs the work of a child in this process."""
    done: list[bytes] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drawing, "SystemRandomness", FixedReleases)
        perform(task, on_tree_done=lambda: done.append(b"."))
    return 0, b"".join(done)


def _in_a_child(task: JobTask, log: Path) -> tuple[int, bytes]:
    """Runs the production child in a process of its own."""
    child = forked_program.start(
        "tests.support.fixed_releases_child",
        folder=ROOT,
        environ=scrubbed_environment(),
        log=log,
        piped=True,
    )
    assert child.stdout is not None
    child.stdin.write(task.to_text().encode() + b"\n")
    progress = child.stdout.read().encode()
    exit_code = child.wait()
    child.close()
    return exit_code, progress


def _opened(
    url: str, home: Path, monkeypatch: pytest.MonkeyPatch, *, has_children: bool
) -> World:
    """An installation on a migrated database with fixed ids, secrets and times."""
    ticks, tokens = itertools.count(), itertools.count(1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(
        stamps, "now", lambda: start + timedelta(seconds=next(ticks) / 1000)
    )
    monkeypatch.setattr(secrets, "token_bytes", lambda n=32: next(tokens).to_bytes(n))
    monkeypatch.setattr(
        secrets, "token_hex", lambda n=32: next(tokens).to_bytes(n).hex()
    )
    monkeypatch.setattr(
        secrets, "token_urlsafe", lambda n=32: next(tokens).to_bytes(n).hex()
    )
    # a clock of real time, which would count as ticks
    monkeypatch.setattr(lease, "heartbeat", lambda *_, **__: None)
    installation = open_installation(url, home, lease_ttl_s=600)
    with installation.database.write() as session:
        owner = keys.create(session, name="owner", roles=[Role.ADMIN])
    return World(
        installation, create_app(installation.settings), owner.text, has_children
    )


Walk: TypeAlias = Callable[..., dict[str, Any]]
"""``walk(folder, rows=…, accountant=…, has_children=…)``: every request of an analyst,
and the record of its bytes.
"""


@pytest.fixture
def walk(migrated_database: MigratedDatabase, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Makes the requests on a new installation."""

    def walked(
        folder: Path, *, rows: str, accountant: str, has_children: bool = False
    ) -> dict[str, Any]:
        folder.mkdir()
        with migrated_database("sqlite", folder) as url:
            world = _opened(
                url, folder / "home", monkeypatch, has_children=has_children
            )
            return _record(world, rows=rows, accountant=accountant)

    return walked


def _record(world: World, *, rows: str, accountant: str) -> dict[str, Any]:
    """Makes every request that an analyst can make, and returns the record."""
    delta = {} if accountant == "pure" else {"delta": "0.000001"}
    try:
        dataset = world.ask(
            "POST", "/datasets", **DECLARATION, budget=BUDGETS[accountant]
        )["id"]
        analyst = world.ask("POST", "/keys", name="analyst", roles=[])
        world.ask("PUT", f"/datasets/{dataset}/grants/{analyst['id']}", role="analyst")
        world.ask("POST", f"/datasets/{dataset}/rows", content=HEADER + rows)
        world.left.clear()  # analysts do not see the owner's report on the upload
        admin, world.key = world.key, analyst["key"]
        body = {"epsilon": "1", **delta}
        world.ask("POST", f"/datasets/{dataset}/profiles/quote", **body)
        profile = world.run(world.ask("POST", f"/datasets/{dataset}/profiles", **body))[
            "profile_id"
        ]
        training = {
            "dataset": dataset,
            "algorithm": ALGORITHMS[accountant],
            "profile": profile,
            "scope": {"shard": [0]},
            **body,
        }
        training["parameters"] = {"n_estimators": 4, "max_depth": 3}
        world.ask("POST", "/plans", **training)
        model = world.run(world.ask("POST", "/train", **training))["model_id"]
        evaluating = {"scope": {"shard": [1]}, "metrics": ["accuracy", "auroc"], **body}
        world.ask("POST", f"/models/{model}/evaluations/quote", **evaluating)
        evaluation = world.run(
            world.ask("POST", f"/models/{model}/evaluations", **evaluating)
        )["evaluation_id"]
        world.ask(
            "POST", f"/models/{model}/predict", rows=[{"age": 30, "colour": "red"}]
        )
        # Refused, with the balance in the answer.
        world.ask("POST", "/train", expected=(409,), **{**training, "epsilon": "100"})
        for path in (
            "/jobs", "/models", f"/models/{model}", f"/models/{model}/artifact",
            f"/models/{model}/artifact?format=onnx",
            f"/profiles/{profile}", f"/datasets/{dataset}/profiles", f"/evaluations/{evaluation}",
            f"/models/{model}/evaluations", "/datasets", f"/datasets/{dataset}", f"/ledger/{dataset}",
        ):  # fmt: skip
            world.ask("GET", path)
        world.key = admin  # nor does an auditor receive the owner's report
        for path in (
            f"/ledger/{dataset}/entries",
            f"/ledger/{dataset}/export",
            "/ledger",
        ):
            world.ask("GET", path)
    finally:
        world.app.state.installation.close()
        world.installation.close()
    return world.left


def _difference(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [
        name for name in one.keys() | other.keys() if one.get(name) != other.get(name)
    ]


@pytest.mark.parametrize(
    ("accountant", "neighbours"),
    [
        ("pure", ("a row more",)),
        ("gdp", ("a row of unknown label",)),
        pytest.param("pure", ("another row",), marks=pytest.mark.long),
        pytest.param("gdp", ("a row fewer",), marks=pytest.mark.long),
    ],
)
def test_every_byte_that_leaves_is_the_same_for_neighbours_with_equal_releases(
    accountant: str, neighbours: tuple[str, ...], tmp_path: Path, walk: Walk
) -> None:
    usual = walk(tmp_path / "usual", rows=ROWS, accountant=accountant)
    assert sum("child" in name for name in usual) == 3
    for name in neighbours:
        other = walk(tmp_path / name, rows=NEIGHBOURS[name], accountant=accountant)
        assert _difference(usual, other) == [], name


def test_the_production_child_says_the_same_of_neighbours(
    tmp_path: Path, walk: Walk
) -> None:
    """Progress, exit status and output of a child process."""
    result = [
        walk(tmp_path / str(number), rows=rows, accountant="pure", has_children=True)
        for number, rows in enumerate((ROWS, NEIGHBOURS["a row more"]))
    ]
    assert _difference(*result) == []
    (train,) = (each for name, each in result[0].items() if "child of train" in name)
    assert train[:2] == (0, b"......")


def test_a_count_of_rows_in_the_metadata_of_a_job_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walk: Walk
) -> None:
    """The mutant: the metadata of every output contain the number of rows in scope."""
    honest = KINDS["train"].public_facts

    def with_count(session: Session, row: JobRow) -> dict[str, Any]:
        dataset = catalog.find(session, row.dataset_id)
        keys = StorageKeys.from_text((homes[-1] / "home" / "storage.key").read_text())
        key = dataset.data_key(keys)
        files = [
            row_files.sealed_rows(
                Directory(homes[-1] / "home"), dataset.id, epoch, key=key
            )
            for epoch in row.parts[0].epochs
        ]
        schema, partitions = (
            Schema.from_json(dataset.row.schema),
            Partitions.from_json(dataset.row.partitions),
        )
        rows = private_rows.read(files, Selection(schema, partitions, WHOLE))
        return {**honest(session, row), "n_rows": len(rows.y)}

    homes, found = list[Path](), []
    monkeypatch.setattr(KINDS["train"], "public_facts", with_count)
    for name, rows in (("usual", ROWS), ("other", NEIGHBOURS["a row more"])):
        homes.append(tmp_path / name)
        found.append(walk(homes[-1], rows=rows, accountant="pure"))
    different = _difference(*found)
    assert any("artifact" in name for name in different), different
    assert any("child of train" in name for name in different), different

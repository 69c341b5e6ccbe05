"""Walks through every kind of job on every account with fixed times, ids and draws:
``python -m tests.support.golden``.

The command writes what a walk released to ``tests/golden``. Those files say what
entries, exports, artifacts, cards and answers look like; a change of one byte shows in
them. They are written again only where a change is meant.
"""

import hashlib
import json
import random
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.api.main import create_app
from app.core import stamps
from app.core.settings import Settings
from app.db import migrate
from app.db.database import Database
from app.services.drawing.perform import perform
from app.services.execution import run_job
from app.services.installation import Installation
from app.services.keys import create_admin
from grovekeeper_forests.catalogue import BY_SLUG
from grovekeeper_forests.contract.algorithm import TwoDatasetAlgorithm
from tests.support.in_process import InProcess, in_process
from tests.support.job_kinds import run_here
from tests.support.server import CSV, SCHEMA, csv_rows

FOLDER = Path(__file__).parents[1] / "golden"
ACCOUNTS: dict[str, dict[str, Any]] = {
    "pure-row": {"budget": {"accountant": "pure", "epsilon": "100"}},
    "zcdp-row": {"budget": {"accountant": "zcdp", "epsilon": "20", "delta": "0.000001"}},
    "gdp-row": {"budget": {"accountant": "gdp", "epsilon": "20", "delta": "0.000001"}},
    "pure-label": {"budget": {"accountant": "pure", "epsilon": "100"}, "protects": "label"},
    "zcdp-label": {"budget": {"accountant": "zcdp", "epsilon": "20", "delta": "0.000001"}, "protects": "label"},
    "gdp-label": {"budget": {"accountant": "gdp", "epsilon": "20", "delta": "0.000001"}, "protects": "label"},
    "pure-unit": {
        "budget": {"accountant": "pure", "epsilon": "100"}, "privacy_unit": {"column": "patient", "max_rows": 3},
    },
}  # fmt: skip
"""What the declaration of each walk's dataset states of its account."""

_BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
_SHARDS = [{"name": "shard", "kind": "hash", "cells": 3}]
_NUMBER = {
    "features": [{"name": "height", "type": "numeric", "lower": 0, "upper": 2}],
    "label": {"name": "days", "type": "integer", "lower": 0, "upper": 60},
}
_TO_PREDICT = {
    "rows": [
        {"age": 30, "height": 1.5, "sex": "Female"},
        {"age": 61, "height": None, "sex": "neither"},
    ]
}
_TENSOR = {"inputs": [{"name": "age", "datatype": "INT64", "shape": [1], "data": [30]}]}
_OUTPUTS = {"model": "models", "profile": "profiles", "evaluation": "evaluations"}


class _Fixed:
    """Stands for the clock, for new ids, and for the randomness of a process. The clock
    moves by steps of a walk.
    """

    def __init__(self) -> None:
        self._ids = {name: count() for name in ("secret", "row", "draw", "label")}
        self._of_prefix: dict[str, Iterator[int]] = {}
        self.at = _BEGIN

    def now(self) -> datetime:
        return self.at

    def new_id(self, prefix: str) -> str:
        number = next(self._of_prefix.setdefault(prefix, count()))
        digits = f"{number:016b}".replace("0", "a").replace("1", "b")
        return f"{prefix}_{digits}"

    def secret(self, n_bytes: int = 32) -> bytes:
        return self._bytes("secret", n_bytes)

    def row_ids(self, n_bytes: int) -> bytes:
        return self._bytes("row", n_bytes)

    def key_of_draws(self, n_bytes: int) -> bytes:
        return self._bytes("draw", n_bytes)

    def label(self, n_bytes: int) -> bytes:
        return self._bytes("label", n_bytes)

    def signing_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes(32))

    def _bytes(self, kind: str, n_bytes: int) -> bytes:
        return hashlib.shake_256(f"{kind} {next(self._ids[kind])}".encode()).digest(
            n_bytes
        )


@contextmanager
def _fixed() -> Iterator[_Fixed]:
    fixed = _Fixed()
    with (
        patch.object(stamps, "now", fixed.now),
        patch.object(stamps, "new", fixed.new_id),
        patch.object(secrets, "token_bytes", fixed.secret),
        # Of this module alone: SQLAlchemy takes bytes of os.urandom, too, also in the
        # thread of upkeep, whose number of rounds depends on the load of the machine.
        patch("app.datasets.ingest.urandom", fixed.row_ids),
        patch("grovekeeper_forests.noise.randomness.urandom", fixed.key_of_draws),
        patch.object(random, "_urandom", fixed.label),
        patch.object(Ed25519PrivateKey, "generate", fixed.signing_key),
    ):
        yield fixed


@dataclass
class _Walk:
    """One walk: a service in this process, and the lines that say what it answered."""

    client: InProcess
    installation: Installation
    key: str
    fixed: _Fixed
    lines: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def sent(self, method: str, path: str, **request: Any) -> Any:
        """The answer to a request, which becomes a line."""
        self.fixed.at += timedelta(seconds=1)
        headers = {**request.pop("headers", {}), **self._idempotency(method)}
        answer = self.client.request(
            method, path, key=self.key, headers=headers, **request
        )
        shown = _shown(answer)
        self.lines.append(
            {
                "request": f"{method} {path}",
                **_asked(request),
                "status": answer.status_code,
                **shown,
            }
        )
        return shown.get("answer")

    def released(self, path: str, body: dict[str, Any]) -> str | None:
        """Asks for a job, runs it, and shows its output; returns the output's id, or
        nothing of a refusal.
        """
        accepted = self.sent("POST", path, json=body)
        if "job_id" not in accepted:
            return None
        claim = run_job.claim_next(self.installation)
        assert claim is not None
        run_here(
            self.installation,
            claim,
            lambda task, _: perform(task, on_tree_done=lambda: None),
        )
        job = self.sent("GET", f"/jobs/{accepted['job_id']}")
        (kind,) = (name for name in _OUTPUTS if job.get(f"{name}_id"))
        self.sent("GET", f"/{_OUTPUTS[kind]}/{job[f'{kind}_id']}")
        return str(job[f"{kind}_id"])

    def _idempotency(self, method: str) -> dict[str, str]:
        return (
            {"Idempotency-Key": f"walk-{len(self.lines)}"} if method == "POST" else {}
        )


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    return {"body": request["json"]} if "json" in request else {}


def _shown(answer: httpx.Response) -> dict[str, Any]:
    """JSON with twelve digits of each float, since machines differ in the last ones; of
    other bodies their digest.
    """
    if "json" in answer.headers.get("content-type", ""):
        return {
            "answer": json.loads(
                answer.content, parse_float=lambda text: float(f"{float(text):.12g}")
            )
        }
    return (
        {"sha256": hashlib.sha256(answer.content).hexdigest()} if answer.content else {}
    )


def walked(account: str, settings: Settings) -> dict[str, bytes]:
    """The files of one walk on a migrated, empty SQLite database: its lines, and the
    exports of its accounts.
    """
    with _fixed() as fixed, _walk(settings, fixed) as walk:
        _walk_through(walk, ACCOUNTS[account])
        lines = "".join(
            f"{json.dumps(line, ensure_ascii=False)}\n" for line in walk.lines
        )
        return {
            f"{account}.jsonl": lines.encode(),
            **{f"{account}.{name}": it for name, it in walk.files.items()},
        }


@contextmanager
def _walk(settings: Settings, fixed: _Fixed) -> Iterator[_Walk]:
    with closing(Database.open(settings.database_url)) as database:
        key = create_admin(database, "golden").text
    app = create_app(settings)
    installation = app.state.installation
    with closing(installation), in_process(app) as client:
        yield _Walk(client, installation, key, fixed)


def _walk_through(walk: _Walk, account: dict[str, Any]) -> None:
    dataset, other = (
        _declared(walk, "golden", account),
        _declared(walk, "other", account),
    )
    models = [_trained(walk, dataset, slug, other=other) for slug in ("auto", *BY_SLUG)]
    trained = [model for model in models if model is not None]
    for model in trained:
        walk.sent("POST", f"/models/{model}/predict", json=_TO_PREDICT)
        walk.sent("GET", f"/models/{model}/artifact")
    walk.sent("POST", f"/v2/models/{trained[0]}/infer", json=_TENSOR)
    _profiled(walk, dataset)
    evaluation = {"epsilon": "0.25", "scope": {"shard": [2]}}
    walk.sent("POST", f"/models/{trained[0]}/evaluations/quote", json=evaluation)
    walk.released(f"/models/{trained[0]}/evaluations", evaluation)
    walk.released("/evaluations", {**evaluation, "models": trained[:3]})
    _charged_elsewhere(walk, dataset)
    walk.sent(
        "POST",
        "/train",
        json={"dataset": dataset, "algorithm": "rdt-ta", "epsilon": "99"},
    )
    walk.sent("POST", f"/ledger/{dataset}/cap", json={"cap": "15", "reason": "a test"})
    for name in (dataset, other):
        _audited(walk, name)
    if account.get("protects") != "label":
        _audited(walk, _learned_number(walk, account))


def _declared(
    walk: _Walk,
    name: str,
    account: dict[str, Any],
    *,
    schema: dict[str, Any] = SCHEMA,
    csv: str = csv_rows(200),
) -> str:
    declaration = {
        "name": name,
        "schema": schema,
        "partitions": _SHARDS,
        "public_size": 200,
        **account,
    }
    declared = walk.sent("POST", "/datasets", json=declaration)
    rows = _rows_of_patients(csv) if "privacy_unit" in account else csv
    walk.sent("POST", f"/datasets/{name}/rows", content=rows, headers=CSV)
    return str(declared["id"])


def _rows_of_patients(csv: str) -> str:
    head, *rows = csv.splitlines()
    named = (f"p{index // 2},{row}" for index, row in enumerate(rows))
    return "\n".join((f"patient,{head}", *named, ""))


def _trained(walk: _Walk, dataset: str, slug: str, *, other: str) -> str | None:
    """The model of one algorithm, or nothing where the account refuses the algorithm."""
    body: dict[str, Any] = {
        "dataset": dataset, "algorithm": slug, "epsilon": "0.5", "scope": {"shard": [0, 1]}, "purpose": "golden",
    }  # fmt: skip
    if isinstance(BY_SLUG.get(slug), TwoDatasetAlgorithm):
        body["unlabelled"] = {
            "dataset": other,
            "epsilon": "0.25",
            "scope": {"shard": [1]},
        }
    walk.sent(
        "POST",
        "/plans",
        json={name: value for name, value in body.items() if name != "purpose"},
    )
    return walk.released("/train", body)


def _profiled(walk: _Walk, dataset: str) -> None:
    """Releases a profile, and trains a model that reuses its bins."""
    walk.sent("POST", f"/datasets/{dataset}/profiles/quote", json={"epsilon": "0.5"})
    profile = walk.released(f"/datasets/{dataset}/profiles", {"epsilon": "0.5"})
    if profile is not None:
        body = {
            "dataset": dataset,
            "algorithm": "auto",
            "epsilon": "0.5",
            "profile": profile,
        }
        walk.sent("POST", "/plans", json=body)
        walk.released("/train", body)


def _learned_number(walk: _Walk, account: dict[str, Any]) -> str:
    """Releases of a label that is a number; returns the dataset's id."""
    rows = [f"{index % 40 / 20},{index % 40}" for index in range(200)]
    csv = "\n".join(["height,days", *rows, ""])
    dataset = _declared(walk, "number", account, schema=_NUMBER, csv=csv)
    _profiled(walk, dataset)
    model = _trained(walk, dataset, "auto", other=dataset)
    walk.sent("POST", f"/models/{model}/predict", json={"rows": [{"height": 1.5}]})
    walk.sent("GET", f"/models/{model}/artifact")
    metrics = ["mae", "rmse", "r2"]
    evaluation = {"epsilon": "0.25", "scope": {"shard": [2]}, "metrics": metrics}
    walk.sent("POST", f"/models/{model}/evaluations/quote", json=evaluation)
    walk.released(f"/models/{model}/evaluations", evaluation)
    return dataset


def _charged_elsewhere(walk: _Walk, dataset: str) -> None:
    """Charges and gives back what another program spends, and cancels a job."""
    adjacency = walk.sent("GET", f"/datasets/{dataset}")["adjacency"]
    body = {
        "description": "a mean",
        "per": "row",
        "declared": {"adjacency": adjacency, "epsilon": "0.001"},
    }
    walk.sent("POST", f"/ledger/{dataset}/quotes", json=body)
    walk.sent("POST", f"/ledger/{dataset}/reservations", json=body)
    waiting = walk.sent(
        "POST",
        "/train",
        json={"dataset": dataset, "algorithm": "mrf", "epsilon": "0.125"},
    )
    if "job_id" in waiting:
        walk.sent("DELETE", f"/jobs/{waiting['job_id']}")


def _audited(walk: _Walk, dataset: str) -> None:
    for path in (
        "",
        "/entries?limit=10",
        "/checkpoint",
        "/deployment",
        "/reservations",
    ):
        walk.sent("GET", f"/ledger/{dataset}{path}")
    walk.files[f"{dataset}.export"] = walk.client.request(
        "GET", f"/ledger/{dataset}/export", key=walk.key
    ).content


def main() -> None:
    """Writes the files of all walks."""
    FOLDER.mkdir(exist_ok=True)
    for account in ACCOUNTS:
        # other files of the folder are written by other commands
        for file in FOLDER.glob(f"{account}.*"):
            file.unlink()
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(
                home=Path(folder, "home"),
                database_url=f"sqlite:///{folder}/golden.sqlite3",
            )
            migrate.upgrade(settings.database_url)
            for name, content in walked(account, settings).items():
                (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()

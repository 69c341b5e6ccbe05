"""Makes what the pictures of the dashboard show: keys, datasets, jobs, releases and
decisions of a small office.
"""

import gzip
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.cli import demo
from grovekeeper_client.client import Client

_RULES = {
    "largest_job": "1.5",
    "approval_above": "0.75",
    "quotas": [],
    "frozen": False,
    "erase_rows_at": None,
}
_PARTITIONS = [
    {"name": "shard", "kind": "hash", "cells": 10},
    {"name": "sex", "kind": "column", "column": "sex"},
]
_STATISTICS = {
    "name": "people of the census",
    "epsilon": "0.1",
    "scope": {"shard": [9]},
    "tables": [
        {
            "statistic": "histogram",
            "column": "age",
            "bins": {"age": list(range(20, 90, 10))},
        },
        {"statistic": "crosstab", "columns": ["education", "income"]},
    ],
}
_PROFILE = {
    "name": "first look",
    "epsilon": "0.5",
    "parameters": {"bins": "8", "size_share": "0.1"},
}
_N_SMALL = 4_000


@dataclass(frozen=True)
class Scene:
    """What was made.

    Attributes:
        keys: the secrets of the people, by name.
        rows: a file of rows.
        dataset: a busy dataset; with ``job``, ``model``, ``later_model``,
            ``statistics``, ``evaluation`` and ``upload`` of it.
        register: a dataset with ``profile``.
        waves: a dataset with a cell for each upload, one of which is erased.
        surveys: a dataset with a δ.
        population: the id of the population of two datasets.
    """

    keys: dict[str, str]
    rows: Path
    dataset: str
    waves: str
    surveys: str
    population: str
    job: str
    model: str
    later_model: str
    statistics: str
    register: str
    profile: str
    evaluation: str
    upload: str


def built(admin: Client, connect: Callable[[str], Client]) -> Scene:
    """Builds the scene through the API, as its people would.

    Args:
        admin: connection of the first administrator.
        connect: a connection with another key.
    """
    rows, few = _rows()
    expires_at = (datetime.now(UTC) + timedelta(days=365)).strftime(
        "%Y-%m-%dT00:00:00Z"
    )
    made = {
        name: admin.create_key(name, roles, expires_at=None if roles else expires_at)
        for name, roles in {
            "ada": ["owner"], "ben": [], "cleo": [], "dora": ["auditor"],
            "scoring service": [], "newcomer": ["owner"],
        }.items()
    }  # fmt: skip
    keys = {name.partition(" ")[0]: key["key"] for name, key in made.items()}
    ids = {name.partition(" ")[0]: key["id"] for name, key in made.items()}
    with (
        connect(keys["ada"]) as ada,
        connect(keys["ben"]) as ben,
        connect(keys["cleo"]) as cleo,
        connect(keys["dora"]) as dora,
    ):
        ada.open_population("residents", {"accountant": "pure", "epsilon": "4"})
        dataset = _declared(
            ada, "census", ids, partitions=_PARTITIONS, population="residents"
        )
        ada.upload_rows(dataset, rows)
        model, job = _trained(
            ben, dataset, "0.5", "spring forest", scope={"shard": list(range(8))}
        )
        later, _ = _trained(
            ben,
            dataset,
            "0.25",
            "autumn forest",
            scope={"shard": list(range(6)), "sex": ["Female"]},
        )
        _done(
            ben,
            ben.evaluate(
                model, {"epsilon": "0.1", "scope": {"shard": [8]}, "name": "first look"}
            ),
        )
        body = {
            "epsilon": "0.5",
            "metrics": ["confusion", "auroc"],
            "scope": {"shard": [9]},
            "name": "acceptance",
        }
        evaluation = _done(ben, ben.evaluate(model, body))["evaluation_id"]
        statistics = _done(ben, ben.release_statistics(dataset, _STATISTICS))
        _external(cleo, dataset)
        dora.state_verification(
            dataset, verdict="VERIFIED", checkpoint=dora.checkpoint(dataset)
        )
        ben.put_alias(dataset, "staging", model)
        ben.put_alias(dataset, "production", model)
        ben.put_alias(dataset, "staging", later)
        ada.change_rules(
            dataset, {**_RULES, "quotas": [{"keys": [ids["ben"]], "cap": "3.5"}]}
        )
        cancelled = ben.train(
            {
                "dataset": dataset,
                "epsilon": "0.1",
                "scope": {"shard": [0]},
                "name": "by mistake",
            }
        )
        ben.cancel_job(cancelled["job_id"])
        large = ben.train({"dataset": dataset, "epsilon": "1.2", "name": "everything"})
        ada.decide_job(
            large["job_id"], "reject", reason="one shard is enough for a trial"
        )
        ben.train({"dataset": dataset, "epsilon": "1", "name": "all shards"})
        waves = _waves(ada, ben, ids, few)
        surveys = _surveys(ada, ben, ids, few)
        register = _declared(ada, "register", ids)
        ada.upload_rows(register, few)
        profile = _done(ben, ben.release_profile(register, _PROFILE))["profile_id"]
        _declared(ada, "hospital-visits", ids)
        pilot = _declared(ada, "pilot", ids)
        ada.upload_rows(pilot, few)
        _trained(ben, pilot, "1", None)
        ada.delete_dataset(pilot)
    upload = next(admin.uploads(dataset))["epoch"]
    population = admin.population("residents")["id"]
    return Scene(
        keys=keys, rows=few, dataset=dataset, waves=waves, surveys=surveys, population=population,
        job=job, model=model, later_model=later, evaluation=evaluation, upload=upload,
        statistics=statistics["statistics_id"], register=register, profile=profile,
    )  # fmt: skip


def _rows() -> tuple[Path, Path]:
    """The rows of the demo, and a smaller file of them."""
    folder = Path(tempfile.mkdtemp(prefix="grovekeeper-pictures-"))
    rows, few = folder / "census.csv.gz", folder / "rows.csv"
    demo.load_dataset(rows)
    lines = gzip.decompress(rows.read_bytes()).decode("utf-8").splitlines(keepends=True)
    few.write_text("".join(lines[: _N_SMALL + 1]), encoding="utf-8")
    return rows, few


def _declared(owner: Client, name: str, ids: dict[str, str], **members: Any) -> str:
    """Declares a dataset with the columns of the demo, and grants everybody a role on
    it.
    """
    with tempfile.TemporaryDirectory() as folder:
        adult = demo.load_dataset(Path(folder) / "rows.csv.gz")
    budget = {"budget": {"accountant": "pure", "epsilon": "3"}}
    body = {
        "name": name,
        "schema": adult.schema,
        "public_size": adult.public_size,
        **budget,
        **members,
    }
    dataset = str(owner.declare_dataset(body)["id"])
    for key, role in (("ben", "analyst"), ("cleo", "owner"), ("scoring", "predictor")):
        owner.grant(dataset, ids[key], role)
    return dataset


def _waves(ada: Client, ben: Client, ids: dict[str, str], rows: Path) -> str:
    """A dataset whose uploads are cells, in the population; its first upload is erased."""
    partitions = [
        {
            "name": "wave",
            "kind": "epoch",
            "how": "one upload a year, about that year's interviews",
        }
    ]
    waves = _declared(
        ada,
        "panel",
        ids,
        partitions=partitions,
        public_size=_N_SMALL,
        population="residents",
    )
    ada.upload_rows(waves, rows)
    _trained(ben, waves, "0.75", "panel forest")
    ada.upload_rows(waves, rows, again=True)
    ada.erase_upload(waves, next(ada.uploads(waves))["epoch"])
    return waves


def _surveys(ada: Client, ben: Client, ids: dict[str, str], rows: Path) -> str:
    """A frozen dataset with a δ, nearly used up."""
    budget = {"accountant": "gdp", "epsilon": "1", "delta": "1e-6"}
    surveys = _declared(ada, "labour-survey", ids, budget=budget)
    ada.upload_rows(surveys, rows)
    _trained(ben, surveys, "0.9", "survey forest")
    ada.change_rules(
        surveys, {**_RULES, "approval_above": None, "largest_job": None, "frozen": True}
    )
    return surveys


def _trained(
    analyst: Client, dataset: str, epsilon: str, name: str | None, **members: Any
) -> tuple[str, str]:
    """Trains a forest; returns the ids of the model and of the job."""
    job = _done(
        analyst,
        analyst.train(
            {"dataset": dataset, "epsilon": epsilon, "name": name, **members}
        ),
    )
    return job["model_id"], job["id"]


def _done(analyst: Client, accepted: dict[str, Any]) -> dict[str, Any]:
    job = analyst.wait_for_job(accepted["job_id"])
    assert job["state"] == "succeeded", job
    return job


def _external(attester: Client, dataset: str) -> None:
    declared = {"adjacency": "add_remove", "epsilon": "0.1"}
    request = {
        "description": "mean hours of the yearly report",
        "per": "row",
        "declared": declared,
        "scope": {},
    }
    attester.charge_external(dataset, request)

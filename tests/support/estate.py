"""Builds one object of each kind on a server, and a caller of each kind."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import update

from app.access.tables import KeyRow
from tests.support.operations import (
    EXTERNAL,
    WEBHOOK,
    Targets,
    counting,
    new_population,
)
from tests.support.server import (
    CSV,
    Caller,
    Server,
    new_idempotency_key,
    training,
    worker,
)


@dataclass(frozen=True)
class Estate:
    """One server with one object of each kind, and a caller of each kind."""

    server: Server
    targets: Targets
    callers: dict[str, Caller]
    revoked: Caller


def built_estate(server: Server, folder: Path, **changes: object) -> Estate:
    """Declares a dataset, with changes, and makes everything else about it. The
    worker's log goes to the folder.
    """
    dataset = server.uploaded(
        200, budget={"accountant": "pure", "epsilon": "1000"}, **changes
    )["id"]
    with worker(server.settings, log=folder / "worker.log"):
        job = server.trained(dataset)
        accepted = server.admin.http.post(
            f"/datasets/{dataset}/profiles",
            json={"epsilon": "1"},
            headers=new_idempotency_key(),
        ).json()
        counted = server.admin.http.post(
            f"/datasets/{dataset}/statistics",
            json=counting(),
            headers=new_idempotency_key(),
        ).json()
        rival = server.trained(dataset)["model_id"]
        judged = server.admin.http.post(
            f"/models/{job['model_id']}/evaluations",
            json={"epsilon": "1"},
            headers=new_idempotency_key(),
        )
        evaluation = server.ended(judged.json()["job_id"])["evaluation_id"]
        profile = server.ended(accepted["job_id"])["profile_id"]
        statistics = server.ended(counted["job_id"])["statistics_id"]
    name_model(server, dataset, rival)
    stranger = server.caller()
    # as a key of an earlier version: without effect when held globally
    with server.database.write() as session:
        session.execute(
            update(KeyRow)
            .where(KeyRow.id == stranger.id)
            .values(roles=["analyst", "predictor"])
        )
    callers = {
        "stranger": stranger,
        "global auditor": server.caller("auditor"),
        "global owner": server.caller("owner"),
        "admin": server.admin,
    }
    callers |= {
        role: server.granted(dataset, role)
        for role in ("predictor", "analyst", "auditor", "owner")
    }
    revoked = server.caller("admin")
    assert server.admin.http.delete(f"/keys/{revoked.id}").status_code == 204
    population = server.admin.http.post("/populations", json=new_population()).json()[
        "id"
    ]
    charged = server.admin.http.post(
        f"/ledger/{dataset}/reservations", json=EXTERNAL, headers=new_idempotency_key()
    )
    reservation = charged.json()["reservation_id"]
    webhook = server.admin.http.post(
        f"/datasets/{dataset}/webhooks", json=WEBHOOK
    ).json()["id"]
    made = (
        job["id"], job["model_id"], profile, statistics, server.caller().id, population, reservation, rival, evaluation,
        webhook,
    )  # fmt: skip
    return Estate(
        server, Targets(dataset, *made, upload_of(server, dataset)), callers, revoked
    )


def with_person(server: Server) -> str:
    """A population whose only member has a row of the unit ann."""
    name = f"people-{secrets.token_hex(6)}"
    with_unit(server, population=name)
    return str(server.admin.http.get(f"/populations/{name}").json()["id"])


def with_unit(server: Server, **changes: Any) -> str:
    """A dataset with a unit column and one row of the unit ann."""
    unit = {"column": "patient", "max_rows": 1}
    dataset: str = server.declared(privacy_unit=unit, **changes)["id"]
    rows = "patient,age,height,sex,income\nann,40,1.7,Male,<=50K\n"
    assert (
        server.admin.http.post(
            f"/datasets/{dataset}/rows", content=rows, headers=CSV
        ).status_code
        == 201
    )
    return dataset


def upload_of(server: Server, dataset: str) -> str:
    """The only upload of a dataset."""
    (upload,) = server.admin.http.get(f"/datasets/{dataset}").json()["epochs"]
    return str(upload["epoch"])


def name_model(server: Server, dataset: str, model: str) -> None:
    """Makes the alias ``production`` name a model of a dataset."""
    named = server.admin.http.put(
        f"/datasets/{dataset}/aliases/production", json={"model": model}
    )
    assert named.is_success, named.text


def waiting_job(server: Server, dataset: str) -> str:
    """A job of a key of its own that waits for an approval."""
    rules: dict[str, Any] = {
        "largest_job": None, "approval_above": "0.1", "quotas": [], "frozen": False, "erase_rows_at": None,
    }  # fmt: skip
    assert (
        server.admin.http.put(f"/datasets/{dataset}/rules", json=rules).status_code
        == 200
    )
    analyst = server.granted(dataset, "analyst")
    accepted = analyst.http.post(
        "/train", json=training(dataset), headers=new_idempotency_key()
    ).json()
    assert accepted["state"] == "waiting"
    return str(accepted["job_id"])

"""Exports of populations and of their members from a real server, checked by the
verifier alone.
"""

import secrets
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from grovekeeper_forests.privacy.accountants import Amount
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.guarantees import guarantee_of_population
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.server import Server, new_idempotency_key
from tests.support.standalone import verified_alone

SHARDS = [
    {"name": "shard", "kind": "hash", "cells": 2},
    {"name": "sex", "kind": "column", "column": "sex"},
]


class Scene:
    """A population on a server, and the files that an auditor downloads of it."""

    def __init__(self, server: Server, folder: Path, budget: dict[str, str]) -> None:
        self.server, self.folder, self.budget = server, folder, budget
        self.members: list[str] = []
        opened = self.post(
            "/populations", {"name": f"people-{secrets.token_hex(6)}", "budget": budget}
        )
        self.population = str(opened["id"])

    def post(self, path: str, body: object) -> dict[str, Any]:
        answer = self.server.admin.http.post(
            path, json=body, headers=new_idempotency_key()
        )
        assert answer.is_success, answer.text
        return dict(answer.json())

    def dataset(self, *, joins: bool = True, **changes: object) -> str:
        """A dataset with rows, either an initial member or not yet a member."""
        population = self.population if joins else None
        made = self.server.uploaded(
            population=population, **{"budget": self.budget, **changes}
        )
        return self._with_member(str(made["id"])) if joins else str(made["id"])

    def join(self, dataset: str) -> None:
        joining = {"population": self.population}
        assert (
            self.server.admin.http.put(
                f"/datasets/{dataset}/population", json=joining
            ).status_code
            == 200
        )
        self._with_member(dataset)

    def submit(self, dataset: str, epsilon: str, **changes: object) -> str:
        answer = self.server.submitted(dataset, epsilon=epsilon, **changes)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    def cancel(self, job_id: str) -> None:
        assert self.server.admin.http.delete(f"/jobs/{job_id}").status_code == 200

    def cap(self, epsilon: str) -> None:
        self.post(
            f"/ledger/{self.population}/cap",
            {"cap": epsilon, "reason": "asked for by the board"},
        )

    def take(self, path: str, name: str) -> Path:
        answer = self.server.admin.http.get(path)
        assert answer.status_code == 200, answer.text
        (self.folder / name).write_bytes(answer.content)
        return self.folder / name

    def export(self) -> list[object]:
        """Exports the population first and then its members; returns the arguments that
        check the files.
        """
        arguments: list[object] = [
            self.take(f"/ledger/{self.population}/export", "people")
        ]
        for dataset in self.members:
            arguments += ["--member", self.take(f"/ledger/{dataset}/export", dataset)]
        return arguments

    def signed(self) -> list[object]:
        """Checkpoints of all logs and the public key, as arguments."""
        (self.folder / "key").write_text(
            self.server.admin.http.get("/signer").json()["public_key"]
        )
        arguments: list[object] = ["--public-key", self.folder / "key"]
        for account in (self.population, *self.members):
            arguments += [
                "--checkpoint",
                self.take(f"/ledger/{account}/checkpoint", f"{account}.note"),
            ]
        return arguments

    def _with_member(self, dataset: str) -> str:
        self.members.append(dataset)
        return dataset


@pytest.fixture
def scene(idle_server: Server, tmp_path: Path) -> Scene:
    """Two members with jobs that are queued, cancelled and on several cells, and a
    lowered cap.
    """
    scene = Scene(idle_server, tmp_path, {"accountant": "pure", "epsilon": "9"})
    one, two = scene.dataset(partitions=SHARDS), scene.dataset()
    scene.submit(one, "2", scope={"shard": [0]})
    scene.cancel(scene.submit(two, "1.5"))
    scene.submit(one, "1", scope={"shard": [1], "sex": ["Male"]})
    scene.submit(two, "0.5")
    scene.cap("5")
    scene.submit(one, "1", scope={"sex": ["Female", "Male"]})
    return scene


@on_one_idle_server
def test_exports_and_checkpoints_of_a_population_verify_together(scene: Scene) -> None:
    result = verified_alone(*scene.export(), *scene.signed())
    assert result["exit"] == 0, result
    assert result["unchecked"] == []
    shown = scene.server.admin.http.get(f"/populations/{scene.population}").json()
    assert (result["cap"], result["together"]) == (shown["cap"], "3.5")
    assert result["remaining"] == shown["remaining"] == "1.5"
    assert {each["dataset"]: each["load"] for each in result["members"]} == {
        scene.members[0]: "3",
        scene.members[1]: "0.5",
    }
    assert [item["size"] for item in result["checkpoints"]] == [result["entries"]]
    for each in result["members"]:
        assert (each["compared"]["bounds"], each["compared"]["later_entries"]) == (0, 0)
        assert each["compared"]["ledger"]["checkpoints"] != []


@on_one_idle_server
def test_an_export_alone_says_what_it_cannot_show(scene: Scene) -> None:
    result = verified_alone(scene.export()[0])
    assert (result["exit"], result["unchecked"]) == (0, scene.members)


@on_one_idle_server
def test_a_dataset_that_joins_late_brings_what_it_spent(scene: Scene) -> None:
    late = scene.dataset(joins=False)
    kept = scene.submit(late, "2")
    scene.cancel(scene.submit(late, "1"))
    scene.join(late)
    result = verified_alone(*scene.export())
    assert (
        result["exit"],
        result["together"],
        result["remaining"],
        result["printable"],
    ) == (0, "5.5", "0", "5.5")
    refused = scene.server.submitted(late, epsilon="0.1")
    assert (refused.status_code, refused.json()["type"]) == (409, "budget-exceeded")
    scene.cancel(kept)
    scene.submit(late, "0.25")
    result = verified_alone(*scene.export())
    assert (result["exit"], result["together"], result["printable"]) == (0, "3.75", "5")


@on_one_idle_server
def test_the_printable_number_of_an_account_with_a_delta_is_that_of_the_service(
    idle_server: Server, tmp_path: Path
) -> None:
    """Sums that depend on outputs are no limit: a late member brings its cap, and a
    lowered cap revokes no charge.
    """
    scene = Scene(
        idle_server, tmp_path, {"accountant": "zcdp", "epsilon": "3", "delta": "1e-6"}
    )
    one, late = scene.dataset(), scene.dataset(joins=False)
    opened = verified_alone(*scene.export())
    assert opened["printable"] == opened["cap"]
    scene.submit(one, "1", delta="1e-6")
    scene.submit(late, "0.5", delta="1e-6")
    scene.cap("2")
    scene.join(late)
    result = verified_alone(*scene.export(), *scene.signed())
    assert result["exit"] == 0, result
    assert Fraction(result["printable"]) == 2 * Fraction(opened["cap"])
    steps = int(Fraction(result["printable"]) * 10**12)
    stated = guarantee_of_population(
        Amount("zcdp", steps),
        Fraction(1, 10**6),
        adjacency=Adjacency.ADD_REMOVE_ONE,
        unit_column=None,
    )
    shown = idle_server.admin.http.get(f"/populations/{scene.population}").json()
    assert shown["guarantee"] == stated


@on_one_server
def test_an_erased_member_still_counts(server: Server, tmp_path: Path) -> None:
    scene = Scene(server, tmp_path, {"accountant": "pure", "epsilon": "3"})
    old = scene.dataset()
    server.trained(old, epsilon="2")
    assert server.admin.http.delete(f"/datasets/{old}").status_code == 204
    new_dataset = scene.dataset()
    server.trained(new_dataset, epsilon="1")
    result = verified_alone(*scene.export(), *scene.signed())
    assert (result["exit"], result["together"], result["remaining"]) == (0, "3", "0")
    assert result["members"][0]["compared"]["ledger"]["charged"] == "2"


@on_one_idle_server
@pytest.mark.parametrize("which", ["people", "first", "second"])
def test_the_truncation_of_a_real_export_is_detected(scene: Scene, which: str) -> None:
    arguments = scene.export()
    file = scene.folder / (
        which if which == "people" else scene.members[which == "second"]
    )
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    result = verified_alone(*arguments, *scene.signed())
    assert (result["exit"], result["file"]) == (1, str(file))
    assert "the export was truncated" in result["reason"]


@on_one_idle_server
def test_proofs_about_a_populations_log_hold(scene: Scene) -> None:
    signed = scene.signed()
    for query in ("sequence=1", "sequence=5", "sequence=9"):
        proof = scene.take(f"/ledger/{scene.population}/proofs?{query}", "proof")
        proof.write_bytes(proof.read_bytes() + b"\n")
        assert verified_alone(proof, *signed)["exit"] == 0


@on_one_idle_server
def test_an_export_taken_before_its_members_moved_on_says_what_is_later(
    scene: Scene,
) -> None:
    people = scene.take(f"/ledger/{scene.population}/export", "early")
    scene.cancel(scene.submit(scene.members[1], "0.25"))
    result = verified_alone(people, *scene.export()[1:])
    assert (result["exit"], result["members"][1]["compared"]["later_entries"]) == (0, 2)

"""Tests concurrent processes on one account, one idempotency key, one queue and one
job, on both databases.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.ledger import accounts, statements, tables
from app.ledger import reservations as ledger
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.database.races.conftest import Race
from tests.support import reserving
from tests.support.checked_exports import verdict
from tests.support.crash_scene import (
    CELLS,
    EVENT,
    Scene,
    cell_balances,
    open_account,
    opened,
    replayed,
)
from tests.support.evidence import export
from tests.support.job_kinds import claimed


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path / "home", lease_ttl_s=600) as scene:
        yield scene


def test_no_cell_exceeds_the_cap_and_all_cells_are_filled(
    race: Race, scene: Scene, n_processes: int
) -> None:
    account, cap, smallest = "ds_hot", 500, 7
    open_account(scene.installation, account, cap=cap)
    # Small enough that most of the first requests fit in any order.
    results = race(
        scene.installation,
        "reserve",
        account=account,
        rounds=6,
        smallest=smallest,
        largest=20,
    )
    admitted = {
        job_id: (amount, scope, end)
        for result in results
        for job_id, amount, scope, end in result
    }
    assert sum(map(bool, results)) > n_processes // 2, (
        "most processes took part in the race"
    )
    with scene.installation.database.read() as session:
        entries = tables.entries(session, account, after=0, limit=100_000)
        balances = cell_balances(session, account)
        assert verdict(export(session, account)).line is None
    assert replayed(entries, n_cells=CELLS) == balances, (
        "every prefix is within the cap, and balances equal the entries"
    )
    for entry in entries[1:]:
        amount, scope, end = admitted[str(entry.job_id)]
        assert (entry.amount, entry.scope) == (amount, scope)
        assert entry.kind in ("reserve", end)
    assert len(entries) == 1 + len(admitted) + sum(
        end is not None for _, _, end in admitted.values()
    )
    for cell, (charged, reserved) in enumerate(balances):
        in_cell = [
            (amount, end)
            for amount, scope, end in admitted.values()
            if cell in scope.get("shard", range(CELLS))
        ]
        assert charged == sum(amount for amount, end in in_cell if end == "charge")
        assert reserved == sum(amount for amount, end in in_cell if end is None)
        assert cap - smallest < charged + reserved <= cap


def test_no_admission_exceeds_the_cap_in_force_while_the_cap_changes(
    race: Race, scene: Scene, n_processes: int
) -> None:
    account, cap = "ds_hot", 500
    open_account(scene.installation, account, cap=cap)
    results = race(
        scene.installation,
        "reserve_under_moving_caps",
        account=account,
        rounds=8,
        cap=cap,
        largest=60,
    )
    done = [(str(what), amount) for result in results for what, amount in result]
    with scene.installation.database.read() as session:
        entries = tables.entries(session, account, after=0, limit=100_000)
        balances = cell_balances(session, account)
        assert verdict(export(session, account)).line is None
        highest = statements.highest_cap(session, account).amount.steps
    assert replayed(entries, n_cells=CELLS) == balances, (
        "the cap holds at every admission, and balances equal the entries"
    )
    changes = [entry for entry in entries if entry.kind == "cap"]
    assert len(changes) == n_processes // 4 * 8
    assert all(entry.details == {"reason": "a race"} for entry in changes)
    assert sorted(entry.amount for entry in changes) == sorted(
        amount for what, amount in done if what == "cap"
    )
    admitted = {
        str(entry.job_id): entry.amount for entry in entries if entry.kind == "reserve"
    }
    assert admitted == {what: amount for what, amount in done if what != "cap"}
    assert len(admitted) > n_processes // 2, "many reservations were admitted"
    assert max(charged + reserved for charged, reserved in balances) <= highest <= cap


def test_no_cell_exceeds_the_delta_that_is_set_aside(race: Race, scene: Scene) -> None:
    account, smallest, aside = "ds_hot", 7, 500
    new_account = accounts.NewAccount(
        id=account, name="census", accountant="zcdp", adjacency="add_remove", cap=10**9, delta="0.000001",
        privacy_unit={"column": None, "max_rows": 1}, partitions=Partitions((HashPartition("shard", CELLS),)),
        delta_set_aside=accountants.delta_text(aside),
    )  # fmt: skip
    with scene.installation.database.write() as session:
        accounts.open_account(session, new_account, actor="key_owner")
    results = race(
        scene.installation,
        "charge_delta",
        account=account,
        rounds=4,
        smallest=smallest,
        largest=60,
    )
    charged = [(delta, cells) for result in results for delta, cells in result]
    for cell in range(CELLS):
        with scene.installation.database.read() as session:
            balance = statements.delta_balance(
                session, account, Scope({"shard": (cell,)})
            )
        assert balance is not None
        assert balance.charged == sum(
            delta for delta, cells in charged if cell in cells
        )
        assert aside - smallest < balance.charged <= aside


def test_a_reservation_is_settled_once(race: Race, scene: Scene) -> None:
    account, amount = "ds_hot", 3
    open_account(scene.installation, account, cap=100)
    reservations = {}
    for number in range(12):
        new_reservation = ledger.NewReservation(
            account, amount, Scope({"shard": (number % CELLS,)}), EVENT, f"jb_{number}"
        )
        with scene.installation.database.write() as session:
            reservations[
                reserving.reserve(session, [new_reservation], actor="key_analyst")[0]
            ] = f"jb_{number}"
    results = race(scene.installation, "settle", reservations=list(reservations))
    settled = dict(event.split()[::-1] for result in results for event in result)
    assert sum(map(len, results)) == len(settled) == len(reservations)
    with scene.installation.database.read() as session:
        entries = tables.entries(session, account, after=0, limit=1_000)
        balances = cell_balances(session, account)
        assert verdict(export(session, account)).line is None
    assert replayed(entries, n_cells=CELLS) == balances
    ends = {
        str(entry.job_id): entry.kind.value
        for entry in entries[1 + len(reservations) :]
    }
    assert ends == {
        job_id: settled[reservation_id]
        for reservation_id, job_id in reservations.items()
    }


def test_submissions_fill_the_account_and_each_accepted_submission_is_a_queued_job(
    race: Race, scene: Scene
) -> None:
    results = race(scene.installation, "submit", dataset=scene.dataset_id, rounds=4)
    accepted = [json.loads(body) for bodies in results for body in bodies]
    entries = scene.entries()
    assert [entry.kind for entry in entries[1:]] == ["reserve"] * len(accepted)
    assert {entry.job_id for entry in entries[1:]} == {
        answer["job_id"] for answer in accepted
    }
    for answer in accepted:
        row = scene.job(answer["job_id"])
        assert (row.state, row.parts[0].reservation_id) == (
            "queued",
            answer["reservation_id"],
        )
    summary = scene.verified()
    assert 2 * 10**9 < summary.tightest.load <= 3 * 10**9


def test_requests_with_one_idempotency_key_make_one_job_and_get_one_answer(
    race: Race, scene: Scene, n_processes: int
) -> None:
    answers = race(scene.installation, "submit_same", dataset=scene.dataset_id)
    assert answers == [answers[0]] * n_processes
    assert answers[0][0] == 202
    assert [entry.kind for entry in scene.entries()] == ["open", "reserve"]


def test_each_job_is_claimed_by_one_worker(race: Race, scene: Scene) -> None:
    submitted = {scene.submit_job(key=f"k{number}") for number in range(24)}
    claims = [
        claim for result in race(scene.installation, "claim_all") for claim in result
    ]
    assert len(claims) == len(submitted)
    assert {job_id for job_id, _ in claims} == submitted
    for job_id, token in claims:
        assert (scene.job(job_id).state, scene.job(job_id).lease_token) == (
            "running",
            token,
        )


def test_a_job_that_is_charged_and_cancelled_at_once_is_charged_or_void(
    race: Race, scene: Scene
) -> None:
    claims = []
    for number in range(12):
        scene.submit(key=f"k{number}")
        claim = claimed(scene.installation)
        claims.append([claim.job_id, claim.token])
    succeeded = [
        event
        for result in race(scene.installation, "charge_or_cancel", claims=claims)
        for event in result
    ]
    assert len(succeeded) == len(set(succeeded)), (
        "a job is charged once and cancelled once"
    )
    for job_id, _ in claims:
        row = scene.job(job_id)
        assert f"cancel {job_id}" in succeeded
        assert (row.state, row.reason, row.lease_token) == (
            "cancelled",
            "cancelled",
            None,
        )
        was_charged = f"charge {job_id}" in succeeded
        assert scene.kinds_of(job_id) == [
            "reserve",
            "charge" if was_charged else "void",
        ]
        assert (row.charged_at is not None) is was_charged
    scene.verified()

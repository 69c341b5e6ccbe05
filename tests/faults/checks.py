"""Checks, after every round of faults, what must hold of a deployment and of the
answers of its clients.

Ledgers are read as their auditor reads them: exports and checkpoints over HTTP, and
:mod:`grovekeeper_verifier`.
"""

import hashlib
import json
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select

from app.db.database import Database
from app.jobs.states import UNFINISHED, JobState
from app.jobs.tables import JobRow
from app.registry.tables import ReleaseRow
from grovekeeper_verifier import control_export, dataset_replay, population_replay
from grovekeeper_verifier.checkpoints import read_checkpoint, read_public_key
from grovekeeper_verifier.member_comparison import MemberLedger
from tests.faults.deployment import ADMIN_KEY, Deployment
from tests.faults.traffic import Objects, Record
from tests.support.checked_exports import judge_population, verdict

_JOBS_END_WITHIN_S = 120.0


def check(deployment: Deployment, objects: Objects, record: Record) -> None:
    """Checks a healed deployment without traffic, after all jobs of a round have ended."""
    assert not record.wrong, "\n".join(record.wrong)
    url = deployment.apis[0].url
    with httpx.Client(
        base_url=url or "",
        headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        timeout=120,
        trust_env=False,
    ) as http:
        entries = _verified_entries(http, objects)
        _check_reservations(entries)
        database = Database.open(deployment.database_url, pool_size=1)
        try:
            jobs = _jobs(database, objects)
            releases = _releases(database, objects)
        finally:
            database.close()
        _check_jobs(deployment, jobs, entries, releases)
        _check_artifacts(deployment, http, releases)
        _check_acknowledged(http, record, jobs, entries)


def wait_for_jobs(deployment: Deployment) -> None:
    """Waits until no job is unfinished."""
    database = Database.open(deployment.database_url, pool_size=1)
    deadline = time.monotonic() + _JOBS_END_WITHIN_S
    try:
        while True:
            with database.read() as session:
                n_unfinished = len(
                    session.execute(
                        select(JobRow.id).where(JobRow.state.in_(UNFINISHED))
                    ).all()
                )
            if n_unfinished == 0:
                return
            assert time.monotonic() < deadline, f"{n_unfinished} jobs do not end"
            time.sleep(0.1)
    finally:
        database.close()


@dataclass(frozen=True)
class Job:
    """A finished job as the database stores it."""

    state: str
    reservations: tuple[str, ...]
    output: str | None


def _verified_entries(
    http: httpx.Client, objects: Objects
) -> dict[str, list[dict[str, Any]]]:
    """The entries of every account of a round, after a verification of all exports
    against their checkpoints.

    The verifier recomputes every price, and the load of every joint cell against the
    cap at every prefix; the checked function admits every entry again.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "evidence"

        def downloaded(path: str) -> Path:
            file.write_bytes(_got(http, path).content)
            return file

        file.write_text(_got(http, "/signer").json()["public_key"])
        key = read_public_key(file)
        names = (*objects.datasets, objects.population)
        exports = {name: _lines(http, f"/ledger/{name}/export") for name in names}
        heads = {
            name: [read_checkpoint(downloaded(f"/ledger/{name}/checkpoint"), key)]
            for name in names
        }
        acts = _lines(http, "/audit/export")
        control_export.verify(
            acts, [read_checkpoint(downloaded("/audit/checkpoint"), key)]
        )
    for dataset in objects.datasets:
        verified = dataset_replay.verify(exports[dataset], heads[dataset])
        assert verdict(exports[dataset]) == (None, verified.tightest.load)
    members = [MemberLedger(exports[name], (), file=name) for name in objects.members]
    summary = population_replay.verify(
        exports[objects.population], members, heads[objects.population]
    )
    assert summary.together <= summary.cap
    members_of = [exports[name] for name in objects.members]
    world = judge_population(exports[objects.population], members_of)
    assert world.standing[:2] == (summary.together, summary.cap)
    return {
        name: [json.loads(line) for line in lines[1:]]
        for name, lines in exports.items()
    }


def _check_reservations(entries: dict[str, list[dict[str, Any]]]) -> None:
    """Every reservation has exactly one end."""
    for lines in entries.values():
        ends: dict[str, list[str]] = defaultdict(list)
        for entry in lines:
            if entry["kind"] in ("reserve", "charge", "void", "expire"):
                ends[entry["job_id"]].append(entry["kind"])
        for job_id, kinds in ends.items():
            assert kinds in (
                ["reserve", "charge"],
                ["reserve", "void"],
                ["reserve", "expire"],
            ), (job_id, kinds)


def _jobs(database: Database, objects: Objects) -> dict[str, Job]:
    with database.read() as session:
        rows = (
            session.execute(
                select(JobRow).where(JobRow.dataset_id.in_(objects.datasets))
            )
            .scalars()
            .all()
        )
        jobs = {}
        for row in rows:
            reservations = tuple(part.reservation_id for part in row.parts)
            jobs[row.id] = Job(row.state, reservations, row.release_id)
        return jobs


def _releases(database: Database, objects: Objects) -> dict[str, ReleaseRow]:
    with database.read() as session:
        query = select(ReleaseRow).where(ReleaseRow.dataset_id.in_(objects.datasets))
        rows = session.execute(query).scalars().all()
        return {row.id: row for row in rows}


def _check_jobs(
    deployment: Deployment,
    jobs: dict[str, Job],
    entries: dict[str, list[dict[str, Any]]],
    releases: dict[str, ReleaseRow],
) -> None:
    """Rows are read after the charge and once per job; a job has one end and at most
    one release.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for lines in entries.values():
        for entry in lines:
            kinds[entry.get("job_id") or ""].append(entry["kind"])
    reads = [line.split() for line in deployment.journal.read_text().splitlines()]
    n_reads = Counter(job_id for _, job_id, _ in reads)
    for _, job_id, visible in reads:
        assert visible == "unknown" or "charge" in visible.split(","), (
            f"{job_id} read rows after {visible}"
        )
        assert n_reads[job_id] == 1, f"{job_id} read rows {n_reads[job_id]} times"
        assert job_id not in jobs or "charge" in kinds[job_id], (
            f"{job_id} read rows and was not charged"
        )
    of_jobs = Counter(release.job_id for release in releases.values())
    for job_id, job in jobs.items():
        assert of_jobs[job_id] == (job.output is not None), (
            f"{job_id} has {of_jobs[job_id]} releases"
        )
        if job.state == JobState.SUCCEEDED:
            assert "charge" in kinds[job_id], f"{job_id} succeeded without a charge"
            assert n_reads[job_id] == 1, f"{job_id} succeeded without rows"


def _check_artifacts(
    deployment: Deployment, http: httpx.Client, releases: dict[str, ReleaseRow]
) -> None:
    for model in (release for release in releases.values() if release.kind == "train"):
        artifact = _got(http, f"/models/{model.id}/artifact").content
        assert hashlib.sha256(artifact).hexdigest() == model.digest
        path = (
            deployment.home
            / "artifacts"
            / model.digest[:2]
            / f"{model.digest}.safetensors"
        )
        assert path.read_bytes() == artifact


def _check_acknowledged(
    http: httpx.Client,
    record: Record,
    jobs: dict[str, Job],
    entries: dict[str, list[dict[str, Any]]],
) -> None:
    """Every acknowledged request took effect, and its repetition gets the same bytes."""
    reserved = {
        entry["job_id"]
        for lines in entries.values()
        for entry in lines
        if entry["kind"] == "reserve"
    }
    epochs: Counter[str] = Counter()
    for item in record.acknowledged:
        answer = http.request(
            item.request.method, item.request.path, **item.request.options
        )
        assert item.equals(answer), (
            f"{item.request.path}: {answer.status_code} {answer.text}"
        )
        body = json.loads(item.body)
        if "job_id" in body:
            assert body["job_id"] in jobs, (
                f"job {body['job_id']} was acknowledged and is lost"
            )
            assert body["job_id"] in reserved
        elif "reservation_id" in body:
            assert body["reservation_id"] in reserved
        else:
            epochs[body["epoch"]] += 1
    assert set(epochs.values()) <= {1}, "two uploads became one epoch"
    for job_id in record.cancelled:
        assert jobs[job_id].state == JobState.CANCELLED


def _lines(http: httpx.Client, path: str) -> list[bytes]:
    return _got(http, path).content.splitlines(keepends=True)


def _got(http: httpx.Client, path: str) -> httpx.Response:
    answer = http.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
    return answer

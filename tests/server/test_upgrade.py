"""An installation of each release is upgraded on both databases: nothing that was stored
changes, and what waited goes on.

:mod:`tests.support.snapshot` stores the installations before each release.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from app.db import migrate, revisions
from app.db.base import Base
from app.db.database import Database, parse_url
from app.ledger import statements
from app.services.backup import layout
from grovekeeper_verifier import dataset_replay
from tests.support import snapshot
from tests.support.databases import EmptyDatabase
from tests.support.evidence import export, verified
from tests.support.server import Server, running_server, worker

RELEASES = sorted(
    file.name.removesuffix(".tar.xz") for file in snapshot.FOLDER.glob("*.*.*.tar.xz")
)


@contextmanager
def _installed(
    dialect: str, home: Path, empty_database: EmptyDatabase
) -> Iterator[str]:
    """The address of the database of a release, at the release's revision."""
    file = home / "grovekeeper.sqlite3"
    if dialect == "sqlite":
        yield f"sqlite:///{file}"
        return
    revision = snapshot.stated_answers(home)["revision"]
    with empty_database(dialect, home) as url:
        with (
            migrate.migration_transaction(url) as target,
            layout.file_transaction(file, "ro&immutable=1") as source,
        ):
            migrate.run_migrations(target, revision)
            layout.copy_rows(source, target)
        yield url


def _rows(url: str) -> snapshot.Rows:
    engine = create_engine(parse_url(url))
    with engine.connect() as connection:
        rows = snapshot.rows_of(connection)
    engine.dispose()
    return rows


@pytest.fixture(params=RELEASES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The home of a release."""
    return snapshot.unpacked(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(
    request: pytest.FixtureRequest, home: Path, empty_database: EmptyDatabase
) -> Iterator[str]:
    """The address of a release's database, not upgraded yet."""
    with _installed(request.param, home, empty_database) as address:
        yield address


@pytest.fixture
def server(url: str, home: Path) -> Iterator[Server]:
    """A server of this version on the upgraded installation of a release."""
    migrate.upgrade(url)
    with closing(Database.open(url)) as database:
        snapshot.let_jobs_wait_since_now(database)
    with running_server(url, home, n_workers=0) as running:
        yield running


def test_an_upgrade_keeps_every_row(url: str) -> None:
    before = _rows(url)
    migrate.upgrade(url)
    after = _rows(url)
    assert revisions.current_revision(url) == revisions.head_revision()
    assert set(after) == set(Base.metadata.tables)
    assert [table for table, rows in before.items() if not rows] == []
    for table, rows in before.items():
        kept = set(rows[0]) & set(after[table][0])
        assert _columns(after[table], kept) == _columns(rows, kept), table


def _columns(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def test_nobody_notices_an_upgrade(server: Server, home: Path) -> None:
    """Entries, exports and artifacts are byte-identical, models predict equal bits, and
    the key is valid.
    """
    answers = snapshot.stated_answers(home)
    http = server.client(answers["key"])
    now = snapshot.answers_of(http, server.database)
    changed = {
        path
        for path, digest in answers["files"].items()
        if now["files"].get(path) != digest
    }
    assert changed == {"/audit/export"}, "the server of the test made a key"
    size, _ = answers["files"]["/audit/export"]
    acts = http.get("/audit/export").content[:size]
    assert snapshot.digest(acts) == answers["files"]["/audit/export"]
    assert now["predictions"] == answers["predictions"]
    deleted_at = snapshot.deletions(now["lists"])
    lost = snapshot.lost(now["lists"], answers["lists"], deleted_at=deleted_at)
    assert list(lost) == []


def test_a_queued_job_of_a_release_runs_and_its_reservation_is_charged(
    server: Server, tmp_path: Path
) -> None:
    [queued] = server.admin.http.get("/jobs?state=queued").json()["jobs"]
    account = queued["dataset"]
    with server.database.read() as session:
        before = statements.balance(session, account)
    assert before.reserved > 0
    with worker(server.settings, log=tmp_path / "worker.log"):
        assert server.ended(queued["id"])["state"] == "succeeded"
        assert server.trained("labs", scope={"shard": [0]})["state"] == "succeeded"
    with server.database.read() as session:
        after = statements.balance(session, account)
        assert after.reserved == 0
        assert after.charged >= before.charged + before.reserved
        [population] = session.scalars(text("SELECT id FROM populations"))
        verified(session, population)
        for dataset in session.scalars(text("SELECT id FROM datasets")):
            summary = dataset_replay.verify(export(session, dataset))
            balance = statements.balance(session, dataset)
            assert summary.tightest.charged == balance.charged

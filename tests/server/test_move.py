"""An installation of e23dda68, the last version before the first release that people
ran, is moved on both databases.

``tests/support/installations/0031.tar.xz`` is its home after one request of every kind
(:mod:`tests.support.snapshot`), with what its server answered in the end, and the
schema that its migrations made on PostgreSQL.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
import rfc8785
from sqlalchemy import create_engine, make_url, select, text
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner

from app.cli import prepare
from app.cli.main import app
from app.core.errors import InstallationError
from app.core.settings import Settings
from app.datasets.catalog import Dataset, DatasetRow
from app.db import migrate, revisions
from app.db.append_only import append_only_tables
from app.db.base import Base
from app.db.database import Database, parse_url
from app.ledger import checkpoints, control, kept_states, statements, tables
from app.ledger import reservations as ledger
from app.ledger.checkpoints import Log, Signer
from app.ledger.tables import (
    BlockRow,
    EntryKind,
    MemberRow,
    PopulationRow,
    ReservationRow,
)
from app.services.backup import layout
from app.services.backup.layout import Manifest
from app.services.backup.move import move_database
from app.services.backup.restore import restore_backup
from app.services.installation import UNFINISHED_RESTORE
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_verifier import control_export, dataset_replay
from grovekeeper_verifier.merkle_tree import GrowingTree
from tests.support import reserving, snapshot
from tests.support.crash_scene import EVENT
from tests.support.databases import CopiedDatabase, EmptyDatabase
from tests.support.evidence import export, verified
from tests.support.postgres import driver_url
from tests.support.server import Server, running_server, worker

OLD = "0031"


@dataclass(frozen=True)
class Old:
    """An installation that is not moved yet: its old database, and settings that name
    an empty one.
    """

    settings: Settings
    name: str
    url: str

    def move(self) -> None:
        assert move_database(self.settings, self.name) == []

    def rows(self) -> snapshot.Rows:
        return _rows(self.url)


def _rows(url: str) -> snapshot.Rows:
    engine = create_engine(parse_url(url))
    with engine.connect() as connection:
        rows = snapshot.rows_of(connection)
    engine.dispose()
    return rows


def _changed(url: str, *changes: str) -> None:
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        for change in changes:
            connection.execute(text(change))
    engine.dispose()


Install: TypeAlias = Callable[[Path], AbstractContextManager[Old]]
"""``install(folder)``: a context with an installation of its own that is not moved."""


@contextmanager
def _on_sqlite(folder: Path) -> Iterator[Old]:
    home = snapshot.unpacked(OLD, folder)
    file = home / "before" / "grovekeeper.sqlite3"
    file.parent.mkdir()
    (home / "grovekeeper.sqlite3").rename(file)
    yield Old(
        Settings(home=home, database_url=f"sqlite:///{home / 'grovekeeper.sqlite3'}"),
        str(file),
        f"sqlite:///{file}",
    )


@pytest.fixture(scope="module")
def old_postgresql(
    empty_database: EmptyDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of an old database on PostgreSQL, of which tests get copies."""
    folder = tmp_path_factory.mktemp("old")
    with _on_sqlite(folder) as stored, empty_database("postgresql", folder) as url:
        with psycopg.connect(driver_url(url)) as connection:
            connection.execute((folder / "postgresql.sql").read_bytes())
            connection.execute(f"INSERT INTO alembic_version VALUES ('{OLD}')".encode())
        with (
            migrate.migration_transaction(url) as target,
            layout.file_transaction(Path(stored.name), "ro&immutable=1") as source,
        ):
            layout.copy_rows(source, target)
        yield url


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def install(
    dialect: str,
    request: pytest.FixtureRequest,
    empty_database: EmptyDatabase,
    copied_database: CopiedDatabase,
) -> Install:
    """Makes installations on one of the databases."""
    if dialect == "sqlite":
        return _on_sqlite
    template = request.getfixturevalue("old_postgresql")

    @contextmanager
    def on_postgresql(folder: Path) -> Iterator[Old]:
        with (
            _on_sqlite(folder) as stored,
            copied_database(template, folder) as old,
            empty_database("postgresql", folder) as new,
        ):
            settings = Settings(home=stored.settings.home, database_url=new)
            yield Old(settings, str(make_url(old).database), old)

    return on_postgresql


@pytest.fixture
def old(install: Install, tmp_path: Path) -> Iterator[Old]:
    """An installation of its own for one test."""
    with install(tmp_path) as installed:
        yield installed


@pytest.fixture(scope="module")
def moved(
    install: Install, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Old, snapshot.Rows]]:
    """A moved installation, which tests read only, and the rows of its old database
    before the move.
    """
    with install(tmp_path_factory.mktemp("moved")) as installed:
        before = installed.rows()
        installed.move()
        yield installed, before


@pytest.fixture
def database(moved: tuple[Old, snapshot.Rows]) -> Iterator[Database]:
    """The new database, which many tests read."""
    with closing(Database.open(moved[0].settings.database_url)) as database:
        yield database


@pytest.fixture
def writable(
    moved: tuple[Old, snapshot.Rows], copied_database: CopiedDatabase, tmp_path: Path
) -> Iterator[Database]:
    """A copy of the new database for one test."""
    with (
        copied_database(moved[0].settings.database_url, tmp_path) as url,
        closing(Database.open(url)) as database,
    ):
        yield database


@pytest.fixture
def accounts(database: Database) -> tuple[list[str], list[str]]:
    """Ids of datasets' accounts and of populations."""
    with database.read() as session:
        populations = list(session.execute(select(PopulationRow.id)).scalars())
        account_ids = (
            session.execute(
                text("SELECT id FROM accounts WHERE id <> 'control' ORDER BY id")
            )
            .scalars()
            .all()
        )
    return [
        account_id for account_id in account_ids if account_id not in populations
    ], populations


@pytest.fixture
def server(old: Old) -> Iterator[Server]:
    """A server of this version on an installation that was moved for the test."""
    old.move()
    with closing(Database.open(old.settings.database_url)) as database:
        snapshot.let_jobs_wait_since_now(database)
    with running_server(
        old.settings.database_url, old.settings.home, n_workers=0
    ) as server:
        yield server


@pytest.fixture
def answers(old: Old) -> dict[str, Any]:
    """What the server of the old version answered."""
    return snapshot.stated_answers(old.settings.home)


def test_the_old_database_stays_as_it_is_and_every_row_is_in_the_new_one(
    moved: tuple[Old, snapshot.Rows],
) -> None:
    installed, before = moved
    assert installed.rows() == before
    after = _rows(installed.settings.database_url)
    assert before.keys() - after.keys() == {"account_boxes", *_KINDS}
    assert set(after) == set(Base.metadata.tables)
    _require_kept(after, before)


_NEWER = ("verifications",)
"""Tables that the old version did not have."""

_KINDS = {"models": "train", "profiles": "profile", "evaluations": "evaluation"}
"""Tables of the old version whose rows are releases now, with the kind of each."""


def _as_now(before: snapshot.Rows) -> snapshot.Rows:
    """The rows of the old version in the tables of this version."""
    released = [
        {**row, "kind": kind} for table, kind in _KINDS.items() for row in before[table]
    ]
    jobs = [{**row, "release_id": _release_of(row)} for row in before["jobs"]]
    return {
        **before,
        **{table: [] for table in _NEWER},
        "releases": sorted(released, key=lambda row: row["id"]),
        "jobs": jobs,
    }


def _release_of(job: Mapping[str, Any]) -> str | None:
    ids = [
        job[name]
        for name in ("model_id", "profile_id", "evaluation_id")
        if job[name] is not None
    ]
    return ids[0] if ids else None


def _require_kept(after: snapshot.Rows, before: snapshot.Rows) -> None:
    """Checks that rows have the values that they had in all columns that are still
    there.
    """
    earlier = _as_now(before)
    for table, rows in after.items():
        assert rows or table in _NEWER, f"the snapshot has no row of {table}"
        kept = [
            {name: row[name] for name in row if name in rows[0]}
            for row in earlier[table]
        ]
        assert [
            {name: now[name] for name in was}
            for now, was in zip(rows, kept, strict=True)
        ] == kept


def test_nobody_notices_the_move(server: Server, answers: dict[str, Any]) -> None:
    """Exports, entries and artifacts are byte-identical, models predict the same, and
    the key is valid.
    """
    http = server.client(answers["key"])
    now = snapshot.answers_of(http, server.database)
    assert now["files"].keys() == answers["files"].keys()
    grown = {
        path for path, facts in answers["files"].items() if now["files"][path] != facts
    }
    assert grown == {"/audit/export"}, "the server of the test made a key"
    size, _ = answers["files"]["/audit/export"]
    assert (
        snapshot.digest(http.get("/audit/export").content[:size])
        == answers["files"]["/audit/export"]
    )
    assert list(snapshot.lost(now["predictions"], answers["predictions"])) == []
    deleted_at = snapshot.deletions(now["lists"])
    lost = snapshot.lost(now["lists"], answers["lists"], deleted_at=deleted_at)
    assert list(lost) == []


def test_waiting_jobs_run_after_the_move_and_new_ones_are_admitted(
    server: Server, tmp_path: Path
) -> None:
    with server.database.read() as session:
        [queued] = (
            session.execute(text("SELECT id FROM jobs WHERE state = 'queued'"))
            .scalars()
            .all()
        )
    with worker(server.settings, log=tmp_path / "worker.log"):
        assert server.ended(queued)["state"] == "succeeded"
        model = server.trained("labs", scope={"shard": [0]})["model_id"]
    assert server.admin.http.post(
        f"/models/{model}/predict", json={"rows": snapshot.PREDICTED}
    ).is_success
    with server.database.read() as session:
        population = session.execute(select(PopulationRow.id)).scalar_one()
        verified(session, population)


def test_the_program_reads_every_row(
    database: Database, moved: tuple[Old, snapshot.Rows]
) -> None:
    with database.read() as session:
        for mapper in Base.registry.mappers:
            rows = session.execute(select(mapper.class_)).scalars().all()
            assert len(rows) == len(_as_now(moved[1])[mapper.local_table.name]), mapper


def test_every_account_verifies_with_the_balance_of_the_service(
    database: Database, accounts: tuple[list[str], list[str]]
) -> None:
    kinds: set[str] = set()
    with database.read() as session:
        for account_id in accounts[0]:
            summary = dataset_replay.verify(export(session, account_id))
            balance = statements.balance(session, account_id)
            assert (summary.tightest.charged, summary.tightest.reserved) == (
                balance.charged,
                balance.reserved,
            )
            assert summary.cap == balance.cap
            kinds |= summary.kinds.keys()
        for account_id in accounts[1]:
            kinds |= verified(session, account_id).kinds.keys()
    assert kinds >= {"open", "reserve", "charge", "void", "cap", "join", "load"}


def test_datasets_are_declared_as_the_first_entries_of_their_accounts_state(
    database: Database,
) -> None:
    """A charge compares them, also where the unit column has no form yet."""
    with database.read() as session:
        datasets = [
            Dataset(row) for row in session.execute(select(DatasetRow)).scalars()
        ]
        for dataset in datasets:
            kept_states.require_declared(
                session, tables.account(session, dataset.id), dataset.facts
            )
    assert any(dataset.unit_column for dataset in datasets)


def test_the_root_of_a_log_equals_the_root_over_all_entries(
    database: Database, accounts: tuple[list[str], list[str]]
) -> None:
    with database.read() as session:
        for account_id in [*accounts[0], *accounts[1]]:
            growing = GrowingTree()
            entries = tables.entries(session, account_id, after=0, limit=1_000)
            for entry in entries:
                growing.add(checkpoints.leaf(entry.hash))
            assert Log(session, account_id).root(len(entries)) == growing.root()
        blocks = session.execute(select(BlockRow.height, BlockRow.position)).all()
        assert {tuple(block) for block in blocks} == {(8, 0)}


def test_the_ledger_can_be_used_after_the_move(writable: Database) -> None:
    """An old reservation is charged, a new reservation is made, and the chains verify."""
    with writable.read() as session:
        waiting = (
            session.execute(
                select(ReservationRow).where(ReservationRow.state == "reserved")
            )
            .scalars()
            .one()
        )
        population = session.execute(
            select(MemberRow.population_id).where(
                MemberRow.account_id == waiting.account_id
            )
        ).scalar_one()
        before = statements.balance(session, waiting.account_id)
    assert before.reserved >= waiting.amount
    with writable.write() as session:
        ledger.charge(session, waiting.id, actor="worker")
        later = ledger.NewReservation(waiting.account_id, 5, WHOLE, EVENT, "jb_later")
        reserving.reserve(session, [later], actor="key_a")
    with writable.read() as session:
        after = statements.balance(session, waiting.account_id)
        members = verified(session, population).members
    assert (after.charged, after.reserved) == (
        before.charged + waiting.amount,
        before.reserved - waiting.amount + 5,
    )
    assert members[waiting.account_id].load == after.charged + after.reserved


def test_acts_are_recorded_after_the_move(writable: Database) -> None:
    with writable.write() as session:
        control.record(session, EntryKind.KEY_REVOKED, actor="key_a", key="key_b")
    with writable.read() as session:
        header, last = control.export_header(session)
        entries = tables.entries(session, control.CHAIN, after=0, limit=last)
    lines = [
        rfc8785.dumps(line) + b"\n"
        for line in (header, *(entry.to_json() for entry in entries))
    ]
    assert control_export.verify(lines).kinds["key-revoked"] >= 1


def test_append_only_tables_are_so_after_the_move(
    database: Database, moved: tuple[Old, snapshot.Rows]
) -> None:
    with database.engine.connect() as connection:
        names = append_only_tables(connection)
    assert names == {"alias_moves", "entries", "log_blocks", "signers"}
    for change in (
        "DELETE FROM {}",
        "UPDATE {0} SET {1} = {1}",
        "INSERT INTO {0} SELECT * FROM {0}",
    ):
        for name in names:
            column = next(iter(moved[1][name][0]))
            with (
                pytest.raises(DBAPIError, match="append-only"),
                database.write() as session,
            ):
                session.execute(text(change.format(name, column)))


@pytest.mark.parametrize("revision", ["0032", "0033"])
def test_databases_of_the_commits_between_are_moved(old: Old, revision: str) -> None:
    _changed(
        old.url,
        "ALTER TABLE webhooks ADD COLUMN sealed_earlier_secret "
        + ("BLOB" if "sqlite" in old.url else "BYTEA"),
        "ALTER TABLE webhooks ADD COLUMN earlier_secret_until "
        + ("TEXT" if "sqlite" in old.url else "TIMESTAMPTZ"),
        f"UPDATE alembic_version SET version_num = '{revision}'",
    )
    old.move()
    assert (
        revisions.current_revision(old.settings.database_url)
        == revisions.head_revision()
    )


@pytest.mark.covering("change", "dialect")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "UPDATE alembic_version SET version_num = '0030'",
            r"is at revision 0030\. .*takes the revisions 0031 to 0033.* commit e23dda68 first",
        ),
        ("UPDATE alembic_version SET version_num = '0100'", "needs no move"),
        (
            "DROP TABLE alembic_version",
            "has no revision, so no version of this program made it",
        ),
        (
            "ALTER TABLE jobs ADD COLUMN colour TEXT",
            r"jobs .* somebody changed it by hand \(colour\)",
        ),
        (
            "ALTER TABLE webhooks DROP COLUMN threshold",
            r"webhooks .* somebody changed it by hand \(threshold\)",
        ),
        ("DROP TABLE job_datasets", "no table job_datasets"),
        (
            "UPDATE workers SET seen_at = '2999-01-01T00:00:00.000000Z'",
            "a worker wrote to the old database within 30 s",
        ),
    ],
)
def test_a_database_that_cannot_be_moved_is_named_and_nothing_is_copied(
    old: Old, change: str, sentence: str
) -> None:
    _changed(old.url, change)
    with pytest.raises(InstallationError, match=sentence):
        old.move()
    assert _rows(old.settings.database_url) == {}


def test_a_database_that_lacks_entries_is_not_moved(old: Old) -> None:
    """As one whose write-ahead log was left behind: its budget would be spent again."""
    drop = "DROP TRIGGER append_only_entries_delete" + (
        "" if old.url.startswith("sqlite") else " ON entries"
    )
    last = "EXISTS (SELECT 1 FROM accounts WHERE id = account_id AND last_sequence = sequence)"
    _changed(
        old.url,
        drop,
        f"DELETE FROM entries WHERE {last}",
        "UPDATE accounts SET last_sequence = last_sequence - 1",
    )
    with pytest.raises(
        InstallationError, match=r"does not reach the heads .* Nothing was copied"
    ):
        old.move()
    assert _rows(old.settings.database_url) == {}


def test_the_home_of_another_installation_is_named(old: Old, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(old.settings.home, other)
    (other / "signing.key").unlink()
    with pytest.raises(InstallationError, match="signing key"):
        move_database(replace(old.settings, home=other), old.name)
    Signer.open(other / "signing.key", make=True)
    with pytest.raises(
        InstallationError, match="is not the signing key that the database names"
    ):
        move_database(replace(old.settings, home=other), old.name)
    assert _rows(old.settings.database_url) == {}


def test_a_database_is_not_moved_twice_or_over_another(old: Old) -> None:
    old.move()
    before = _rows(old.settings.database_url)
    with pytest.raises(InstallationError, match="the new database is not empty"):
        old.move()
    assert _rows(old.settings.database_url) == before


def test_nothing_is_moved_beside_a_killed_restore(old: Old) -> None:
    """The next restore would take the moved rows for its own, and end."""
    mark = old.settings.home / UNFINISHED_RESTORE
    mark.touch()
    with pytest.raises(InstallationError, match=r"a restore into .* is not complete"):
        old.move()
    assert _rows(old.settings.database_url) == {}
    mark.unlink()
    old.move()


def test_a_missing_database_is_named(old: Old) -> None:
    with pytest.raises(InstallationError, match=r"is no file|cannot be opened"):
        move_database(old.settings, "nowhere")


@pytest.mark.parametrize("content", [b"", b"name,age\nann,1\n"])
def test_a_file_that_is_no_database_is_named_and_stays_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "notes.csv"
    file.write_bytes(content)
    settings = Settings(home=tmp_path, database_url=f"sqlite:///{file}")
    with pytest.raises(InstallationError, match="is no SQLite database"):
        move_database(settings, str(file))
    status = CliRunner().invoke(
        app,
        [
            "db",
            "status",
            "--home",
            str(tmp_path),
            "--database-url",
            f"sqlite:///{file}",
        ],
    )
    assert (status.exit_code, "Traceback" in status.output) == (ExitCode.FAILED, False)
    if content:
        assert "file is not a database" in status.output
        assert file.read_bytes() == content


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_file_is_only_read_by_a_move_and_by_a_refusal(
    tmp_path: Path, *, is_moved: bool
) -> None:
    with (
        _on_sqlite(tmp_path) as old,
        closing(sqlite3.connect(old.name)) as writer,
    ):
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute(
            "UPDATE alembic_version SET version_num = ?", (OLD if is_moved else "0030",)
        )
        writer.commit()  # in the log alone, while the writer is open
        files = [Path(old.name), Path(f"{old.name}-wal")]
        before = [file.read_bytes() for file in files]
        assert before[1]
        with (
            nullcontext()
            if is_moved
            else pytest.raises(InstallationError, match="at revision 0030")
        ):
            old.move()
        assert [file.read_bytes() for file in files] == before


def test_an_address_is_refused_and_not_repeated(old: Old) -> None:
    with pytest.raises(InstallationError) as refusal:
        move_database(old.settings, "postgresql://u:SECRETPW@127.0.0.1/old")
    assert "SECRETPW" not in str(refusal.value)


def test_the_command_moves_and_status_names_it(old: Old) -> None:
    home = ["--home", str(old.settings.home)]
    before = CliRunner().invoke(
        app, ["db", "status", *home], env={"GROVEKEEPER_DATABASE_URL": old.url}
    )
    assert (before.exit_code, "next: grovekeeper db move OLD" in before.stdout) == (
        ExitCode.FAILED,
        True,
    )
    environ = {"GROVEKEEPER_DATABASE_URL": old.settings.database_url}
    moved = CliRunner().invoke(
        app, ["db", "move", old.name, *home, "--json"], env=environ
    )
    assert json.loads(moved.stdout) == {
        "revision": revisions.head_revision(),
        "problems": [],
    }
    assert CliRunner().invoke(app, ["db", "status", *home], env=environ).exit_code == 0
    for revision, sentence in (
        ("0030", "commit e23dda68 first"),
        ("9999", "a newer version migrated this database"),
    ):
        _changed(
            old.settings.database_url,
            f"UPDATE alembic_version SET version_num = '{revision}'",
        )
        status = CliRunner().invoke(app, ["db", "status", *home], env=environ)
        assert (
            sentence in " ".join(status.output.split()),
            "next:" in status.output,
        ) == (True, False)


def test_a_start_on_a_database_that_is_not_moved_names_the_command(old: Old) -> None:
    settings = replace(old.settings, database_url=old.url)
    before = old.rows()
    with pytest.raises(
        InstallationError, match=r"at revision 0031\. .*grovekeeper db move"
    ):
        prepare.upgrade(settings)
    with (
        pytest.raises(InstallationError, match="not at the newest revision"),
        prepare.opened(settings),
    ):
        pass
    assert old.rows() == before


def test_a_backup_of_the_old_version_is_restored(
    old: Old, empty_database: EmptyDatabase, tmp_path: Path
) -> None:
    """On both databases; a backup has its rows in a SQLite database, whatever the kind
    of its own was.
    """
    home, backup, restored = (
        old.settings.home,
        tmp_path / "backup",
        tmp_path / "restored",
    )
    signer = Signer.open(home / "signing.key", make=False)
    for folder in ("rows", "prints", "artifacts"):
        shutil.copytree(home / folder, backup / "home" / folder)
    shutil.copyfile(home / "fingerprint.key", backup / "home" / "fingerprint.key")
    shutil.copyfile(home / "before" / "grovekeeper.sqlite3", backup / layout.DATABASE)
    files = [path for path in backup.rglob("*") if path.is_file()]
    facts = {str(path.relative_to(backup)): layout.facts_of(path) for path in files}
    Manifest("2026-11-28T21:59:00Z", OLD, facts).write(backup, signer)
    restored.mkdir()
    for name in ("signing.key", "storage.key"):
        shutil.copyfile(home / name, restored / name)
    shutil.copytree(home / "checkpoints", restored / "checkpoints")
    settings = replace(old.settings, home=restored)
    if settings.database_url.startswith("sqlite"):
        settings = replace(
            settings, database_url=f"sqlite:///{restored / 'grovekeeper.sqlite3'}"
        )
    done = restore_backup(settings, backup, accept_loss=False)
    assert (done.losses, done.problems) == ([], [])
    _require_kept(_rows(settings.database_url), old.rows())

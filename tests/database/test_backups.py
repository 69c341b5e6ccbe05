"""Backups of both databases: a restore brings back everything, refuses incomplete
backups, and never rewinds.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from app.access.grants import Principal, granted_to
from app.access.tokens import Token, add_subject
from app.core import stamps
from app.core.errors import (
    BudgetExceeded,
    DatasetDeleted,
    InstallationError,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
)
from app.core.files import NEWEST_BACKUP, StoredFile, newest_backup
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.datasets import catalog, row_files
from app.db import migrate
from app.db.database import Database
from app.ledger import control, statements
from app.ledger.checkpoints import Signer
from app.ledger.tables import EntryKind
from app.services import predict
from app.services.backup import layout, make
from app.services.backup.layout import BackupDamaged
from app.services.backup.make import make_backup
from app.services.backup.restore import (
    EntriesMissing,
    Restored,
    _Restore,
    restore_backup,
)
from app.services.datasets.erase import delete_dataset, erase_upload
from app.services.datasets.unit_erasure import erase_unit
from app.services.installation import UNFINISHED_RESTORE, Installation
from app.services.keys import create_key, put_grant, remove_grant, revoke_key
from app.services.ledger.heads import Heads
from app.services.models import delete_model
from app.wire.keys import KeyIn
from tests.support import job_kinds, people, snapshot
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene, open_account
from tests.support.databases import on_one_database
from tests.support.member_scene import MemberScene
from tests.support.postgres import fresh_database

pytestmark = pytest.mark.contract

Restore = Callable[..., Restored]
"""``restore(accept_loss=False)``"""


@pytest.fixture
def empty_settings(
    scene: Scene, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Settings]:
    """An empty database of the scene's kind, and a home without anything."""
    with ExitStack() as databases:
        if scene.installation.database.dialect == "sqlite":
            url = f"sqlite:///{tmp_path / 'restored.sqlite3'}"
        else:
            url = databases.enter_context(
                fresh_database(request.getfixturevalue("postgres_url"))
            )
        yield Settings(home=tmp_path / "restored", database_url=url)


@pytest.fixture
def backup(scene: Scene, tmp_path: Path) -> Path:
    """A backup of the scene with one queued job."""
    scene.submit(key="before")
    make_backup(scene.installation, tmp_path / "backup")
    return tmp_path / "backup"


@pytest.fixture
def restore(scene: Scene, empty_settings: Settings, backup: Path) -> Restore:
    """Restores the backup, with the signing key and the heads that the scene has at
    that moment.
    """

    def run(*, accept_loss: bool = False) -> Restored:
        bring_keys_and_heads(scene.installation, empty_settings)
        return restore_backup(empty_settings, backup, accept_loss=accept_loss)

    return run


@pytest.fixture
def restored(scene: Scene, empty_settings: Settings) -> Iterator[Callable[[], Scene]]:
    """Opens the restored installation as a scene."""
    with ExitStack() as opened:

        def run() -> Scene:
            installation = Installation.open(empty_settings, pool_size=8)
            opened.callback(installation.close)
            return Scene(installation, scene.dataset_id)

        yield run


def bring_keys_and_heads(installation: Installation, settings: Settings) -> None:
    """Copies what an operator keeps apart from backups, as it is by now."""
    Heads(installation).publish()
    copy_keys_and_heads(installation, settings)


def copy_keys_and_heads(installation: Installation, settings: Settings) -> None:
    settings.home.mkdir(exist_ok=True)
    for key in ("signing.key", "storage.key"):
        shutil.copyfile(installation.home / key, settings.home / key)
    shutil.copytree(
        installation.home / "checkpoints",
        settings.home / "checkpoints",
        dirs_exist_ok=True,
    )


def _rows(url: str) -> snapshot.Rows:
    database = Database.open(url, pool_size=1)
    try:
        with database.engine.connect() as connection:
            return snapshot.rows_of(connection)
    finally:
        database.close()


def _is_empty(settings: Settings) -> bool:
    """Whether nothing was restored: neither a table nor a file, nor a mark."""
    with migrate.migration_transaction(settings.database_url) as connection:
        has_tables = bool(inspect(connection).get_table_names())
    kept = {"signing.key", "storage.key", "checkpoints"}
    files = {
        path.relative_to(settings.home).parts[0]
        for path in settings.home.rglob("*")
        if path.is_file()
    }
    return not has_tables and files <= kept


def _files(home: Path) -> dict[str, bytes]:
    paths = (
        path
        for folder in ("rows", "prints", "artifacts")
        for path in (home / folder).rglob("*")
    )
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in paths
        if path.is_file()
    }


def _acts(installation: Installation, kind: EntryKind) -> list[dict[str, object]]:
    with installation.database.read() as session:
        return control.details_of(session, kind)


def test_a_backup_is_whole_though_its_time_cannot_be_noted(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (scene.installation.home / NEWEST_BACKUP / "in the way").mkdir(parents=True)
    made = make_backup(scene.installation, tmp_path / "backup")
    signer = Signer.open(scene.installation.home / "signing.key", make=False)
    assert layout.Manifest.read(tmp_path / "backup", signer) == made
    assert "the backup is whole; its time could not be noted" in caplog.messages


@pytest.mark.parametrize("content", [b"", b"yesterday", b"\xff", None])
def test_a_damaged_time_of_the_newest_backup_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    mark = tmp_path / NEWEST_BACKUP
    if content is None:
        mark.mkdir()
    else:
        mark.write_bytes(content)
    assert newest_backup(tmp_path) is None
    assert caplog.messages == ["the time of the newest backup cannot be read"]


def test_a_restore_brings_back_every_row_and_file(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    model_id = job_kinds.model(scene, "a")
    assert newest_backup(scene.installation.home) is None
    made = make_backup(scene.installation, tmp_path / "backup")
    assert newest_backup(scene.installation.home) == made.made_at
    before, files = (
        _rows(scene.installation.settings.database_url),
        _files(scene.installation.home),
    )
    bring_keys_and_heads(scene.installation, empty_settings)
    result = restore_backup(empty_settings, tmp_path / "backup", accept_loss=False)
    assert (result.losses, result.problems) == ([], [])
    assert newest_backup(empty_settings.home) is None, "of this home there is none"
    assert _rows(empty_settings.database_url) == before
    assert _files(empty_settings.home) == files
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert not (empty_settings.home / UNFINISHED_RESTORE).exists()
    again = restored()
    Heads(again.installation).publish()
    job_kinds.model(again, "b")
    again.verified()
    body = b'{"rows":[{"age":30}]}'
    assert predict.predict(
        again.installation, OWNER, model_id, body
    ) == predict.predict(scene.installation, OWNER, model_id, body)


@on_one_database
def test_every_account_of_a_backup_has_a_head_when_it_is_made(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine may be lost right after it: an account without a head is closed, also
    one that was opened after the backup began.
    """
    copy = make._Backup.run

    def copy_with_another(backup: make._Backup) -> layout.Manifest:
        open_account(scene.installation, "ds_other", cap=5)
        return copy(backup)

    monkeypatch.setattr(make._Backup, "run", copy_with_another)
    make_backup(scene.installation, tmp_path / "backup")
    copy_keys_and_heads(scene.installation, empty_settings)
    result = restore_backup(empty_settings, tmp_path / "backup", accept_loss=False)
    assert (result.losses, result.problems) == ([], [])


def test_a_backup_moves_between_the_two_databases(
    scene: Scene, tmp_path: Path, request: pytest.FixtureRequest, backup: Path
) -> None:
    before = _rows(scene.installation.settings.database_url)
    with ExitStack() as databases:
        url = f"sqlite:///{tmp_path / 'other.sqlite3'}"
        if scene.installation.database.dialect == "sqlite":
            url = databases.enter_context(
                fresh_database(request.getfixturevalue("postgres_url"))
            )
        other = Settings(home=tmp_path / "other", database_url=url)
        bring_keys_and_heads(scene.installation, other)
        restore_backup(other, backup, accept_loss=False)
        assert _rows(url) == before


@on_one_database
def test_a_table_of_another_program_in_the_database_does_not_prevent_a_restore(
    scene: Scene, backup: Path, restore: Restore, empty_settings: Settings
) -> None:
    before = _rows(scene.installation.settings.database_url)
    with scene.installation.database.write() as session:
        session.execute(
            text("CREATE TABLE another (id INTEGER PRIMARY KEY, note TEXT)")
        )
        session.execute(text("INSERT INTO another VALUES (1, 'of somebody else')"))
    shutil.rmtree(backup)
    make_backup(scene.installation, backup)
    restore()
    assert _rows(empty_settings.database_url) == before


@on_one_database
def test_a_backup_has_no_key_and_no_head(backup: Path) -> None:
    names = {path.name for path in backup.rglob("*") if path.is_file()}
    assert not {name for name in names if name.endswith((".key", ".checkpoint"))} - {
        "fingerprint.key"
    }
    assert {
        oct(path.stat().st_mode & 0o777) for path in backup.rglob("*") if path.is_file()
    } == {"0o600"}


@on_one_database
def test_a_backup_that_is_not_whole_is_refused(
    restore: Restore, backup: Path, empty_settings: Settings
) -> None:
    rows = next(path for path in backup.rglob("*.parquet"))
    stranger = Signer.open(backup.with_name("stranger.key"), make=True)
    database, listed, note = (
        backup / "database.sqlite3",
        backup / "manifest.json",
        backup / "manifest.note",
    )
    damages: dict[str, Callable[[], object]] = {
        "a changed row": lambda: database.write_bytes(
            database.read_bytes().replace(b"census", b"cenzus")
        ),
        "a short database": lambda: database.write_bytes(database.read_bytes()[:-1]),
        "no database": database.unlink,
        "a changed file": lambda: rows.write_bytes(rows.read_bytes()[:-1] + b"!"),
        "a missing file": rows.unlink,
        "a changed manifest": lambda: listed.write_bytes(
            listed.read_bytes().replace(b'"format": 2', b'"format":  2')
        ),
        "a shorter manifest": lambda: listed.write_bytes(listed.read_bytes()[:-10]),
        "no signature": note.unlink,
        "another signer": lambda: note.write_text(
            stranger.sign_text(note.read_text().partition("\n\n")[0] + "\n")
        ),
    }
    whole = shutil.copytree(backup, backup.with_name("whole"))
    for name, damage in damages.items():
        damage()
        with pytest.raises(BackupDamaged, match="Nothing was restored"):
            restore()
        assert _is_empty(empty_settings), name
        shutil.rmtree(backup)
        shutil.copytree(whole, backup)
    restore()


@on_one_database
@pytest.mark.parametrize(
    ("used", "message"), [("tables", "is not empty"), ("rows", "has rows already")]
)
def test_a_backup_is_restored_into_an_empty_installation_only(
    restore: Restore, empty_settings: Settings, used: str, message: str
) -> None:
    if used == "tables":
        migrate.upgrade(empty_settings.database_url)
    else:
        (empty_settings.home / "rows").mkdir(parents=True)
        (empty_settings.home / "rows" / "another").touch()
    with pytest.raises(InstallationError, match=message):
        restore()
    assert (empty_settings.home / "rows").exists() == (used == "rows")


@on_one_database
def test_rows_that_no_storage_key_opens_are_not_restored(
    scene: Scene, backup: Path, restore: Restore, empty_settings: Settings
) -> None:
    bring_keys_and_heads(scene.installation, empty_settings)
    (empty_settings.home / "storage.key").write_text(StorageKeys.new_text())
    with pytest.raises(InstallationError, match="storage key"):
        restore_backup(empty_settings, backup, accept_loss=False)
    assert _is_empty(empty_settings)
    restore()


@on_one_database
def test_a_database_that_does_not_answer_leaves_a_restore_to_another_attempt(
    scene: Scene, backup: Path, restore: Restore, empty_settings: Settings
) -> None:
    bring_keys_and_heads(scene.installation, empty_settings)
    stopped = replace(
        empty_settings, database_url="postgresql://nobody@127.0.0.1:1/none"
    )
    with pytest.raises(
        InstallationError, match=r"does not answer \(.*; run the command"
    ):
        restore_backup(stopped, backup, accept_loss=False)
    restore()


@on_one_database
def test_a_restore_without_the_signing_key_advises_no_command_that_is_refused(
    backup: Path, empty_settings: Settings
) -> None:
    """A new key needs the database, which is not there yet."""
    with pytest.raises(
        InstallationError, match=r"signing\.key is missing\. Put it back$"
    ):
        restore_backup(empty_settings, backup, accept_loss=False)


@on_one_database
def test_a_backup_is_restored_from_a_folder_of_any_name_that_nobody_may_write(
    scene: Scene, backup: Path, empty_settings: Settings
) -> None:
    bring_keys_and_heads(scene.installation, empty_settings)
    odd = backup.rename(backup.with_name("back up?mode=rwc#1 %41"))
    odd.chmod(0o500)
    (odd / "database.sqlite3").chmod(0o400)
    restore_backup(empty_settings, odd, accept_loss=False)
    assert _rows(empty_settings.database_url) == _rows(
        scene.installation.settings.database_url
    )


@on_one_database
def test_a_backup_of_another_format_names_the_way_to_restore_it(
    scene: Scene, backup: Path, restore: Restore, empty_settings: Settings
) -> None:
    listed = (
        (backup / "manifest.json").read_bytes().replace(b'"format": 2', b'"format": 1')
    )
    (backup / "manifest.json").write_bytes(listed)
    signer = Signer.open(scene.installation.home / "signing.key", make=False)
    (backup / "manifest.note").write_text(signer.sign_text(layout._statement(listed)))
    with pytest.raises(BackupDamaged, match="restore it with the version that made it"):
        restore()
    assert _is_empty(empty_settings)


@on_one_database
def test_the_destination_of_a_backup_is_never_replaced(
    scene: Scene, backup: Path
) -> None:
    with pytest.raises(InstallationError, match="exists already"):
        make_backup(scene.installation, backup)


@on_one_database
def test_a_rewound_ledger_is_not_backed_up(scene: Scene, tmp_path: Path) -> None:
    heads = Heads(scene.installation)
    heads.publish()
    for file in (scene.installation.home / "checkpoints").glob("*.checkpoint"):
        file.write_text(file.read_text().replace("\n", "0\n", 2))
    with pytest.raises(InstallationError):
        make_backup(scene.installation, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_restore_never_rewinds_spent_budget(
    scene: Scene, restore: Restore, empty_settings: Settings
) -> None:
    scene.submit(key="after")
    with pytest.raises(
        EntriesMissing,
        match=f"{scene.dataset_id}: 2 entries in the backup, a head of 3",
    ):
        restore()
    assert _is_empty(empty_settings)


@on_one_database
def test_a_restore_loses_no_act_without_a_word(
    scene: Scene, restore: Restore, empty_settings: Settings
) -> None:
    """A key that was revoked since the backup would be accepted again."""
    revoke_key(scene.installation, ADMIN, STRANGER.key_id)
    with pytest.raises(EntriesMissing, match=f"\n  {control.CHAIN}: [^\n]*$"):
        restore()
    assert _is_empty(empty_settings)


def test_lost_entries_count_as_spent(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    open_account(scene.installation, "ds_other", cap=5)
    queued = scene.submit_job(key="before")
    make_backup(scene.installation, tmp_path / "backup")
    scene.submit(key="after")
    bring_keys_and_heads(scene.installation, empty_settings)
    result = restore_backup(empty_settings, tmp_path / "backup", accept_loss=True)
    assert [(loss.account_id, loss.n_entries) for loss in result.losses] == [
        (scene.dataset_id, 2)
    ]
    again = restored()
    Heads(again.installation).publish()
    with pytest.raises(BudgetExceeded):
        again.submit(key="later", epsilon="0.000000001")
    with pytest.raises(InvalidRequest):
        again.lower_cap("2", key="cap")
    assert again.end(queued) == ("failed", "lost", ["reserve"])
    summary = again.verified()
    assert (summary.cap, summary.highest_cap) == (0, 3 * 10**9)
    [lost] = _acts(again.installation, EntryKind.HISTORY_LOST)
    assert (lost["account"], lost["entries"]) == (scene.dataset_id, 2)
    assert [
        file.name for file in (empty_settings.home / "checkpoints").glob("*.lost")
    ] == [f"{scene.dataset_id}.3.lost"]
    with again.installation.database.read() as session:
        assert statements.balance(session, "ds_other").cap == 5, (
            "an account whose head was reached stays open"
        )
        assert statements.balance(session, scene.dataset_id).room == 0


@on_one_database
def test_a_later_restore_keeps_the_head_of_an_account_that_lost_entries_before(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    make_backup(scene.installation, tmp_path / "backup")
    scene.submit(key="after")
    bring_keys_and_heads(scene.installation, empty_settings)
    restore_backup(empty_settings, tmp_path / "backup", accept_loss=True)
    again = restored().installation
    make_backup(again, tmp_path / "later")
    url = f"sqlite:///{tmp_path / 'later.sqlite3'}"
    third = Settings(home=tmp_path / "third", database_url=url)
    bring_keys_and_heads(again, third)
    restore_backup(third, tmp_path / "later", accept_loss=False)
    assert list((third.home / "checkpoints").glob(f"{scene.dataset_id}.*.checkpoint"))


@on_one_database
def test_a_backup_without_heads_proves_nothing(
    scene: Scene,
    restore: Restore,
    empty_settings: Settings,
    backup: Path,
    restored: Callable[[], Scene],
) -> None:
    empty_settings.home.mkdir()
    for key in ("signing.key", "storage.key"):
        shutil.copyfile(scene.installation.home / key, empty_settings.home / key)
    with pytest.raises(EntriesMissing, match="no head"):
        restore_backup(empty_settings, backup, accept_loss=False)
    restore_backup(empty_settings, backup, accept_loss=True)
    again = restored()
    # keys that were revoked later may be among the keys of the backup
    with pytest.raises(Unauthenticated):
        again.submit(key="later")


@on_one_database
def test_keys_of_a_backup_that_lacks_acts_are_revoked(
    scene: Scene, restore: Restore, restored: Callable[[], Scene]
) -> None:
    revoke_key(scene.installation, ADMIN, STRANGER.key_id)
    restore(accept_loss=True)
    again = restored()
    revoked = {act["key"] for act in _acts(again.installation, EntryKind.KEY_REVOKED)}
    assert revoked == {OWNER.key_id, ADMIN.key_id, STRANGER.key_id}
    with pytest.raises(Unauthenticated):
        again.submit(key="later")


@pytest.fixture
def key_with_an_end(scene: Scene) -> str:
    """A key that the backup has, and that expires tomorrow."""
    tomorrow = stamps.to_text(stamps.now() + timedelta(days=1))
    body = {"name": "short", "roles": ["owner"], "expires_at": tomorrow}
    return create_key(scene.installation, ADMIN, KeyIn.model_validate(body)).id


@on_one_database
def test_a_key_that_expires_is_revoked_with_the_others(
    key_with_an_end: str,
    scene: Scene,
    restore: Restore,
    restored: Callable[[], Scene],
) -> None:
    """The lost acts may have revoked it, or moved its end."""
    revoke_key(scene.installation, ADMIN, STRANGER.key_id)
    restore(accept_loss=True)
    acts = _acts(restored().installation, EntryKind.KEY_REVOKED)
    assert key_with_an_end in {act["key"] for act in acts}


@pytest.fixture
def subject(scene: Scene) -> str:
    """A subject of an identity provider that has a grant when the backup is made."""
    now = stamps.now()
    token = Token("https://id.invalid", "ann", frozenset(), now, now)
    with scene.installation.database.write() as session:
        added = add_subject(session, token).id
    put_grant(scene.installation, OWNER, scene.dataset_id, added, role="owner")
    return added


@on_one_database
def test_a_subject_has_no_grant_of_a_backup_that_lacks_acts(
    subject: str, scene: Scene, restore: Restore, restored: Callable[[], Scene]
) -> None:
    """The lost act took the grant away, and the next token would admit the subject."""
    remove_grant(scene.installation, OWNER, scene.dataset_id, subject)
    restore(accept_loss=True)
    again = restored().installation
    with again.database.read() as session:
        assert granted_to(session, Principal(subject)) == {}
    removed = {"dataset": scene.dataset_id, "key": subject}
    assert _acts(again, EntryKind.GRANT_REMOVED) == [removed]


@on_one_database
def test_the_population_of_a_closed_member_is_closed(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    member = MemberScene.joined(scene)
    make_backup(scene.installation, tmp_path / "backup")
    scene.lower_cap("2", key="an entry that changes no load")
    bring_keys_and_heads(scene.installation, empty_settings)
    assert any(
        (empty_settings.home / "checkpoints").glob(
            f"{member.population_id}.*.checkpoint"
        )
    )
    restore_backup(empty_settings, tmp_path / "backup", accept_loss=True)
    with restored().installation.database.read() as session:
        assert statements.balance(session, member.population_id).cap == 0


@on_one_database
def test_the_places_of_a_unit_survive_a_restore(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    dataset = people.declared(scene.installation, privacy_unit=people.per_patient(2))[
        "id"
    ]
    people.upload(scene.installation, dataset, people.visits([("ann", 1), ("ben", 2)]))
    make_backup(scene.installation, tmp_path / "backup")
    # uploads have no entries
    people.upload(scene.installation, dataset, people.visits([("ann", 3)]))
    bring_keys_and_heads(scene.installation, empty_settings)
    assert (
        restore_backup(empty_settings, tmp_path / "backup", accept_loss=False).problems
        == []
    )
    again = restored().installation
    people.upload(again, dataset, people.visits([("ann", 4), ("ann", 5), ("ben", 6)]))
    assert [
        [age for _, age in epoch] for epoch in people.stored_rows(again, dataset)
    ] == [[1, 2], [4, 6]]


@on_one_database
def test_a_dataset_that_was_deleted_since_the_backup_stays_deleted(
    scene: Scene, backup: Path, restore: Restore, restored: Callable[[], Scene]
) -> None:
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    restore(accept_loss=True)
    again = restored().installation
    with again.database.read() as session:
        dataset = catalog.find(session, scene.dataset_id)
        assert dataset.is_deleted
        with pytest.raises(DatasetDeleted):
            dataset.data_key(again.storage_keys)
    assert list((again.home / "rows" / scene.dataset_id).iterdir()) == []
    assert {"dataset": scene.dataset_id} in _acts(again, EntryKind.DATASET_DELETED)


@on_one_database
def test_a_unit_that_was_erased_since_the_backup_stays_erased_in_every_upload(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    dataset = people.declared(scene.installation, privacy_unit=people.per_patient(3))[
        "id"
    ]
    for rows in ([("ann", 1), ("ben", 2)], [("cleo", 3)], [("ben", 4), ("ann", 5)]):
        people.upload(scene.installation, dataset, people.visits(rows))
    make_backup(scene.installation, tmp_path / "backup")
    erase_unit(scene.installation, OWNER, dataset, unit="ann")
    [record] = (scene.installation.home / "checkpoints" / "erasures").glob("*.unit")
    assert (
        people.id_of(scene.installation, dataset, "ann").hex() not in record.read_text()
    )
    bring_keys_and_heads(scene.installation, empty_settings)
    restore_backup(empty_settings, tmp_path / "backup", accept_loss=True)
    again = restored().installation
    assert [
        [age for _, age in epoch] for epoch in people.stored_rows(again, dataset)
    ] == [[2], [3], [4]]


@on_one_database
def test_rows_of_a_unit_that_came_after_its_erasure_are_restored(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    dataset = people.declared(scene.installation, privacy_unit=people.per_patient(3))[
        "id"
    ]
    people.upload(scene.installation, dataset, people.visits([("ann", 1), ("ben", 2)]))
    erase_unit(scene.installation, OWNER, dataset, unit="ann")
    people.upload(scene.installation, dataset, people.visits([("ann", 3)]))
    make_backup(scene.installation, tmp_path / "backup")
    bring_keys_and_heads(scene.installation, empty_settings)
    restore_backup(empty_settings, tmp_path / "backup", accept_loss=False)
    assert [
        [age for _, age in epoch]
        for epoch in people.stored_rows(restored().installation, dataset)
    ] == [[2], [3]]


@on_one_database
def test_an_upload_that_was_erased_since_the_backup_stays_erased(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    dataset = people.declared(scene.installation, privacy_unit=people.per_patient(3))[
        "id"
    ]
    bodies = (
        people.visits([("ann", 1), ("ben", 2), ("ann", 3)]),
        people.visits([("cleo", 4)]),
    )
    first, _ = (
        people.upload(scene.installation, dataset, body)["epoch"] for body in bodies
    )
    make_backup(scene.installation, tmp_path / "backup")
    erase_upload(scene.installation, OWNER, dataset, upload=first)
    bring_keys_and_heads(scene.installation, empty_settings)
    restore_backup(empty_settings, tmp_path / "backup", accept_loss=True)
    again = restored().installation
    assert [
        [age for _, age in epoch] for epoch in people.stored_rows(again, dataset)
    ] == [[], [4]]
    with again.database.read() as session:
        assert [
            bool(epoch.erased_at) for epoch in catalog.epochs(session, dataset)
        ] == [True, False]
        assert {"dataset": dataset, "upload": first} in control.details_of(
            session, EntryKind.UPLOAD_ERASED
        )


@on_one_database
def test_rows_of_an_upload_that_the_database_calls_erased_do_not_come_back(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
) -> None:
    """The rows were copied before the erasure, the database after it. The places are
    free, so no job may read the rows.

    The record of the erasure beside the heads is lost, too.
    """
    dataset = people.declared(scene.installation, privacy_unit=people.per_patient(1))[
        "id"
    ]
    upload = people.upload(scene.installation, dataset, people.visits([("ann", 1)]))[
        "epoch"
    ]
    rows = scene.installation.home / row_files.rows_name(dataset, upload)
    content = rows.read_bytes()
    erase_upload(scene.installation, OWNER, dataset, upload=upload)
    rows.write_bytes(content)
    make_backup(scene.installation, tmp_path / "backup")
    bring_keys_and_heads(scene.installation, empty_settings)
    for record in empty_settings.home.rglob(f"*{upload}*"):
        record.unlink()
    restore_backup(empty_settings, tmp_path / "backup", accept_loss=False)
    assert people.stored_rows(restored().installation, dataset) == [[]]


@on_one_database
def test_files_that_are_deleted_during_a_backup_are_left_out(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doomed = people.declared(scene.installation, privacy_unit=people.per_patient(2))[
        "id"
    ]
    people.upload(scene.installation, doomed, people.visits([("a", 1)]))
    model_id = job_kinds.model(scene, "a")
    deletions = [
        lambda: delete_model(scene.installation, OWNER, model_id),
        lambda: delete_dataset(scene.installation, OWNER, doomed),
    ]
    copy = layout.copy

    def copy_after_a_deletion(source: Path, target: Path) -> layout.FileFacts:
        if deletions:
            deletions.pop()()
        return copy(source, target)

    monkeypatch.setattr(layout, "copy", copy_after_a_deletion)
    made = make_backup(scene.installation, tmp_path / "backup")
    assert not [name for name in made.files if "artifacts" in name or doomed in name]
    written = [path for path in (tmp_path / "backup").rglob("*") if path.is_file()]
    names = {path.relative_to(tmp_path / "backup").as_posix() for path in written}
    assert names == {*made.files, "manifest.json", "manifest.note"}
    bring_keys_and_heads(scene.installation, empty_settings)
    assert (
        restore_backup(empty_settings, tmp_path / "backup", accept_loss=False).problems
        == []
    )


@on_one_database
def test_rows_that_are_erased_during_a_backup_are_left_out(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    restored: Callable[[], Scene],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first attempt copies the rows, and a second one the database after the erasure."""
    dataset = people.declared(scene.installation, privacy_unit=people.per_patient(3))[
        "id"
    ]
    people.upload(scene.installation, dataset, people.visits([("ann", 1), ("ben", 2)]))
    model_id = job_kinds.model(scene, "a")
    copy = layout.copy
    acts = [lambda: erase_unit(scene.installation, OWNER, dataset, unit="ann")]

    def copied(source: StoredFile, target: StoredFile) -> layout.FileFacts:
        if source.name.startswith("artifacts/") and acts:
            acts.pop()()
            delete_model(scene.installation, OWNER, model_id)
        return copy(source, target)

    monkeypatch.setattr(layout, "copy", copied)
    make_backup(scene.installation, tmp_path / "backup")
    bring_keys_and_heads(scene.installation, empty_settings)
    for record in empty_settings.home.rglob("*.unit"):
        record.unlink()
    restore_backup(empty_settings, tmp_path / "backup", accept_loss=False)
    assert [
        [age for _, age in epoch]
        for epoch in people.stored_rows(restored().installation, dataset)
    ] == [[2]]


@on_one_database
def test_a_repetition_that_fails_leaves_what_a_killed_restore_has_committed(
    scene: Scene,
    restore: Restore,
    empty_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        """Stands for the end of the process."""

    def killed(*_: object) -> None:
        raise Killed

    def unavailable(*_: object) -> None:
        raise Unavailable("the database is busy")

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(_Restore, "set_heads_aside", killed)
        restore()
    files = _files(empty_settings.home)
    assert files
    with monkeypatch.context() as patched, pytest.raises(Unavailable):
        patched.setattr(_Restore, "run", unavailable)
        restore()
    assert _files(empty_settings.home) == files
    assert (empty_settings.home / UNFINISHED_RESTORE).exists()
    restore()
    assert _files(empty_settings.home) == files == _files(scene.installation.home)

"""An upgrade while processes of the version before serve: they become unready, wait
briefly and lose nothing.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from app.api.authentication import confirm_upgraded
from app.core.errors import Unavailable
from app.db import migrate, revisions
from app.db.database import Database
from app.services.ledger.heads import Heads, HeadWriter
from tests.database.migrations.conftest import NextRevision
from tests.support.crash_scene import Scene, opened

_HEAD = revisions.head_revision()


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path / "home", epsilon="1000") as scene:
        yield scene


def test_a_running_process_is_unready_once_the_schema_is_newer(scene: Scene) -> None:
    heads = Heads(scene.installation)
    confirm_upgraded(heads)
    with scene.installation.database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'newer'"))
    writer = HeadWriter(heads)
    writer.start()
    writer.stop()
    with pytest.raises(Unavailable, match="db upgrade"):
        confirm_upgraded(heads)


def test_no_acknowledged_request_is_lost_by_an_upgrade(
    scene: Scene, next_revision: NextRevision
) -> None:
    next_revision.does(
        "with op.batch_alter_table('entries', recreate='always') as batch:",
        "    batch.add_column(sa.Column('note', sa.Text()))",
        "create_append_only_triggers(op.get_bind(), 'entries', key=('account_id', 'sequence'))",
    )
    acknowledged, others, is_upgraded = (
        list[str](),
        list[BaseException](),
        threading.Event(),
    )

    def submit(thread: int) -> None:
        number = after = 0
        while after < 3:
            after += is_upgraded.is_set()
            number += 1
            try:
                acknowledged.append(
                    scene.submit_job(key=f"{thread}-{number}", epsilon="0.001")
                )
            except Unavailable:
                continue
            except BaseException as error:  # noqa: BLE001 - the test fails in its own thread
                others.append(error)
                return

    threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 5:
        time.sleep(0.01)
    migrate.upgrade(scene.installation.settings.database_url)
    is_upgraded.set()
    for thread in threads:
        thread.join()
    assert others == []
    reserved = {
        entry.job_id for entry in scene.entries() if entry.kind.value == "reserve"
    }
    assert reserved == set(acknowledged)
    scene.verified()


def test_a_waiting_upgrade_does_not_block_the_service(
    postgresql_database_url: str, next_revision: NextRevision
) -> None:
    # has to lock the entries
    next_revision.does("op.add_column('entries', sa.Column('note', sa.Text()))")
    database = Database.open(postgresql_database_url, pool_size=2)
    upgrade = threading.Thread(target=migrate.upgrade, args=(postgresql_database_url,))
    with database.read() as long_reader:
        long_reader.execute(text("SELECT count(*) FROM entries"))
        upgrade.start()
        for _ in range(2):
            _wait_for_the_upgrade(database)
            # waits behind the upgrade, which has to give up first
            with database.read() as session:
                session.execute(text("SELECT count(*) FROM entries"))
        assert revisions.current_revision(postgresql_database_url) == _HEAD
    upgrade.join()
    assert revisions.current_revision(postgresql_database_url) == "next"
    database.close()


def _wait_for_the_upgrade(database: Database) -> None:
    """Waits until a transaction waits for a table."""
    waiting = 0
    while not waiting:
        with database.read() as session:
            query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
            waiting = session.execute(text(query)).scalar_one()

"""The clock of a machine that is wrong by hours stands in no entry, job or act:
PostgreSQL's clock counts.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from app.core import stamps
from app.ledger.tables import EntryKind
from app.services.datasets.erase import delete_dataset, erase_upload
from app.services.execution import run_job
from app.services.jobs import show_jobs
from app.services.keys import put_grant
from app.services.ledger.heads import checkpoint_of
from tests.support import job_kinds, people, snapshot
from tests.support.crash_scene import OWNER, STRANGER, Scene
from tests.support.ruled import set_rules

pytestmark = pytest.mark.contract


def _times(value: object, at: str) -> Iterator[tuple[str, datetime]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _times(item, f"{at}/{name}")
    elif isinstance(value, list):
        for item in value:
            yield from _times(item, at)
    elif isinstance(value, str):
        try:
            yield at, datetime.fromisoformat(value).astimezone(UTC)
        except ValueError:
            return


@pytest.mark.parametrize("ahead", [timedelta(hours=-7), timedelta(hours=7)])
def test_a_wrong_clock_of_a_machine_is_written_nowhere(
    postgresql_scene: Scene, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    scene, now = postgresql_scene, stamps.now
    # the scene may be a copy of one that an earlier test made, hours ago
    began = now() - timedelta(hours=6)
    set_rules(scene, erase_rows_at=stamps.to_text(now() + timedelta(hours=3)))
    with scene.installation.database.engine.connect() as connection:
        before = snapshot.rows_of(connection)
    monkeypatch.setattr(stamps, "now", lambda: now() + ahead)
    scene.submit(key="run")
    job_kinds.run(scene)
    cancelled = scene.submit_job(key="cancelled")
    show_jobs.cancel_job(scene.installation, OWNER, cancelled)
    scene.charge_external(key="external")
    scene.lower_cap("2", key="cap")
    dataset = people.declared(scene.installation)["id"]
    upload = people.upload(scene.installation, dataset, b"age,income\n1,low\n")["epoch"]
    put_grant(scene.installation, OWNER, dataset, STRANGER.key_id, role="analyst")
    erase_upload(scene.installation, OWNER, dataset, upload=upload)
    scene.submit(key="queued")
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert run_job.claim_next(scene.installation) is None
    with scene.installation.database.read() as session:
        assert (
            began
            < stamps.from_text(checkpoint_of(session, scene.dataset_id, 1).at)
            < now() + timedelta(minutes=1)
        )
    with scene.installation.database.engine.connect() as connection:
        after = snapshot.rows_of(connection)
    written = [
        (place, at)
        for table, rows in after.items()
        for row in rows
        if row not in before[table]
        for place, at in _times(row, table)
        if not place.endswith("erase_rows_at")
        and began.year - 1 < at.year < began.year + 2
    ]
    assert {
        "entries/at",
        "jobs/submitted_at",
        "jobs/charged_at",
        "jobs/finished_at",
        "grants/granted_at",
    } <= {place for place, _ in written}
    assert {kind for row in after["entries"] for kind in [row["kind"]]} >= {
        EntryKind.CHARGE, EntryKind.VOID, EntryKind.CAP, EntryKind.DATASET_DELETED, EntryKind.UPLOAD_ERASED,
    }  # fmt: skip
    wrong = {
        place for place, at in written if not began < at < now() + timedelta(minutes=1)
    }
    assert wrong == set()

"""What is stored about rows is encrypted, ends with the data key of the dataset, and
needs the storage key.
"""

import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, inspect, select, update
from typer.testing import CliRunner

from app.access.tables import AnswerRow
from app.cli.main import app as grovekeeper
from app.core.errors import DatasetDeleted, InstallationError
from app.core.sealed_files import StorageKeys
from app.datasets import catalog, private_rows, row_files
from app.datasets.catalog import DatasetRow
from app.datasets.private_rows import Selection
from app.db.database import database_file, parse_url
from app.jobs.states import EndReason, JobState
from app.ledger import control, tables
from app.services.datasets.erase import delete_dataset
from app.services.execution import run_job
from app.services.installation import PRIVATE_NAMES, Installation
from app.services.jobs.task import JobTask
from app.services.ledger.heads import confirm_storage_keys, rewrap_data_keys
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support import people
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import (
    claimed,
    must_not_run,
    run_here,
    submitted_and_claimed,
)
from tests.support.uploads import path_of

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

CANARY_AGES = (611, 613, 617)
VISITS = [(f"canary-{age}", age) for age in CANARY_AGES]


def _wrapped(installation: Installation, dataset: str) -> bytes | None:
    with installation.database.read() as session:
        return catalog.find(session, dataset).row.wrapped_key


def _database_files(installation: Installation) -> bytes:
    """The content of a SQLite database and its write-ahead log; nothing for PostgreSQL."""
    if installation.database.dialect == "postgresql":
        return b""
    file = database_file(parse_url(installation.settings.database_url))
    return b"".join(part.read_bytes() for part in file.parent.glob(f"{file.name}*"))


def test_no_file_of_the_home_shows_a_row_or_its_unit(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    people.upload(installation, dataset, people.visits(VISITS))
    files = [path for path in installation.home.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".parquet", ".prints", ".sqlite3"}
    ids = [people.id_of(installation, dataset, patient) for patient, _ in VISITS]
    key = people.data_key(installation, dataset)
    for path in files:
        content = path.read_bytes()
        assert b"canary" not in content, path
        assert b"PAR1" not in content, path
        assert key.secret not in content, path
        assert path.suffix == ".sqlite3" or not any(
            row_id in content for row_id in ids
        ), path


def test_the_data_key_ends_with_the_rows_and_leaves_no_trace(
    installation: Installation,
) -> None:
    dataset, other = (people.declared(installation)["id"] for _ in range(2))
    wrapped, kept = _wrapped(installation, dataset), _wrapped(installation, other)
    assert wrapped is not None
    assert kept is not None
    installation.database.forget_deleted()
    assert installation.database.dialect == "postgresql" or wrapped in _database_files(
        installation
    )
    delete_dataset(installation, OWNER, dataset)
    assert (_wrapped(installation, dataset), _wrapped(installation, other)) == (
        None,
        kept,
    )
    assert wrapped not in _database_files(installation)


def test_a_stored_report_is_sealed_and_ends_with_the_data_key(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    body = people.visits([*VISITS, *VISITS])
    report = people.upload(installation, dataset, body, key="k")
    assert report["dropped"] == {"without_unit": 0, "over_bound": 3}
    assert people.upload(installation, dataset, body, key="k") == report
    with installation.database.read() as session:
        stored = session.execute(
            select(AnswerRow).where(AnswerRow.idempotency_key == "k")
        ).scalar_one()
    assert b"dropped" not in stored.body
    assert report["epoch"].encode() not in stored.body
    delete_dataset(installation, OWNER, dataset)
    with pytest.raises(DatasetDeleted):
        people.upload(installation, dataset, body, key="k")


def test_a_job_of_a_dataset_without_a_data_key_is_not_charged(scene: Scene) -> None:
    job_id, claim = submitted_and_claimed(scene)
    with scene.installation.database.write() as session:
        row = catalog.locked(session, scene.dataset_id).row
        catalog.mark_deleted(row, at=row.created_at)
    run_here(scene.installation, claim, lambda _task, _kept: pytest.fail("the job ran"))
    assert scene.end(job_id) == ("cancelled", "dataset-erased", ["reserve", "void"])


def test_rows_of_one_dataset_are_not_read_as_rows_of_another(
    installation: Installation,
) -> None:
    datasets = [people.declared(installation)["id"] for _ in range(2)]
    for dataset in datasets:
        people.upload(installation, dataset, b"age,income\n1,low\n")
    ((one,), (other,)) = (people.files(installation, dataset) for dataset in datasets)
    path_of(one).write_bytes(other.file.read_bytes())
    schema = Schema.from_json(people.SCHEMA)
    with pytest.raises(InstallationError, match="absent, damaged"):
        private_rows.read([one], Selection(schema, Partitions(()), WHOLE))
    assert (
        len(private_rows.read([other], Selection(schema, Partitions(()), WHOLE)).y) == 1
    )


def test_a_wrapped_key_of_another_dataset_opens_nothing(
    installation: Installation,
) -> None:
    one, other = (people.declared(installation)["id"] for _ in range(2))
    with installation.database.write() as session:
        moved = (
            select(DatasetRow.wrapped_key)
            .where(DatasetRow.id == other)
            .scalar_subquery()
        )
        session.execute(
            update(DatasetRow).where(DatasetRow.id == one).values(wrapped_key=moved)
        )
    with pytest.raises(InstallationError, match="damaged"):
        people.upload(installation, one, b"age,income\n1,low\n")
    assert not (installation.home / row_files.ROWS_FOLDER / one).exists()


def _again(installation: Installation, **changes: str) -> Installation:
    """The same installation in a process that starts."""
    return replace(installation, settings=replace(installation.settings, **changes))


def _key_file(installation: Installation) -> Path:
    return installation.home / "storage.key"


def test_the_storage_key_is_made_once_and_is_private(
    installation: Installation,
) -> None:
    file = _key_file(installation)
    before = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    confirm_storage_keys(_again(installation))
    assert file.read_text() == before
    file.unlink()
    confirm_storage_keys(_again(installation))
    assert file.read_text() != before, "no dataset needs the first key"


def test_a_storage_key_that_datasets_need_is_never_made_anew(
    installation: Installation,
) -> None:
    people.declared(installation)
    file = _key_file(installation)
    file.unlink()
    with pytest.raises(
        InstallationError, match=r"storage key .*storage\.key is missing\. Put it back"
    ):
        confirm_storage_keys(_again(installation))
    assert not file.exists()
    other = StorageKeys.new_text()
    for setting in ({}, {"storage_key": other}):
        file.write_text(other)
        with pytest.raises(
            InstallationError,
            match=r"which this process does not have\. Put the key back",
        ):
            confirm_storage_keys(_again(installation, **setting))


def test_a_key_of_the_settings_is_used_and_no_file_is_made(
    installation: Installation,
) -> None:
    _key_file(installation).unlink()
    given = _again(installation, storage_key=StorageKeys.new_text())
    confirm_storage_keys(given)
    dataset = people.declared(given)["id"]
    people.upload(given, dataset, b"age,income\n1,low\n")
    assert len(people.stored_rows(given, dataset)[0]) == 1
    assert not _key_file(installation).exists()


def _rewrapped(installation: Installation) -> tuple[str, int]:
    return rewrap_data_keys(installation.settings, installation.database)


def _acts(installation: Installation) -> list[object]:
    with installation.database.read() as session:
        _, last = control.export_header(session)
        entries = tables.entries(session, control.CHAIN, after=0, limit=last)
        return [
            entry.details for entry in entries if entry.kind == "storage-key-changed"
        ]


@on_one_database
def test_keys_are_wrapped_anew_without_the_declared_columns(
    installation: Installation,
) -> None:
    """The columns of a wide dataset are five megabytes, and all datasets are locked."""
    people.declared(installation)
    file = _key_file(installation)
    file.write_text(StorageKeys.new_text() + file.read_text())
    unloaded = list[set[str]]()

    def note(row: DatasetRow, _: object) -> None:
        unloaded.append(set(inspect(row).unloaded))

    event.listen(DatasetRow, "load", note)
    _rewrapped(_again(installation))
    event.remove(DatasetRow, "load", note)
    assert unloaded
    assert all({"schema", "partitions"} <= each for each in unloaded)


def test_a_storage_key_is_replaced_without_touching_the_rows(
    installation: Installation,
) -> None:
    datasets = [people.declared(installation)["id"] for _ in range(3)]
    people.upload(installation, datasets[0], b"age,income\n1,low\n")
    delete_dataset(installation, OWNER, datasets[2])
    before = people.stored_rows(installation, datasets[0])
    file = _key_file(installation)
    old, new = file.read_text(), StorageKeys.new_text()

    file.write_text(new + old)
    both = _again(installation)
    confirm_storage_keys(both)
    n_living = len([wrapped for wrapped in _all_wrapped(installation) if wrapped])
    assert _rewrapped(both) == (StorageKeys.from_text(new).newest_id, n_living)
    assert _rewrapped(both)[1] == 0, "a repetition changes nothing"
    assert _acts(installation) == [
        {"storage_key": StorageKeys.from_text(new).newest_id}
    ]

    file.write_text(new)
    after = _again(installation)
    confirm_storage_keys(after)
    assert people.stored_rows(after, datasets[0]) == before
    file.write_text(old)
    with pytest.raises(InstallationError, match="which this process does not have"):
        confirm_storage_keys(_again(installation))


def test_the_command_wraps_keys_anew_and_says_how_many(
    installation: Installation,
) -> None:
    people.declared(installation)
    home, url = installation.home, installation.settings.database_url
    file = _key_file(installation)
    new = StorageKeys.new_text()
    file.write_text(new + file.read_text())
    arguments = ["db", "rewrap-keys", "--home", str(home), "--json"]
    n_living = len([wrapped for wrapped in _all_wrapped(installation) if wrapped])
    for n_wrapped in (n_living, 0):
        done = CliRunner().invoke(
            grovekeeper, arguments, env={"GROVEKEEPER_DATABASE_URL": url}
        )
        assert json.loads(done.stdout) == {
            "storage_key": StorageKeys.from_text(new).newest_id,
            "datasets": n_wrapped,
        }


def test_keys_are_not_wrapped_anew_while_a_key_is_missing(
    installation: Installation,
) -> None:
    people.declared(installation)
    before = _all_wrapped(installation)
    _key_file(installation).write_text(StorageKeys.new_text())
    with pytest.raises(InstallationError, match="which this process does not have"):
        _rewrapped(installation)
    assert _all_wrapped(installation) == before
    assert _acts(installation) == []


def _all_wrapped(installation: Installation) -> list[bytes | None]:
    with installation.database.read() as session:
        return list(
            session.execute(
                select(DatasetRow.wrapped_key).order_by(DatasetRow.id)
            ).scalars()
        )


def test_an_installation_that_is_opened_closes_its_private_files(
    installation: Installation,
) -> None:
    people.upload(
        installation, people.declared(installation)["id"], b"age,income\n1,low\n"
    )
    # the first job on a large upload makes it
    (installation.home / row_files.CODES_FOLDER).mkdir()
    names = [name for name in PRIVATE_NAMES if (installation.home / name).exists()]
    public = {"checkpoints", "erasures"}
    made = {
        path.name
        for path in installation.home.iterdir()
        if not path.name.startswith("grovekeeper.sqlite3")
    }
    assert (
        {"rows", "prints", "codes", "storage.key", "fingerprint.key"}
        <= set(names)
        == made - public
    )
    for name in names:
        (installation.home / name).chmod(0o755)
    Installation.open(installation.settings, pool_size=1).close()
    assert {
        stat.S_IMODE((installation.home / name).stat().st_mode) & 0o077
        for name in names
    } == {0}


def _flipped_at_the_start(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


def _flipped_in_the_middle(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def _cut(content: bytes) -> bytes:
    return content[:-20]


def _emptied(_: bytes) -> bytes:
    return b""


@on_one_database
@pytest.mark.parametrize(
    "damaged", [_flipped_at_the_start, _flipped_in_the_middle, _cut, _emptied]
)
def test_a_damaged_file_of_rows_fails_the_job_uncharged_with_a_reason_and_a_log_line(
    scene: Scene, damaged: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    (file,) = (
        path_of(file) for file in people.files(scene.installation, scene.dataset_id)
    )
    job = scene.submit_job(key="job")
    file.write_bytes(damaged(file.read_bytes()))
    run_here(scene.installation, claimed(scene.installation), must_not_run)
    assert scene.end(job) == (JobState.FAILED, EndReason.DAMAGED, ["reserve", "void"])
    (line,) = (record for record in caplog.records if "damaged" in record.message)
    assert (line.levelname, line.__dict__["upload_id"]) == ("ERROR", file.stem)
    assert not (scene.installation.home / "jobs" / job).exists()


@on_one_database
@pytest.mark.parametrize("of", ["upload", "dataset"])
def test_a_file_of_rows_in_the_place_of_another_fails_the_job_uncharged(
    scene: Scene, of: str
) -> None:
    """A copy of the rows of one upload under the name of another would be read twice,
    and its people would pay once.
    """
    other = (
        scene
        if of == "upload"
        else Scene(scene.installation, people.declared(scene.installation)["id"])
    )
    other.upload()
    source, target = (
        path_of(people.files(scene.installation, dataset)[place])
        for dataset, place in ((other.dataset_id, -1), (scene.dataset_id, 0))
    )
    job = scene.submit_job(key="job")
    shutil.copyfile(source, target)
    run_here(scene.installation, claimed(scene.installation), must_not_run)
    assert scene.end(job) == (JobState.FAILED, EndReason.DAMAGED, ["reserve", "void"])


def test_whether_a_job_is_charged_depends_on_no_row(scene: Scene) -> None:
    """What a file holds is not interpreted before the charge, not even its form."""
    (file,) = people.files(scene.installation, scene.dataset_id)
    with file.new(existing="replace") as writer:
        writer.write(b"no Parquet")
    job = scene.submit_job(key="job")

    def unreadable(_task: JobTask, _kept: object) -> None:
        raise run_job.JobFailed

    run_here(scene.installation, claimed(scene.installation), unreadable)
    assert scene.end(job) == (JobState.FAILED, EndReason.FAILED, ["reserve", "charge"])

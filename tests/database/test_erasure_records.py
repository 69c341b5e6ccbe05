"""Records of erasures beside the heads are signed and compared with the control chain:
at a start and at a restore.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.core.errors import InstallationError
from app.core.settings import Settings
from app.datasets import catalog
from app.datasets.erasure_log import ErasedUnit
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services.backup.make import make_backup
from app.services.backup.restore import restore_backup
from app.services.datasets.erase import delete_dataset, erase_upload
from app.services.datasets.unit_erasure import erase_unit
from app.services.installation import Installation
from app.services.ledger.heads import Heads, NotARecord, open_log
from tests.support import people
from tests.support.crash_scene import OWNER, open_copy
from tests.support.databases import CopiedDatabase
from tests.support.postgres import fresh_database

pytestmark = pytest.mark.contract

KINDS = ("dataset", "upload", "unit")


@dataclass(frozen=True)
class Original:
    """A closed installation, which tests copy: a backup with all rows, and then one
    erasure of each kind.
    """

    url: str
    home: Path
    backup: Path
    datasets: dict[str, str]
    """The dataset of each kind, and one from which nothing is erased."""


@dataclass(frozen=True)
class Estate:
    """A copy of the original, and the settings of an empty installation."""

    installation: Installation
    backup: Path
    datasets: dict[str, str]
    settings: Settings

    @property
    def records(self) -> Path:
        """The folder of the records."""
        return self.installation.home / "checkpoints" / "erasures"

    def record(self, kind: str) -> Path:
        """The file of the record of a kind."""
        [file] = self.records.glob(f"{self.datasets[kind]}*.{kind}")
        return file

    def start(self) -> None:
        """Starts a process: its first comparison."""
        Heads(self.installation).confirm()

    @contextmanager
    def restored(self) -> Iterator[Installation]:
        """Restores the backup, with the keys and the heads that the installation has
        now.
        """
        self.settings.home.mkdir(exist_ok=True)
        for key in ("signing.key", "storage.key"):
            shutil.copyfile(self.installation.home / key, self.settings.home / key)
        heads = self.settings.home / "checkpoints"
        shutil.rmtree(heads, ignore_errors=True)
        shutil.copytree(self.installation.home / "checkpoints", heads)
        restore_backup(self.settings, self.backup, accept_loss=True)
        installation = Installation.open(self.settings, pool_size=2)
        yield installation
        installation.close()

    def rows(self, installation: Installation, kind: str) -> list[int]:
        """The values that stand in the rows of a dataset; none of one that was deleted."""
        with installation.database.read() as session:
            if catalog.find(session, self.datasets[kind]).is_deleted:
                return []
        return [
            age
            for epoch in people.stored_rows(installation, self.datasets[kind])
            for _, age in epoch
        ]


on_one_original = pytest.mark.parametrize(
    "original",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)],
    indirect=True,
)
"""For rules about files beside the database."""


def _erased(installation: Installation, backup: Path) -> dict[str, str]:
    """Declares a dataset with rows for each kind and one more, makes a backup, which
    knows one erasure, and erases.
    """
    datasets, uploads = {}, {}
    for kind in (*KINDS, "living"):
        datasets[kind] = people.declared(
            installation, name=kind, privacy_unit=people.per_patient(3)
        )["id"]
        uploads[kind] = people.upload(
            installation, datasets[kind], people.visits([("ann", 1), ("ben", 2)])
        )
    earlier = people.declared(installation, name="earlier")["id"]
    delete_dataset(installation, OWNER, earlier)
    make_backup(installation, backup)
    delete_dataset(installation, OWNER, datasets["dataset"])
    erase_upload(
        installation, OWNER, datasets["upload"], upload=uploads["upload"]["epoch"]
    )
    erase_unit(installation, OWNER, datasets["unit"], unit="ann")
    Heads(installation).publish()
    return datasets


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def original(
    request: pytest.FixtureRequest,
    copied_database: CopiedDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Original]:
    """Made once on each database: its uploads and erasures take a third of the time of
    a test.
    """
    url, home = request.getfixturevalue(f"_scene_on_{request.param}")
    folder = tmp_path_factory.mktemp("estate")
    shutil.copytree(home, folder / "home")
    with copied_database(url, folder) as copy:
        installation = open_copy(copy, folder / "home")
        datasets = _erased(installation, folder / "backup")
        installation.close()
        yield Original(copy, folder / "home", folder / "backup", datasets)


@pytest.fixture
def estate(
    original: Original,
    copied_database: CopiedDatabase,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Iterator[Estate]:
    shutil.copytree(original.home, tmp_path / "home")
    with ExitStack() as stack:
        installation = open_copy(
            stack.enter_context(copied_database(original.url, tmp_path)),
            tmp_path / "home",
        )
        stack.callback(installation.close)
        if installation.database.dialect == "sqlite":
            url = f"sqlite:///{tmp_path / 'restored.sqlite3'}"
        else:
            url = stack.enter_context(
                fresh_database(request.getfixturevalue("postgres_url"))
            )
        settings = Settings(home=tmp_path / "restored", database_url=url)
        yield Estate(installation, original.backup, original.datasets, settings)


def test_a_restore_applies_signed_records(estate: Estate) -> None:
    estate.start()
    with estate.restored() as again:
        assert {kind: estate.rows(again, kind) for kind in estate.datasets} == {
            "dataset": [], "upload": [], "unit": [2], "living": [1, 2],
        }  # fmt: skip
        Heads(again).confirm()


@on_one_original
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_with_line_ends_of_another_system_is_applied(
    estate: Estate, kind: str
) -> None:
    record = estate.record(kind)
    record.write_bytes(record.read_bytes().replace(b"\n", b"\r\n"))
    estate.start()
    with estate.restored() as again:
        assert estate.rows(again, kind) == ([2] if kind == "unit" else [])


@on_one_original
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_record_refuses_a_restore_that_needs_it(
    estate: Estate, kind: str
) -> None:
    estate.record(kind).unlink()
    with (
        pytest.raises(InstallationError, match="1 of the records of erasures"),
        estate.restored(),
    ):
        raise AssertionError("it was restored")


@on_one_original
@pytest.mark.parametrize("kind", ["dataset", "upload"])
def test_a_start_writes_a_missing_record_again_from_the_control_chain(
    estate: Estate, kind: str
) -> None:
    kept = estate.record(kind).read_bytes()
    estate.record(kind).unlink()
    estate.start()
    assert estate.record(kind).read_bytes() == kept
    with estate.restored() as again:
        assert estate.rows(again, kind) == []


def test_a_missing_record_of_a_unit_is_reported_at_a_start(
    estate: Estate, caplog: pytest.LogCaptureFixture
) -> None:
    """No act has the row id of the unit, so nobody can write the record again; the rows
    themselves are gone.
    """
    estate.record("unit").unlink()
    estate.start()
    assert (
        "a record of an erased unit is missing beside the heads; put the folder erasures back"
        in caplog.text
    )


@on_one_original
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_in_the_place_of_another_counts_as_missing(
    estate: Estate, kind: str
) -> None:
    """A signed record says its own name: a copy under another name erases nothing and
    replaces nothing.
    """
    other = estate.record(next(each for each in KINDS if each != kind))
    estate.record(kind).write_bytes(other.read_bytes())
    with pytest.raises(InstallationError, match="record"), estate.restored():
        raise AssertionError("it was restored")


@pytest.mark.covering("kind", "content")
@on_one_original
@pytest.mark.parametrize("content", [b"", b"{}", None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_nobody_signed_erases_no_living_row(
    estate: Estate, kind: str, content: bytes | None
) -> None:
    living = estate.datasets["living"]
    [epoch] = people.files(estate.installation, living)
    middle = {
        "dataset": "",
        "upload": f".{epoch.file.name.rpartition('/')[2].partition('.')[0]}",
        "unit": ".00ff00ff",
    }
    forged = estate.records / f"{living}{middle[kind]}.{kind}"
    forged.write_bytes(estate.record(kind).read_bytes() if content is None else content)
    with pytest.raises(NotARecord, match=forged.name):
        estate.start()
    with (
        pytest.raises(NotARecord, match="Put the file back from a copy"),
        estate.restored(),
    ):
        raise AssertionError("it was restored")
    forged.unlink()
    estate.start()
    with estate.restored() as again:
        assert estate.rows(again, "living") == [1, 2]


@on_one_original
def test_records_of_an_earlier_version_are_signed_at_the_first_start(
    estate: Estate,
) -> None:
    """As 0.1.0 wrote them: empty files, and JSON for a unit, whose act names no record."""
    installation, dataset = estate.installation, estate.datasets["unit"]
    with installation.database.read() as session:
        key = catalog.find(session, dataset).data_key(installation.storage_keys)
    [unit] = open_log(installation).units(dataset, key=key)
    assert isinstance(unit, ErasedUnit)
    facts = next(
        facts
        for name, facts in open_log(installation).records.items()
        if name.endswith(".unit")
    )
    estate.record("unit").unlink()
    for kind in ("dataset", "upload"):
        estate.record(kind).write_bytes(b"")
    with installation.database.write() as session:
        control.record(
            session, EntryKind.UNIT_ERASED, actor=OWNER.key_id, dataset=dataset
        )
    old = estate.records / f"{dataset}.0123456789abcdef.unit"
    content = (
        f'{{"last_upload": {facts["last_upload"]}, "row_id": "{facts["row_id"]}"}}'
    )
    old.write_text(content)
    with pytest.raises(NotARecord), estate.restored():
        raise AssertionError("it was restored")
    estate.start()
    assert not open_log(installation).unsigned
    assert [each.row_id for each in open_log(installation).units(dataset, key=key)] == [
        unit.row_id
    ]
    old.with_name(f"{dataset}.0000000000000000.unit").write_text(content)
    with pytest.raises(NotARecord):
        estate.start()

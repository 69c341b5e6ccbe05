"""The first start: the home is made first, and no secret is lost on the way to the
disk.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import func, select
from typer.testing import CliRunner

from app.access import keys
from app.access.keys import NewKey
from app.access.tables import KeyRow
from app.cli import prepare as preparing
from app.cli.main import app as grovekeeper
from app.cli.prepare import opened, prepare, upgrade
from app.core import stamps
from app.core.errors import InstallationError, Unauthenticated
from app.core.settings import Settings
from app.db.database import database_file, parse_url
from app.services.keys import ensure_first_admin
from grovekeeper_common import durable_files

pytestmark = pytest.mark.contract

NAMES = ["what?", "a#b", "50%", "%41", "two words", "a@b", "é", "semi;colon", "a&b=c"]


@pytest.mark.parametrize("name", NAMES)
def test_a_home_of_any_name_holds_its_database(tmp_path: Path, name: str) -> None:
    home = tmp_path / name / "home"
    settings = Settings.from_environment({"GROVEKEEPER_HOME": str(home)})
    assert (
        database_file(parse_url(settings.database_url)) == home / "grovekeeper.sqlite3"
    )
    prepare(settings)
    assert (home / "grovekeeper.sqlite3").is_file()
    assert {entry.name for entry in tmp_path.iterdir()} == {name}
    assert {entry.name for entry in (tmp_path / name).iterdir()} == {"home"}


def test_a_home_that_does_not_exist_yet_gets_the_first_key(
    empty_database_url: str, tmp_path: Path
) -> None:
    """On PostgreSQL, the database may have been upgraded from another machine, with
    another home.
    """
    upgrade(Settings(home=tmp_path / "first", database_url=empty_database_url))
    settings = Settings(
        home=tmp_path / "missing" / "second", database_url=empty_database_url
    )
    prepare(settings)
    text = (settings.home / "admin.key").read_text().strip()
    with opened(settings) as database:
        assert ensure_first_admin(database, text) is None, (
            "the key of the file is registered"
        )


def test_a_key_that_cannot_be_written_is_not_committed(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path / "home", database_url=empty_database_url)
    upgrade(settings)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(preparing.durable_files, "write", full)
        with pytest.raises(OSError, match="No space"):
            prepare(settings)
    prepare(settings)
    assert (settings.home / "admin.key").read_bytes(), "the next start makes the key"
    again = replace(settings, home=tmp_path / "other")
    durable_files.make_folder(again.home)
    prepare(again)
    assert not (again.home / "admin.key").exists(), "one first key"


def test_servers_that_start_at_once_make_one_key(
    empty_database_url: str, tmp_path: Path
) -> None:
    upgrade(Settings(home=tmp_path, database_url=empty_database_url))
    homes = [tmp_path / f"home{number}" for number in range(6)]
    together = Barrier(len(homes))

    def start(home: Path) -> None:
        together.wait()
        prepare(Settings(home=home, database_url=empty_database_url))

    with ThreadPoolExecutor(len(homes)) as starts:
        list(starts.map(start, homes))
    (file,) = [home / "admin.key" for home in homes if (home / "admin.key").exists()]
    with opened(Settings(home=tmp_path, database_url=empty_database_url)) as database:
        assert ensure_first_admin(database, file.read_text().strip()) is None
        with database.read() as session:
            assert session.scalar(select(func.count()).select_from(KeyRow)) == 1


def test_a_key_of_a_home_that_was_revoked_is_not_registered_again(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    settings = Settings(home=home, database_url=f"sqlite:///{home}/a.sqlite3")
    prepare(settings)
    text = (home / "admin.key").read_text().strip()
    made = list[NewKey]()
    with opened(settings) as database:
        key_id = text.split(".")[0]
        with database.write() as session:
            keys.find(session, key_id).revoked_at = stamps.now()
        ensure_first_admin(database, None, of_file=text, keep=made.append)
        with database.read() as session, pytest.raises(Unauthenticated):
            keys.authenticate(session, text)
    assert [key.id for key in made] != [key_id]
    assert len(made) == 1


def test_a_subject_of_a_provider_is_no_first_key(tmp_path: Path) -> None:
    """Its roles are those of a token, which may never come again."""
    settings = Settings(home=tmp_path, database_url=f"sqlite:///{tmp_path}/a.sqlite3")
    upgrade(settings)
    made = list[NewKey]()
    now = stamps.now()
    subject = KeyRow(
        id="key_subject", name="ann", issuer="https://id.example", roles=["admin"],
        roles_at=now, created_at=now,
    )  # fmt: skip
    with opened(settings) as database:
        with database.write() as session:
            session.add(subject)
        ensure_first_admin(database, None, keep=made.append)
    assert len(made) == 1


def test_the_key_of_a_home_is_the_first_key_of_each_of_its_databases(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    first, second = [
        Settings(home=home, database_url=f"sqlite:///{home}/{name}.sqlite3")
        for name in ("a", "b")
    ]
    prepare(first)
    text = (home / "admin.key").read_text()
    prepare(second)
    assert (home / "admin.key").read_text() == text
    for settings in (first, second):
        with opened(settings) as database, database.read() as session:
            assert keys.authenticate(session, text.strip()).key_id == text.split(".")[0]


@pytest.mark.parametrize("earlier", [b"no key", b"\xff"])
def test_a_file_that_holds_no_key_is_kept(tmp_path: Path, earlier: bytes) -> None:
    (tmp_path / "admin.key").write_bytes(earlier)
    prepare(Settings(home=tmp_path, database_url=f"sqlite:///{tmp_path}/a.sqlite3"))
    (kept,) = tmp_path.glob("admin.key.before-*")
    assert kept.read_bytes() == earlier
    assert (
        kept.name.removeprefix("admin.key.before-")
        == (tmp_path / "admin.key").read_text().split(".")[0]
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:SECRET@SECRET@host/db",
        "postgres://user:1@SECRET@host:5432/db?sslmode=require",
        "postgresql://u:a@b:SECRET@host/db",
        "postgresql://u:p@SECRET?x@host/db",
        "postgresql://:p@SECRET@host/db",
        "postgresql://us/er:SECRET@host/db",
        "postgresql://u@corp:SECRET@host/db",
        "postgresql://host:SECRET/db",
    ],
)
def test_an_address_with_an_unquoted_sign_is_refused_and_not_shown(
    url: str, tmp_path: Path
) -> None:
    environ = {"GROVEKEEPER_HOME": str(tmp_path), "GROVEKEEPER_DATABASE_URL": url}
    ended = CliRunner().invoke(grovekeeper, ["db", "upgrade"], env=environ)
    assert (
        ended.exit_code,
        "database address" in ended.output,
        "SECRET" in ended.output,
    ) == (1, True, False)
    assert isinstance(ended.exception, SystemExit), "no traceback"


def test_a_quoted_sign_is_a_part_of_the_password() -> None:
    assert parse_url("postgresql://u:p%40ss@host/db").password == "p@ss"


def test_a_umask_that_locks_the_service_out_is_named(
    empty_database_url: str, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path / "home", database_url=empty_database_url)
    before = os.umask(0o777)
    try:
        with pytest.raises(InstallationError, match="the umask 0777 takes"):
            upgrade(settings)
        for command in ("api", "worker"):
            ended = CliRunner().invoke(grovekeeper, [command])
            assert "the umask 0777 takes" in ended.stderr
        assert os.umask(0o777) == 0o777, "it stays as it was"
    finally:
        os.umask(before)
    assert not settings.home.exists()

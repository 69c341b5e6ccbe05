"""The first start: the home is made first, and no secret is lost on the way to the disk."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.cli import prepare as preparing
from app.cli.prepare import opened, prepare, upgrade
from app.core import files
from app.core.errors import InstallationError
from app.core.settings import Settings
from app.db.database import database_file, parse_url
from app.services.keys import ensure_first_admin

NAMES = ["what?", "a#b", "50%", "%41", "two words", "a@b", "é", "semi;colon", "a&b=c"]


@pytest.mark.parametrize("name", NAMES)
def test_a_home_of_any_name_holds_its_database(tmp_path: Path, name: str) -> None:
    home = tmp_path / name / "home"
    settings = Settings.from_environment({"GROVEKEEPER_HOME": str(home)})
    assert database_file(parse_url(settings.database_url)) == home / "grovekeeper.sqlite3"
    prepare(settings)
    assert (home / "grovekeeper.sqlite3").is_file()
    assert {entry.name for entry in tmp_path.iterdir()} == {name}
    assert {entry.name for entry in (tmp_path / name).iterdir()} == {"home"}


def test_a_home_that_does_not_exist_yet_gets_the_first_key(empty_database_url: str, tmp_path: Path) -> None:
    """On PostgreSQL, the database may have been upgraded from another machine, with another home."""
    upgrade(Settings(home=tmp_path / "first", database_url=empty_database_url))
    settings = Settings(home=tmp_path / "missing" / "second", database_url=empty_database_url)
    prepare(settings)
    text = (settings.home / "admin.key").read_text().strip()
    with opened(settings) as database:
        assert ensure_first_admin(database, text) is None, "the key of the file is registered"


def test_a_key_that_cannot_be_written_is_not_committed(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path / "home", database_url=empty_database_url)
    upgrade(settings)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(preparing.files, "write", full)
        with pytest.raises(OSError, match="No space"):
            prepare(settings)
    prepare(settings)
    assert (settings.home / "admin.key").read_bytes(), "the next start makes the key"
    again = replace(settings, home=tmp_path / "other")
    files.make_folder(again.home)
    prepare(again)
    assert not (again.home / "admin.key").exists(), "one first key"


@pytest.mark.parametrize("url", ["postgresql://u:p@ss@host/db", "postgres://user:1@2@host:5432/db?sslmode=require"])
def test_a_password_with_an_unquoted_sign_is_named_and_not_shown(url: str) -> None:
    with pytest.raises(InstallationError, match="%40") as refused:
        parse_url(url)
    assert "ss" not in str(refused.value).replace("password", "").replace("address", "")
    assert parse_url("postgresql://u:p%40ss@host/db").password == "p@ss"

"""Tests how addresses of databases are read."""

from pathlib import Path

import pytest

from app.core.errors import InstallationError
from app.db.database import database_file, dialect_of, open_engine, parse_url


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_every_spelling_of_postgresql_gets_the_driver_psycopg(scheme: str) -> None:
    url = parse_url(f"{scheme}://user:p%40ss@host:5433/name?sslmode=require")
    assert (url.drivername, dialect_of(url)) == ("postgresql+psycopg", "postgresql")
    assert (url.password, url.port, url.query["sslmode"]) == ("p@ss", 5433, "require")


def test_a_sqlite_address_names_a_file() -> None:
    url = parse_url("sqlite:////var/lib/a b/db.sqlite3")
    assert (dialect_of(url), database_file(url)) == ("sqlite", Path("/var/lib/a b/db.sqlite3"))


@pytest.mark.parametrize(
    "address",
    [
        "",
        "SECRET",
        "mysql://SECRET@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////f?mode=SECRET",
        "http://SECRET",
    ],
)
def test_other_addresses_are_refused_and_not_shown(address: str) -> None:
    with pytest.raises(InstallationError) as raised:
        parse_url(address)
    assert "SECRET" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_a_database_in_a_missing_folder_is_an_installation_error(tmp_path: Path) -> None:
    with pytest.raises(InstallationError):
        open_engine(parse_url(f"sqlite:///{tmp_path / 'missing' / 'db'}"))

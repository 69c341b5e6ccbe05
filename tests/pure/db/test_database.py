"""Tests how addresses of databases are read."""

from pathlib import Path

import pytest

from app.core.errors import InstallationError
from app.db.database import database_file, dialect_of, open_engine, parse_url


@pytest.mark.parametrize(
    "scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"]
)
def test_every_spelling_of_postgresql_gets_the_driver_psycopg(scheme: str) -> None:
    url = parse_url(f"{scheme}://user:p%40ss@host:5433/name?sslmode=require")
    assert (url.drivername, dialect_of(url)) == ("postgresql+psycopg", "postgresql")
    assert (url.password, url.port, url.query["sslmode"]) == ("p@ss", 5433, "require")


def test_a_sqlite_address_names_a_file() -> None:
    url = parse_url("sqlite:////var/lib/a b/db.sqlite3")
    assert (dialect_of(url), database_file(url)) == (
        "sqlite",
        Path("/var/lib/a b/db.sqlite3"),
    )


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
        "postgresql://u:SECRET@a..b/d",
        f"postgresql://u:SECRET@{'a' * 64}/d",
        "postgresql://u:SECRET@127.0.0.1/d?host=a..b",
        "postgresql://u:SECRET@h/d?port=SECRET",
        "postgresql://u:SECRET@h/d?connect_timeout=SECRET",
        "postgresql://u:SECRET@h/d?SECRET=1",
    ],
)
def test_other_addresses_are_refused_and_not_shown(address: str) -> None:
    with pytest.raises(InstallationError) as raised:
        parse_url(address)
    assert "SECRET" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_a_database_in_a_missing_folder_is_an_installation_error(
    tmp_path: Path,
) -> None:
    with pytest.raises(InstallationError):
        open_engine(parse_url(f"sqlite:///{tmp_path / 'missing' / 'db'}"))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:///d",
        "postgresql://u@h1,h2/d",
        "postgresql:///d?host=h1:1&host=h2",
        f"postgresql:///d?host=/{'run/' * 20}",
        "postgresql://u@[::1]:5433/d?connect_timeout=3&sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql://u@b\u00fccher.example/d",
    ],
)
def test_every_form_of_a_host_is_read(address: str) -> None:
    assert dialect_of(parse_url(address)) == "postgresql"

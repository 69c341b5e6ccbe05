"""The upgrade to 0029 names public datasets and models without privacy, and removes what is left of erased ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from app.core.errors import InstallationError
from app.db import migrate, revisions
from app.db.database import parse_url
from tests.support import snapshot

BEFORE = "0028"


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = create_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _copied(connection: Connection, table: str, of: str, **changes: object) -> None:
    """Adds a copy of a row with other values."""
    row: dict[str, Any] = dict(connection.execute(text(f'SELECT * FROM "{table}" WHERE {of}')).mappings().first() or {})
    row |= changes
    names = ", ".join(f'"{name}"' for name in row)
    values = ", ".join(f":{name}" for name in row)
    connection.execute(text(f'INSERT INTO "{table}" ({names}) VALUES ({values})'), row)


@pytest.fixture
def installed_before(empty_database_url: str) -> str:
    """A database of 0028 with a public dataset, a model and an evaluation of its rows."""
    migrate.upgrade(empty_database_url, revision=BEFORE)
    with migrate.migration_transaction(empty_database_url) as connection:
        snapshot.load(connection, BEFORE)
        living = "name = 'labs'"
        public = {"id": "ds_public", "name": "open", "living_name": "open", "visibility": "public", "population": None}
        _copied(connection, "datasets", living, **public)
        _copied(connection, "epochs", "erased_at IS NULL", id="ep_public", dataset_id="ds_public")
        _copied(connection, "grants", "role = 'analyst'", dataset_id="ds_public")
        model = {"id": "md_public", "dataset_id": "ds_public", "dataset_name": "open", "privacy": "none"}
        _copied(connection, "models", "id IS NOT NULL", **model, digest="d" * 64, job_id="jb_public")
        _copied(connection, "jobs", "kind = 'train'", id="jb_public", dataset_id="ds_public", reads="ds_public")
        _copied(connection, "job_datasets", "job_id IS NOT NULL", job_id="jb_public", dataset_id="ds_public")
        _copied(connection, "evaluations", "id IS NOT NULL", id="ev_public", dataset_id="ds_public", job_id="jb_eval")
        _copied(connection, "evaluated_models", "evaluation_id IS NOT NULL", evaluation_id="ev_public")
    return empty_database_url


def _rows(url: str) -> snapshot.Rows:
    with _connected(url) as connection:
        return snapshot.rows_of(connection)


def _of_columns(rows: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that later revisions added."""
    return [{name: row[name] for name in earlier[0]} for row in rows]


def _erase(connection: Connection) -> None:
    """What ``grovekeeper datasets delete`` of the version before does to the row."""
    changes = "deleted_at = created_at, living_name = NULL, wrapped_key = NULL, jobs_ended_at = created_at"
    connection.execute(text(f"UPDATE datasets SET {changes} WHERE id = 'ds_public'"))


def test_an_upgrade_names_public_datasets_and_their_models_and_changes_nothing(installed_before: str) -> None:
    before = _rows(installed_before)
    with pytest.raises(InstallationError) as refusal:
        migrate.upgrade(installed_before)
    words = str(refusal.value)
    assert "nothing was changed" in words
    assert "open (ds_public)" in words
    assert "open (md_public)" in words
    for command in ("models download", "evaluations list", "models delete", "datasets delete"):
        assert f"grovekeeper {command}" in words
    assert "benchmarks/papers/forests" in words
    assert _rows(installed_before) == before
    assert revisions.current_revision(installed_before) == BEFORE


def test_a_model_without_privacy_is_named_after_its_dataset_was_erased(installed_before: str) -> None:
    with _connected(installed_before) as connection:
        _erase(connection)
    with pytest.raises(InstallationError, match=r"Public datasets: none\. Models without privacy.*md_public"):
        migrate.upgrade(installed_before)


def test_nothing_of_an_erased_public_dataset_is_left_and_every_other_row_stays(installed_before: str) -> None:
    before = snapshot.stored(BEFORE)
    with _connected(installed_before) as connection:
        _erase(connection)
        connection.execute(text("DELETE FROM models WHERE privacy = 'none'"))
    migrate.upgrade(installed_before)
    after = _rows(installed_before)
    assert before.keys() - after.keys() == {"authority_leases"}
    for table in before.keys() & after.keys():
        assert _of_columns(after[table], before[table]) == before[table], table


def test_processes_of_the_version_before_write_their_columns_until_their_jobs_end(installed_before: str) -> None:
    with _connected(installed_before) as connection:
        _erase(connection)
        connection.execute(text("DELETE FROM models WHERE privacy = 'none'"))
    migrate.upgrade(installed_before)
    with _connected(installed_before) as connection:
        _copied(connection, "models", "id IS NOT NULL", id="md_late", privacy="differential")
        _copied(connection, "datasets", "name = 'labs'", id="ds_late", name="late", living_name="late")
    for table, changes in (
        ("models", {"id": "md_public", "privacy": "none"}),
        ("datasets", {"id": "ds_public", "name": "open", "living_name": "open", "visibility": "public"}),
    ):
        with pytest.raises(Exception, match="known"), _connected(installed_before) as connection:
            _copied(connection, table, "id IS NOT NULL", **changes)

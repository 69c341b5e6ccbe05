"""A database whose disk is full refuses as ``/readyz`` does, and the log names the
code of the error.
"""

import io
import json

import pytest
from sqlalchemy import text

from app.core import limits, logging
from app.core.errors import Unavailable
from app.db.database import Database

_FULL = {
    # no page beyond those that the file has
    "sqlite": [
        "PRAGMA max_page_count = 1",
        "CREATE TABLE notes AS SELECT zeroblob(9999999)",
    ],
    "postgresql": ["DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$"],
}


def test_a_full_disk_is_told_and_its_code_is_logged(database_url: str) -> None:
    lines = io.StringIO()
    logging.configure("WARNING", stream=lines)
    database = Database.open(database_url)
    with (
        pytest.raises(Unavailable, match=r"^the disk is full$") as refusal,
        database.write() as session,
    ):
        for statement in _FULL[database.dialect]:
            session.execute(text(statement))
    database.close()
    assert refusal.value.retry_after_s == limits.DISK_RETRY_S
    error = json.loads(lines.getvalue())["error"]
    is_sqlite = database.dialect == "sqlite"
    assert error.get("code") == ("SQLITE_FULL" if is_sqlite else None)
    assert "notes" not in lines.getvalue()

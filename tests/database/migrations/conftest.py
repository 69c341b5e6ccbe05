"""Provides a revision after the newest, which a test writes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import revisions

_ROOT = Path(__file__).parents[3]
_NEXT = """
import sqlalchemy as sa
from alembic import op
from app.db.append_only import create_append_only_triggers

revision = "next"
down_revision = "{head}"


def upgrade() -> None:
{body}
"""


@pytest.fixture
def next_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator["NextRevision"]:
    folder = tmp_path / "migrations"
    shutil.copytree(_ROOT / "migrations", folder)
    head = revisions.head_revision()
    monkeypatch.setattr(revisions, "script_folder", lambda: folder)
    revisions.known_revisions.cache_clear()
    yield NextRevision(folder / "versions" / "next.py", head)
    revisions.known_revisions.cache_clear()


class NextRevision:
    """A revision after the head, which a test writes."""

    def __init__(self, path: Path, head: str) -> None:
        self._path = path
        self._head = head

    def does(self, *lines: str) -> None:
        body = "\n".join(f"    {line}" for line in lines)
        self._path.write_text(
            _NEXT.format(head=self._head, body=body), encoding="utf-8"
        )

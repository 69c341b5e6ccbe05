"""The installation on which walks of admissions are decided."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import migrate
from app.services.installation import Installation
from tests.support.crash_scene import open_installation


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation with a new SQLite database."""
    url = f"sqlite:///{tmp_path / 'grovekeeper.sqlite3'}"
    migrate.upgrade(url)
    installation = open_installation(url, tmp_path)
    yield installation
    installation.close()

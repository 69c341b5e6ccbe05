"""The installation on which walks of admissions are decided."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.services.installation import Installation
from tests.support.crash_scene import open_installation


@pytest.fixture
def installation(sqlite_database_url: str, tmp_path: Path) -> Iterator[Installation]:
    """An installation with a new SQLite database."""
    installation = open_installation(sqlite_database_url, tmp_path)
    yield installation
    installation.close()

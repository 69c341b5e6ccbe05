from pathlib import Path

import pytest

from tests.support.uploads import Ingestion


@pytest.fixture
def ingest(tmp_path: Path) -> Ingestion:
    return Ingestion(tmp_path)

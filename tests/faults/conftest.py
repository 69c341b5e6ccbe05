"""Starts the processes of deployments, from one process for all tests of the package."""

from collections.abc import Iterator

import pytest

from tests.faults.deployment import Fork, forking


@pytest.fixture(scope="package")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fork]:
    """Starts processes of the product."""
    with forking(tmp_path_factory.mktemp("forks") / "errors") as start:
        yield start

"""Fixtures that write exports."""

from collections.abc import Callable

import pytest

from tests.support.export_writers import Fields, People, Writer, chained


@pytest.fixture
def export() -> Callable[..., Writer]:
    """Starts an export: ``export(cap="3", shards=4).job("jb_1", "1")``."""
    return Writer


@pytest.fixture
def people() -> Callable[..., People]:
    """Starts a population: ``people(cap="3").join("ds_a").job("ds_a", "jb_1", "1")``."""
    return People


@pytest.fixture
def rechained() -> Callable[[list[Fields]], list[Fields]]:
    """Recomputes the chain, as a forger can who computes SHA-256."""
    return chained

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


@pytest.fixture(
    params=[4, pytest.param(1, marks=pytest.mark.long)],
    ids=lambda step: f"one of {step}",
)
def step(request: pytest.FixtureRequest) -> int:
    """Of how many changes of a line a test tries one. One of four meets every kind of
    change, each at other paths.
    """
    return int(request.param)

"""The number of rows that a plan assumes if the request reuses a profile."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.services.releases.training import Reuse
from grovekeeper_forests.privacy.partitions import Partitions

PARTITIONS = Partitions.from_json([{"name": "shard", "kind": "hash", "cells": 10}])


def size(
    *,
    noisy: float,
    sd: float,
    declared: int | None,
    within: dict[str, Any],
    of: dict[str, Any],
    own: str = "ds",
) -> Any:
    reused = Reuse(
        SimpleNamespace(dataset_id=own, facts={"scope": of}),  # type: ignore[arg-type]
        SimpleNamespace(size_in_rows=noisy, size_noise_sd=sd),  # type: ignore[arg-type]
    )
    requested = SimpleNamespace(
        source=SimpleNamespace(uploads=["up"]),
        dataset=SimpleNamespace(id="ds", partitions=PARTITIONS),
        scope=within,
        public_size=declared,
    )
    return reused.size(requested)  # type: ignore[arg-type]


def test_a_noisy_size_stands_in_for_a_declared_one_only_where_it_is_precise() -> None:
    assert size(noisy=999.0, sd=100.0, declared=5_000, within={}, of={}) == 5_000
    assert size(noisy=1_001.0, sd=100.0, declared=5_000, within={}, of={}) == 1_001
    assert size(noisy=5.0, sd=100.0, declared=None, within={}, of={}) == 5
    assert size(noisy=-50.0, sd=100.0, declared=None, within={}, of={}) == 1


@pytest.mark.parametrize(
    ("within", "of", "wanted"),
    [
        ({"shard": (0,)}, {}, 100),
        ({}, {"shard": (0, 1)}, 5_000),
        ({"shard": (0, 1, 2)}, {"shard": (5, 6)}, 1_500),
    ],
)
def test_the_profiles_size_is_scaled_by_the_shares_of_the_cells(
    within: dict[str, Any], of: dict[str, Any], wanted: int
) -> None:
    assert size(noisy=1_000.0, sd=1.0, declared=7, within=within, of=of) == wanted


def test_the_size_of_another_datasets_profile_is_not_used() -> None:
    assert size(noisy=1_000.0, sd=1.0, declared=7, within={}, of={}, own="other") == 7
    assert (
        size(noisy=1_000.0, sd=1.0, declared=None, within={}, of={}, own="other")
        is None
    )

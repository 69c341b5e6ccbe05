"""Lets accounts state their state more often for one test."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from app.ledger import chain

StateEvery: TypeAlias = Callable[[int], None]


@pytest.fixture
def state_every(monkeypatch: pytest.MonkeyPatch) -> StateEvery:
    """A function that sets after how many entries the state stands in one, until the
    test ends.
    """
    return lambda n_entries: monkeypatch.setattr(chain, "STATE_EVERY", n_entries)

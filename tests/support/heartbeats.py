"""Tells tests of the heartbeats of leases."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from app.services.execution import lease

AfterHeartbeat: TypeAlias = Callable[[Callable[[int], object]], None]


@pytest.fixture
def after_heartbeat(monkeypatch: pytest.MonkeyPatch) -> AfterHeartbeat:
    """Calls a function with the number of finished trees after each heartbeat, until
    the test ends.
    """
    heartbeat = lease.heartbeat

    def call(act: Callable[[int], object]) -> None:
        def beat(*arguments: Any, trees_done: int) -> None:
            heartbeat(*arguments, trees_done=trees_done)
            act(trees_done)

        monkeypatch.setattr(lease, "heartbeat", beat)

    return call

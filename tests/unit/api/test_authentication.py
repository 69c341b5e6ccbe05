"""A check of readiness that hangs is reported in time, and only one check runs, however many requests ask."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.api import authentication
from app.api.authentication import Readiness
from app.api.capacity import Capacities
from app.core import limits
from app.core.errors import Unavailable

HEADS: Any = SimpleNamespace(read_revision=lambda: True)


def test_a_check_that_hangs_is_unavailable_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started, release = threading.Semaphore(0), threading.Event()

    def hang(_heads: object) -> None:
        started.release()
        release.wait(timeout=60)

    monkeypatch.setattr(authentication, "confirm_ready", hang)
    monkeypatch.setattr(limits, "READINESS_WAIT_S", 0.05)

    async def ask() -> None:
        ready = Readiness(tmp_path, HEADS, Capacities())
        for _ in range(2):
            answers = await asyncio.gather(*(ready.confirm() for _ in range(50)), return_exceptions=True)
            assert {type(answer) for answer in answers} == {Unavailable}
        release.set()
        monkeypatch.setattr(limits, "READINESS_WAIT_S", 60)
        await ready.confirm()

    asyncio.run(ask())
    assert started.acquire(blocking=False)
    assert not started.acquire(blocking=False), "one check for all hundred requests and the last"

"""Clocks that a test moves."""

from contextlib import AbstractContextManager
from datetime import datetime
from unittest.mock import patch

from app.access.keys import elapsed_s
from app.db import database


class StoppedClock:
    """The seconds since the start of the machine, as they were when it was made; a test
    moves ``now_s``.
    """

    def __init__(self) -> None:
        self.now_s = elapsed_s()

    def __call__(self) -> float:
        return self.now_s


def database_tells(at: datetime) -> AbstractContextManager[object]:
    """The clock that all processes on a database share tells this time in the block."""
    return patch.object(database, "now", lambda _: at)

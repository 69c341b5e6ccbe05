"""Waits for conditions, and not for fixed times."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 600
"""Much longer than any step takes on a busy machine, and shorter than pytest lets a test
run, so that a test that hangs says for what it waited.
"""
_PAUSE_S = 0.02
_Answer = TypeVar("_Answer")


def wait_for(awaited: str, ask: Callable[[], _Answer | None]) -> _Answer:
    """Asks again and again, until the answer is neither ``None`` nor ``False``.

    Args:
        awaited: the condition, as a sentence.
        ask: the answer, such as ``poll`` of a process, whose exit code may be 0.

    Raises:
        TimeoutError: the condition did not come about, even on a busy machine.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (answer := ask()) is None or answer is False:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S} s: {awaited}")
        time.sleep(_PAUSE_S)
    return answer

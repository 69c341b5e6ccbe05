"""Waits for conditions, and not for fixed times."""

import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], *, within_s: float) -> bool:
    """Waits until a condition holds; ``False`` if it does not hold in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True

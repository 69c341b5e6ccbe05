"""Measures CPU time."""

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process for some work."""
    start = time.process_time()
    work()
    return time.process_time() - start

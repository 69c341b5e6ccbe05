"""Runs the product's worker, whose jobs are forks, with one more kind of release.

It starts as :mod:`tests.support.forking_worker` does.
"""

from tests.support import forking_worker
from tests.support.noisy_count import LINES


def main() -> int:
    """Runs the worker."""
    for line in LINES:
        setattr(*line)
    return forking_worker.main()

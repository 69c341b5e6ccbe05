"""Runs the product's worker, whose jobs are forks, with releases that do not depend on
rows.

It starts as :mod:`tests.support.forking_worker` does.
"""

from app.services.drawing import perform as drawing
from tests.privacy.fixed_releases import FixedReleases
from tests.support import forking_worker


def main() -> int:
    """Runs the worker."""
    fix_releases()
    return forking_worker.main()


def fix_releases() -> None:
    """Replaces the source of randomness of jobs in this process."""
    vars(drawing)["SystemRandomness"] = FixedReleases

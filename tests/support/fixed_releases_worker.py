"""Runs the product's worker, whose jobs are forks, with releases that do not depend on rows.

It starts as :mod:`tests.support.forking_worker` does.
"""

from app.services.releases import release
from tests.privacy.fixed_releases import FixedReleases
from tests.support import forking_worker


def main() -> int:
    """Runs the worker."""
    fix_releases()
    return forking_worker.main()


def fix_releases() -> None:
    """Replaces the source of randomness of every kind of job in this process."""
    for module in (release, release, release):
        vars(module)["SystemRandomness"] = FixedReleases

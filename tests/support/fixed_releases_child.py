"""Runs the product's child of a job, as a fork, with releases that do not depend on
rows.
"""

import os

from app.worker import child
from tests.support.fixed_releases_worker import fix_releases


def main() -> int:
    """Runs the job on standard input; the process that forked this one stands for the
    supervisor.
    """
    fix_releases()
    child.main(os.getppid())
    return 0

"""Runs the product's worker for HTTP tests, with forks as the children of jobs.

``python -m tests.support.forking_worker`` takes the settings of the worker from its environment.
"""

import sys

from app.cli import worker_process
from app.worker import child
from tests.support.forked_child import fork_children, load_modules_of_jobs


def main() -> int:
    """Imports the modules that jobs need, then runs the worker."""
    load_modules_of_jobs()
    fork_children(child.main)
    return worker_process.main()


if __name__ == "__main__":
    sys.exit(main())

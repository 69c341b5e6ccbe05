"""Runs the product's child of a job, as a fork."""

import os

from app.worker import child


def main() -> int:
    """Runs the job on standard input; the process that forked this one stands for the
    supervisor.
    """
    child.main(os.getppid())
    return 0

"""Puts temporary files into memory, keeps compiled code and loggers, and loads the
fixtures that every test may use.
"""

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

import pytest

from app.core import limits
from tests.support.memory import folder_in_memory

# Otherwise, this process and each that it starts compile the product and the tests
# again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = (
    "tests.support.chance",
    "tests.support.databases",
    "tests.support.environments",
    "tests.support.forked_decoder",
)

if "TMPDIR" not in os.environ and (memory := folder_in_memory()):
    # of this process and of those that it starts
    os.environ["TMPDIR"] = tempfile.tempdir = str(memory)

# of servers in the processes of tests, which revoke hundreds of times
limits.REVOCATION_S = 0.1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects tests without the garbage collector, which would visit modules and tests
    again and again for nothing.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _loggers_kept() -> Iterator[None]:
    """Gives loggers back what commands and servers change that a test runs in this
    process.
    """
    loggers = [
        logging.getLogger(name)
        for name in (None, "alembic", "uvicorn", "uvicorn.access", "uvicorn.error")
    ]
    kept = [
        (logger, logger.handlers[:], logger.level, logger.propagate)
        for logger in loggers
    ]
    yield
    for logger, handlers, level, propagate in kept:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate

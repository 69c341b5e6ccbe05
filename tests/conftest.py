"""Puts temporary files into memory, keeps compiled code and loggers, and loads the
fixtures that every test may use.
"""

import fcntl
import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core import limits
from tests.support.memory import folder_in_memory

# Otherwise, this process and each that it starts compile the product and the tests
# again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = (
    "tests.support.chance",
    "tests.support.covering",
    "tests.support.databases",
    "tests.support.environments",
    "tests.support.forest_fixtures",
    "tests.support.forked_decoder",
    "tests.support.heartbeats",
    "tests.support.set_limits",
    "tests.support.stated_states",
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


def _is_compiled(module: Path) -> bool:
    compiled = module.parent.glob(f"__pycache__/{module.stem}.*-pytest-*.pyc")
    changed_at = module.stat().st_mtime
    return any(file.stat().st_mtime > changed_at for file in compiled)


_ALL_ARE_COMPILED = all(map(_is_compiled, Path(__file__).parent.rglob("test_*.py")))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Iterator[pytest.CollectReport]:
    """Lets one process import a module of tests, and compile what is new, before the
    others read what it compiled: in a new clone, compiling takes 40 s of CPU.
    """
    if _ALL_ARE_COMPILED or not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open() as module:
        fcntl.flock(module, fcntl.LOCK_EX)
        return (yield)


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

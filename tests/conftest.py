"""Puts temporary files into memory, and loads the fixtures of ``tests/support`` that every test may use."""

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest

from app.core import limits
from tests.support.memory import folder_in_memory

pytest_plugins = ("tests.support.chance", "tests.support.databases", "tests.support.environments")

if "TMPDIR" not in os.environ and (memory := folder_in_memory()):
    os.environ["TMPDIR"] = tempfile.tempdir = str(memory)  # of this process and of those that it starts

limits.REVOCATION_S = 0.1  # of servers in the processes of tests, which revoke hundreds of times


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects tests without the garbage collector, which would visit modules and tests again and again for nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()

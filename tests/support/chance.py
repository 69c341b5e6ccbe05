"""Tests that can be repeated: what they draw follows from their names and from ``TEST_SEED``.

A test of a law allows for chance once in a million draws; thousands of tests, run again and again, would still make
that a failure that nobody can repeat. So the key of every stream that a test process opens is a hash of the seed, of
the running test and of how many streams it opened before, and Hypothesis tries the same examples each time.
``TEST_SEED=random`` draws a seed, prints it and lets Hypothesis look for new examples: for a search, not for a verdict.
How long an example takes is no verdict either: the machine decides it, and the machine is shared.

The product has no such seam: :class:`~app.forests.noise.keystream.Keystream` takes no seed, and this module replaces
the name of the operating system's source in its namespace. Servers, workers and forks that tests start draw as in
production.
"""

import hashlib
import os
import secrets

import pytest
from hypothesis import HealthCheck, settings

from app.forests.noise import keystream

DEFAULT_SEED = "0"
_VARIABLE = "TEST_SEED"

_KEYS = pytest.StashKey["Keys"]()
_IN_THIS_PROCESS = pytest.MonkeyPatch()


class Keys:
    """Stands for ``os.urandom`` in one process, and only there."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._process_id = os.getpid()
        self.begin("")

    def begin(self, test: str) -> None:
        """The keys from here on belong to this test."""
        self._test, self._n_given = test, 0

    def __call__(self, n_bytes: int) -> bytes:
        """The next key; true randomness in a process that is a copy of this one."""
        if os.getpid() != self._process_id:
            return os.urandom(n_bytes)
        self._n_given += 1
        return hashlib.shake_256(f"{self._seed}\n{self._test}\n{self._n_given}".encode()).digest(n_bytes)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.setdefault(_VARIABLE, DEFAULT_SEED) == "random":
        os.environ[_VARIABLE] = secrets.token_hex(4)  # The processes that pytest starts inherit it.
    seed = os.environ[_VARIABLE]
    untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("repeatable", untimed, derandomize=True)
    settings.register_profile("search", untimed, print_blob=True)
    settings.load_profile("repeatable" if seed == DEFAULT_SEED else "search")
    config.stash[_KEYS] = Keys(seed)
    _IN_THIS_PROCESS.setattr(keystream, "urandom", config.stash[_KEYS])


def pytest_unconfigure() -> None:
    _IN_THIS_PROCESS.undo()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Before the test's fixtures are set up, so that what they draw is the test's too."""
    item.config.stash[_KEYS].begin(item.nodeid)


def pytest_report_header() -> str:
    return f"seed of every draw: {os.environ[_VARIABLE]} ({_VARIABLE}=random looks for others)"

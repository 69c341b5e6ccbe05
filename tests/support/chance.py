"""Makes tests repeatable: every random draw of a test follows from the test's name and
from ``TEST_SEED``.

A statistical test fails by chance once in a million runs. Over thousands of tests that
are run again and again, such a failure would happen, and nobody could repeat it. So the
key of a random stream of a test process is a hash of the seed, of the running test and
of the number of streams before, and Hypothesis tries the same examples in every run.
``TEST_SEED=random`` draws a seed, prints it and lets Hypothesis search new examples.
Examples have no deadline, because their duration depends on the machine's load.

The product cannot be seeded: :class:`~grovekeeper_forests.noise.randomness.Keystream`
takes no seed, and this module replaces ``urandom`` in its module. Servers, workers and
forks that tests start draw as in production.
"""

import hashlib
import os
import secrets

import pytest
from hypothesis import HealthCheck, settings

from grovekeeper_forests.noise import randomness

DEFAULT_SEED = "0"
_VARIABLE = "TEST_SEED"

_KEYS = pytest.StashKey["Keys"]()
_IN_THIS_PROCESS = pytest.MonkeyPatch()


class Keys:
    """Replaces ``os.urandom`` in one process."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._process_id = os.getpid()
        self.begin("")

    def begin(self, test: str) -> None:
        """Starts the keys of a test."""
        self._test, self._n_keys = test, 0

    def __call__(self, n_bytes: int) -> bytes:
        """Returns the next key; in a fork of this process, true randomness."""
        if os.getpid() != self._process_id:
            return os.urandom(n_bytes)
        self._n_keys += 1
        return hashlib.shake_256(
            f"{self._seed}\n{self._test}\n{self._n_keys}".encode()
        ).digest(n_bytes)


def examples(n_searched: int) -> int:
    """The number of examples of a thorough property: a fifth of those in a search,
    which finds new ones each time.
    """
    return (
        n_searched // 5
        if os.environ.get(_VARIABLE, DEFAULT_SEED) == DEFAULT_SEED
        else n_searched
    )


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.setdefault(_VARIABLE, DEFAULT_SEED) == "random":
        # inherited by the processes that pytest starts
        os.environ[_VARIABLE] = secrets.token_hex(4)
    seed = os.environ[_VARIABLE]
    untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("repeatable", untimed, derandomize=True)
    settings.register_profile("search", untimed, print_blob=True)
    settings.load_profile("repeatable" if seed == DEFAULT_SEED else "search")
    config.stash[_KEYS] = Keys(seed)
    _IN_THIS_PROCESS.setattr(randomness, "urandom", config.stash[_KEYS])


def pytest_unconfigure() -> None:
    _IN_THIS_PROCESS.undo()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Starts the keys of a test before its fixtures, so that their draws are
    repeatable, too.
    """
    item.config.stash[_KEYS].begin(item.nodeid)


def pytest_report_header() -> str:
    return f"seed of every draw: {os.environ[_VARIABLE]} ({_VARIABLE}=random draws a new seed)"

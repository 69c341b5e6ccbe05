"""The tests' own draws repeat; the product's never do, and only a test process is
touched.
"""

import os
import subprocess
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from grovekeeper_forests.noise import randomness
from tests.support import chance

FIRST_WORD = """
import numpy
from grovekeeper_forests.noise.randomness import Keystream
words = numpy.zeros(1, numpy.uint64)
Keystream().fill(words)
print(words[0])
"""


def test_keys_follow_from_seed_test_and_turn() -> None:
    def given(seed: str, test: str) -> list[bytes]:
        keys = chance.Keys(seed)
        keys.begin(test)
        return [keys(32), keys(32)]

    several = [given("0", "a"), given("0", "b"), given("1", "a")]
    assert given("0", "a") == several[0]
    assert len({key for keys in several for key in keys}) == 6


def test_a_process_that_a_test_starts_draws_from_the_operating_system() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", FIRST_WORD],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    }
    assert len(said) == 2


def test_a_copy_of_a_test_process_draws_from_the_operating_system() -> None:
    keys = vars(randomness)["urandom"]
    assert isinstance(keys, chance.Keys)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, keys(32))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    assert drawn != keys(32)


@given(number=st.integers(0, 3))
def test_hypothesis_sets_no_deadline(number: int) -> None:
    """Longer than Hypothesis allows by itself: on a busy machine any example does, now
    and then.
    """
    time.sleep(0.25)
    assert number in range(4)

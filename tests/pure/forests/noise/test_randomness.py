"""The production randomness apart from its laws: the tape, the key stream, forks,
threads and arguments.
"""

import inspect
import os
import threading
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.noise.randomness import (
    MAX_BUFFER_WORDS,
    BrokenWordSource,
    ExactSampler,
    Keystream,
    SystemRandomness,
    Tape,
    _require_utilities,
)
from tests.privacy.laws import PseudoWords, assert_law

QUANTUM = Fraction(1, 2**32)


# --- the tape -----------------------------------------------------------------------------------------------------


def _every_draw(randomness: ExactSampler) -> list[int]:
    utilities = np.array([0, -1, -2, -5, -90, -3], dtype=np.int64)
    results: list[int] = []
    for turn in range(40):
        results += randomness.discrete_laplace(
            (11,), inverse_scale=Fraction(turn + 1, 128)
        ).tolist()
        results.append(
            randomness.permute_and_flip(utilities, inverse_scale=Fraction(turn + 1, 8))
        )
        results.append(randomness.uniform(3 * 2**30))
        results.append(int(randomness.bernoulli(Fraction(turn, 40))))
    return results


@pytest.mark.parametrize("n_words", [1, 2, 3, 7, 64, 1_000])
def test_the_size_of_the_window_cannot_change_a_draw(n_words: int) -> None:
    """A draw that restarted on fresh words at the end of the window would favour short
    draws, so it must continue.
    """
    wide = _every_draw(ExactSampler(Tape(PseudoWords(5), n_words=MAX_BUFFER_WORDS)))
    assert _every_draw(ExactSampler(Tape(PseudoWords(5), n_words=n_words))) == wide


def test_a_source_of_zeros_is_refused() -> None:
    with pytest.raises(BrokenWordSource):
        ExactSampler(Tape(OneWord(0))).discrete_laplace((1,), inverse_scale=Fraction(1))


def test_a_source_of_ones_is_refused() -> None:
    with pytest.raises(BrokenWordSource):
        ExactSampler(Tape(OneWord(2**64 - 1))).discrete_laplace(
            (1,), inverse_scale=Fraction(2)
        )


class OneWord:
    """A word source that repeats one word."""

    def __init__(self, value: int) -> None:
        self._value = value

    def fill(self, words: NDArray[np.uint64]) -> None:
        words[:] = self._value


class SlowCountingWords:
    """The words 0, 1, 2, … in the high halves, filled slowly enough to expose two
    threads inside one call.
    """

    def __init__(self) -> None:
        self._next = 0
        self._callers = 0
        self.most_callers = 0

    def fill(self, words: NDArray[np.uint64]) -> None:
        self._callers += 1
        self.most_callers = max(self.most_callers, self._callers)
        words[:] = np.arange(
            self._next, self._next + words.size, dtype=np.uint64
        ) << np.uint64(32)
        time.sleep(0.002)
        self._next += words.size
        self._callers -= 1


def test_threads_never_share_a_word() -> None:
    source = SlowCountingWords()
    randomness = ExactSampler(Tape(source, n_words=16))
    drawn: list[list[int]] = [[] for _ in range(4)]

    def draw(into: list[int]) -> None:
        into.extend(randomness.uniform(2**32) for _ in range(100))

    threads = [threading.Thread(target=draw, args=(into,)) for into in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.most_callers == 1
    assert sorted(value for into in drawn for value in into) == list(range(400))


# --- the source ---------------------------------------------------------------------------------------------------


def _stream(randomness: SystemRandomness) -> list[int]:
    return [randomness.uniform(2**32) for _ in range(32)]


def _in_a_fork(randomness: SystemRandomness) -> list[int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, np.array(_stream(randomness), dtype=np.uint64).tobytes())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        drawn = np.frombuffer(pipe.read(), dtype=np.uint64)
    os.waitpid(child, 0)
    return [int(value) for value in drawn]


def test_a_fork_repeats_neither_its_parent_nor_its_sibling() -> None:
    randomness = SystemRandomness(buffer_words=1_024)
    randomness.uniform(2)
    streams = [_in_a_fork(randomness), _in_a_fork(randomness), _stream(randomness)]
    assert [len(stream) for stream in streams] == [32, 32, 32]
    assert len(set().union(*streams)) > 90


def test_a_forked_keystream_takes_a_new_key() -> None:
    source = Keystream()
    window = np.empty(64, dtype=np.uint64)
    source.fill(window)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        source.fill(window)
        os.write(writing, window.tobytes())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        copied = pipe.read()
    os.waitpid(child, 0)
    source.fill(window)
    assert len(copied) == window.nbytes
    assert copied != window.tobytes()


def test_two_objects_have_two_streams() -> None:
    assert not set(_stream(SystemRandomness())) & set(_stream(SystemRandomness())[:8])


def test_the_keystream_does_not_repeat_and_fills_every_word() -> None:
    source = Keystream()
    windows = [np.zeros(size, dtype=np.uint64) for size in (1, 1_000, 3, 5_000)]
    for window in windows:
        source.fill(window)
    words = np.concatenate(windows)
    assert np.unique(words).size == words.size
    assert words.all()
    assert_law(
        Counter(words.view(np.uint8).tolist()), dict.fromkeys(range(256), 1 / 256)
    )


def test_nothing_seeds_the_production_randomness() -> None:
    assert list(inspect.signature(SystemRandomness).parameters) == ["buffer_words"]
    assert not inspect.signature(Keystream).parameters


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inverse_scale",
    [
        Fraction(0),
        Fraction(-1),
        Fraction(1, 3),
        QUANTUM / 2,
        2**30 + QUANTUM,
        Fraction(2**40),
    ],
)
def test_an_inverse_scale_that_integers_cannot_hold_is_refused(
    inverse_scale: Fraction,
) -> None:
    randomness = SystemRandomness()
    with pytest.raises(ValueError, match="inverse scale"):
        randomness.discrete_laplace((1,), inverse_scale=inverse_scale)
    with pytest.raises(ValueError, match="inverse scale"):
        randomness.permute_and_flip(
            np.zeros(2, dtype=np.int64), inverse_scale=inverse_scale
        )


@pytest.mark.parametrize(
    "utilities",
    [
        np.zeros(0, dtype=np.int64),
        np.zeros((2, 2), dtype=np.int64),
        np.zeros(2),
        np.zeros(2, dtype=np.int32),
    ],
)
def test_utilities_of_another_form_are_refused(utilities: np.ndarray) -> None:
    with pytest.raises(ValueError, match="int64 vector"):
        SystemRandomness().permute_and_flip(utilities, inverse_scale=Fraction(1))


def test_more_candidates_than_a_uniform_draw_has_outcomes_are_refused() -> None:
    one = np.zeros(1, dtype=np.int64)
    many = np.broadcast_to(one, 2**32 + 1)  # with one number in memory
    with pytest.raises(ValueError, match="int64 vector"):
        _require_utilities(many)


def test_impossible_arguments_are_refused() -> None:
    randomness = SystemRandomness()
    for n in (0, -1, 2**32 + 1):
        with pytest.raises(ValueError, match="uniform"):
            randomness.uniform(n)
    for p in (Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(ValueError, match="probability"):
            randomness.bernoulli(p)
    for n_words in (0, MAX_BUFFER_WORDS + 1):
        with pytest.raises(ValueError, match="window"):
            SystemRandomness(buffer_words=n_words)

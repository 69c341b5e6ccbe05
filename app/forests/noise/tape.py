"""Keeps a window of random words for the samplers, and extends it when a draw needs more words.

A sampler is a deterministic function of an endless tape of uniform words. It reads from a window; when a draw meets
the window's end, the draw must *go on* with the words it has already seen. Starting it again on fresh words would
favour draws that need few words (the result of a long draw would be thrown away more often than that of a short one),
which changes the law. Here the words since the start of the open draw are kept, fresh ones are appended, and the draw
is evaluated again on the same words: the same function of the same tape, so the window's size cannot change a result.
"""

import os
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

DEFAULT_BUFFER_WORDS: Final = 2**13
"""Words produced at a time: 64 KiB stay in a core's own cache and make the cost of a refill vanish."""

MAX_BUFFER_WORDS: Final = 2**20
"""More words than one draw can need, except with a probability below 2⁻⁴⁰⁰⁰ (docs/proofs/samplers.md)."""


class TapeExhausted(Exception):
    """A draw met the end of the window. Never leaves the samplers."""


class BrokenWordSource(RuntimeError):
    """One draw used up :data:`MAX_BUFFER_WORDS` words: the source is no random source. No draw is made from it."""


class WordSource(Protocol):
    """A source of random words."""

    def fill(self, words: NDArray[np.uint64]) -> None:
        """Overwrites all of ``words`` with independent uniform words never given out before."""


class Tape:
    """A window on a word source.

    Attributes:
        words: the window, uint64.
        cursor: int64, one element: the position in ``words`` of the first word that no finished draw has used. A
            sampler moves it once per finished draw, never in the middle of one.
    """

    def __init__(self, source: WordSource, *, n_words: int = DEFAULT_BUFFER_WORDS) -> None:
        if not 1 <= n_words <= MAX_BUFFER_WORDS:
            raise ValueError("a window holds 1 to 2^20 words")
        self._source = source
        self._process_id = os.getpid()
        self.words = np.zeros(n_words, dtype=np.uint64)
        self.cursor = np.full(1, n_words, dtype=np.int64)

    def forget_after_fork(self) -> None:
        """Drops the unread words if this process is a copy: the process it was copied from will use them."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self.cursor[0] = self.words.size

    def extend(self) -> None:
        """Makes room behind the words of the open draw and fills it.

        Raises:
            BrokenWordSource: the open draw fills the largest window.
        """
        unread = self.words[self.cursor[0] :]
        if unread.size == MAX_BUFFER_WORDS:
            raise BrokenWordSource("the word source does not behave like a random one")
        if unread.size == self.words.size:
            self.words = np.empty(min(2 * unread.size, MAX_BUFFER_WORDS), dtype=np.uint64)
        self.words[: unread.size] = unread
        self._source.fill(self.words[unread.size :])
        self.cursor[0] = 0

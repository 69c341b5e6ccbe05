"""Keeps a window of random words for the samplers, and extends it when a draw needs more words.

A sampler is a deterministic function of an endless tape of uniform words, and reads the tape through a window. A draw
that reaches the window's end must continue with the words that it has already read. To start again on fresh words would
favour draws that need few words, because long draws would be discarded more often than short ones, and so would change
the law. This module therefore keeps the words since the start of the open draw, appends fresh words, and lets the
sampler evaluate the draw again from the first kept word. The result is the same function of the same tape, so it does
not depend on the window's size.
"""

import os
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

DEFAULT_BUFFER_WORDS: Final = 2**13
"""Words produced at a time: 64 KiB fit in a core's cache, and the cost of a refill is negligible."""

MAX_BUFFER_WORDS: Final = 2**20
"""Size of the largest window. A draw needs more words with a probability below 2⁻⁴⁰⁰⁰ (docs/proofs/samplers.md)."""


class TapeExhausted(Exception):
    """A draw needs more words than the window has. The samplers catch every such error."""


class BrokenWordSource(RuntimeError):
    """A draw needs more than :data:`MAX_BUFFER_WORDS` words, so the source does not produce random words."""


class WordSource(Protocol):
    """A source of random words."""

    def fill(self, words: NDArray[np.uint64]) -> None:
        """Overwrites all of ``words`` with independent uniform words; never returns the same words twice."""


class Tape:
    """A window on a word source.

    Attributes:
        words: the window, uint64.
        cursor: int64, one element: the position in ``words`` of the first word that no finished draw has used. A
            sampler moves the cursor once per finished draw.
    """

    def __init__(self, source: WordSource, *, n_words: int = DEFAULT_BUFFER_WORDS) -> None:
        if not 1 <= n_words <= MAX_BUFFER_WORDS:
            raise ValueError("a window holds 1 to 2^20 words")
        self._source = source
        self._process_id = os.getpid()
        self.words = np.zeros(n_words, dtype=np.uint64)
        self.cursor = np.full(1, n_words, dtype=np.int64)

    def forget_after_fork(self) -> None:
        """Drops the unread words if this process is a fork: the parent process will use them."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self.cursor[0] = self.words.size

    def extend(self) -> None:
        """Appends fresh words after the words of the open draw.

        Raises:
            BrokenWordSource: the open draw has used the largest window.
        """
        unread = self.words[self.cursor[0] :]
        if unread.size == MAX_BUFFER_WORDS:
            raise BrokenWordSource("the word source does not behave like a random one")
        if unread.size == self.words.size:
            self.words = np.empty(min(2 * unread.size, MAX_BUFFER_WORDS), dtype=np.uint64)
        self.words[: unread.size] = unread
        self._source.fill(self.words[unread.size :])
        self.cursor[0] = 0

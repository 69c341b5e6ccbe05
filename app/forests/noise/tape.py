"""Keeps a window of random words for the samplers, extends it when a draw needs more words, and generates the words.

A sampler is a deterministic function of an endless tape of uniform words, and reads the tape through a window. A draw
that reaches the window's end must continue with the words that it has already read. To start again on fresh words would
favour draws that need few words, because long draws would be discarded more often than short ones, and so would change
the law. This module therefore keeps the words since the start of the open draw, appends fresh words, and lets the
sampler evaluate the draw again from the first kept word. The result is the same function of the same tape, so it does
not depend on the window's size.

The words of production are AES-256 in counter mode, keyed by the operating system.
"""

import os
from os import getpid, urandom
from typing import Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
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


_KEY_BYTES = 32
_BLOCK_BYTES = 16


class Keystream:
    """An unlimited stream of words that cannot be predicted or replayed, also after a fork.

    A forked child holds a copy of the cipher's state, so it would repeat its parent's stream; the stream therefore
    takes a new key whenever the process id changes. A copy of a machine's memory (a snapshot that is
    restored or cloned) keeps the process and repeats the stream: docs/known-limits.md.
    """

    def __init__(self) -> None:
        self._zeros = b""
        self._rekey()

    def fill(self, words: NDArray[np.uint64]) -> None:
        """Overwrites ``words``, which must be contiguous, with the next words of the stream."""
        if self._process_id != getpid():
            self._rekey()
        if len(self._zeros) < words.nbytes:
            self._zeros = bytes(words.nbytes)
        self._cipher.update_into(memoryview(self._zeros)[: words.nbytes], words.data.cast("B"))

    def _rekey(self) -> None:
        self._process_id = getpid()
        self._cipher: CipherContext = Cipher(AES(urandom(_KEY_BYTES)), CTR(bytes(_BLOCK_BYTES))).encryptor()

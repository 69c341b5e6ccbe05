"""Generates random words in production: AES-256 in counter mode, keyed by the operating system."""

from os import getpid, urandom

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

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

"""Reads text in another encoding as UTF-8, for uploads and for files that are predicted:
both refuse what an encoding reads as other text.
"""

import codecs
import re
from typing import BinaryIO

from grovekeeper_common import suspicions

NOT_TEXT = "\0"
"""Replaces bytes that are not text. A NUL in a file is not text, either."""

UNDECODED = re.compile("[\udc80-\udcff]+")
"""Bytes that are not UTF-8, as ``surrogateescape`` decodes them."""
BEGIN_BYTES = 8
"""Bytes that say what a file is."""

_CONTROLS = re.compile("[\x80-\x9f]")
"""What Latin-1 has where Windows-1252 has letters and signs."""
_OF_ONE_BYTE = frozenset({"latin-1", "cp1252"})


class _Utf8Signs:
    """Counts in a text what is UTF-8 and what is not, beyond ASCII; piece by piece, in
    memory of three bytes.

    Attributes:
        n_characters: of several bytes.
        n_bad_bytes: which belong to no character.
    """

    def __init__(self) -> None:
        self.n_characters = 0
        self.n_bad_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    @property
    def prevail(self) -> bool:
        """Whether the text is UTF-8 rather than text of an encoding of one byte."""
        return self.n_characters > self.n_bad_bytes

    def count(self, piece: bytes, *, is_last: bool) -> None:
        """Counts in the next piece."""
        text = self._decoder.decode(piece, final=is_last)
        if not text.isascii():
            n_bad_bytes = sum(map(len, UNDECODED.findall(text)))
            n_ascii = len(text.encode("ascii", "ignore"))
            self.n_bad_bytes += n_bad_bytes
            self.n_characters += len(text) - n_ascii - n_bad_bytes


class Recoded:
    """The bytes of a text in another encoding, as UTF-8; NUL for bytes that the
    encoding does not have, and for controls of Latin-1.

    Attributes:
        begin: the first bytes as they are.
        signs: of UTF-8, in the bytes as they are. An encoding of one byte reads almost
            any bytes, so that people who are spelt in it and in UTF-8 would be others.
    """

    def __init__(self, source: BinaryIO, encoding: str) -> None:
        self._source = source
        self._encoding = encoding
        self._decoder: codecs.IncrementalDecoder | None = None
        self.begin = b""
        self.signs = _Utf8Signs()

    def read(self, size: int) -> bytes:
        """Some bytes, at most ``size`` or six; none at the end alone."""
        text = ""
        is_at_end = False
        while not text and not is_at_end:
            # a byte becomes three bytes of UTF-8 at most
            piece = self._source.read(max(size // 3, 2))
            is_at_end = not piece
            if self._decoder is None:
                self.begin = piece[:BEGIN_BYTES]
                codec = suspicions.codec_of(self._encoding, piece[:2])
                self._decoder = codecs.getincrementaldecoder(codec)("replace")
            if self._encoding in _OF_ONE_BYTE:
                self.signs.count(piece, is_last=is_at_end)
            text = self._decoder.decode(piece, final=is_at_end)
        if self._encoding == "latin-1":
            text = _CONTROLS.sub(NOT_TEXT, text)
        return text.replace("\ufffd", NOT_TEXT).encode("utf-8")

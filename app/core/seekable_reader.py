"""Implements the part of a binary file object that readers of any place in stored bytes share."""

import io
from abc import abstractmethod


class SeekableReader(io.RawIOBase):
    """A file object of ``size`` bytes that can only be read. A subclass reads the bytes of a range.

    Args:
        size: in bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._position = 0

    @abstractmethod
    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` up to and without ``end``; 0 ≤ ``start`` < ``end`` ≤ ``size``."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise ValueError("a position before the start of a file")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end; all remaining bytes by default."""
        start = self._position
        end = self.size if size is None or size < 0 else min(start + size, self.size)
        if start >= end:
            return b""
        text = self.read_range(start, end)
        self._position = end
        return text

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stub's type is private
        view = memoryview(buffer).cast("B")
        text = self.read(len(view))
        view[: len(text)] = text
        return len(text)

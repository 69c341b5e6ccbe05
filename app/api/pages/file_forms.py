"""Reads a form with one file (``multipart/form-data``) as it arrives; no part of the file stays in memory."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import Request

from app.api.pages.forms import Form
from app.api.pages.sessions import require_same_origin
from app.core import limits
from app.core.errors import InvalidRequest, MalformedRequest

_BOUNDARY = re.compile(r'multipart/form-data;\s*boundary="?([!-~]{1,70}?)"?\s*', re.IGNORECASE)
_NAME = re.compile(rb'[;\s]name="([^"]*)"')
_FILE_NAME = re.compile(rb'[;\s]filename="([^"]*)"')


@dataclass(frozen=True)
class FileForm:
    """A form whose last part is a file.

    Attributes:
        fields: the fields before the file.
        file_name: the name that the browser gives the file.
        chunks: the file; it can be read once.
    """

    fields: Form
    file_name: str
    chunks: AsyncIterator[bytes]


async def read_file_form(request: Request) -> FileForm:
    """Read a form up to the beginning of its file.

    Raises:
        MalformedRequest: another site sent the form, or the body is no such form.
        InvalidRequest: the form has no file.
    """
    require_same_origin(request)
    boundary = _BOUNDARY.fullmatch(request.headers.get("content-type", ""))
    if boundary is None:
        raise _unreadable()
    parts = _Parts(request, boundary[1].encode("ascii"))
    fields: dict[str, str] = {}
    while True:
        head = await parts.head()
        name, file_name = _NAME.search(head), _FILE_NAME.search(head)
        if name is None:
            raise _unreadable()
        if file_name is not None:
            break
        fields[name[1].decode("utf-8", "replace")] = (await parts.value()).decode("utf-8", "replace")
    if not file_name[1]:
        raise InvalidRequest.at("/file", "required")
    return FileForm(fields, file_name[1].decode("utf-8", "replace"), parts.file())


class _Parts:
    """Splits a body at its boundary, with at most one chunk and one delimiter in memory."""

    def __init__(self, request: Request, boundary: bytes) -> None:
        self._stream = request.stream()
        self._delimiter = b"\r\n--" + boundary
        self._buffer = bytearray(b"\r\n")
        self._begun = False

    async def head(self) -> bytes:
        """The headers of the next part."""
        if not self._begun:
            self._begun = True
            await self._until(self._delimiter)
        if (await self._at_least(2))[:2] == b"--":
            raise InvalidRequest.at("/file", "required")
        return await self._until(b"\r\n\r\n")

    async def value(self) -> bytes:
        """The value of a field."""
        return await self._until(self._delimiter)

    async def file(self) -> AsyncIterator[bytes]:
        """The value of the last part; what follows it is received and ignored."""
        kept = len(self._delimiter) - 1
        while (end := self._buffer.find(self._delimiter)) < 0:
            if len(self._buffer) > kept:
                yield bytes(self._buffer[:-kept])
                del self._buffer[:-kept]
            await self._receive()
        if end:
            yield bytes(self._buffer[:end])
        async for _ in self._stream:
            pass  # a browser reads the answer only after it has sent its whole body

    async def _until(self, mark: bytes) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > limits.MAX_FORM_PART_BYTES + len(mark):
                raise _unreadable()
            await self._receive()
        if end > limits.MAX_FORM_PART_BYTES:
            raise _unreadable()
        value = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return value

    async def _at_least(self, n_bytes: int) -> bytearray:
        while len(self._buffer) < n_bytes:
            await self._receive()
        return self._buffer

    async def _receive(self) -> None:
        chunk = await anext(self._stream, None)
        if chunk is None:
            raise _unreadable()
        self._buffer += chunk


def _unreadable() -> MalformedRequest:
    return MalformedRequest("the form cannot be read")

"""Sends forms with a file to their reader, cut into chunks of any size."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, cast

from fastapi import Request

from app.api.pages.forms import read_file_form

BOUNDARY = "----formBoundary7"
FILE = b"age,sex\r\n39,Male\r\n--" + BOUNDARY[:-1].encode() + b"\r\n-\r\n"
"""A file that begins several delimiters without ending one."""


class ReadForm(NamedTuple):
    """What the reader made of a form."""

    fields: dict[str, str]
    file_name: str
    chunks: list[bytes]


def body_of(
    file: bytes = FILE, *, name: str = "rows.csv", field: str = "a" * 22
) -> bytes:
    """The body of a form with one field and a file, as a browser writes it."""
    mark = f"--{BOUNDARY}\r\n"
    text = f'{mark}Content-Disposition: form-data; name="once"\r\n\r\n{field}\r\n{mark}'
    text += f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'
    return text.encode() + file + f"\r\n--{BOUNDARY}--\r\n".encode()


def read_body(body: bytes, *, step: int, origin: str = "http://here") -> ReadForm:
    """Reads a form whose body arrives in chunks of ``step`` bytes."""

    async def run() -> ReadForm:
        form = await read_file_form(
            cast(Request, _Sent(body, step=step, origin=origin))
        )
        return ReadForm(
            dict(form.fields), form.file_name, [chunk async for chunk in form.chunks]
        )

    return asyncio.run(run())


class _Sent:
    """A request as far as the reader of forms uses it."""

    def __init__(self, body: bytes, *, step: int, origin: str) -> None:
        content_type = f"multipart/form-data; boundary={BOUNDARY}"
        self.headers = {"content-type": content_type, "origin": origin, "host": "here"}
        self._chunks = [body[at : at + step] for at in range(0, len(body), step)]

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk

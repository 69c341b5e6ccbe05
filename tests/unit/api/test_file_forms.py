"""Forms with a file are split at their boundary, however the body is cut into chunks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from fastapi import Request

from app.api.pages.file_forms import read_file_form
from app.core import limits
from app.core.errors import GrovekeeperError, InvalidRequest, MalformedRequest

BOUNDARY = "----formBoundary7"
FILE = b"age,sex\r\n39,Male\r\n--" + BOUNDARY[:-1].encode() + b"\r\n-\r\n"


def _body(file: bytes = FILE, *, name: str = "rows.csv", field: str = "a" * 22) -> bytes:
    mark = f"--{BOUNDARY}\r\n"
    text = f'{mark}Content-Disposition: form-data; name="once"\r\n\r\n{field}\r\n{mark}'
    text += f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'
    return text.encode() + file + f"\r\n--{BOUNDARY}--\r\n".encode()


class _Sent:
    """A request as far as the reader of forms uses it."""

    def __init__(self, body: bytes, *, step: int, origin: str = "http://here") -> None:
        content_type = f"multipart/form-data; boundary={BOUNDARY}"
        self.headers = {"content-type": content_type, "origin": origin, "host": "here"}
        self._chunks = [body[at : at + step] for at in range(0, len(body), step)]

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def _read(sent: Any) -> tuple[dict[str, str], str, list[bytes]]:
    async def run() -> tuple[dict[str, str], str, list[bytes]]:
        form = await read_file_form(cast(Request, sent))
        return dict(form.fields), form.file_name, [chunk async for chunk in form.chunks]

    return asyncio.run(run())


@pytest.mark.parametrize("step", [1, 2, 7, 64, 10_000])
def test_a_file_comes_out_as_it_was_sent(step: int) -> None:
    fields, name, chunks = _read(_Sent(_body(), step=step))
    assert (fields, name, b"".join(chunks)) == ({"once": "a" * 22}, "rows.csv", FILE)


def test_an_empty_file_is_a_file() -> None:
    assert b"".join(_read(_Sent(_body(b""), step=50))[2]) == b""


def test_a_large_file_is_passed_on_in_pieces() -> None:
    file = b"x" * 100_000
    chunks = _read(_Sent(_body(file), step=1_000))[2]
    assert b"".join(chunks) == file
    assert max(map(len, chunks)) < 2_000


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (_body(name=""), InvalidRequest),
        (_body()[:-30], MalformedRequest),
        (_body(field="a" * (limits.MAX_FORM_PART_BYTES + 100)), MalformedRequest),
        (f"--{BOUNDARY}--\r\n".encode(), InvalidRequest),
        (b"no form", MalformedRequest),
        (b"", MalformedRequest),
        (_body().replace(b'name="once"', b"no-name"), MalformedRequest),
    ],
    ids=["no file chosen", "cut off", "long field", "no part", "no boundary", "nothing", "no name"],
)
def test_what_is_no_such_form_is_refused(body: bytes, error: type[GrovekeeperError]) -> None:
    with pytest.raises(error):
        _read(_Sent(body, step=100))


def test_a_form_of_another_site_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        _read(_Sent(_body(), step=100, origin="http://elsewhere"))

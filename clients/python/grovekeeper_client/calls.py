"""Implements what the client's methods share: JSON requests, pagination and downloads."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import quote

import httpx

from grovekeeper_client.transport import Request, Transport, not_grovekeeper

Json: TypeAlias = dict[str, Any]

CHUNK_BYTES = 256 * 1024
"""Bytes per read of a file or an answer."""
PAGE_SIZE = 500
"""Items that a request for a list names as its limit: the largest number that the service accepts."""


class Calls:
    """A connection to one service with one key."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = Transport(url, key, transport=transport, sleep=sleep)
        self._sleep = sleep

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def _json(
        self,
        method: str,
        path: str,
        *,
        body: Json | bytes | None = None,
        params: Mapping[str, str | int | None] | None = None,
        key: str | None = None,
        repeatable: bool = False,
    ) -> Json:
        headers = {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        content = body if isinstance(body, bytes | None) else json.dumps(body, allow_nan=False).encode()
        request = Request(
            method,
            path,
            params=params or {},
            headers=headers,
            content=None if content is None else lambda: content,
            repeatable=repeatable,
        )
        return read_object(self._transport.send(request))

    def _pages(self, path: str, member: str, **filters: str | None) -> Iterator[Json]:
        for page in self._whole_pages(path, **filters):
            yield from page[member]

    def _whole_pages(self, path: str, **filters: str | None) -> Iterator[Json]:
        cursor: str | None = None
        while True:
            page = self._json("GET", path, params={"limit": PAGE_SIZE, "cursor": cursor, **filters})
            yield page
            cursor = page["next"]
            if cursor is None:
                return

    def _events(self, path: str) -> Iterator[Json]:
        """The objects of a stream of server-sent events; an event that broke off is left out."""
        with self._transport.stream(Request("GET", path, attempts=1)) as response:
            text = ""
            for line in response.iter_lines():
                if line.startswith("data:"):
                    text += line.removeprefix("data:")
                elif not line and text:
                    yield json.loads(text)
                    text = ""

    def _download(self, request: Request, file: Path) -> str:
        digest = hashlib.sha256()
        with self._transport.stream(request) as response:
            descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
            partial = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    for chunk in response.iter_bytes(CHUNK_BYTES):
                        digest.update(chunk)
                        stream.write(chunk)
                partial.replace(file)
            finally:
                partial.unlink(missing_ok=True)
        return digest.hexdigest()


def segment(reference: str) -> str:
    """A reference, quoted as one segment of a path."""
    return quote(reference, safe="")


def read_object(response: httpx.Response) -> Json:
    """The JSON object of an answer; empty for an answer without a body (204)."""
    if not response.content:
        return {}
    try:
        return dict(response.json())
    except (ValueError, TypeError):
        raise not_grovekeeper(response) from None

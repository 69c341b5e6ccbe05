"""Sends the file of a model, for the API and for the dashboard."""

from functools import partial
from os import fstat
from typing import BinaryIO, Literal

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.access.grants import Principal
from app.api.capacity import Capacities, Work, capacities
from app.core.errors import InvalidRequest
from app.services import models
from app.services.installation import Installation

_PIECE_BYTES = 1024 * 1024


async def model_file(
    request: Request,
    installation: Installation,
    caller: Principal,
    address: str,
    *,
    form: Literal["safetensors", "onnx"],
    read_out: str | None = None,
) -> Response:
    """Return a model as a file.

    Raises:
        NotFound: no such model, or it is not visible to this key.
        RoleMissing: the key may predict, but not download.
        NotSupported: the algorithm cannot be exported to ONNX yet.
        InvalidRequest: the algorithm has no such read-out, or the form takes none.
    """
    threads = capacities(request)
    if form == "onnx":
        file = await threads.run(
            Work.CONVERSION, lambda: models.take_onnx(installation, caller, address, read_out=read_out)
        )
    elif read_out is None:
        file = await threads.run(Work.EXPORT, lambda: models.take_artifact(installation, caller, address))
    else:
        raise InvalidRequest.at("/read_out", "not-with-safetensors")
    return _OpenFile(file, threads)


class _OpenFile(StreamingResponse):
    """Sends a file in pieces, so that a slow client holds one piece in memory, and closes the file."""

    def __init__(self, file: BinaryIO, threads: Capacities) -> None:
        size = {"Content-Length": str(fstat(file.fileno()).st_size)}
        pieces = threads.iterate(Work.EXPORT, iter(partial(file.read, _PIECE_BYTES), b""))
        super().__init__(pieces, media_type="application/octet-stream", headers=size)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)

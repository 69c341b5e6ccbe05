"""Reads the forms of pages, and calls the service that a form asks for.

A form with one file (``multipart/form-data``) is read as it arrives; no part of the
file stays in memory.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from app.access.idempotency import IdempotentRequest, hiding
from app.api.authentication import require_same_origin
from app.api.capacity import Work, capacities, is_administration
from app.api.pages.rendering import Visit, Visitor
from app.api.requests import Incoming, checked_key, route_of, whole
from app.api.requests import checked as checked
from app.core import json_text, limits
from app.core.errors import InvalidRequest, MalformedRequest, Unauthenticated
from app.datasets.upload_bodies import Dialect
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.number_text import number_of
from grovekeeper_forests.errors import GrovekeeperError

Form = Mapping[str, str]
_Act = TypeVar("_Act", bound=Callable[..., str | Response])
_BOUNDARY = re.compile(
    r'multipart/form-data;\s*boundary="?([!-~]{1,70}?)"?\s*', re.IGNORECASE
)
_NAME = re.compile(rb'[;\s]name="([^"]*)"')
_FILE_NAME = re.compile(rb'[;\s]filename="([^"]*)"')


def person(form: Form) -> JsonObject:
    """The person whom a form of an erasure names, and the reference of the request.

    Raises:
        InvalidRequest: nobody ticked that the identity of the person was checked.
    """
    if form.get("identity") != "yes":
        raise InvalidRequest.at("/identity", "not-ticked")
    return {
        "unit": form.get("unit", ""),
        "reference": typed(form, "reference") or None,
    }


def cap_field(form: Form, accountant: str, epsilon: str = "epsilon") -> str:
    """The field of a request that takes the cap of a form: an ε, or the ρ or the μ of
    the account where the form says so. A pure account has neither: its request is
    refused.
    """
    if form.get("cap_unit") != "own":
        return epsilon
    return "rho" if accountant == "zcdp" else "mu"


def written(form: Form) -> Dialect:
    """How the file of a form is written."""
    return Dialect.of(
        form.get("separator", ","),
        form.get("decimal", "."),
        form.get("encoding", "utf-8"),
        form.get("missing", ""),
    )


def typed(form: Form, name: str) -> str:
    """What was typed into a field, without spaces around it."""
    return form.get(name, "").strip()


async def read_form(
    request: Request,
    *,
    max_bytes: int = limits.MAX_JSON_BODY_BYTES,
    wait_s: float | None = None,
) -> Form:
    """The fields of a form that a page of this service sent; the last of several fields
    of one name.

    Args:
        wait_s: seconds for the whole form, if it has less time than other bodies.

    Raises:
        MalformedRequest: another site sent the form, or the body is no form.
    """
    require_same_origin(request)
    incoming = Incoming(request.scope, request.receive, max_bytes, wait_s=wait_s)
    body = await whole(incoming)
    try:
        fields = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=limits.MAX_FORM_FIELDS,
        )
    except ValueError:
        raise MalformedRequest("the form cannot be read") from None
    return dict(fields)


def acts(
    pages: APIRouter, path: str, page: Callable[..., Response]
) -> Callable[[_Act], _Act]:
    """Serves the address of a form: does what the form asks for, and leads to the page
    that shows the result.

    The function gets the visit, the form and the parameters of the path; it returns the
    address of the page that follows, or that page.

    Args:
        page: shows the page of the form again if it is refused. It gets the visit and
            the parameters of the path, and raises what the page raises, so a caller who
            may not see the page is refused as everywhere.
    """

    def serve(act: _Act) -> _Act:
        @pages.post(path)
        async def submit(visit: Visitor) -> Response:
            form = await read_form(visit.request)
            parameters = visit.request.path_params

            def run() -> Response:
                try:
                    following = act(visit, form, **parameters)
                    if isinstance(following, str):
                        return RedirectResponse(following, status_code=303)
                    return following
                except Unauthenticated:
                    raise
                except GrovekeeperError as error:
                    return page(visit.refused(error, form), **parameters)

            work = Work.WRITE
            if is_administration(visit.request.url.path):
                work = Work.ADMINISTRATION
            return await capacities(visit.request).run(work, run)

        return act

    return serve


def identity(
    visit: Visit, form: Form, *, shows_secret: bool = False
) -> IdempotentRequest | None:
    """The identity of a form by its hidden field ``once``, which makes a form that is
    sent twice one request.
    """
    once = checked_key(visit.request, form.get("once") or None)
    if once is None:
        return None
    request = IdempotentRequest(
        visit.caller.key_id, route_of(visit.request), once, json_text.digest(dict(form))
    )
    return hiding(request) if shows_secret else request


def utc(text: str) -> str | None:
    """The time of a field in UTC; nothing for an empty field. Browsers omit the zone,
    and seconds that are zero.

    Any other text stays as it is, so that the API's rule refuses it: a zone must not be
    cut off.
    """
    text = text.strip()
    match len(text):
        case 16:
            return f"{text}:00Z"
        case 19:
            return f"{text}Z"
        case _:
            return text or None


def number_in(text: str) -> int | Decimal | str | None:
    """The number of a field; other text as it is, so that the API's rules name the
    problem.
    """
    text = text.strip()
    try:
        number_of(text)
        number = Decimal(text or "NaN")
    except ValueError:
        return text
    if not number.is_finite():
        return text or None
    # an integer of billions of digits, such as 1e999999999, would fill the memory
    if number == number.to_integral_value() and abs(number.adjusted()) < 18:
        return int(number)
    return number


@dataclass(frozen=True)
class FileForm:
    """A form whose last part is a file, which can be read once."""

    fields: Form
    file_name: str
    chunks: AsyncIterator[bytes]


async def read_file_form(request: Request) -> FileForm:
    """Read a form up to the beginning of its file.

    Raises:
        MalformedRequest: another site sent the form, the body is no such form, or it
            has too many fields.
        InvalidRequest: the form has no file.
    """
    require_same_origin(request)
    boundary = _BOUNDARY.fullmatch(request.headers.get("content-type", ""))
    if boundary is None:
        raise _unreadable()
    parts = _Parts(request, boundary[1].encode("ascii"))
    fields: dict[str, str] = {}
    await parts.value()  # what precedes the first part
    for _ in range(limits.MAX_FIELDS_BEFORE_FILE + 1):
        head = await parts.head()
        name, file_name = _NAME.search(head), _FILE_NAME.search(head)
        if name is None:
            raise _unreadable()
        if file_name is not None:
            break
        fields[name[1].decode("utf-8", "replace")] = (await parts.value()).decode(
            "utf-8", "replace"
        )
    else:
        raise _unreadable()
    if not file_name[1]:
        raise InvalidRequest.at("/file", "required")
    return FileForm(fields, file_name[1].decode("utf-8", "replace"), parts.file())


class _Parts:
    """Splits a body at its boundary, with at most one chunk and one delimiter in
    memory.
    """

    def __init__(self, request: Request, boundary: bytes) -> None:
        self._stream = request.stream()
        self._delimiter = b"\r\n--" + boundary
        self._buffer = bytearray(b"\r\n")

    async def head(self) -> bytes:
        """The headers of the next part."""
        while len(self._buffer) < 2:
            await self._receive()
        if self._buffer.startswith(b"--"):
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

    async def _receive(self) -> None:
        chunk = await anext(self._stream, None)
        if chunk is None:
            raise _unreadable()
        self._buffer += chunk


def _unreadable() -> MalformedRequest:
    return MalformedRequest("the form cannot be read")

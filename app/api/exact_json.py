"""Parses JSON request bodies with exact decimal numbers; rejects duplicate keys and NaN."""

import hashlib
import json
from collections.abc import Callable, Coroutine
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.core import limits
from app.core.errors import MalformedRequest, UnsupportedMediaType

_JSON_TYPES = ["application/json"]


class ExactRequest(Request):
    """A request whose ``json()`` has ``Decimal`` where the text has a fraction or an exponent."""

    async def json(self) -> Any:
        if not hasattr(self, "_exact"):
            self._exact = loads(await self.body())
        return self._exact


class ExactRoute(APIRoute):
    """A route that reads its JSON body with :func:`loads` and rejects other media types."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            exact = ExactRequest(request.scope, request.receive)
            if self.body_field is not None:
                check_media_type(exact)
                await exact.json()
            return await handler(exact)

        return handle


def loads(body: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        MalformedRequest: not JSON, not UTF-8, a duplicate key, NaN or an infinity, a number that is too long or
            has too large an exponent, or nested deeper than ``limits.MAX_JSON_DEPTH``.
    """
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_float=_decimal, parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise MalformedRequest("the body is not JSON") from None
    if _is_deeper(value, limits.MAX_JSON_DEPTH):
        raise MalformedRequest("the body is nested too deeply")
    return value


def digest(value: object) -> bytes:
    """Return SHA-256 of a body's canonical form, which does not depend on spacing, key order or number spelling."""
    text = json.dumps(_tagged(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).digest()


def _tagged(value: object) -> object:
    match value:
        case bool() | None | str():
            return value
        case int() | Decimal():
            return {"$number": _number_text(Decimal(value))}
        case list():
            return [_tagged(item) for item in value]
        case dict():
            return {"$object": {key: _tagged(item) for key, item in value.items()}}
    raise TypeError("not a JSON value")


def _number_text(number: Decimal) -> str:
    """Return one text per number, however the number was spelled. Exact: no decimal context rounds or overflows."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).lstrip("0")
    shortest = significant.rstrip("0")
    return f"{'-' * sign}{shortest}e{exponent + len(significant) - len(shortest)}" if shortest else "0"


def _is_deeper(value: object, depth: int) -> bool:
    """Return whether arrays and objects are nested more than ``depth`` times, without recursion."""
    level = [value]
    for _ in range(depth + 1):
        nested = [item for item in level if isinstance(item, list | dict)]
        if not nested:
            return False
        level = [inner for item in nested for inner in (item.values() if isinstance(item, dict) else item)]
    return True


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text) if len(text) <= 400 else _refuse(text)
    except InvalidOperation:  # an exponent beyond what the decimal module can hold
        _refuse(text)


def _refuse(_: str) -> NoReturn:
    raise ValueError("not a number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a duplicate key")
    return result


def check_media_type(request: Request) -> None:
    """Reject a body that is not plain JSON.

    Raises:
        UnsupportedMediaType: another type, or an encoded body.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        raise UnsupportedMediaType(_JSON_TYPES)
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType(_JSON_TYPES)

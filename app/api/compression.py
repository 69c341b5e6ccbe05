"""Compresses answers to GET, and spares clients an answer that they have."""

import re

from starlette.datastructures import Headers
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.accepted import accepts
from app.core import limits

_UNCOMPRESSED = re.compile(
    r"/|/openapi\.json|/ui/.*|/keys.*|.*/webhooks.*|.*/rules|.*/aliases/[^/]+"
)
_OF_A_TAG = (b"etag", b"vary")
"""The header fields of an answer that its 304 has, too."""

_COMPRESSED_ALREADY = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")


class Compression:
    """ASGI middleware that compresses large answers to GET for clients that accept
    gzip, and answers 304 to clients that have the answer.

    Sizes of compressed answers tell whether a guess that a stranger can put into an
    answer is in it, too. So pages, and answers about keys and webhooks, stay as they
    are. So do answers with an ``ETag``, which names their very bytes
    (:class:`app.api.fixed_answers.FixedAnswer` has compressed its own).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(
            app,
            limits.MIN_COMPRESSED_BYTES,
            compresslevel=1,
            exclude_content_types=_COMPRESSED_ALREADY,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        is_get = scope["type"] == "http" and scope["method"] == "GET"
        if is_get:
            send = _unless_held(scope, send)
        if is_get and not _UNCOMPRESSED.fullmatch(scope["path"]):
            coding = Headers(scope=scope).get("accept-encoding", "")
            # Starlette looks for the letters alone, and would compress for a client that
            # refuses gzip with the weight 0.
            is_refused = "gzip" in coding and not accepts(coding, "gzip")
            app = self._app if is_refused else self._compressed
        await app(scope, receive, send)


def _unless_held(scope: Scope, send: Send) -> Send:
    """Sends an answer as 304, without its content, if the request names its ``ETag`` in
    ``If-None-Match``.
    """
    held = Headers(scope=scope).get("if-none-match")
    if held is None:
        return send
    is_held = False

    async def send_unless_held(message: Message) -> None:
        nonlocal is_held
        if message["type"] == "http.response.start":
            tag = Headers(raw=message["headers"]).get("etag")
            # a proxy that compresses an answer makes its tag weak: W/"…"
            is_held = tag is not None and (tag in held or held.strip() == "*")
            if is_held:
                kept = [it for it in message["headers"] if it[0] in _OF_A_TAG]
                message = {**message, "status": 304, "headers": kept}
        elif is_held:
            message = {**message, "body": b""}
        await send(message)

    return send_unless_held

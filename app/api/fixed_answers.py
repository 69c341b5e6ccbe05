"""Answers that are the same for every caller: made once, plain and compressed, each
with an ``ETag``.

Nobody needs a key for them, so an answer costs the event loop no rendering and no
compression.
"""

import gzip
import hashlib
from dataclasses import dataclass

from fastapi import Request, Response

from app.api.accepted import accepts


@dataclass(frozen=True)
class FixedAnswer:
    """The bytes of an answer, and the same bytes compressed."""

    media_type: str
    plain: bytes
    packed: bytes
    digest: str

    @classmethod
    def of(cls, content: bytes, media_type: str) -> "FixedAnswer":
        """Compress an answer."""
        packed = gzip.compress(content, mtime=0)
        return cls(
            media_type, content, packed, hashlib.sha256(content).hexdigest()[:32]
        )

    def to(self, request: Request) -> Response:
        """Answer a request in the form that its client accepts."""
        is_packed = accepts(request.headers.get("accept-encoding", ""), "gzip")
        tag = f'"{self.digest}{"-gzip" if is_packed else ""}"'
        headers = {"ETag": tag, "Vary": "Accept-Encoding"}
        if not is_packed:
            return Response(self.plain, headers=headers, media_type=self.media_type)
        return Response(
            self.packed,
            headers=headers | {"Content-Encoding": "gzip"},
            media_type=self.media_type,
        )

"""Documents the headers of every answer in the OpenAPI document.

What a 201 made has a ``Location`` if the API has a path on which it can be read: a key, for example, has none.
"""

import re
from typing import Any

HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-Id": {
        "description": "The id under which the service's log names the request.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    },
    "Retry-After": {
        "description": "Seconds after which a repetition may succeed.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "description": "How a key is sent.",
        "required": True,
        "schema": {"type": "string", "const": "Bearer"},
    },
    "Location": {"description": "The path of what was made.", "required": True, "schema": {"type": "string"}},
}
"""The components of the document that describe headers."""

HEADERS_OF_STATUS = {
    "202": ("Location",),
    "401": ("WWW-Authenticate",),
    "429": ("Retry-After",),
    "503": ("Retry-After",),
}


def document_headers(paths: dict[str, dict[str, Any]]) -> None:
    """Add the headers of each answer to every operation of the document."""
    for path, methods in paths.items():
        item = re.compile(re.escape(path) + r"/\{\w+\}")
        is_readable = any(item.fullmatch(other) and "get" in operations for other, operations in paths.items())
        made = {"201": ("Location",)} if is_readable else {}
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                names = ("X-Request-Id", *(made | HEADERS_OF_STATUS).get(status, ()))
                answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}

"""Documents the headers of every answer in the OpenAPI document."""

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
    "Location": {"description": "The path of the job.", "required": True, "schema": {"type": "string"}},
}
"""The components of the document that describe headers."""

_OF_STATUS = {"202": ("Location",), "401": ("WWW-Authenticate",), "429": ("Retry-After",), "503": ("Retry-After",)}


def document_headers(operation: dict[str, Any]) -> None:
    """Add the headers of each answer to an operation of the document."""
    for status, answer in operation["responses"].items():
        names = ("X-Request-Id", *_OF_STATUS.get(status, ()))
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}

"""The two ways in which a call can end without an answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class ApiProblem(Exception):
    """The service answered with problem details (RFC 9457).

    Attributes:
        status: HTTP status.
        type: stable slug, such as ``budget-exceeded``; ``unexpected-answer`` when something else answered.
        detail: a sentence for people.
        body: every member that the service sent.
        request_id: what the operator can look the request up by, if the answer carried one.
    """

    status: int
    type: str
    detail: str
    body: Mapping[str, Any]
    request_id: str | None = None

    def __str__(self) -> str:
        return f"{self.detail} ({self.type}, {self.status})"


@dataclass
class Unreachable(Exception):
    """No answer came, after all attempts."""

    url: str
    why: str

    def __str__(self) -> str:
        return f"no answer from {self.url}: {self.why}"

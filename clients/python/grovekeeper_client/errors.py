"""Defines the errors of the client: a problem that the service reports, and a service that cannot be reached."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class ApiProblem(Exception):
    """The service answered with problem details (RFC 9457).

    Attributes:
        status: HTTP status.
        type: stable slug, such as ``budget-exceeded``; ``unexpected-answer`` when something else answered.
        detail: a sentence.
        body: every member of the problem.
        request_id: id of the request in the service's log, if the answer has one.
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
    """No answer arrived in any attempt."""

    url: str
    why: str

    def __str__(self) -> str:
        return f"no answer from {self.url}: {self.why}"

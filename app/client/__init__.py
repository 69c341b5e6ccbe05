"""The HTTP client of the command line: httpx and plain JSON, nothing heavier."""

from app.client.client import Client
from app.client.errors import ApiProblem, Unreachable

__all__ = ["ApiProblem", "Client", "Unreachable"]

"""Refuses query parameters that a route does not declare, and several values of one parameter."""

from collections import Counter
from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.core.errors import FieldProblem, InvalidRequest


async def check_query(request: Request) -> None:
    """Check the names of the query parameters of a request. A misspelt filter would otherwise filter nothing.

    No route of the API declares a parameter with several values.

    Raises:
        InvalidRequest: a parameter is unknown, or occurs twice.
    """
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    declared = sorted(set(_declared(route.dependant)))
    sent = Counter(name for name, _ in request.query_params.multi_items())
    problems = [FieldProblem(f"/{name}", "repeated") for name in declared if sent[name] > 1]
    if not sent.keys() <= set(declared):
        problems.append(FieldProblem("", "unknown-parameter", accepted=tuple(declared)))
    if problems:
        raise InvalidRequest(problems)


def _declared(dependant: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of a route, and of what the route depends on."""
    for parameter in dependant.query_params:
        yield parameter.alias
    for dependency in dependant.dependencies:
        yield from _declared(dependency)

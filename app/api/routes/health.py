"""Defines the routes of probes and metrics."""

from typing import Literal

from fastapi import Request, Response

from app.access.grants import Role
from app.api.authentication import Readiness
from app.api.metrics import MEDIA_TYPE, Metrics
from app.api.requests import Caller, Router, raises
from app.core.errors import NotWritable, RoleMissing, Unavailable
from app.wire.base import Answer


class Health(Answer):
    status: Literal["ok"]


health_routes = Router(tags=["health"])


@health_routes.get("/healthz")
async def check_health() -> Health:
    """Answer 200 while the process runs."""
    return Health(status="ok")


@health_routes.get("/readyz")
@raises(NotWritable, Unavailable)
async def check_readiness(request: Request) -> Health:
    """Answer 200 if the database answers, is at this program's revision and holds every
    head written outside it, and the service can write to its folders.
    """
    readiness: Readiness = request.app.state.readiness
    await readiness.confirm()
    return Health(status="ok")


metric_routes = Router(tags=["health"])


@metric_routes.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics of this process.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    },
)
@raises(RoleMissing)
def show_metrics(request: Request, caller: Caller) -> Response:
    """Show the metrics of this API process in the text format of Prometheus. None of
    them depends on a row.
    """
    caller.require(Role.AUDITOR)
    measured: Metrics = request.app.state.metrics
    return Response(measured.text(), media_type=MEDIA_TYPE)

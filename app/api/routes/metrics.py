"""Defines the route of ``/metrics``, which shows the metrics of this process to auditors and admins."""

from fastapi import APIRouter, Request, Response

from app.access.roles import Role
from app.api import problems
from app.api.bodies import BodyRoute
from app.api.deps import Caller
from app.api.metrics import Metrics
from app.core.errors import RoleMissing

router = APIRouter(tags=["health"], route_class=BodyRoute)


@router.get(
    "/metrics",
    operation_id="show_metrics",
    response_class=Response,
    responses={
        200: {"description": "Metrics of this process.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems.documented(RoleMissing),
    },
)
def show_metrics(request: Request, caller: Caller) -> Response:
    """Show the metrics of this API process in the text format of Prometheus. None of them depends on a row."""
    caller.require(Role.AUDITOR)
    from app.api import metrics_text  # the library of Prometheus

    measured: Metrics = request.app.state.metrics
    return Response(metrics_text.write(measured.collect()), media_type=metrics_text.MEDIA_TYPE)

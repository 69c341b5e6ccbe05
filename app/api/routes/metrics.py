"""Defines the route of ``/metrics``, which shows the metrics of this process to auditors and admins."""

from fastapi import APIRouter, Request, Response

from app.access.grants import Role
from app.api import problems
from app.api.metrics import MEDIA_TYPE, Metrics, text_of
from app.api.requests import BodyRoute, Caller
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
    measured: Metrics = request.app.state.metrics
    return Response(text_of(measured.collect()), media_type=MEDIA_TYPE)

"""Defines the routes of health, metrics and keys.

``/healthz`` and ``/readyz`` report without a key whether the service is alive and ready; ``/metrics`` shows the metrics
of this process to auditors and admins; ``/keys`` creates, lists, rotates and revokes access keys.
"""

from typing import Literal

from fastapi import APIRouter, Request, Response

from app.access.grants import Role
from app.api.authentication import Readiness
from app.api.metrics import MEDIA_TYPE, Metrics
from app.api.problems import JSON_BODY, documented
from app.api.requests import SHOWS_SECRET, BodyRoute, By, Caller, Page, limited
from app.core.errors import NotFound, RoleMissing, Unavailable
from app.services import keys
from app.wire.base import Answer
from app.wire.keys import KeyCreated, KeyIn, KeyList, RotationIn

health_routes = APIRouter(tags=["health"])


class Health(Answer):
    status: Literal["ok"]


@health_routes.get("/healthz", responses=documented(needs_key=False))
async def check_health() -> Health:
    """Answer 200 while the process runs."""
    return Health(status="ok")


@health_routes.get("/readyz", responses=documented(Unavailable, needs_key=False))
async def check_readiness(request: Request) -> Health:
    """Answer 200 if the database answers, is at this program's revision and holds every head written outside it."""
    readiness: Readiness = request.app.state.readiness
    await readiness.confirm()
    return Health(status="ok")


metric_routes = APIRouter(tags=["health"], route_class=BodyRoute)


@metric_routes.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Metrics of this process.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **documented(RoleMissing),
    },
)
def show_metrics(request: Request, caller: Caller) -> Response:
    """Show the metrics of this API process in the text format of Prometheus. None of them depends on a row."""
    caller.require(Role.AUDITOR)
    measured: Metrics = request.app.state.metrics
    return Response(measured.text(), media_type=MEDIA_TYPE)


key_routes = APIRouter(prefix="/keys", tags=["keys"], route_class=BodyRoute)


@key_routes.post("", status_code=201, dependencies=SHOWS_SECRET, responses=documented(RoleMissing, *JSON_BODY))
@limited(needs=Role.ADMIN)
def create_key(by: By, body: KeyIn, response: Response) -> KeyCreated:
    """Make a key. Only this answer shows its secret."""
    made = keys.create_key(*by, body)
    response.headers["Location"] = f"/keys/{made.id}"
    return made


@key_routes.post(
    "/{key_id}/secret",
    status_code=201,
    dependencies=SHOWS_SECRET,
    responses=documented(RoleMissing, NotFound, *JSON_BODY),
)
@limited(needs=Role.ADMIN)
def rotate_key(by: By, key_id: str, body: RotationIn) -> KeyCreated:
    """Replace the secret of a key. The key's id stays; requests with the earlier secret are refused at once."""
    return keys.rotate_key(*by, key_id, body)


@key_routes.get("", responses=documented(RoleMissing))
def list_keys(by: By, page: Page) -> KeyList:
    """List all keys without secrets, expired and revoked keys included."""
    return keys.list_keys(*by, page)


@key_routes.delete("/{key_id}", status_code=204, responses=documented(RoleMissing, NotFound))
def revoke_key(by: By, key_id: str) -> None:
    """Revoke a key at once."""
    keys.revoke_key(*by, key_id)

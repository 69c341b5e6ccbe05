"""Defines ``/healthz`` and ``/readyz``, which report without a key whether the service is alive and ready."""

from typing import Literal

from fastapi import APIRouter, Request

from app.api import problems
from app.api.authentication import Readiness
from app.core.errors import Unavailable
from app.wire.base import Answer

router = APIRouter(tags=["health"])


class Health(Answer):
    status: Literal["ok"]


@router.get("/healthz", operation_id="check_health", responses=problems.documented(needs_key=False))
async def check_health() -> Health:
    """Answer 200 while the process runs."""
    return Health(status="ok")


@router.get("/readyz", operation_id="check_readiness", responses=problems.documented(Unavailable, needs_key=False))
async def check_readiness(request: Request) -> Health:
    """Answer 200 if the database answers, is at this program's revision and holds every head written outside it."""
    readiness: Readiness = request.app.state.readiness
    await readiness.confirm()
    return Health(status="ok")

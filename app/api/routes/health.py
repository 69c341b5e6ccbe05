"""Defines ``/healthz`` and ``/readyz``, which report without a key whether the service is alive and ready."""

from typing import Literal

from fastapi import APIRouter

from app.api import problems
from app.api.deps import KeptHeads
from app.api.readiness import confirm_ready
from app.core.errors import Unavailable
from app.wire.base import Answer

router = APIRouter(tags=["health"])


class Health(Answer):
    status: Literal["ok"]


@router.get("/healthz", operation_id="check_health", responses=problems.documented(needs_key=False))
def check_health() -> Health:
    """Answer 200 while the process runs."""
    return Health(status="ok")


@router.get("/readyz", operation_id="check_readiness", responses=problems.documented(Unavailable, needs_key=False))
def check_readiness(heads: KeptHeads) -> Health:
    """Answer 200 if the database answers, is at this program's revision and holds every head written outside it."""
    confirm_ready(heads)
    return Health(status="ok")

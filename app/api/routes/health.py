"""``/healthz`` and ``/readyz``: without a key, and without a word about data."""

from typing import Literal

from fastapi import APIRouter

from app.api import problems
from app.api.deps import Here
from app.core.errors import Unavailable
from app.db import migrate
from app.wire.base import Answer

router = APIRouter(tags=["health"])


class Health(Answer):
    status: Literal["ok"]


@router.get("/healthz", operation_id="check_health", responses=problems.documented(needs_key=False))
def check_health() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", operation_id="check_readiness", responses=problems.documented(Unavailable, needs_key=False))
def check_readiness(here: Here) -> Health:
    """The database answers and is at this program's revision."""
    if not migrate.is_current(here.database):
        raise Unavailable("the database was not upgraded; run: grovekeeper db upgrade")
    return Health(status="ok")

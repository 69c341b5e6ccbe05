"""Defines the route of ``/attention``."""

from fastapi import APIRouter

from app.api.problems import documented
from app.api.requests import BodyRoute, By
from app.core.errors import BalanceMismatch
from app.services import attention
from app.wire.attention import AttentionOut

attention_routes = APIRouter(tags=["approvals"], route_class=BodyRoute)


@attention_routes.get("/attention", responses=documented(BalanceMismatch))
def show_attention(by: By) -> AttentionOut:
    """Show what needs the key, jobs of the last day, and the budgets that end first."""
    return attention.show_attention(*by)

"""Defines the route of ``/attention``."""

from app.api.requests import By, Router, raises
from app.core.errors import BalanceMismatch
from app.services import attention
from app.wire.attention import AttentionOut

attention_routes = Router(tags=["approvals"])


@attention_routes.get("/attention")
@raises(BalanceMismatch)
def show_attention(by: By) -> AttentionOut:
    """Show what needs the key, jobs of the last day, and the budgets that end first."""
    return attention.show_attention(*by)

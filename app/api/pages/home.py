"""Serves the first page: what needs the caller, what ran, and which budgets end first."""

from fastapi import Response
from fastapi.responses import RedirectResponse

from app.api.pages.home_view import budget_row, needs_of
from app.api.pages.rendering import Visitor
from app.api.pages.views import may_declare
from app.api.requests import Router
from app.core import limits
from app.services import attention

home_pages = Router()


@home_pages.get("/")
def show_home(visit: Visitor) -> Response:
    """Show what ``GET /attention`` answers; without a dataset, how to begin."""
    found = attention.show_attention(*visit.by)
    return visit.page(
        "home",
        found=found,
        needs=needs_of(found),
        decisions=[*found.approvals, *found.proposals],
        most=limits.MAX_ATTENTION,
        budgets=list(map(budget_row, found.budgets)),
        may_declare=may_declare(visit.caller),
    )


@home_pages.get("/ui")
@home_pages.get("/ui/")
def lead_home(visit: Visitor) -> Response:
    """Lead whoever shortens the address of a page to the first page."""
    return RedirectResponse("/", status_code=303)

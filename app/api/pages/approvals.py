"""Serves the page of jobs that wait for the decision of an owner."""

from fastapi import APIRouter, Request, Response

from app.access.grants import Principal
from app.api.pages.forms import Form, checked, submitted
from app.api.pages.refusals import rendered_with
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation, Page
from app.core.errors import GrovekeeperError
from app.services import approvals
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.wire.rules import DecisionIn

router = APIRouter(prefix="/ui/approvals", route_class=PageRoute)


@router.get("")
def list_approvals(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show the jobs that wait for a decision for a dataset that the key owns, oldest first."""
    return _page(request, installation, caller, page)


@router.post("/{job_id}")
async def decide(request: Request, installation: CurrentInstallation, caller: Caller, job_id: str) -> Response:
    """Approve or reject a waiting job."""

    def act(form: Form) -> str:
        body = checked(DecisionIn, {name: form.get(name, "").strip() for name in ("decision", "reason")})
        approvals.decide(installation, caller, job_id, body)
        return "/ui/approvals"

    return await submitted(request, act, lambda refusal: _page(request, installation, caller, refusal=refusal))


def _page(
    request: Request,
    installation: Installation,
    caller: Principal,
    page: PageRequest | None = None,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    listed = approvals.list_approvals(installation, caller, page or PageRequest())
    return rendered_with(request, "approvals", refusal, approvals=listed.approvals, following=listed.next)

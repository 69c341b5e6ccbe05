"""Serves the page of populations: accounts over several datasets about the same people."""

from fastapi import APIRouter, Request, Response

from app.access.grants import Principal
from app.api.pages.forms import Form, checked, submitted
from app.api.pages.refusals import rendered_with
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation, Page
from app.core.errors import GrovekeeperError
from app.services import populations
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.wire.datasets import PopulationIn

router = APIRouter(prefix="/ui/populations", route_class=PageRoute)


@router.get("")
def list_populations(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show the populations that the key opened, with their members; all populations for admins and auditors."""
    return _page(request, installation, caller, page)


@router.post("")
async def open_population(request: Request, installation: CurrentInstallation, caller: Caller) -> Response:
    """Open a population with a budget."""

    def act(form: Form) -> str:
        budget = {name: form.get(name, "").strip() for name in ("accountant", "epsilon", "delta")}
        body = {
            "name": form.get("name", "").strip(),
            "budget": {name: text for name, text in budget.items() if text},
        }
        populations.open_population(installation, caller, checked(PopulationIn, body), request=None)
        return "/ui/populations"

    return await submitted(request, act, lambda refusal: _page(request, installation, caller, refusal=refusal))


def _page(
    request: Request,
    installation: Installation,
    caller: Principal,
    page: PageRequest | None = None,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    listed = populations.list_populations(installation, caller, page or PageRequest())
    return rendered_with(
        request,
        "populations",
        refusal,
        populations=[population.model_dump() for population in listed.populations],
        following=listed.next,
    )

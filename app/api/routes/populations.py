"""Defines the routes of ``/populations``: open, list and show. Their ledgers are under ``/ledger/{account}``."""

from fastapi import APIRouter, Response

from app.access.grants import Role
from app.api import problems
from app.api.requests import BodyRoute, Caller, CurrentInstallation, OptionalIdempotency, Page, limited, sent
from app.core.errors import NameTaken, NotFound, NotSupported, RoleMissing
from app.services import populations
from app.wire.datasets import PopulationIn, PopulationList, PopulationOut

router = APIRouter(prefix="/populations", tags=["populations"], route_class=BodyRoute)


@router.post(
    "",
    operation_id="create_population",
    status_code=201,
    response_model=PopulationOut,
    responses=problems.documented(RoleMissing, NameTaken, NotSupported, *problems.JSON_BODY, *problems.REPEATABLE),
)
@limited(needs=Role.OWNER)
def create_population(
    installation: CurrentInstallation, caller: Caller, body: PopulationIn, request: OptionalIdempotency
) -> Response:
    """Open an account over all datasets about the same people. Datasets join the population by its name."""
    return sent(populations.open_population(installation, caller, body, request=request))


@router.get("", operation_id="list_populations", responses=problems.documented(RoleMissing))
def list_populations(installation: CurrentInstallation, caller: Caller, page: Page) -> PopulationList:
    """List the populations that the key opened, with their members; all populations for admins and auditors."""
    return populations.list_populations(installation, caller, page)


@router.get("/{population}", operation_id="show_population", responses=problems.documented(NotFound))
def show_population(installation: CurrentInstallation, caller: Caller, population: str) -> PopulationOut:
    """Show one population with its members, by id or name."""
    return populations.show_population(installation, caller, population)

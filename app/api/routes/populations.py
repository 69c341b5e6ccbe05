"""Defines the routes of ``/populations``: open, list and show. Their ledgers are under ``/ledger/{account}``."""

from fastapi import APIRouter, Response

from app.api import problems
from app.api.deps import Caller, Here, OptionalIdempotency, Page, sent
from app.api.exact_json import ExactRoute
from app.core.errors import NameTaken, NotFound, NotSupported, RoleMissing
from app.services import populations
from app.wire.populations import PopulationIn, PopulationList, PopulationOut

router = APIRouter(prefix="/populations", tags=["populations"], route_class=ExactRoute)


@router.post(
    "",
    operation_id="create_population",
    status_code=201,
    response_model=PopulationOut,
    responses=problems.documented(RoleMissing, NameTaken, NotSupported, *problems.JSON_BODY, *problems.REPEATABLE),
)
def create_population(here: Here, caller: Caller, body: PopulationIn, request: OptionalIdempotency) -> Response:
    """Opens an account over all datasets about the same people. Datasets join the population by its name."""
    return sent(populations.open_population(here, caller, body, request=request))


@router.get("", operation_id="list_populations", responses=problems.documented(RoleMissing))
def list_populations(here: Here, caller: Caller, page: Page) -> PopulationList:
    """The populations that the key opened, with their members; all populations for admins and auditors."""
    return populations.list_populations(here, caller, page)


@router.get("/{population}", operation_id="show_population", responses=problems.documented(NotFound))
def show_population(here: Here, caller: Caller, population: str) -> PopulationOut:
    """One population with its members, by id or name."""
    return populations.show_population(here, caller, population)

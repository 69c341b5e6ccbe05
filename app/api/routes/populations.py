"""Defines the routes of populations; their ledgers are under ``/ledger/{account}``."""

from fastapi import Response

from app.access.grants import Role
from app.api.requests import (
    Body,
    By,
    OptionalIdempotency,
    Page,
    Router,
    limited,
    raises,
    sent,
)
from app.core.errors import (
    BalanceMismatch,
    DatasetDeleted,
    NameTaken,
    PopulationMismatch,
    RoleMissing,
    TooLarge,
)
from app.services import populations
from app.services.datasets import membership, unit_erasure
from app.wire.datasets import DatasetOut
from app.wire.populations import (
    JoinIn,
    PersonErasureIn,
    PersonErasureOut,
    PopulationIn,
    PopulationList,
    PopulationOut,
)
from grovekeeper_forests.errors import NotSupported

membership_routes = Router(prefix="/datasets", tags=["datasets"])


@membership_routes.put(
    "/{dataset}/population",
)
@raises(DatasetDeleted, PopulationMismatch, BalanceMismatch)
def join_population(by: By, dataset: str, body: JoinIn) -> DatasetOut:
    """State that the rows are about the people of a population. From then on its cap
    applies, too, for good.
    """
    return membership.join_population(*by, dataset, population=body.population)


population_routes = Router(prefix="/populations", tags=["populations"])


@population_routes.post(
    "",
    status_code=201,
    response_model=PopulationOut,
)
@limited(needs=Role.OWNER)
@raises(NameTaken, NotSupported)
def create_population(
    by: By, body: PopulationIn, request: OptionalIdempotency
) -> Response:
    """Open an account over all datasets about the same people. Datasets join the
    population by its name.
    """
    return sent(populations.open_population(*by, body, request=request))


@population_routes.get("")
@raises(RoleMissing)
def list_populations(by: By, page: Page) -> PopulationList:
    """List the populations that the key opened, with their members; all populations for
    admins and auditors.
    """
    return populations.list_populations(*by, page)


@population_routes.get("/{population}")
@raises(any_role=True)
def show_population(by: By, population: str) -> PopulationOut:
    """Show one population with its members, by id or name."""
    return populations.show_population(*by, population)


@population_routes.post(
    "/{population}/erasures",
)
@limited(body=Body.ERASURE)
@raises(DatasetDeleted, TooLarge)
def erase_person(by: By, population: str, body: PersonErasureIn) -> PersonErasureOut:
    """Erase the rows of one person from several members. Spend stays spent, and every
    chosen member gets an act, whether or not the person was there.
    """
    return unit_erasure.erase_person(*by, population, body)

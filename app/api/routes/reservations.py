"""Defines the routes of ``/ledger/{dataset}/quotes`` and ``/reservations``: charges for external mechanisms."""

from fastapi import APIRouter, Response

from app.api import problems
from app.api.deps import Caller, Here, Idempotency, Page, sent
from app.api.exact_json import ExactRoute
from app.core.errors import AccountantMismatch, DatasetDeleted, NotFound, RoleMissing
from app.services.ledger import external
from app.wire.external_charges import ExternalIn, ExternalQuote, ReservationList, ReservationOut

router = APIRouter(prefix="/ledger/{dataset}", tags=["ledger"], route_class=ExactRoute)


@router.post(
    "/quotes",
    operation_id="create_quote",
    responses=problems.documented(NotFound, RoleMissing, DatasetDeleted, AccountantMismatch, *problems.JSON_BODY),
)
def create_quote(here: Here, caller: Caller, dataset: str, body: ExternalIn) -> ExternalQuote:
    """The price of an external mechanism, and whether it fits. A quote costs nothing."""
    return external.quote_external(here, caller, dataset, body)


@router.post(
    "/reservations",
    operation_id="create_reservation",
    status_code=201,
    response_model=ReservationOut,
    responses=problems.documented(NotFound, RoleMissing, AccountantMismatch, *problems.SPENDING),
)
def create_reservation(here: Here, caller: Caller, dataset: str, body: ExternalIn, request: Idempotency) -> Response:
    """Charges the dataset's account for an external mechanism, at once and for good. Ask before the mechanism runs."""
    return sent(external.charge_external(here, caller, dataset, body, request=request))


@router.get("/reservations", operation_id="list_reservations", responses=problems.documented(NotFound, RoleMissing))
def list_reservations(here: Here, caller: Caller, dataset: str, page: Page) -> ReservationList:
    """The charges for external mechanisms, and who attests them."""
    return external.list_reservations(here, caller, dataset, page)


@router.get(
    "/reservations/{reservation_id}",
    operation_id="show_reservation",
    responses=problems.documented(NotFound, RoleMissing),
)
def show_reservation(here: Here, caller: Caller, dataset: str, reservation_id: str) -> ReservationOut:
    """One charge for an external mechanism."""
    return external.show_reservation(here, caller, dataset, reservation_id)

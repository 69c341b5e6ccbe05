"""``/ledger/{dataset}/reservations`` and ``/quotes``: the ledger for mechanisms that run elsewhere."""

from fastapi import APIRouter, Response

from app.api import problems
from app.api.deps import Caller, Here, Idempotency, Page, sent
from app.api.exact_json import ExactRoute
from app.core.errors import (
    AccountantMismatch,
    DatasetDeleted,
    NotFound,
    NotSupported,
    ReservationSettled,
    RoleMissing,
)
from app.services.ledger import show_external_charges
from app.services.ledger.charge_external import charge_elsewhere, quote_elsewhere
from app.wire.external_charges import ElsewhereIn, ElsewhereQuote, ReservationList, ReservationOut

router = APIRouter(prefix="/ledger/{dataset}", tags=["ledger"], route_class=ExactRoute)


@router.post(
    "/quotes",
    operation_id="create_quote",
    responses=problems.documented(
        NotFound, RoleMissing, NotSupported, DatasetDeleted, AccountantMismatch, *problems.JSON_BODY
    ),
)
def create_quote(here: Here, caller: Caller, dataset: str, body: ElsewhereIn) -> ElsewhereQuote:
    """The price of a mechanism that runs elsewhere, and whether it fits. Costs nothing."""
    return quote_elsewhere(here, caller, dataset, body)


@router.post(
    "/reservations",
    operation_id="create_reservation",
    status_code=201,
    response_model=ReservationOut,
    responses=problems.documented(NotFound, RoleMissing, NotSupported, AccountantMismatch, *problems.SPENDING),
)
def create_reservation(here: Here, caller: Caller, dataset: str, body: ElsewhereIn, request: Idempotency) -> Response:
    """Charges the account, at once and for good, for a mechanism that runs elsewhere. Ask before you run it."""
    return sent(charge_elsewhere(here, caller, dataset, body, request=request))


@router.get("/reservations", operation_id="list_reservations", responses=problems.documented(NotFound, RoleMissing))
def list_reservations(here: Here, caller: Caller, dataset: str, page: Page) -> ReservationList:
    """What was charged for mechanisms that run elsewhere, and who attests it."""
    return show_external_charges.list_reservations(here, caller, dataset, page)


@router.get(
    "/reservations/{reservation_id}",
    operation_id="show_reservation",
    responses=problems.documented(NotFound, RoleMissing),
)
def show_reservation(here: Here, caller: Caller, dataset: str, reservation_id: str) -> ReservationOut:
    """One charge for a mechanism that runs elsewhere."""
    return show_external_charges.show_reservation(here, caller, dataset, reservation_id)


@router.post(
    "/reservations/{reservation_id}/charge",
    operation_id="charge_reservation",
    responses=problems.documented(NotFound, RoleMissing),
)
def charge_reservation(here: Here, caller: Caller, dataset: str, reservation_id: str) -> ReservationOut:
    """Confirms a charge. A reservation without rows to gate is charged when it is made, so this changes nothing."""
    return show_external_charges.confirm_charge(here, caller, dataset, reservation_id)


@router.post(
    "/reservations/{reservation_id}/void",
    operation_id="void_reservation",
    responses=problems.documented(NotFound, RoleMissing, ReservationSettled),
)
def void_reservation(here: Here, caller: Caller, dataset: str, reservation_id: str) -> ReservationOut:
    """Refused: nothing here can show that a mechanism elsewhere read nothing."""
    return show_external_charges.refuse_void(here, caller, dataset, reservation_id)

"""Defines the routes of ``/ledger/{dataset}/quotes`` and ``/reservations``: charges for external mechanisms.

What prices and writes a charge takes 0.7 MB and is imported at the first request, as in :mod:`app.api.routes.training`.
"""

from fastapi import APIRouter, Response

from app.api import problems
from app.api.requests import BodyRoute, Caller, CurrentInstallation, Idempotency, Page, sent
from app.core.errors import AccountantMismatch, DatasetDeleted, NeedsApproval, NotFound, RoleMissing
from app.services.ledger import external
from app.wire.ledger import ExternalIn, ExternalQuote, ReservationList, ReservationOut

router = APIRouter(prefix="/ledger/{dataset}", tags=["ledger"], route_class=BodyRoute)


@router.post(
    "/quotes",
    operation_id="create_quote",
    responses=problems.documented(NotFound, RoleMissing, DatasetDeleted, AccountantMismatch, *problems.JSON_BODY),
)
def create_quote(installation: CurrentInstallation, caller: Caller, dataset: str, body: ExternalIn) -> ExternalQuote:
    """Quote an external mechanism: its price, and whether it fits. A quote costs nothing."""
    return external.quote_external(installation, caller, dataset, body)


@router.post(
    "/reservations",
    operation_id="create_reservation",
    status_code=201,
    response_model=ReservationOut,
    responses=problems.documented(NotFound, RoleMissing, AccountantMismatch, NeedsApproval, *problems.SPENDING),
)
def create_reservation(
    installation: CurrentInstallation, caller: Caller, dataset: str, body: ExternalIn, request: Idempotency
) -> Response:
    """Charge the dataset's account for an external mechanism, for good. Request it before the mechanism runs."""
    return sent(external.charge_external(installation, caller, dataset, body, request=request))


@router.get("/reservations", operation_id="list_reservations", responses=problems.documented(NotFound, RoleMissing))
def list_reservations(installation: CurrentInstallation, caller: Caller, dataset: str, page: Page) -> ReservationList:
    """List the charges for external mechanisms, and who attests them."""
    return external.list_reservations(installation, caller, dataset, page)


@router.get(
    "/reservations/{reservation_id}",
    operation_id="show_reservation",
    responses=problems.documented(NotFound, RoleMissing),
)
def show_reservation(
    installation: CurrentInstallation, caller: Caller, dataset: str, reservation_id: str
) -> ReservationOut:
    """Show one charge for an external mechanism."""
    return external.show_reservation(installation, caller, dataset, reservation_id)

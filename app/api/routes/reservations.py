"""Defines the routes of external charges."""

from fastapi import Response

from app.api.problems import QUOTED
from app.api.requests import By, Idempotency, Page, Router, raises, sent
from app.core.errors import NeedsApproval
from app.services.ledger import external
from app.wire.reservations import (
    ExternalIn,
    ExternalQuote,
    ReservationList,
    ReservationOut,
)
from grovekeeper_forests.errors import AccountantMismatch

reservation_routes = Router(prefix="/ledger/{dataset}", tags=["ledger"])


@reservation_routes.post("/quotes")
@raises(*QUOTED, AccountantMismatch)
def create_quote(by: By, dataset: str, body: ExternalIn) -> ExternalQuote:
    """Quote an external mechanism: its price, and whether it fits. A quote costs
    nothing.
    """
    return external.quote_external(*by, dataset, body)


@reservation_routes.post(
    "/reservations",
    status_code=201,
    response_model=ReservationOut,
)
@raises(AccountantMismatch, NeedsApproval)
def create_reservation(
    by: By, dataset: str, body: ExternalIn, request: Idempotency
) -> Response:
    """Charge the dataset's account for an external mechanism, for good. Request it
    before the mechanism runs.
    """
    return sent(external.charge_external(*by, dataset, body, request=request))


@reservation_routes.get("/reservations")
def list_reservations(by: By, dataset: str, page: Page) -> ReservationList:
    """List the charges for external mechanisms, and who attests them."""
    return external.list_reservations(*by, dataset, page)


@reservation_routes.get("/reservations/{reservation_id}")
def show_reservation(by: By, dataset: str, reservation_id: str) -> ReservationOut:
    """Show one charge for an external mechanism."""
    return external.show_reservation(*by, dataset, reservation_id)

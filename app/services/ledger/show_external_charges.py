"""``GET /ledger/{dataset}/reservations``, and what ``…/charge`` and ``…/void`` say about one."""

from typing import Literal, NoReturn, cast

from sqlalchemy.orm import Session

from app.access.roles import ATTEST, SEE_RESERVATIONS, Principal
from app.core.errors import ReservationSettled
from app.datasets import catalog
from app.ledger import external
from app.ledger import service as ledger
from app.ledger.tables import ReservationRow
from app.privacy import declared, events
from app.services.authorization import permitted
from app.services.installation import Installation
from app.services.ledger.external_price import price_of, receipt_of
from app.services.pages import PageRequest, page_of
from app.wire.external_charges import ReservationList, ReservationOut


def list_reservations(
    installation: Installation, principal: Principal, reference: str, page: PageRequest
) -> ReservationList:
    """What was charged for mechanisms that run elsewhere.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key neither attests there nor reads its ledger.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, SEE_RESERVATIONS)
        shown, following = page_of(
            page, lambda limit: external.page(session, dataset.id, after=page.cursor, limit=limit), lambda row: row.id
        )
        return ReservationList(reservations=[reservation_out(session, dataset, row) for row in shown], next=following)


def show_reservation(
    installation: Installation, principal: Principal, reference: str, reservation_id: str
) -> ReservationOut:
    """One of them.

    Raises:
        NotFound: no such dataset or reservation, or none that this key may know of.
        RoleMissing: the key neither attests there nor reads its ledger.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, SEE_RESERVATIONS)
        return reservation_out(session, dataset, external.find(session, dataset.id, reservation_id))


def confirm_charge(
    installation: Installation, principal: Principal, reference: str, reservation_id: str
) -> ReservationOut:
    """Says that a reservation is charged: it has been since it was made, so there is nothing to do, however often.

    Raises:
        NotFound: no such dataset or reservation, or none that this key may know of.
        RoleMissing: the key may not attest there.
    """
    with installation.database.read() as session:
        dataset, row = _attested(session, principal, reference, reservation_id)
        return reservation_out(session, dataset, row)


def refuse_void(installation: Installation, principal: Principal, reference: str, reservation_id: str) -> NoReturn:
    """Says why a reservation is not given back: nobody but its attester knows what was read (docs/adr).

    Raises:
        NotFound: no such dataset or reservation, or none that this key may know of.
        RoleMissing: the key may not attest there.
        ReservationSettled: always.
    """
    with installation.database.read() as session:
        _, row = _attested(session, principal, reference, reservation_id)
        raise ReservationSettled(row.state)


def reservation_out(session: Session, dataset: catalog.Dataset, row: ReservationRow) -> ReservationOut:
    """A reservation as answers show it: everything stands in its entries, too."""
    details = row.details or {}
    stated = declared.from_json(details["declared"]) if row.event is None else events.from_json(row.event)
    accountant, per = ledger.highest_cap(session, dataset.id).accountant, details["per"]
    return ReservationOut(
        reservation_id=row.id,
        dataset=dataset.id,
        dataset_name=dataset.name,
        state=cast(Literal["reserved", "charged", "void", "expired"], row.state),
        scope=row.scope,
        price=price_of(accountant, row.amount, external.delta_steps(details.get("delta"))),
        description=details["description"],
        per=per,
        event=row.event,
        declared=details.get("declared"),
        attested_by=details["attested_by"],
        receipt=receipt_of(dataset, accountant, stated, per=per),
    )


def _attested(
    session: Session, principal: Principal, reference: str, reservation_id: str
) -> tuple[catalog.Dataset, ReservationRow]:
    dataset = permitted(session, principal, reference, ATTEST)
    return dataset, external.find(session, dataset.id, reservation_id)

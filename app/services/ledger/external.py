"""Serves ``/ledger/{dataset}/quotes`` and ``/reservations``: quotes, charges and lists external mechanisms."""

from typing import Any, Literal, cast

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest
from app.access.roles import ATTEST, SEE_RESERVATIONS, Principal
from app.core.errors import NotFound
from app.datasets.catalog import Dataset
from app.ledger import account_facts, external, statements
from app.ledger.reservations import NewReservation
from app.ledger.tables import ReservationRow
from app.privacy import declared, events
from app.privacy.declared import DeclaredLoss
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.ledger.accounts import dataset_with_account
from app.services.ledger.external_price import ExternalCharge, price_external, price_out, receipt_of
from app.services.pages import PageRequest, page_of
from app.services.spending.spend import spending
from app.wire.ledger import ExternalIn, ExternalQuote, ReservationList, ReservationOut


def quote_external(installation: Installation, principal: Principal, reference: str, body: ExternalIn) -> ExternalQuote:
    """Quotes an external mechanism: its price, and whether the account would admit it. Changes nothing.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may not attest on the dataset.
        InvalidRequest: the event, the declared loss or the scope breaks a rule.
        DatasetDeleted: the dataset's rows are erased.
        AccountantMismatch: no bound is proved in the account's unit.
    """
    with installation.database.read() as session:
        dataset = dataset_with_account(session, principal, reference, ATTEST).living()
        charge = price_external(session, principal, dataset, body)
    return ExternalQuote(
        dataset=dataset.id,
        dataset_name=dataset.name,
        scope={name: list(cells) for name, cells in charge.scope.items()},
        price=charge.price,
        odds=charge.odds,
        receipt=charge.receipt,
        fits=charge.fits,
        remaining=charge.balance.text(charge.balance.remaining),
        delta_remaining=account_facts.delta_text(charge.delta_room) if charge.delta else None,
        largest_that_fits=charge.largest_that_fits,
        warnings=charge.warnings,
    )


def charge_external(
    installation: Installation, caller: Principal, reference: str, body: ExternalIn, *, request: IdempotentRequest
) -> Answer:
    """Charges an external mechanism at once and for good, on the caller's word. The mechanism may run after the answer.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may not attest on the dataset.
        InvalidRequest: the event, the declared loss or the scope breaks a rule.
        DatasetDeleted: the dataset's rows are erased.
        AccountantMismatch: no bound is proved in the account's unit.
        BudgetExceeded: the account refuses the charge.
    """
    with spending(installation, caller, request) as spend:
        [asked] = spend.authorize([reference], ATTEST)
        dataset, session = asked.dataset, spend.session
        if dataset.is_public:
            raise NotFound("account")
        if (earlier := spend.lock(route=f"POST /ledger/{dataset.id}/reservations")) is not None:
            return earlier
        charge = price_external(session, spend.principal, dataset, body)
        actor = spend.principal.key_id
        new_reservation = _reservation(charge, body, attested_by=actor)
        reservation_id = external.charge(session, new_reservation, delta=charge.delta, actor=actor)
        notices.budgets_changed(session, [dataset.id], at=spend.at)
        shown = _reservation_out(session, dataset, external.find(session, dataset.id, reservation_id))
        return spend.store(Answer.of(201, shown, location=f"/ledger/{dataset.id}/reservations/{reservation_id}"))


def list_reservations(
    installation: Installation, principal: Principal, reference: str, page: PageRequest
) -> ReservationList:
    """Lists the charges for external mechanisms on a dataset.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key neither attests on the dataset nor reads its ledger.
    """
    with installation.database.read() as session:
        dataset = dataset_with_account(session, principal, reference, SEE_RESERVATIONS)
        shown, following = page_of(
            page, lambda limit: external.page(session, dataset.id, after=page.cursor, limit=limit), lambda row: row.id
        )
        return ReservationList(reservations=[_reservation_out(session, dataset, row) for row in shown], next=following)


def show_reservation(
    installation: Installation, principal: Principal, reference: str, reservation_id: str
) -> ReservationOut:
    """Shows one charge for an external mechanism.

    Raises:
        NotFound: no such dataset or reservation, or it is not visible to this key.
        RoleMissing: the key neither attests on the dataset nor reads its ledger.
    """
    with installation.database.read() as session:
        dataset = dataset_with_account(session, principal, reference, SEE_RESERVATIONS)
        return _reservation_out(session, dataset, external.find(session, dataset.id, reservation_id))


def _reservation(charge: ExternalCharge, body: ExternalIn, *, attested_by: str) -> NewReservation:
    """The reservation of a charge. Both of its entries repeat its details, which are public facts."""
    details: dict[str, Any] = {"attested_by": attested_by, "description": body.description, "per": charge.per}
    is_declared = isinstance(charge.stated, DeclaredLoss)
    if is_declared:
        details["declared"] = charge.stated.to_json()
    return NewReservation(
        account_id=charge.dataset.id,
        amount=charge.amount,
        scope=charge.scope,
        event=None if is_declared else charge.stated.to_json(),
        job_id=None,
        details=details,
        largest_within=charge.largest_within,
    )


def _reservation_out(session: Session, dataset: Dataset, row: ReservationRow) -> ReservationOut:
    details = row.details or {}
    stated = declared.from_json(details["declared"]) if row.event is None else events.from_json(row.event)
    accountant, per = statements.highest_cap(session, dataset.id).accountant, details["per"]
    return ReservationOut(
        reservation_id=row.id,
        dataset=dataset.id,
        dataset_name=dataset.name,
        state=cast(Literal["reserved", "charged", "void", "expired"], row.state),
        scope=row.scope,
        price=price_out(accountant, row.amount, account_facts.delta_steps(details.get("delta"))),
        description=details["description"],
        per=per,
        event=row.event,
        declared=details.get("declared"),
        attested_by=details["attested_by"],
        receipt=receipt_of(dataset, accountant, stated, per=per),
    )

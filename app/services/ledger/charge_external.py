"""``POST /ledger/{dataset}/reservations``: charges an account for a mechanism that runs elsewhere, before it runs."""

from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.access.roles import ATTEST, Principal
from app.core.errors import NotSupported
from app.datasets import catalog
from app.ledger import external
from app.ledger import service as ledger
from app.privacy.declared import DeclaredLoss
from app.services.answers import answer
from app.services.authorization import permitted
from app.services.installation import Installation
from app.services.ledger.external_price import Elsewhere, worked_out
from app.services.ledger.show_external_charges import reservation_out
from app.wire.external_charges import ElsewhereIn, ElsewhereQuote


def quote_elsewhere(
    installation: Installation, principal: Principal, reference: str, wanted: ElsewhereIn
) -> ElsewhereQuote:
    """What the charge would be, and whether it fits. Costs nothing and changes nothing.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not attest there.
        InvalidRequest: the event, the declared loss or the scope breaks a rule.
        NotSupported: a two-phase reservation.
        DatasetDeleted: only the tombstone is left.
        AccountantMismatch: there is no bound in the account's unit.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, ATTEST).living()
        found = _worked_out(session, dataset, wanted)
    return ElsewhereQuote(
        dataset=dataset.id,
        dataset_name=dataset.name,
        scope={name: list(cells) for name, cells in found.scope.items()},
        price=found.price,
        receipt=found.receipt,
        fits=found.fits,
        remaining=found.balance.text(found.balance.remaining),
        delta_remaining=external.delta_text(found.delta_room) if found.delta else None,
        largest_that_fits=found.largest_that_fits,
    )


def charge_elsewhere(
    installation: Installation, principal: Principal, reference: str, wanted: ElsewhereIn, *, request: IdempotentRequest
) -> Answer:
    """Charges at once and for good, on the principal's word; it may run the mechanism when it has the answer.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not attest there.
        InvalidRequest: the event, the declared loss or the scope breaks a rule.
        NotSupported: a two-phase reservation.
        DatasetDeleted: only the tombstone is left.
        AccountantMismatch: there is no bound in the account's unit.
        BudgetExceeded: the ledger refuses.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, ATTEST)
        # By id: under its name and under its id a dataset is the same, and another one of that name is not.
        request = replace(request, route=f"POST /ledger/{dataset.id}/reservations")
        earlier = stored(session, request)
        if earlier is not None:
            return earlier
        # What is stated never changes, so the price is worked out before anything is locked.
        found = _worked_out(session, dataset, wanted)
    with installation.database.write() as session:

        def work() -> Answer:
            living = catalog.locked(session, dataset.id).living()
            new = ledger.NewReservation(
                account_id=living.id,
                amount=found.amount,
                scope=found.scope,
                event=None if isinstance(found.stated, DeclaredLoss) else found.stated.to_json(),
                job_id=None,
                details=_details(found, wanted, attested_by=principal.key_id),
                largest_within=found.largest_within,
            )
            reservation_id = external.charge(session, new, delta=found.delta, actor=principal.key_id)
            body = reservation_out(session, living, external.find(session, living.id, reservation_id))
            return answer(201, body, location=f"/ledger/{living.id}/reservations/{reservation_id}")

        return once(session, request, at=installation.database.now(session), work=work)


def _worked_out(session: Session, dataset: catalog.Dataset, wanted: ElsewhereIn) -> Elsewhere:
    if wanted.two_phase:
        raise NotSupported("two_phase: no rows are served to mechanisms that run elsewhere")
    return worked_out(session, dataset, wanted)


def _details(found: Elsewhere, wanted: ElsewhereIn, *, attested_by: str) -> dict[str, Any]:
    """The public facts that both entries carry; the event, where there is one, stands in its own member."""
    details: dict[str, Any] = {"attested_by": attested_by, "description": wanted.description, "per": found.per}
    if isinstance(found.stated, DeclaredLoss):
        details["declared"] = found.stated.to_json()
    if found.delta:
        details["delta"] = external.delta_text(found.delta)
    return details

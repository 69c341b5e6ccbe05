"""Prices, quotes, charges and lists external mechanisms, from public facts."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal, cast

from sqlalchemy.orm import Session

from app.access.grants import ATTEST, SEE_RESERVATIONS, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.core import json_text
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.db.database import transaction_time
from app.ledger import kept_states, reservations, rules, statements, tables
from app.registry import models
from app.services.authorization import authorized_dataset
from app.services.guarantees import of_account, of_large_amount
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.pagination import PageRequest, page_of
from app.services.spending.spend import spending
from app.wire.reservations import (
    DeclaredLossIn,
    ExternalIn,
    ExternalPrice,
    ExternalQuote,
    ReservationList,
    ReservationOut,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.limit_words import LimitedBy
from grovekeeper_forests import amounts
from grovekeeper_forests.errors import AccountantMismatch
from grovekeeper_forests.privacy import accountants, declared, events, receipts
from grovekeeper_forests.privacy.accountants import Amount, SplitDelta
from grovekeeper_forests.privacy.accountants.accountant import steps_up
from grovekeeper_forests.privacy.declared import DeclaredLoss
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    NoBoundInUnit,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.privacy.guarantees import odds_by_change
from grovekeeper_forests.privacy.scope import Scope


@dataclass(frozen=True)
class _Charge:
    """A charge for an external mechanism, priced on one account.

    Attributes:
        balance: the account's balance in the charged cells; its room is the largest
            amount that budget, population and rules admit without an approval.
        scope: the cells that are charged.
        amount: on the account.
        delta: steps of 10⁻¹⁸, paid out of the part of δ that is set aside.
        delta_room: steps that remain of the set-aside part in the charged cells.
        stated: the event or the loss that the attester states.
        largest_within: maps an amount to the largest ε that the statement could declare
            within it; ``None`` if it declares no ε. The function reads no database: a
            refusal calls it after the transaction.
    """

    balance: statements.Balance
    scope: Scope
    amount: Amount
    delta: int
    delta_room: int
    stated: Event | DeclaredLoss
    largest_within: Callable[[int], Fraction] | None

    @property
    def largest_that_fits(self) -> str:
        """The largest ε that the statement could declare now; for a statement without
        an ε, the largest ε of a job.
        """
        if self.delta > self.delta_room:
            return "0"
        if self.largest_within is None:
            return self.balance.largest_that_fits
        return amounts.to_text(self.largest_within(self.balance.room))

    @property
    def limited_by(self) -> LimitedBy:
        if self.delta > self.delta_room:
            return "delta_set_aside"
        return self.balance.limited_by


def _priced(
    session: Session, principal: Principal, dataset: Dataset, body: ExternalIn
) -> _Charge:
    if body.per == "unit" and dataset.unit_column is None:
        raise InvalidRequest.at("/per", "no-unit-column")
    stated = _event(body.event) if body.declared is None else _declared(body.declared)
    scope = _coverable(
        dataset, dataset.read_scope(body.scope, catalog.upload_ids(session, dataset.id))
    )
    balance = statements.balance(session, dataset.id, scope)
    amount = _amount(dataset, balance.accountant, stated, per=body.per)
    spent = statements.delta_balance(session, dataset.id, scope)
    largest_within = None
    if isinstance(stated, DeclaredLoss) and stated.epsilon is not None:
        largest_within = partial(
            declared.largest_epsilon,
            stated,
            accountant=balance.accountant,
            adjacency=dataset.adjacency,
            rows=_rows(dataset, per=body.per),
        )
    allowance = rules.allowance(session, dataset.id, principal.key_id)
    admitted = balance.within(allowance.room, allowance.limited_by)
    return _Charge(
        balance=admitted.within(allowance.room_without_approval, "approval_above"),
        scope=scope,
        amount=amount,
        delta=_delta(dataset, stated, per=body.per),
        delta_room=0 if spent is None else spent.remaining,
        stated=stated,
        largest_within=largest_within,
    )


def _price_out(amount: Amount, delta: int) -> ExternalPrice:
    return ExternalPrice(
        accountant=amount.accountant,
        unit=amount.unit,
        amount=amount.text,
        delta=accountants.delta_text(delta) if delta else None,
    )


def _receipt(
    dataset: Dataset, accountant: str, stated: Event | DeclaredLoss, *, per: str
) -> str:
    """A stated event or loss in words, under the account's adjacency."""
    if isinstance(stated, DeclaredLoss):
        return declared.in_words(stated, one=per)
    rows = _rows(dataset, per=per)
    words = receipts.in_words(
        stated, accountant=accountant, adjacency=dataset.adjacency, max_rows=rows
    )
    if per == "row":
        return words
    return f"{words}\nStated for one unit with all its rows, where it says one row."


def _event(value: JsonObject | None) -> Event:
    try:
        return events.foreign(value)
    except UnknownPrivacyEvent:
        raise InvalidRequest.at("/event", "unknown-event") from None


def _declared(declared: DeclaredLossIn) -> DeclaredLoss:
    return DeclaredLoss(
        Adjacency(declared.adjacency),
        declared.epsilon,
        declared.rho,
        declared.mu,
        declared.delta,
    )


def _coverable(dataset: Dataset, scope: Scope) -> Scope:
    """The cells that a charge has to cover.

    A unit may have rows in several cells of a column or of uploads. Two losses, each
    stated for all rows of the unit in one such cell, add up for the unit, and the
    largest cell does not show the sum. So with a unit column only hash partitions,
    whose cells are functions of the unit's id, restrict a charge
    (docs/proofs/external.md). An unnamed epoch partition is not resolved to today's
    uploads: the service does not see which uploads the mechanism reads.
    """
    if dataset.unit_column is None:
        return scope
    hash_partitions = [
        partition.name
        for partition in dataset.partitions.declared
        if partition.kind == "hash"
    ]
    return scope.restricted_to(hash_partitions)


def _amount(
    dataset: Dataset, accountant: str, stated: Event | DeclaredLoss, *, per: str
) -> Amount:
    """The amount that covers the loss of one unit, rounded up once."""
    unit = accountants.by_name(accountant)
    loss = _loss(dataset, accountant, stated)
    if loss == 0:
        raise InvalidRequest.at("/event", "costs-nothing")
    unit_loss = unit.group(_rows(dataset, per=per)) * loss
    return Amount(accountant, steps_up(unit_loss, unit.PLACES))


def _rows(dataset: Dataset, *, per: str) -> int:
    """The number of times that one unit may incur a loss that is stated ``per`` row or
    unit.
    """
    return dataset.max_rows if per == "row" else 1


def _delta(dataset: Dataset, stated: Event | DeclaredLoss, *, per: str) -> int:
    """The δ of one unit in steps of 10⁻¹⁸, rounded up. The δ of several rows is not a
    multiple of one row's δ.
    """
    if not isinstance(stated, DeclaredLoss) or stated.delta is None:
        return 0
    if per == "row" and dataset.max_rows > 1:
        raise InvalidRequest.at("/per", "delta-needs-unit")
    return steps_up(stated.delta, accountants.DELTA_PLACES)


def _loss(dataset: Dataset, accountant: str, stated: Event | DeclaredLoss) -> Fraction:
    try:
        if isinstance(stated, DeclaredLoss):
            return declared.loss(
                stated, accountant=accountant, adjacency=dataset.adjacency
            )
        return accountants.by_name(accountant).loss(stated, adjacency=dataset.adjacency)
    except NoBoundInUnit:
        if isinstance(stated, DeclaredLoss):
            accepting = declared.accepting(stated, adjacency=dataset.adjacency)
        else:
            accepting = accountants.accepting(stated, adjacency=dataset.adjacency)
        raise AccountantMismatch(accountant, accepting) from None
    except UnknownPrivacyEvent:
        at = "/declared/adjacency" if isinstance(stated, DeclaredLoss) else "/event"
        raise InvalidRequest.at(at, "other-adjacency") from None


def quote_external(
    installation: Installation, principal: Principal, reference: str, body: ExternalIn
) -> ExternalQuote:
    """Quotes an external mechanism: its price, and whether the account would admit it.
    Changes nothing.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, ATTEST).living()
        kept_states.require_declared(
            session, tables.account(session, dataset.id), dataset.facts
        )
        charge = _priced(session, principal, dataset, body)
    balance, adjacency = charge.balance, dataset.adjacency
    delta = Fraction(charge.delta, 10**accountants.DELTA_PLACES)
    delta_remaining = None
    if charge.delta:
        delta_remaining = accountants.delta_text(charge.delta_room)
    return ExternalQuote(
        **dataset.named,
        scope=charge.scope.to_json(),
        price=_price_out(charge.amount, charge.delta),
        odds=odds_by_change(charge.amount, adjacency, SplitDelta(delta, delta)),
        receipt=_receipt(dataset, balance.accountant, charge.stated, per=body.per),
        fits=charge.amount.steps <= balance.room and charge.delta <= charge.delta_room,
        remaining=balance.text(balance.remaining),
        delta_remaining=delta_remaining,
        largest_that_fits=charge.largest_that_fits,
        limited_by=charge.limited_by,
        warnings=of_large_amount(
            charge.amount, delta=balance.delta, adjacency=adjacency
        ),
    )


def charge_external(
    installation: Installation,
    caller: Principal,
    reference: str,
    body: ExternalIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    """Charges an external mechanism at once and for good, on the caller's word. It may
    run after the answer.
    """
    with spending(installation, caller, request) as opened:
        authorized = opened.authorize([reference], ATTEST)
        session = opened.session
        dataset = authorized.sources[0].dataset
        principal = authorized.principal
        locked = authorized.lock(route="POST /ledger/{dataset}/reservations")
        if isinstance(locked, Answer):
            return locked
        # The clock may have been ahead at an upload. An erasure compares the two times
        # to see what may have been read.
        uploads = catalog.epochs(session, dataset.id)
        upload_times = [upload.uploaded_at for upload in uploads]
        transaction_time(session, read=max([locked.now, *upload_times]))
        charge = _priced(session, principal, dataset, body)
        actor = principal.key_id
        new_reservation = _reservation(dataset, charge, body, attested_by=actor)
        reservation_id = reservations.charge_external(
            session, new_reservation, delta=charge.delta, actor=actor
        )
        # Cards of models, which read no ledger, say from now on that the guarantee also
        # rests on attesters.
        guarantee = of_account(
            session, dataset, statements.printable(session, dataset.id)
        )
        models.put_guarantee(session, dataset.id, guarantee)
        notices.budgets_changed(session, [dataset.id])
        shown = _reservation_out(
            session,
            dataset,
            reservations.external_reservation(session, dataset.id, reservation_id),
        )
        return locked.store(
            Answer.of(
                201,
                shown,
                location=f"/ledger/{dataset.id}/reservations/{reservation_id}",
            )
        )


def list_reservations(
    installation: Installation, principal: Principal, reference: str, page: PageRequest
) -> ReservationList:
    """Lists the charges for external mechanisms on a dataset."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_RESERVATIONS)
        shown, following = page_of(
            page,
            lambda limit: tables.external_reservations(
                session, dataset.id, after=page.cursor, limit=limit
            ),
            lambda row: row.id,
            lambda row: json_text.n_bytes((row.scope, row.event, row.details)),
        )
        return ReservationList(
            reservations=[_reservation_out(session, dataset, row) for row in shown],
            next=following,
        )


def show_reservation(
    installation: Installation,
    principal: Principal,
    reference: str,
    reservation_id: str,
) -> ReservationOut:
    """Shows one charge for an external mechanism."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_RESERVATIONS)
        return _reservation_out(
            session,
            dataset,
            reservations.external_reservation(session, dataset.id, reservation_id),
        )


def _reservation(
    dataset: Dataset, charge: _Charge, body: ExternalIn, *, attested_by: str
) -> reservations.NewReservation:
    """The reservation of a charge. Both of its entries repeat its details, which are
    public facts.
    """
    details: JsonObject = {
        "attested_by": attested_by,
        "description": body.description,
        "per": body.per,
    }
    is_declared = isinstance(charge.stated, DeclaredLoss)
    if is_declared:
        details["declared"] = charge.stated.to_json()
    return reservations.NewReservation(
        account_id=dataset.id,
        amount=charge.amount.steps,
        scope=charge.scope,
        event=None if is_declared else charge.stated.to_json(),
        job_id=None,
        details=details,
        largest_within=charge.largest_within,
    )


def _reservation_out(
    session: Session, dataset: Dataset, row: tables.ReservationRow
) -> ReservationOut:
    details = row.details or {}
    stated: Event | DeclaredLoss
    if row.event is None:
        stated = declared.from_json(details["declared"])
    else:
        stated = events.from_json(row.event)
    accountant = statements.highest_cap(session, dataset.id).amount.accountant
    per = details["per"]
    return ReservationOut(
        reservation_id=row.id,
        **dataset.named,
        state=cast(Literal["reserved", "charged", "void", "expired"], row.state),
        scope=row.scope,
        price=_price_out(
            Amount(accountant, row.amount),
            accountants.delta_steps(details.get("delta")),
        ),
        description=details["description"],
        per=per,
        event=row.event,
        declared=details.get("declared"),
        attested_by=details["attested_by"],
        receipt=_receipt(dataset, accountant, stated, per=per),
    )

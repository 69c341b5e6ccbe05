"""Reserves the parts of a job, and charges, voids or expires them, on the caller's
transaction.

Every change of an account happens under the lock of its row, and every step is a new
entry; no step lowers what was charged. All parts of a job are judged in memory
(:mod:`app.ledger.admission`) under the locks of their accounts, then all of them are
written. An entry of a population's member is followed by an entry of the population in
the same transaction (:mod:`app.ledger.populations`).

An external mechanism reads rows outside the service, so the service cannot verify that
the mechanism did not run. Its reservation is charged at once and for good, on the word
of an attester, in the transaction that makes it, and never voided or expired. Both
entries name the attester. An (ε, δ)-mechanism pays an amount in the account's unit, and
δ out of the part that a ``zcdp`` account sets aside. In every joint cell the charged δ
stays within that part (docs/proofs/external.md).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import partial

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from app.core import limits, stamps
from app.core.errors import (
    BudgetExceeded,
    ErasureDue,
    Frozen,
    NeedsApproval,
    NotFound,
    QuotaExceeded,
    ReservationSettled,
    TooManyCells,
    TooManyRequests,
)
from app.db.database import insert_rows
from app.db.locks import sent_together
from app.ledger import (
    admission,
    chain,
    kept_states,
    populations,
    rules,
    statements,
    tables,
)
from app.ledger.admission import Admitted, AskedAmount, Budgets, Population, Refused
from app.ledger.chain import NewEntry
from app.ledger.rules import Allowance, Rules, RulesInForce, rules_of
from app.ledger.state import CellDelta, State, mismatch
from app.ledger.tables import (
    AccountRow,
    Entry,
    EntryKind,
    EntryRow,
    MemberRow,
    ReservationRow,
    RulesRow,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import amounts
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import Amount, zcdp
from grovekeeper_forests.privacy.scope import Scope


@dataclass(frozen=True)
class NewReservation(AskedAmount):
    """One priced part of a job: its amount on one account, and the content of its
    entries.

    Attributes:
        event: canonical JSON form of the privacy event; ``None`` where the details
            declare a loss instead.
        job_id: the job that will spend it; ``None`` for a mechanism that runs outside
            the service.
        delta: the δ of the request, at which a refusal converts the largest admissible
            amount; ``None``: the account's δ.
        details: public facts of every entry of the reservation; see
            :class:`app.ledger.tables.Entry`.
        largest_within: maps an amount to the largest ε of the request that costs no
            more, for the text of a refusal; ``None``: the largest ε of a job.
    """

    event: JsonObject | None
    job_id: str | None
    delta: Fraction | None = None
    details: JsonObject | None = None
    largest_within: Callable[[int], Fraction] | None = None


@dataclass(frozen=True)
class Judged:
    """A job that its accounts admit.

    Attributes:
        parts: the job's reservations.
        reservation_ids: the ids that the reservations get, in the order of ``parts``.
        actor: the key that submits the job.
        excess: by account on which the job needs an approval, the steps above what the
            key may spend without one.
        decision: the order in which the reservations are written.
        rows: of the accounts and of their populations, locked.
        population_ids: by account that belongs to a population.
    """

    parts: Sequence[NewReservation]
    reservation_ids: list[str]
    actor: str
    excess: Mapping[str, int]
    decision: Admitted
    rows: Mapping[str, AccountRow]
    population_ids: Mapping[str, str]


@dataclass(frozen=True)
class _Accounts:
    """The accounts of a job under their locks.

    Attributes:
        rows: of the accounts and of their populations.
        population_ids: by account that belongs to a population.
        in_force: the rules, by account that has some.
        states: by account.
        budgets: of the accounts and of their populations.
    """

    rows: Mapping[str, AccountRow]
    population_ids: Mapping[str, str]
    in_force: Mapping[str, Rules]
    states: Mapping[str, State]
    budgets: Budgets


def judge(session: Session, parts: Sequence[NewReservation], *, actor: str) -> Judged:
    """Judges a job by the states of its accounts and populations, and by the rules;
    changes nothing.

    Args:
        session: of a transaction that has locked the accounts; their populations are
            locked here, in order of their ids.
        parts: the job's reservations. Two parts may be on one account if their scopes
            are disjoint.
        actor: the key that submits the job.

    Raises:
        NotFound: no such account.
        BalanceMismatch: an account or a population differs from its entries.
        ErasureDue: the rows of an account are to be erased by now.
        Frozen: the dataset of an account is frozen.
        QuotaExceeded: the rules of an account refuse its part.
        BudgetExceeded: the first account, in order of their ids, that does not admit
            its part.
        TooManyCells: as :func:`_require_small_state`, with ``TooManyRequests``.
    """
    if not all(part.amount > 0 for part in parts):
        raise ValueError("a reservation is positive")
    accounts = _read_accounts(session, {part.account_id for part in parts})
    rows, budgets = accounts.rows, accounts.budgets
    rules_of_accounts = RulesInForce.of(session, accounts.in_force, [actor])
    allowances = rules_of_accounts.allowances(actor)
    _require_rules(rows, allowances, budgets, parts)
    decision = admission.admit(budgets, parts)
    if isinstance(decision, Refused):
        part = parts[decision.position]
        population = budgets.population_of(part.account_id)
        if population is not None:
            population = populations.detailed(session, [population])[population.id]
        raise _budget_exceeded(
            rows[part.account_id],
            part,
            decision,
            cap=budgets.accounts[part.account_id].cap,
            population=population,
        )
    for account_id, state in accounts.states.items():
        scopes = [part.scope for part in parts if part.account_id == account_id]
        _require_small_state(rows[account_id], state, scopes, actor)
    reservation_ids = [stamps.new(stamps.RESERVATION) for _ in parts]
    excess = rules_of_accounts.above_approval(parts, actor)
    return Judged(
        parts,
        reservation_ids,
        actor,
        excess,
        decision,
        rows,
        accounts.population_ids,
    )


def write(session: Session, judged: Judged) -> None:
    """Writes the reservations, the entries and the heads of a job that the transaction
    has judged.
    """
    entries: list[tuple[str, Entry]] = []
    reservations: list[JsonObject] = []
    for placed in judged.decision:
        part, reservation_id = (
            judged.parts[placed.position],
            judged.reservation_ids[placed.position],
        )
        scope, details = part.scope.to_json(), part.details or None
        reservations.append(
            {
                "id": reservation_id,
                "account_id": part.account_id,
                "job_id": part.job_id,
                "part": placed.position,
                "amount": part.amount,
                "scope": scope,
                "event": part.event,
                "state": "reserved",
                "details": details,
                "reserved_by": judged.actor,
            }
        )
        reserved = NewEntry(
            EntryKind.RESERVE,
            part.amount,
            actor=judged.actor,
            scope=scope,
            event=part.event,
            job_id=part.job_id or reservation_id,
            details=details,
        )
        row, population_id = (
            judged.rows[part.account_id],
            judged.population_ids.get(part.account_id),
        )
        if population_id is None:
            entries += chain.extend(session, row, reserved)
        else:
            assert placed.member is not None, (
                "a member's load follows every reservation"
            )
            population = judged.rows[population_id]
            entries += populations.extend(
                session, population, row, reserved, load=placed.member.load
            )
    if reservations:
        with sent_together(session):
            session.execute(_ADD_RESERVATIONS, reservations)
            tables.insert_entries(session, entries)
        chain.complete_subtrees(session, entries)


_ACCOUNTS = (
    select(AccountRow, MemberRow, RulesRow)
    .outerjoin(MemberRow, MemberRow.account_id == AccountRow.id)
    .outerjoin(RulesRow, RulesRow.account_id == AccountRow.id)
    .where(AccountRow.id.in_(bindparam("account_ids")))
    .execution_options(populate_existing=True)
)
_ADD_RESERVATIONS = insert_rows(ReservationRow)


def _read_accounts(session: Session, account_ids: Set[str]) -> _Accounts:
    """Reads the locked accounts of a job, and locks and reads their populations.

    Raises:
        NotFound: no such account.
        BalanceMismatch: an account or a population differs from its entries, or the row
            of an account says that it is a member of another population.
    """
    rows, population_ids, in_force = {}, {}, {}
    for row, member, rules_row in session.execute(
        _ACCOUNTS, {"account_ids": account_ids}
    ).all():
        rows[row.id] = row
        if member is not None:
            population_ids[row.id] = member.population_id
        if rules_row is not None:
            in_force[row.id] = rules_of(rules_row)
    if account_ids - rows.keys():
        raise NotFound("account")
    locked = {}
    if population_ids:
        locked = tables.locked_accounts(session, set(population_ids.values()))
    states = dict[str, State]()
    for row in rows.values():
        state = kept_states.state_of(session, row)
        population_id = population_ids.get(row.id)
        # it may have joined since the process first read it
        state.population_id = state.population_id or population_id
        if state.population_id != population_id:
            raise mismatch(row.id, "population")
        states[row.id] = state
    budgets = Budgets(
        {account_id: state.budget for account_id, state in states.items()},
        [populations.of_row(session, row) for row in locked.values()],
    )
    return _Accounts(
        rows={**rows, **locked},
        population_ids=population_ids,
        in_force=in_force,
        states=states,
        budgets=budgets,
    )


def _require_rules(
    rows: Mapping[str, AccountRow],
    allowances: Mapping[str, Allowance],
    budgets: Budgets,
    parts: Sequence[NewReservation],
) -> None:
    """Checks the rules of every account of a job.

    Raises:
        ErasureDue: the rows of an account are to be erased by now.
        Frozen: the dataset of an account is frozen.
        QuotaExceeded: the rules of an account refuse its part.
    """
    for position, part in sorted(enumerate(parts), key=lambda item: item[1].account_id):
        allowance, row = allowances.get(part.account_id), rows[part.account_id]
        if allowance is None:
            continue
        if allowance.is_due:
            raise ErasureDue(row.id, row.name)
        if allowance.is_frozen:
            raise Frozen(row.id, row.name)
        allowed = rules.room_beside(allowances, parts, position)
        if allowed is not None and part.amount > allowed:
            fits = min(allowed, admission.rooms(budgets, parts)[position].amount)
            raise QuotaExceeded(**_refused(row, part, fits))


def _require_small_state(
    row: AccountRow, state: State, scopes: Sequence[Scope], actor: str
) -> None:
    """Checks that reservations on some scopes leave the account's state small enough to
    be stated under the lock.

    A range of uploads lists no cell, so jobs on all uploads are never refused.

    Raises:
        TooManyRequests: the account has too many open reservations.
        TooManyCells: the entries of the account would list too many cells for the key.
    """
    if len(state.reservations) + len(scopes) > limits.MAX_OPEN_RESERVATIONS:
        raise TooManyRequests(
            "open reservations on the dataset", retry_after_s=limits.FULL_QUEUE_RETRY_S
        )
    if not state.admits_cells(actor, scopes):
        raise TooManyCells(row.id, row.name, limits.MAX_LISTED_CELLS)


def _refused(row: AccountRow, part: NewReservation, fits: int) -> JsonObject:
    """What every refusal of a part says, of which only some steps would fit."""
    requested = Amount(row.accountant, part.amount)
    delta = part.delta if part.delta is not None else row.split_delta.converted_at
    largest_within = part.largest_within or partial(
        accountants.largest_that_fits,
        row.accountant,
        delta=delta,
        least=row.least_price,
    )
    return {
        "dataset": row.id,
        "dataset_name": row.name,
        "accountant": row.accountant,
        "unit": requested.unit,
        "requested": requested.text,
        "what_fits": lambda: amounts.to_text(largest_within(fits)),
    }


def _budget_exceeded(
    row: AccountRow,
    part: NewReservation,
    refused: Refused,
    *,
    cap: int,
    population: Population | None,
) -> BudgetExceeded:
    """The refusal for want of budget. It names the cap that leaves less, the account's
    or the population's, and the largest ε that would fit.

    Args:
        row: the account that refuses.
        part: the part that it refuses.
        refused: the decision.
        cap: of the account.
        population: of the account, without the job, with what its members have
            reserved.
    """
    tightest = refused.room.tightest
    charged, reserved = tightest.charged, tightest.reserved
    refusing, with_job = None, refused.room.population
    if (
        refused.room.limited_by == "population"
        and population is not None
        and with_job is not None
    ):
        # What an earlier part of the job itself takes from the population is reserved
        # by the job, not charged.
        refusing, cap, charged = population, population.cap, population.charged
        reserved = with_job.together - charged

    def text(steps: int) -> str:
        return Amount(row.accountant, steps).text

    return BudgetExceeded(
        **_refused(row, part, refused.fits),
        cap=text(cap),
        charged=text(charged),
        reserved=text(reserved),
        remaining=text(max(cap - charged - reserved, 0)),
        tightest_cell=dict(tightest.cell) if refusing is None else {},
        population=None if refusing is None else refusing.name,
        exact=tightest.is_exact if refusing is None else refusing.is_exact,
    )


def _needs_approval(
    row: AccountRow, part: NewReservation, excess: int
) -> NeedsApproval:
    """The refusal of a reservation that needs an approval and cannot wait for one, with
    its excess.
    """
    return NeedsApproval(**_refused(row, part, part.amount - excess))


def charge(session: Session, reservation_id: str, *, actor: str) -> None:
    """Turns one reservation into a charge. No code path gives a charge back.

    Raises:
        ReservationSettled: the reservation has already ended.
    """
    _end_reservation(
        session, reservation_id, kind=EntryKind.CHARGE, end="charged", actor=actor
    )


def charge_job(session: Session, job_id: str, *, actor: str) -> None:
    """Turns every reservation of a job into a charge, in order of the accounts' ids.

    Raises:
        ReservationSettled: one of the reservations has already ended.
        NotFound: the job has no reservation.
    """
    if not tables.reservations_of(session, [job_id]):
        raise NotFound("reservation")
    _end_reservations(
        session, [job_id], kind=EntryKind.CHARGE, end="charged", actor=actor
    )


def void_jobs(session: Session, job_ids: Sequence[str], *, actor: str) -> None:
    """Gives back every reservation of jobs that never started; a job without parts has
    none.

    The accounts of all jobs are locked before the first entry is written.
    """
    _end_reservations(session, job_ids, kind=EntryKind.VOID, end="void", actor=actor)


def expire_job(session: Session, job_id: str, *, actor: str) -> None:
    """Gives back every reservation of a job that waited too long and never started."""
    _end_reservations(
        session, [job_id], kind=EntryKind.EXPIRE, end="expired", actor=actor
    )


def _end_reservations(
    session: Session, job_ids: Sequence[str], *, kind: EntryKind, end: str, actor: str
) -> None:
    reservations = tables.reservations_of(session, job_ids)
    rows = tables.locked_accounts(
        session, {reservation.account_id for reservation in reservations}
    )
    if kind is not EntryKind.CHARGE:
        populations.locked_rows(session, rows)
    for reservation in reservations:
        _end_reservation(session, reservation.id, kind=kind, end=end, actor=actor)


def _end_reservation(
    session: Session, reservation_id: str, *, kind: EntryKind, end: str, actor: str
) -> None:
    row = tables.locked_account(
        session, tables.reservation(session, reservation_id).account_id
    )
    # again, now under the account's lock
    reservation = tables.reservation(session, reservation_id)
    if reservation.state != "reserved":
        raise ReservationSettled(reservation.state)
    if not _is_as_reserved(session, row, reservation):
        raise mismatch(row.id, "reservation")
    reservation.state = end
    # every step of a reservation repeats its content
    new_entry = NewEntry(
        kind,
        reservation.amount,
        actor=actor,
        scope=reservation.scope,
        event=reservation.event,
        # links the entries of an external mechanism, which has no job
        job_id=reservation.job_id or reservation.id,
        details=reservation.details,
    )
    locked = {}
    if kind is not EntryKind.CHARGE:
        locked = populations.locked_rows(session, [row.id])
    if not locked:
        chain.append(session, row, new_entry)
        return
    [population] = locked.values()
    chain.write(session, populations.extend(session, population, row, new_entry))


def _is_as_reserved(
    session: Session, row: AccountRow, reservation: ReservationRow
) -> bool:
    """Whether an entry reserved what a reservation's row says; the fold compares
    neither event nor details.
    """
    uploads, key = (
        kept_states.state_of(session, row).uploads,
        reservation.job_id or reservation.id,
    )
    query = select(EntryRow).where(
        EntryRow.account_id == row.id, EntryRow.job_id == key
    )
    entries = tables.read_entries(
        session, row.id, query.where(EntryRow.kind == EntryKind.RESERVE.value)
    )
    kept = (
        reservation.amount,
        reservation.event,
        reservation.details,
        reservation.reserved_by,
    )
    digest = Scope(reservation.scope).digest
    for entry in entries:
        stated = {
            name: fact
            for name, fact in (entry.details or {}).items()
            if name != "uploads"
        }
        is_same = (entry.amount, entry.event, stated or None, entry.actor) == kept
        is_same_scope = tables.listed(entry.scope, uploads).digest == digest
        if is_same and is_same_scope and entry.sealed().hash == entry.hash:
            return True
    return False


def charge_external(
    session: Session, new_reservation: NewReservation, *, delta: int = 0, actor: str
) -> str:
    """Reserves and charges in one step: all or nothing.

    Args:
        session: of the caller's transaction.
        new_reservation: a reservation without a job, whose details name the attester.
        delta: steps of 10⁻¹⁸ out of the part that is set aside; the details of both
            entries state it.
        actor: the attester's key.

    Returns:
        The reservation's id.

    Raises:
        BudgetExceeded: the account refuses the amount or the δ; nothing was changed.
        Frozen: the dataset is frozen; nothing was changed.
        QuotaExceeded: the rules refuse the amount; nothing was changed.
        NeedsApproval: the amount is above what needs an approval; nothing was changed.
    """
    if new_reservation.job_id is not None:
        raise ValueError("the reservation of a job is charged when a worker starts it")
    row = tables.locked_account(session, new_reservation.account_id)
    if delta:
        spent = statements.spent_delta(session, row, new_reservation.scope)
        if spent.charged + delta > statements.delta_set_aside(row):
            raise _delta_exceeded(row, spent, delta)
        details = {
            **(new_reservation.details or {}),
            "delta": accountants.delta_text(delta),
        }
        new_reservation = replace(new_reservation, details=details)
    judged = judge(session, [new_reservation], actor=actor)
    if judged.excess:  # an external mechanism has run: it cannot wait for an approval
        raise _needs_approval(row, new_reservation, judged.excess[row.id])
    write(session, judged)
    [reservation_id] = judged.reservation_ids
    charge(session, reservation_id, actor=actor)
    return reservation_id


def external_reservation(
    session: Session, account_id: str, reservation_id: str
) -> ReservationRow:
    """A charge of an account for an external mechanism.

    Raises:
        NotFound: the account has no such reservation, or a job holds it.
    """
    if not stamps.is_reference(reservation_id):
        raise NotFound("reservation")
    row = tables.reservation(session, reservation_id)
    if row.account_id != account_id or row.job_id is not None:
        raise NotFound("reservation")
    return row


def is_charged_externally_since(
    session: Session, account_id: str, at: datetime
) -> bool:
    """Whether an account was charged for a mechanism outside the service since a time:
    at once when it was reserved.
    """
    query = select(EntryRow).where(
        EntryRow.account_id == account_id, EntryRow.at >= stamps.to_text(at)
    )
    # An entry of a job names the job and no reservation.
    return bool(
        session.scalar(
            select(
                query.join(
                    ReservationRow, ReservationRow.id == EntryRow.job_id
                ).exists()
            )
        )
    )


def _delta_exceeded(row: AccountRow, spent: CellDelta, delta: int) -> BudgetExceeded:
    """A refusal for want of δ. No ε fits at this δ, however small."""
    set_aside = statements.delta_set_aside(row)
    return BudgetExceeded(
        dataset=row.id,
        dataset_name=row.name,
        accountant=zcdp.NAME,
        unit="delta",
        cap=accountants.delta_text(set_aside),
        charged=accountants.delta_text(spent.charged),
        reserved="0",
        remaining=accountants.delta_text(set_aside - spent.charged),
        requested=accountants.delta_text(delta),
        tightest_cell=dict(spent.cell),
        what_fits=lambda: "0",
        exact=spent.is_exact,
    )

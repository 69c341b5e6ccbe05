"""Defines a requested reservation, and the errors that refuse it and name the largest amount that would fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from app.core import amounts
from app.core.errors import BudgetExceeded, DatasetDeleted, Frozen, NeedsApproval, QuotaExceeded
from app.ledger import admission, rules
from app.ledger.account_facts import amount_text
from app.ledger.admission import Budgets, Population, Refused, Request
from app.ledger.limit import Limit
from app.ledger.rules import Allowance
from app.ledger.tables import AccountRow
from app.privacy import accountants


@dataclass(frozen=True)
class NewReservation(Request):
    """One priced part of a job: its amount on one account, and the content of its entries.

    Attributes:
        event: canonical JSON form of the privacy event; ``None`` where the details declare a loss instead.
        job_id: the job that will spend it; ``None`` for a mechanism that runs outside the service.
        delta: the δ of the request, at which a refusal converts the largest admissible amount; ``None``: the account's
            δ.
        details: public facts of every entry of the reservation; see :class:`app.ledger.entries.Entry`.
        largest_within: maps an amount to the largest ε of the request that costs no more, for the text of a refusal;
            ``None``: the largest ε of a job.
    """

    event: dict[str, Any] | None
    job_id: str | None
    delta: Fraction | None = None
    details: dict[str, Any] | None = None
    largest_within: Callable[[int], Fraction] | None = None


def require_rules(
    rows: Mapping[str, AccountRow],
    allowances: Mapping[str, Allowance],
    budgets: Budgets,
    parts: Sequence[NewReservation],
) -> None:
    """Checks the rules of every account of a job.

    Raises:
        DatasetDeleted: the rows of an account are to be erased by now.
        Frozen: the dataset of an account is frozen.
        QuotaExceeded: the rules of an account refuse its part.
    """
    for position, part in sorted(enumerate(parts), key=lambda item: item[1].account_id):
        allowance, row = allowances.get(part.account_id), rows[part.account_id]
        if allowance is None:
            continue
        if allowance.is_due:
            raise DatasetDeleted
        if allowance.is_frozen:
            raise Frozen(row.id, row.name)
        ruled = rules.room_beside(allowances, parts, position)
        if ruled is not None and part.amount > ruled:
            fits = min(ruled, admission.rooms(budgets, parts)[position].amount)
            raise QuotaExceeded(
                dataset=row.id,
                dataset_name=row.name,
                accountant=row.accountant,
                unit=accountants.by_name(row.accountant).UNIT,
                requested=amount_text(row.accountant, part.amount),
                what_fits=largest_epsilon(row, part, fits),
            )


def largest_epsilon(row: AccountRow, part: NewReservation, steps: int) -> Callable[[], str]:
    """Computes the largest ε of a part that costs no more than some steps."""
    accountant = accountants.by_name(row.accountant)
    delta = part.delta if part.delta is not None else Limit.of(row, 0).split.converted_at
    largest_within = part.largest_within or partial(accountant.largest_that_fits, delta=delta)
    return lambda: amounts.to_text(largest_within(steps))


def budget_exceeded(
    row: AccountRow,
    part: NewReservation,
    refused: Refused,
    *,
    cap: int,
    population: Population | None,
    ruled: int | None,
) -> BudgetExceeded:
    """Names the cap that leaves less, the account's or the population's, and the largest ε that would fit.

    Args:
        row: the account that refuses.
        part: the part that it refuses.
        refused: the decision.
        cap: of the account.
        population: of the account, with what its members have reserved.
        ruled: what the rules admit of the part, where a rule sets a limit.
    """
    accountant, tightest = accountants.by_name(row.accountant), refused.room.tightest
    charged, reserved = tightest.charged, tightest.reserved
    refusing = population if refused.room.amount < max(cap - charged - reserved, 0) else None
    if refusing is not None:
        cap, charged, reserved = refusing.cap, refusing.charged, refusing.reserved
    return BudgetExceeded(
        dataset=row.id,
        dataset_name=row.name,
        accountant=row.accountant,
        unit=accountant.UNIT,
        cap=amount_text(row.accountant, cap),
        charged=amount_text(row.accountant, charged),
        reserved=amount_text(row.accountant, reserved),
        remaining=amount_text(row.accountant, max(cap - charged - reserved, 0)),
        requested=amount_text(row.accountant, part.amount),
        tightest_cell=dict(tightest.cell) if refusing is None else {},
        what_fits=largest_epsilon(row, part, refused.fits if ruled is None else min(refused.fits, ruled)),
        population=None if refusing is None else refusing.name,
        exact=tightest.is_exact if refusing is None else refusing.is_exact,
    )


def needs_approval(row: AccountRow, part: NewReservation, excess: int) -> NeedsApproval:
    """Refuses a reservation that needs an approval, by its excess, and cannot wait for one."""
    return NeedsApproval(
        dataset=row.id,
        dataset_name=row.name,
        accountant=row.accountant,
        unit=accountants.by_name(row.accountant).UNIT,
        requested=amount_text(row.accountant, part.amount),
        what_fits=largest_epsilon(row, part, max(part.amount - excess, 0)),
    )

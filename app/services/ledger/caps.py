"""Serves ``POST /ledger/{account}/cap``: converts a budget to a cap and changes the cap of an account."""

from dataclasses import replace
from fractions import Fraction

from sqlalchemy.orm import Session

from app.access.grants import MANAGE_DATASET, Principal
from app.access.idempotency import Answer, IdempotentRequest, once
from app.core import limits
from app.core.errors import InvalidRequest, RoleMissing
from app.datasets import catalog
from app.ledger import caps, statements
from app.ledger.statements import Limit
from app.privacy import accountants
from app.registry import models
from app.services.authorization import write_as
from app.services.guarantees import of_account, of_large_amount
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.ledger.balances import balance_of, balance_out, find_account
from app.wire.datasets import BudgetIn
from app.wire.ledger import CapIn, ChangedCap


def largest_epsilon(accountant: str) -> int:
    """The largest ε of a cap: amounts are stored in 64 bits."""
    takes_delta = accountants.by_name(accountant).TAKES_DELTA
    return limits.MAX_CAP_EPSILON_WITH_DELTA if takes_delta else limits.MAX_CAP_EPSILON


def cap_of(budget: BudgetIn) -> int:
    """Converts a budget to a cap in whole steps of the accountant's unit.

    Raises:
        InvalidRequest: the cap is too large for 64 bits, or less than one step.
    """
    return _cap(budget.accountant, budget.epsilon, budget.conversion_delta, at="/budget/epsilon")


def change_cap(
    installation: Installation,
    principal: Principal,
    reference: str,
    body: CapIn,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Lowers or raises the cap of an account, and answers with the balance under the new cap.

    A cap is lowered by the dataset's owner, or by the key that opened the population; a lower cap restricts later
    admissions only. Raising a cap weakens the guarantee that was promised, so only an admin may. A change never alters
    what is reserved or charged.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: only the owner lowers, only an admin raises.
        InvalidRequest: the cap is out of range, or is in force already, or the account lost entries in a restore.
        DatasetDeleted: the dataset's rows are erased, so nothing is admitted any more.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, MANAGE_DATASET)
        # The conversion is slow on zcdp and gdp accounts, so it runs before anything is locked.
        limit = statements.highest_cap(session, account.id)
        cap = _changed_cap(limit, body.cap)
        warnings = of_large_amount(limit.accountant, cap, delta=limit.split.converted_at, adjacency=account.adjacency)
    # The route of the idempotency key names the id, because a name may come to mean another dataset.
    identity = None if request is None else replace(request, route=f"POST /ledger/{account.id}/cap")
    with write_as(installation, principal) as (session, principal):
        account = find_account(session, principal, account.id, MANAGE_DATASET)

        def work() -> Answer:
            dataset = None if account.dataset is None else catalog.locked(session, account.id).living()
            _change(session, principal, account.id, cap=cap, reason=body.reason)
            balance = balance_of(session, account)
            if dataset is not None:
                highest = statements.highest_cap(session, dataset.id)
                limit = statements.printable_at(highest, cap=balance.cap, load=balance.load)
                models.put_guarantee(session, dataset.id, of_account(session, dataset, limit))
            notices.budgets_changed(session, [account.id], at=installation.database.now(session))
            shown = balance_out(account, balance).model_dump()
            return Answer.of(200, ChangedCap.model_validate({**shown, "warnings": warnings}))

        return once(session, identity, at=installation.database.now(session), work=work)


def may_change_cap(installation: Installation, principal: Principal, reference: str) -> bool:
    """Whether the key may lower the cap of an account that it sees; an admin may also raise it."""
    with installation.database.read() as session:
        try:
            find_account(session, principal, reference, MANAGE_DATASET)
        except RoleMissing:
            return False
        return True


def _change(session: Session, principal: Principal, account_id: str, *, cap: int, reason: str) -> None:
    in_force = caps.in_force(session, account_id)
    if in_force == statements.CLOSED:
        raise InvalidRequest.at("/cap", "account-closed")
    if cap > in_force:
        principal.require()  # an admin
    if cap == in_force:
        raise InvalidRequest.at("/cap", "unchanged")
    caps.change(session, account_id, cap, reason=reason, actor=principal.key_id)


def _changed_cap(limit: Limit, epsilon: Fraction) -> int:
    """The new cap of an account whose accountant and δ are those of ``limit``."""
    return _cap(limit.accountant, epsilon, limit.split.converted_at, at="/cap")


def _cap(accountant: str, epsilon: Fraction, delta: Fraction | None, *, at: str) -> int:
    if epsilon > largest_epsilon(accountant):
        raise InvalidRequest.at(at, "too-large")
    cap = accountants.by_name(accountant).cap(epsilon, delta)
    if cap == 0:
        raise InvalidRequest.at(at, "too-small")
    return cap

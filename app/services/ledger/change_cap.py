"""``POST /ledger/{dataset}/cap``: another cap, with a reason that stays in the ledger."""

from dataclasses import replace

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once
from app.access.roles import MANAGE_DATASET, Principal
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.ledger import caps
from app.ledger import service as ledger
from app.registry import models
from app.services.answers import answer
from app.services.authorization import permitted
from app.services.guarantees import account_guarantee
from app.services.installation import Installation
from app.services.ledger.budgets import changed_cap
from app.services.ledger.history import balance_members
from app.wire.ledger import BalanceOut, CapIn


def change_cap(
    installation: Installation,
    principal: Principal,
    reference: str,
    wanted: CapIn,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Lowers a cap, or raises it, and answers with the balance under it.

    Lowering is the owner's, and changes only what is admitted from here on: below what is spent, nothing is. Raising
    gives up a promise, so it is an admin's. A change never touches what is held or charged.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: only the owner lowers, only an admin raises.
        InvalidRequest: no cap of this account's unit, or the one that is in force.
        DatasetDeleted: only the tombstone is left; nothing is admitted there anyway.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, MANAGE_DATASET)
        # Converted before anything is locked.
        cap = changed_cap(ledger.highest_cap(session, dataset.id), wanted.cap)
    # By id: under its name and under its id a dataset is the same, and another one of that name is not.
    identity = None if request is None else replace(request, route=f"POST /ledger/{dataset.id}/cap")
    with installation.database.write() as session:

        def work() -> Answer:
            catalog.locked(session, dataset.id).living()
            _change(session, principal, dataset.id, cap=cap, reason=wanted.reason)
            return answer(200, BalanceOut.model_validate(balance_members(ledger.balance(session, dataset.id))))

        return once(session, identity, at=installation.database.now(session), work=work)


def change_checked(session: Session, principal: Principal, account_id: str, *, cap: int, reason: str) -> None:
    """Puts another cap of a dataset or a population in force, for a key that may lower it.

    Raises:
        RoleMissing: only an admin raises.
        InvalidRequest: it is the one that is in force.
    """
    in_force = caps.in_force(session, account_id)
    if cap > in_force:
        principal.require()  # nobody but an admin
    if cap == in_force:
        raise InvalidRequest.at("/cap", "unchanged")
    caps.change(session, account_id, cap, reason=reason, actor=principal.key_id)


def _change(session: Session, principal: Principal, dataset_id: str, *, cap: int, reason: str) -> None:
    change_checked(session, principal, dataset_id, cap=cap, reason=reason)
    models.put_guarantee(session, dataset_id, account_guarantee(session, dataset_id))

"""``POST /train``: reservation, job and answer in one transaction, committed before the 202 leaves."""

from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.access.roles import TRAIN, Principal
from app.services.authorization import permitted
from app.services.installation import Installation
from app.services.spending.accept import NewWork, accept
from app.services.training.quote import Quote, quote
from app.wire.training import TrainIn


def submit_training(
    installation: Installation, principal: Principal, wanted: TrainIn, *, request: IdempotentRequest
) -> Answer:
    """Accepts a job or refuses it: a refused request leaves neither job nor reservation, and its key stays free.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it, or not on the second one.
        InvalidRequest: algorithm, parameters or scope break a rule, or the second dataset does not fit.
        DatasetDeleted: only the tombstone is left.
        AccountantMismatch: the algorithm has no bound in the account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and the account more.
        NoRowsYet: nothing was uploaded so far.
        BudgetExceeded: the ledger refuses.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, wanted.dataset, TRAIN)
        earlier = stored(session, request)
        if earlier is not None:
            return earlier
        # Public facts never change, so the price is worked out before anything is locked.
        quoted = quote(session, principal, dataset, wanted)
    with installation.database.write() as session:
        at = installation.database.now(session)
        accepted = partial(_accept, session, quoted, actor=principal.key_id, name=wanted.name, at=at)
        return once(session, request, at=at, work=accepted)


def _accept(session: Session, quoted: Quote, *, actor: str, name: str | None, at: datetime) -> Answer:
    plan = quoted.plan
    # Beside the plan: a forest without splits carries no profile, but its size may be that of one.
    profile = {} if quoted.profile is None else {"profile": quoted.profile.id}
    new = NewWork(
        "train",
        {"plan": plan.to_json(), **profile},
        plan.event,
        name=name,
        algorithm=plan.algorithm,
        n_trees=plan.n_trees,
        unlabelled=quoted.on_unlabelled(),
    )
    return accept(session, quoted, new, actor=actor, at=at)

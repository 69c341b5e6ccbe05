"""``POST /populations/{population}/cap``: another cap, with a reason that stays in the population's entries."""

from dataclasses import replace

from app.access.idempotency import Answer, IdempotentRequest, once
from app.access.roles import Principal
from app.core.errors import RoleMissing
from app.ledger import service as ledger
from app.services.answers import answer
from app.services.installation import Installation
from app.services.ledger.budgets import changed_cap
from app.services.ledger.change_cap import change_checked
from app.services.ledger.readable_accounts import visible_population
from app.services.populations import population_out
from app.wire.ledger import CapIn


def change_population_cap(
    installation: Installation,
    principal: Principal,
    reference: str,
    wanted: CapIn,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Lowers a cap, or raises it, and answers with the population under it.

    As of a dataset: lowering is the right of the key that opened the population, and changes only what is admitted from
    here on; raising is an admin's. What the members hold or were charged stays.

    Raises:
        NotFound: no such population, or somebody else's.
        RoleMissing: only the key that opened it lowers, only an admin raises.
        InvalidRequest: no cap of the population's unit, or the one that is in force.
    """
    with installation.database.read() as session:
        row = visible_population(session, principal, reference)
        if not (principal.is_admin or row.declared_by == principal.key_id):
            raise RoleMissing(["owner"])
        # Converted before anything is locked.
        cap = changed_cap(ledger.highest_cap(session, row.id), wanted.cap)
    # By id: under its name and under its id a population is the same.
    identity = None if request is None else replace(request, route=f"POST /populations/{row.id}/cap")
    with installation.database.write() as session:

        def work() -> Answer:
            change_checked(session, principal, row.id, cap=cap, reason=wanted.reason)
            return answer(200, population_out(session, visible_population(session, principal, row.id)))

        return once(session, identity, at=installation.database.now(session), work=work)

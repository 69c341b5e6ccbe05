"""``POST /plans``: the price of a request, before and without any look at rows."""

from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from app.access.roles import TRAIN, Principal
from app.datasets import catalog
from app.forests.contract.plan import Plan
from app.forests.planning import PlanRequest, plan
from app.privacy.events import Event
from app.services.authorization import permitted
from app.services.installation import Installation
from app.services.spending.price import Asked, asked
from app.services.training.reused_profile import reuse
from app.services.training.second_dataset import (
    asked_of_unlabelled,
    beside_one_another,
    permitted_unlabelled,
    persons_in_both,
    require_fitting,
)
from app.wire.training import AccountPlanOut, PlanIn, PlanOut, ReusedProfileOut


@dataclass(frozen=True)
class Quote(Asked):
    """A request to train with everything public worked out: what it would run, where, and what it costs."""

    plan: Plan
    profile: ReusedProfileOut | None
    unlabelled: Asked | None

    def on_unlabelled(self) -> tuple[Asked, Event] | None:
        """The second dataset's part: what was asked of it, and the event that its account pays for."""
        if self.unlabelled is None or self.plan.unlabelled is None:
            return None
        return self.unlabelled, self.plan.unlabelled.event


def show_plan(installation: Installation, principal: Principal, wanted: PlanIn) -> PlanOut:
    """Answers a question about a price.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it, or not on the second one.
        InvalidRequest: algorithm, parameters or scope break a rule, or the second dataset does not fit.
        DatasetDeleted: only the tombstone is left.
        AccountantMismatch: the algorithm has no bound in the account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and the account more.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, wanted.dataset, TRAIN).living()
        unlabelled = permitted_unlabelled(session, principal, wanted)
        if unlabelled is not None:
            unlabelled.living()
        quoted = quote(session, principal, dataset, wanted)
    warnings, also = [*quoted.plan.warnings, *quoted.warnings], None
    if (second := quoted.on_unlabelled()) is not None:
        part, event = second
        warnings += [
            *(each for each in part.warnings if each not in warnings),
            persons_in_both(dataset.id, part.dataset.id),
        ]
        also = AccountPlanOut(**part.shown(event))
    return PlanOut(
        **quoted.shown(quoted.plan.event),
        algorithm=quoted.plan.algorithm,
        parameters=dict(quoted.plan.parameters),
        profile=quoted.profile,
        warnings=warnings,
        unlabelled=also,
    )


def quote(session: Session, principal: Principal, dataset: catalog.Dataset, wanted: PlanIn) -> Quote:
    """Works out plan, scopes and prices from public facts alone.

    Raises:
        NotFound: no such second dataset or profile, or none that this key may know of.
        RoleMissing: the key may not train on the second dataset.
        InvalidRequest: the request breaks a rule.
    """
    within = asked(session, dataset, wanted)
    also = asked_of_unlabelled(session, permitted_unlabelled(session, principal, wanted), wanted)
    found = reuse(session, principal, dataset, wanted.profile)
    size = within.public_size
    if found is not None:
        size = found.size(within, n_epochs=len(catalog.epochs(session, dataset.id)))
    request = PlanRequest(
        algorithm=wanted.algorithm,
        parameters=wanted.parameters,
        **vars(replace(within.request, public_size=size)),
        profile=None if found is None else found.numbers,
        unlabelled=None if also is None else also.request,
    )
    planned = plan(request, dataset.schema)
    if also is not None:
        require_fitting(within, also)
        within, also = beside_one_another(session, within, also)
    profile = None if found is None else found.shown(is_used=planned.profile is not None, size=size)
    return Quote(**vars(within), plan=planned, profile=profile, unlabelled=also)

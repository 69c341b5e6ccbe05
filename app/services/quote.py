"""``POST /plans``: the price of a request, before and without any look at rows."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.roles import Principal
from app.datasets import catalog
from app.forests.plan import Plan
from app.forests.planning import PlanRequest, plan
from app.services.asked import Asked, asked, permitted_dataset
from app.services.installation import Installation
from app.services.reuse import reuse
from app.wire.training import PlanIn, PlanOut, ReusedProfileOut


@dataclass(frozen=True)
class Quote(Asked):
    """A request to train with everything public worked out: what it would run, where, and what it costs."""

    plan: Plan
    profile: ReusedProfileOut | None


def show_plan(installation: Installation, principal: Principal, wanted: PlanIn) -> PlanOut:
    """Answers a question about a price.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
        InvalidRequest: algorithm, parameters or scope break a rule.
        NotSupported: a documented choice that is not built yet.
        DatasetDeleted: only the tombstone is left.
        AccountantMismatch: the algorithm has no bound in the account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and the account more.
    """
    with installation.database.read() as session:
        dataset = permitted_dataset(session, principal, wanted.dataset).living()
        quoted = quote(session, principal, dataset, wanted)
    event = quoted.plan.event
    return PlanOut(
        dataset=quoted.dataset.id,
        dataset_name=quoted.dataset.name,
        algorithm=quoted.plan.algorithm,
        parameters=dict(quoted.plan.parameters),
        scope={name: list(cells) for name, cells in quoted.scope.items()},
        price=quoted.price,
        event=event.to_json(),
        receipt=quoted.receipt(event),
        profile=quoted.profile,
        fits=quoted.fits,
        largest_that_fits=quoted.largest_that_fits,
        warnings=[*quoted.plan.warnings, *quoted.warnings],
    )


def quote(session: Session, principal: Principal, dataset: catalog.Dataset, wanted: PlanIn) -> Quote:
    """Works out plan, scope and price from public facts alone."""
    within = asked(session, dataset, wanted)
    found = reuse(session, principal, dataset, wanted.profile)
    size = within.public_size
    if found is not None:
        size = found.size(within, n_epochs=len(catalog.epochs(session, dataset.id)))
    request = PlanRequest(
        algorithm=wanted.algorithm,
        parameters=wanted.parameters,
        epsilon=wanted.epsilon,
        public_size=size,
        accountant=within.balance.accountant,
        delta=wanted.delta,
        adjacency=dataset.adjacency,
        max_rows=dataset.max_rows,
        profile=None if found is None else found.numbers,
    )
    planned = plan(request, dataset.schema)
    profile = None if found is None else found.shown(is_used=planned.profile is not None, size=size)
    return Quote(**vars(within), plan=planned, profile=profile)

"""``POST /datasets/{id}/profiles``, and its price before: a release that later jobs use for nothing."""

from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.access.roles import TRAIN, Principal
from app.datasets import catalog
from app.forests import profile
from app.forests.bins import quantile_bins
from app.forests.planning import public_facts
from app.forests.profile import ProfilePlan
from app.privacy.adjacency import Adjacency
from app.services.authorization import permitted
from app.services.installation import Installation
from app.services.spending.accept import NewWork, accept
from app.services.spending.price import Asked, asked
from app.wire.profiles import ProfileIn, ProfileQuoteOut


@dataclass(frozen=True)
class ProfileQuote(Asked):
    """A request for a profile with everything public worked out."""

    plan: ProfilePlan


def show_profile_quote(
    installation: Installation, principal: Principal, reference: str, wanted: ProfileIn
) -> ProfileQuoteOut:
    """Answers a question about the price of a profile. Touches no rows and costs nothing.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
        InvalidRequest: parameters or scope break a rule.
        DatasetDeleted: only the tombstone is left.
    """
    with installation.database.read() as session:
        quoted = _quote(session, permitted(session, principal, reference, TRAIN).living(), wanted)
    schema = quoted.dataset.schema
    return ProfileQuoteOut(
        **quoted.shown(quoted.plan.event),
        parameters=dict(quoted.plan.parameters),
        private_features=[schema.features[index].name for index in quantile_bins.private_features(schema)],
        warnings=list(quoted.warnings),
    )


def submit_profile(
    installation: Installation,
    principal: Principal,
    reference: str,
    wanted: ProfileIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    """Accepts a job that releases a profile, or refuses it.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
        InvalidRequest: parameters or scope break a rule.
        DatasetDeleted: only the tombstone is left.
        NoRowsYet: nothing was uploaded so far.
        BudgetExceeded: the ledger refuses.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, TRAIN)
        # By id: under its name and under its id a dataset is the same, and another one of that name is not.
        request = replace(request, route=f"POST /datasets/{dataset.id}/profiles")
        earlier = stored(session, request)
        if earlier is not None:
            return earlier
        quoted = _quote(session, dataset, wanted)
    new = NewWork("profile", {"plan": quoted.plan.to_json()}, quoted.plan.event, wanted.name)
    with installation.database.write() as session:
        at = installation.database.now(session)
        accepted = partial(accept, session, quoted, new, actor=principal.key_id, at=at)
        return once(session, request, at=at, work=accepted)


def _quote(session: Session, dataset: catalog.Dataset, wanted: ProfileIn) -> ProfileQuote:
    """Works out plan, scope and price from public facts alone."""
    within = asked(session, dataset, wanted)
    facts = public_facts(within.request, dataset.schema, Adjacency.ADD_REMOVE_ONE)
    return ProfileQuote(**vars(within), plan=profile.plan(wanted.parameters, facts))

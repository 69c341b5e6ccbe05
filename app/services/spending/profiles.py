"""Serves ``POST /datasets/{id}/profiles``: quotes and accepts profiles."""

from app.access.grants import TRAIN, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.forests.bins import quantile_bins
from app.forests.data.schema import Schema
from app.forests.planning import public_facts
from app.forests.profile import price
from app.forests.profile.price import ProfilePlan
from app.forests.profile.read import Profile
from app.privacy.adjacency import Adjacency
from app.registry.tables import ProfileRow
from app.services.installation import Installation
from app.services.spending.price import Asked, PricedPart, price_part, read_asked
from app.services.spending.quotes import quote_parts
from app.services.spending.spend import Job, spending
from app.wire.spending import ProfileIn, ProfileQuoteOut


def show_profile_quote(
    installation: Installation, principal: Principal, reference: str, body: ProfileIn
) -> ProfileQuoteOut:
    """Quotes a profile. Reads no rows and costs nothing."""
    with installation.database.read() as session:
        principal, [asked] = read_asked(installation, session, principal, [reference], TRAIN)
        dataset = asked.dataset.living()
        plan, part = _plan_profile(asked, body)
        [quote] = quote_parts(session, principal, [part])
    features = dataset.schema.features
    return ProfileQuoteOut(
        **quote.fields,
        parameters=dict(plan.parameters),
        private_features=[features[index].name for index in quantile_bins.private_features(dataset.schema)],
        warnings=quote.warnings,
    )


def submit_profile(
    installation: Installation, caller: Principal, reference: str, body: ProfileIn, *, request: IdempotentRequest
) -> Answer:
    """Accepts a job that releases a profile, or refuses it."""
    with spending(installation, caller, request) as spend:
        [asked] = spend.authorize([reference])
        if (earlier := spend.lock(route=f"POST /datasets/{asked.dataset.id}/profiles")) is not None:
            return earlier
        plan, part = _plan_profile(spend.asked[0], body)
        work = {"plan": plan.to_json()}
        return spend.accept(Job("profile", part.dataset, [part], work, name=body.name, purpose=body.purpose))


def released(row: ProfileRow) -> Profile:
    """Reads the released numbers of a stored profile."""
    return Profile.from_json(row.body["profile"], Schema.from_json(row.body["schema"]))


def _plan_profile(asked: Asked, body: ProfileIn) -> tuple[ProfilePlan, PricedPart]:
    """Plans the release and prices it, from public facts alone."""
    part = price_part(asked, body)
    facts = public_facts(part.account_request, asked.dataset.schema, Adjacency.ADD_REMOVE_ONE)
    plan = price.plan(body.parameters, facts)
    return plan, part.paying_for(plan.event)

"""Serves ``POST /datasets/{id}/profiles``: quotes and accepts profiles."""

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest
from app.access.roles import TRAIN, Principal
from app.datasets import catalog
from app.forests.bins import quantile_bins
from app.forests.planning import public_facts
from app.forests.profile import price
from app.forests.profile.price import ProfilePlan
from app.privacy.adjacency import Adjacency
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.spending.accept import Job
from app.services.spending.part_quotes import quote_parts
from app.services.spending.price import PricedPart, price_part
from app.services.spending.submit import JobSteps, submit_job
from app.wire.profiles import ProfileIn, ProfileQuoteOut


def show_profile_quote(
    installation: Installation, principal: Principal, reference: str, body: ProfileIn
) -> ProfileQuoteOut:
    """Quotes a profile. Reads no rows and costs nothing.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may not train on it.
        InvalidRequest: parameters or scope break a rule.
        DatasetDeleted: the dataset was erased.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, TRAIN).living()
        plan, part = _plan_profile(session, dataset, body)
        [quote] = quote_parts(session, principal, [part])
    features = dataset.schema.features
    return ProfileQuoteOut(
        **quote.fields,
        parameters=dict(plan.parameters),
        private_features=[features[index].name for index in quantile_bins.private_features(dataset.schema)],
        warnings=quote.warnings,
    )


def submit_profile(
    installation: Installation, principal: Principal, reference: str, body: ProfileIn, *, request: IdempotentRequest
) -> Answer:
    """Accepts a job that releases a profile, or refuses it.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may not train on it.
        InvalidRequest: parameters or scope break a rule.
        DatasetDeleted: the dataset was erased.
        NoRowsYet: the dataset has no upload.
        BudgetExceeded: the account refuses.
    """

    return submit_job(
        installation,
        principal,
        JobSteps(
            authorize=lambda session, principal: authorized_dataset(session, principal, reference, TRAIN),
            route=lambda dataset: f"POST /datasets/{dataset.id}/profiles",
            quote=lambda session, dataset: _plan_profile(session, dataset, body),
            job=lambda planned: _job(planned, body),
            datasets=[reference],
        ),
        request=request,
    )


def _job(planned: tuple[ProfilePlan, PricedPart], body: ProfileIn) -> Job:
    plan, part = planned
    return Job("profile", part.dataset, [part], {"plan": plan.to_json()}, name=body.name, purpose=body.purpose)


def _plan_profile(session: Session, dataset: catalog.Dataset, body: ProfileIn) -> tuple[ProfilePlan, PricedPart]:
    """Plans the release and prices it, from public facts alone."""
    part = price_part(session, dataset, body)
    facts = public_facts(part.account_request, dataset.schema, Adjacency.ADD_REMOVE_ONE)
    plan = price.plan(body.parameters, facts)
    return plan, part.paying_for(plan.event)

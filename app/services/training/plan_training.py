"""Plans a training request and prices the parts of its job, from public facts alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from app.access.roles import TRAIN, Principal
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.forests import catalogue
from app.forests.contract.plan import Plan
from app.forests.planning import PlanRequest, plan, plan_reference
from app.privacy.composition import are_disjoint
from app.services.authorization import authorized_dataset
from app.services.spending.price import PricedPart, RequestedPart, UnpricedPart, price_part, read_part
from app.services.training.reused_profile import reuse
from app.wire.training import PlanIn, ReusedProfileOut

SECOND_PART = "/unlabelled"
"""The JSON pointer of the second part of a training request."""


@dataclass(frozen=True)
class PlannedTraining:
    """A training request with its plan and its priced parts, from public facts alone.

    Attributes:
        plan: algorithm, parameters, trees and noise.
        parts: the rows that are read, with their prices: the labelled rows, then the rows without labels, if any.
        profile: the profile that the request reuses.
    """

    plan: Plan
    parts: tuple[PricedPart | UnpricedPart, ...]
    profile: ReusedProfileOut | None


def datasets_of(body: PlanIn) -> list[str]:
    """Ids or names of the datasets of a request, in the order of its parts."""
    return [body.dataset] if body.unlabelled is None else [body.dataset, body.unlabelled.dataset]


def authorized_datasets(session: Session, principal: Principal, body: PlanIn) -> list[catalog.Dataset]:
    """Finds the datasets of a request, in the order of its parts.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may not train on one of them.
    """
    return [authorized_dataset(session, principal, reference, TRAIN) for reference in datasets_of(body)]


def plan_training(
    session: Session, principal: Principal, datasets: Sequence[catalog.Dataset], body: PlanIn
) -> PlannedTraining:
    """Plans the job and prices its parts.

    Raises:
        NotFound: no such profile, or it is not visible to this key.
        InvalidRequest: the request breaks a rule, or the two datasets are incompatible.
        NotSupported: a documented choice that is not implemented yet.
        AccountantMismatch: the algorithm has no bound in an account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and an account protects more.
        DatasetPrivate: the algorithm has no privacy guarantee, and the dataset is private.
    """
    if catalogue.is_reference(body.algorithm):
        return _plan_reference(session, datasets[0], body)
    labelled, *unlabelled = _requested_parts(session, datasets, body)
    profile = reuse(session, principal, labelled.dataset, body.profile)
    size = labelled.public_size
    if profile is not None:
        size = profile.size(labelled, n_epochs=len(catalog.upload_ids(session, labelled.dataset.id)))
    request = PlanRequest(
        algorithm=body.algorithm,
        parameters=body.parameters,
        **vars(replace(labelled.account_request, public_size=size)),
        profile=None if profile is None else profile.numbers,
        unlabelled=unlabelled[0].account_request if unlabelled else None,
    )
    planned = plan(request, labelled.dataset.schema)
    parts = [labelled.paying_for(planned.event)]
    for part in unlabelled:
        assert planned.unlabelled is not None, "an algorithm that takes one dataset refuses a second"
        _require_fitting(labelled, part)
        parts.append(part.paying_for(planned.unlabelled.event))
    reused = None if profile is None else profile.shown(is_used=planned.profile is not None, size=size)
    return PlannedTraining(planned, tuple(parts), reused)


def _plan_reference(session: Session, dataset: catalog.Dataset, body: PlanIn) -> PlannedTraining:
    part = read_part(session, dataset, body)
    for name in ("profile", "unlabelled"):
        if getattr(body, name) is not None:
            raise InvalidRequest.at(f"/{name}", "not-for-this-algorithm")
    planned = plan_reference(body.algorithm, body.parameters)
    return PlannedTraining(planned, (part,), None)


def _requested_parts(session: Session, datasets: Sequence[catalog.Dataset], body: PlanIn) -> list[RequestedPart]:
    parts = [price_part(session, datasets[0], body)]
    if body.unlabelled is not None:
        try:
            parts.append(price_part(session, datasets[1], body.unlabelled))
        except InvalidRequest as invalid:
            raise invalid.below(SECOND_PART) from None
    return parts


def _require_fitting(labelled: RequestedPart, part: RequestedPart) -> None:
    """Checks that one forest can use the rows of both parts.

    Both parts may read one dataset in disjoint scopes: then each row is charged for one part (docs/proofs/sspe-1.md).

    Raises:
        InvalidRequest: the second dataset has other features, or a row can be in both parts.
    """
    if part.dataset.is_public is not labelled.dataset.is_public:
        raise InvalidRequest.at(f"{SECOND_PART}/dataset", "other-visibility")
    if not part.dataset.schema.has_features_of(labelled.dataset.schema):
        raise InvalidRequest.at(f"{SECOND_PART}/dataset", "other-features")
    if part.dataset.id == labelled.dataset.id and not are_disjoint(labelled.scope, part.scope):
        raise InvalidRequest.at(f"{SECOND_PART}/scope", "not-disjoint")

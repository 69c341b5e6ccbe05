"""The second dataset of a request: permitted, compatible, and asked for its own part of the price."""

from sqlalchemy.orm import Session

from app.access.roles import TRAIN, Principal
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.services.asked import Asked, asked
from app.services.permitted import permitted
from app.wire.training import PlanIn

POINTER = "/unlabelled"

PERSONS_IN_BOTH = (
    "The two datasets are declared to be about different people. A person who is in both is protected at the sum of "
    "what the two accounts were charged, told in one unit; nothing checks it."
)


def permitted_unlabelled(session: Session, principal: Principal, wanted: PlanIn) -> catalog.Dataset | None:
    """The second dataset that a request names, if the principal may train on it too.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
    """
    return None if wanted.unlabelled is None else permitted(session, principal, wanted.unlabelled.dataset, TRAIN)


def asked_of_unlabelled(
    session: Session, labelled: catalog.Dataset, unlabelled: catalog.Dataset | None, wanted: PlanIn
) -> Asked | None:
    """The scope and price of the second dataset's own part.

    Raises:
        InvalidRequest: it is the labelled dataset itself, has other features, or scope, ε or δ break a rule.
    """
    if unlabelled is None or wanted.unlabelled is None:
        return None
    if unlabelled.id == labelled.id:
        # One account, one event per job: parts of one dataset in two roles would need a price of their own.
        raise InvalidRequest.at(f"{POINTER}/dataset", "same-dataset")
    if not unlabelled.schema.has_features_of(labelled.schema):
        raise InvalidRequest.at(f"{POINTER}/dataset", "other-features")
    try:
        return asked(session, unlabelled, wanted.unlabelled)
    except InvalidRequest as invalid:
        raise invalid.below(POINTER) from None

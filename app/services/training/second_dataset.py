"""The second dataset of a request: permitted, compatible, and asked for its own part of the price."""

from dataclasses import replace

from sqlalchemy.orm import Session

from app.access.roles import TRAIN, Principal
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.ledger import service as ledger
from app.ledger.admission import Request
from app.privacy.composition import are_disjoint
from app.services.authorization import permitted
from app.services.spending import scopes
from app.services.spending.price import Asked, asked
from app.wire.training import PlanIn

POINTER = "/unlabelled"

_PERSONS_IN_BOTH = (
    "The two datasets are declared to be about different people. For a person who is in both, the job adds the sum of "
    "the two prices, told in one unit, to what was released before; nothing checks it."
)
_NO_ROW_IN_BOTH = (
    "Both parts are of one dataset, on cells that no row is in both of. For its people the job adds the larger of the "
    "two prices to what was released before; its account shows both, cell by cell."
)


def persons_in_both(labelled_id: str, unlabelled_id: str) -> str:
    """What holds for somebody in both parts of a job, in a sentence."""
    return _NO_ROW_IN_BOTH if labelled_id == unlabelled_id else _PERSONS_IN_BOTH


def permitted_unlabelled(session: Session, principal: Principal, wanted: PlanIn) -> catalog.Dataset | None:
    """The second dataset that a request names, if the principal may train on it too.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
    """
    return None if wanted.unlabelled is None else permitted(session, principal, wanted.unlabelled.dataset, TRAIN)


def asked_of_unlabelled(session: Session, unlabelled: catalog.Dataset | None, wanted: PlanIn) -> Asked | None:
    """The scope and price of the second dataset's own part.

    Raises:
        InvalidRequest: scope, ε or δ break a rule.
    """
    if unlabelled is None or wanted.unlabelled is None:
        return None
    try:
        return asked(session, unlabelled, wanted.unlabelled)
    except InvalidRequest as invalid:
        raise invalid.below(POINTER) from None


def require_fitting(labelled: Asked, part: Asked) -> None:
    """Checks that the second dataset can stand beside the first, for an algorithm that takes two.

    It may be the labelled dataset itself, on cells that no row shares with the labelled part: then each row is charged
    for one of the two (docs/proofs/sspe-1.md).

    Raises:
        InvalidRequest: it has other features, or a row can be in both parts.
    """
    if not part.dataset.schema.has_features_of(labelled.dataset.schema):
        raise InvalidRequest.at(f"{POINTER}/dataset", "other-features")
    if part.dataset.id == labelled.dataset.id and not are_disjoint(labelled.scope, part.scope):
        raise InvalidRequest.at(f"{POINTER}/scope", "not-disjoint")


def beside_one_another(session: Session, labelled: Asked, part: Asked) -> tuple[Asked, Asked]:
    """Both parts of a job, each with the room that is left for it where the other one gets what it asks for.

    Datasets of one population share its cap; the job is admitted if and only if both parts fit.
    """
    requests = [
        Request(each.dataset.id, each.amount, scopes.resolved(session, each.dataset, each.scope))
        for each in (labelled, part)
    ]
    own, other = ledger.balances_of_job(session, requests)
    return replace(labelled, balance=own), replace(part, balance=other)

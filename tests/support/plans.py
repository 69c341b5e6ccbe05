"""Requests for plans of any algorithm, on accounts that can pay for it."""

from fractions import Fraction

from app.forests import catalogue
from app.forests.contract.algorithm import TwoDatasetMechanism
from app.forests.planning import AccountRequest, PlanRequest
from app.privacy.adjacency import Adjacency


def request_for(
    slug: str,
    parameters: dict[str, object],
    epsilon: Fraction,
    size: int | None,
    *,
    accountant: str = "pure",
    delta: Fraction | None = None,
    adjacency: Adjacency | None = None,
    max_rows: int = 1,
) -> PlanRequest:
    """By default on an account that protects what the algorithm protects; a second one, where needed, on its terms."""
    own = catalogue.AUTO if slug == catalogue.AUTO.slug else catalogue.mechanism(slug)
    terms = (epsilon, size, accountant, delta, adjacency or own.adjacency, max_rows)
    unlabelled = AccountRequest(*terms) if isinstance(own, TwoDatasetMechanism) else None
    return PlanRequest(slug, parameters, *terms, unlabelled=unlabelled)

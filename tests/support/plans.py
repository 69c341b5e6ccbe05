"""Makes requests for plans of any algorithm, on accounts that can pay for it."""

from fractions import Fraction

from app.forests import catalogue
from app.forests.catalogue import PlanRequest
from app.forests.contract.algorithm import TwoDatasetAlgorithm
from app.privacy.calibration import AccountRequest
from app.privacy.events import Adjacency


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
    """A request on an account with the algorithm's adjacency by default; a second account has equal terms."""
    algorithm = catalogue.AUTO if slug == catalogue.AUTO.slug else catalogue.algorithm(slug)
    terms = (epsilon, size, accountant, delta, adjacency or algorithm.adjacency, max_rows)
    unlabelled = AccountRequest(*terms) if isinstance(algorithm, TwoDatasetAlgorithm) else None
    return PlanRequest(slug, parameters, *terms, unlabelled=unlabelled)

"""Makes requests for plans of any algorithm, on accounts that can pay for it."""

from dataclasses import replace
from fractions import Fraction

from grovekeeper_forests import catalogue
from grovekeeper_forests.contract.algorithm import TwoDatasetAlgorithm
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest.price import PlanRequest


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
    """A request on an account with the algorithm's adjacency by default; a second
    account has equal terms.
    """
    algorithm = (
        catalogue.AUTO if slug == catalogue.AUTO.slug else catalogue.algorithm(slug)
    )
    terms = Terms(
        epsilon, accountant, delta, adjacency or algorithm.adjacency, max_rows
    )
    request = PlanRequest(slug, parameters, terms, size)
    if not isinstance(algorithm, TwoDatasetAlgorithm):
        return request
    return replace(request, unlabelled=terms, unlabelled_size=size)

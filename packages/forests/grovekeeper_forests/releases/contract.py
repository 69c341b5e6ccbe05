"""Defines what every kind of release is priced by: public facts.

A kind is a folder of this package. ``price`` turns a request and public facts into a
plan whose event the account pays for. ``draw`` turns the plan and PRIVATE rows into
bytes, in the child process of a charged job alone
(:mod:`grovekeeper_forests.releases.drawing`). ``read`` checks these bytes, for
everybody. What a kind adds to the service is in
:mod:`app.services.releases.contract`.
"""

from fractions import Fraction

from grovekeeper_forests import amounts
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import AdjacencyMismatch, ParameterInvalid
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, Part

ASSUMED_SIZE = 3_000
"""Public size that the rules assume where none is declared: a cautious value, for a
small table.
"""


STEPS_OF_A_LABEL = 2
"""A changed label is one row removed and one row added."""


def public_facts(
    terms: Terms,
    size: int | None,
    schema: Schema,
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE,
) -> PublicFacts:
    """The facts that an account gives to a mechanism; ε and budget are stated under the
    mechanism's ``adjacency``.

    Args:
        size: see
            :attr:`grovekeeper_forests.releases.forest.price.PlanRequest.public_size`.
    """
    if (terms.adjacency, adjacency) == (Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL):
        raise AdjacencyMismatch(terms.adjacency.value, (adjacency.value,))
    budget = terms.budget()
    mechanism_budget = budget.stated_under(adjacency)
    if mechanism_budget.amount == 0:
        raise ParameterInvalid.named("epsilon", "too-small", accepted=[amounts.MORE])
    epsilon = terms.epsilon / terms.max_rows
    return PublicFacts(
        schema,
        epsilon if mechanism_budget == budget else epsilon / STEPS_OF_A_LABEL,
        ASSUMED_SIZE if size is None else size,
        mechanism_budget,
    )


def counts_at(share: Fraction, facts: PublicFacts, *, coordinates: int) -> Part:
    """A table of noisy counts at a share of the price, as a part of a release.

    Args:
        coordinates: cells of the table.
    """
    part = facts.part(share)
    event = noisy_counts.priced(part.epsilon, part.budget, coordinates=coordinates)
    return Part(1, event)

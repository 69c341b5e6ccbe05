"""Private quantile bins for a share of a budget, on accounts of every unit."""

from fractions import Fraction

from app.core.errors import InvalidRequest
from app.forests import quantile_bins
from app.forests.mechanisms.mechanism import PublicFacts
from app.privacy.accountants import pure
from app.privacy.calibration import Budget, fitted
from app.privacy.events import Event, ExponentialMechanism


def event(facts: PublicFacts, share: Fraction, *, n_levels: int | None = None) -> Event:
    """What cutting bins does for a share of what was asked for.

    Where ε is counted, medians are picked by permute-and-flip; elsewhere by the exponential mechanism, at the largest
    strength that the share pays for.

    Args:
        facts: public; some feature of the schema has private bins.
        share: above zero, at most 1.
        n_levels: see ``quantile_bins.event``.

    Raises:
        InvalidRequest: the share is too small to be drawn with.
    """
    if facts.budget.accountant == pure.NAME:
        return quantile_bins.event(facts.schema, share * facts.epsilon, n_levels=n_levels)
    own = Budget(facts.budget.accountant, int(share * facts.budget.amount), facts.budget.adjacency)
    if own.amount == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    return fitted(
        own,
        lambda epsilon: quantile_bins.event(facts.schema, epsilon, selection=ExponentialMechanism, n_levels=n_levels),
        start=Fraction(1),
    )

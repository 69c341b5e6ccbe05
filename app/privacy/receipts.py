"""An event tree in words: what is released, how often, with which noise, and why it composes to the price."""

from fractions import Fraction

from app.core import amounts
from app.privacy import accountants
from app.privacy.accountants.accountant import Accountant
from app.privacy.adjacency import Adjacency
from app.privacy.events import (
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)

_INDENT = "  "
_SIGNIFICANT_DIGITS = 6


_TOTALS = {
    "pure": "Total: adding or removing one row changes the chance of any outcome by a factor of at most e^ε, "
    "ε {total}; replacing one row, by twice that ε.",
    "zcdp": "Total: ρ {total} of zero-concentrated differential privacy where one row is added or removed; four times "
    "that ρ where one is replaced.",
    "gdp": "Total: μ² {total} of Gaussian differential privacy where one row is added or removed; four times that μ² "
    "where one is replaced.",
}


def in_words(event: Event, *, accountant: str) -> str:
    """The receipt of an event: one line per part, and a last line with the total.

    Every number is public: it was known before any row was read. Figures with more than six significant digits are
    rounded up and marked with ≤; the event itself holds the exact ones.

    Args:
        event: with leaves stated under add/remove.
        accountant: name of the one whose unit the losses are told in.

    Raises:
        UnknownPrivacyEvent: an event without a proven bound in that unit.
    """
    teller = accountants.by_name(accountant)
    lines = _lines(Part(1, event), teller, depth=0)
    return "\n".join([*lines, _TOTALS[accountant].format(total=_figure(_loss(event, teller)))])


def _lines(part: Part, accountant: Accountant, *, depth: int) -> list[str]:
    margin, cost = _INDENT * depth, f"{accountant.SYMBOL} {_figure(_loss(part.event, accountant))}"
    match part.event:
        case Sequential(parts):
            head = f"{margin}{_repeated(part.times)}one after another, so that losses add up ({cost}):"
            return [head, *(line for inner in parts for line in _lines(inner, accountant, depth=depth + 1))]
        case Parallel(over, parts):
            head = (
                f"{margin}{_repeated(part.times)}on disjoint rows, one set of rows per {_singular(over)}, so that only "
                f"the largest loss counts ({cost}):"
            )
            return [head, *(line for inner in parts for line in _lines(inner, accountant, depth=depth + 1))]
    return [f"{margin}{part.times} × {_leaf(part.event)} ({cost} each)"]


def _leaf(event: Event) -> str:
    match event:
        case PermuteAndFlip():
            return (
                f"choice of one among at most {event.max_candidates} public candidates by permute-and-flip: a "
                f"candidate whose score is lower than the best by g is accepted with chance "
                f"exp(−g · {_plain(event.inverse_scale)}); {_spread(event.range_sensitivity)}"
            )
        case ExponentialMechanism():
            return (
                f"choice of one among at most {event.max_candidates} public candidates by the exponential mechanism: "
                f"the weight of a candidate of score u is exp(u · {_plain(event.inverse_scale)}); "
                f"{_spread(event.range_sensitivity)}"
            )
        case DiscreteLaplace():
            return (
                f"release of {event.coordinates} whole numbers, each with discrete Laplace noise of scale "
                f"{_noise_scale(event.inverse_scale)}; one row moves all of them together by at most "
                f"{_plain(event.l1_sensitivity)}"
            )
        case RoundedGaussian():
            return (
                f"release of {event.coordinates} whole numbers, each with normal noise of variance "
                f"{amounts.to_text(_rounded(event.sigma_squared, up=False))}, rounded to the nearest whole number; the "
                f"squares of what one row moves them by add up to at most {_plain(event.l2_sensitivity_squared)}"
            )
    raise UnknownPrivacyEvent("no words for this event")


def _spread(range_sensitivity: Fraction) -> str:
    return f"one row moves scores against each other by at most {_plain(range_sensitivity)}"


def _repeated(times: int) -> str:
    return "" if times == 1 else f"{times} × "


def _singular(over: str) -> str:
    return over.removesuffix("s")


def _loss(event: Event, accountant: Accountant) -> Fraction:
    return accountant.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE)


def _figure(value: Fraction) -> str:
    """``= 0.5``, or ``≤ 0.333334``: exact, or rounded up to six significant digits."""
    rounded = _rounded_up(value)
    return f"= {amounts.to_text(value)}" if rounded == value else f"≤ {amounts.to_text(rounded)}"


def _plain(value: Fraction) -> str:
    """Exact text where it is short, else rounded up to six significant digits."""
    return amounts.to_text(_rounded_up(value))


def _noise_scale(inverse_scale: Fraction) -> str:
    """Never more noise than there is: rounded down."""
    if inverse_scale == 0:
        return "without bound"
    return amounts.to_text(_rounded(1 / inverse_scale, up=False))


def _rounded_up(value: Fraction) -> Fraction:
    return _rounded(value, up=True)


def _rounded(value: Fraction, *, up: bool) -> Fraction:
    """To six significant digits."""
    if value == 0:
        return value
    unit = Fraction(1)
    while value / unit >= 10**_SIGNIFICANT_DIGITS:
        unit *= 10
    while value / unit < 10 ** (_SIGNIFICANT_DIGITS - 1):
        unit /= 10
    return (-(-value // unit) if up else value // unit) * unit

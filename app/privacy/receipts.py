"""An event tree in words: what is released, how often, with which noise, and why it composes to the price."""

from fractions import Fraction

from app.core import amounts
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from app.privacy.events import DiscreteLaplace, Event, Parallel, Part, PermuteAndFlip, Sequential, UnknownPrivacyEvent

_INDENT = "  "
_SIGNIFICANT_DIGITS = 6


def in_words(event: Event) -> str:
    """The receipt of an event: one line per part, and a last line with the total.

    Every number is public: it was known before any row was read. Figures with more than six significant digits are
    rounded up and marked with ≤; the event itself holds the exact ones.

    Args:
        event: with leaves stated under add/remove.

    Raises:
        UnknownPrivacyEvent: an event without a proven bound.
    """
    total = pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE)
    lines = _lines(Part(1, event), depth=0)
    closing = (
        f"Total: adding or removing one row changes the chance of any outcome by a factor of at most e^ε, ε "
        f"{_figure(total)}; replacing one row, by twice that ε."
    )
    return "\n".join([*lines, closing])


def _lines(part: Part, *, depth: int) -> list[str]:
    margin = _INDENT * depth
    match part.event:
        case Sequential(parts):
            head = f"{margin}{_repeated(part.times)}one after another, so that losses add up ({_cost(part.event)}):"
            return [head, *(line for inner in parts for line in _lines(inner, depth=depth + 1))]
        case Parallel(over, parts):
            head = (
                f"{margin}{_repeated(part.times)}on disjoint rows, one set of rows per {_singular(over)}, so that only "
                f"the largest loss counts ({_cost(part.event)}):"
            )
            return [head, *(line for inner in parts for line in _lines(inner, depth=depth + 1))]
        case PermuteAndFlip():
            return [f"{margin}{part.times} × {_selection(part.event)} ({_cost(part.event)} each)"]
        case DiscreteLaplace():
            return [f"{margin}{part.times} × {_counts(part.event)} ({_cost(part.event)} each)"]
    raise UnknownPrivacyEvent("no words for this event")


def _selection(event: PermuteAndFlip) -> str:
    return (
        f"choice of one among at most {event.max_candidates} public candidates by permute-and-flip: a candidate whose "
        f"score is lower than the best by g is accepted with chance exp(−g · {_plain(event.inverse_scale)}); one row "
        f"moves scores against each other by at most {_plain(event.range_sensitivity)}"
    )


def _counts(event: DiscreteLaplace) -> str:
    return (
        f"release of {event.coordinates} whole numbers, each with discrete Laplace noise of scale "
        f"{_noise_scale(event.inverse_scale)}; one row moves all of them together by at most "
        f"{_plain(event.l1_sensitivity)}"
    )


def _repeated(times: int) -> str:
    return "" if times == 1 else f"{times} × "


def _singular(over: str) -> str:
    return over.removesuffix("s")


def _cost(event: Event) -> str:
    return f"ε {_figure(pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE))}"


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

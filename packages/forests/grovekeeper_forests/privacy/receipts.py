"""Describes an event tree in words: releases, their number, their noise, and why the
losses add up to the price.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from grovekeeper_forests import amounts
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants.accountant import Accountant, Leaf
from grovekeeper_forests.privacy.events import (
    Adjacency,
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


_TOTAL = "Total, given everything that was released before: "
_LABELS_ONLY = " Features and membership are not protected."
_KINDS = {
    "zcdp": "zero-concentrated differential privacy",
    "gdp": "Gaussian differential privacy",
}


@dataclass(frozen=True)
class _AccountWords:
    """Words for the losses of a receipt on one account: its unit, and the difference
    between neighbours.
    """

    accountant: Accountant
    symbol: str
    adjacency: Adjacency

    def loss(self, event: Event, *, rows: int = 1) -> str:
        """The loss of an event for so many rows of one unit: exactly as ``ε = 0.5``, or
        rounded up to six significant digits as ``ε ≤ 0.333334``.
        """
        of_row = self.accountant.loss(event, adjacency=self.adjacency)
        loss = self.accountant.group(rows) * of_row
        shown = rounded(loss, up=True)
        sign = "=" if shown == loss else "≤"
        return f"{self.symbol} {sign} {amounts.to_text(shown)}"

    def total(self, event: Event) -> str:
        name, symbol = self.accountant.NAME, self.symbol
        is_label = self.adjacency is Adjacency.LABEL
        if name == "pure":
            change = "changing one label" if is_label else "adding or removing one row"
            loss = f"{change} changes the chance of any outcome by a factor of at most e^ε, {self.loss(event)}"
            replaced, two_steps = "replacing one row, by twice that ε", "twice their ε"
        else:
            change = "one label changes" if is_label else "one row is added or removed"
            loss = f"{self.loss(event)} of {_KINDS[name]} where {change}"
            replaced, two_steps = (
                f"four times that {symbol} where one is replaced",
                f"four times their {symbol}",
            )
        if not is_label:
            return f"{_TOTAL}{loss}; {replaced}."
        steps = (
            f" Releases proven for a row that is added or removed are counted at "
            f"{two_steps}: a changed label is both."
        )
        return f"{_TOTAL}{loss}.{_LABELS_ONLY}{'' if _is_stated_under(event, self.adjacency) else steps}"

    def together(self, event: Event, rows: int) -> str:
        total = self.loss(event, rows=rows)
        return f"For all of the at most {rows} rows of one unit together: {total}."


def in_words(
    event: Event, *, accountant: str, adjacency: Adjacency, max_rows: int = 1
) -> str:
    """The receipt of an event: one line per part, a line with the total, and a line for
    units of several rows.

    Every number is public: it was known before any row was read. Figures with more than
    six significant digits are rounded up and marked with ≤; the event itself holds the
    exact ones.

    Args:
        accountant: name of the accountant in whose unit the losses are stated.
        adjacency: of the account.
        max_rows: rows that one privacy unit has at most.

    Raises:
        UnknownPrivacyEvent: an event without a proven bound on such an account.
    """
    unit = accountants.by_name(accountant)
    words = _AccountWords(unit, amounts.SYMBOLS[unit.UNIT], adjacency)
    lines = [*_lines(Part(1, event), words, depth=0), words.total(event)]
    return "\n".join(
        lines if max_rows == 1 else [*lines, words.together(event, max_rows)]
    )


def _lines(part: Part, words: _AccountWords, *, depth: int) -> list[str]:
    margin, times = _INDENT * depth, "" if part.times == 1 else f"{part.times} × "
    cost = words.loss(part.event)
    match part.event:
        case Sequential(parts):
            how = "one after another, so that losses add up"
        case Parallel(over, parts):
            how = (
                f"on disjoint rows, one set of rows per {over.removesuffix('s')}, so "
                "that only the largest loss counts"
            )
        case leaf:
            return [f"{margin}{part.times} × {_leaf(leaf)} ({cost} each)"]
    lines = [f"{margin}{times}{how} ({cost}):"]
    for inner in parts:
        lines += _lines(inner, words, depth=depth + 1)
    return lines


def _leaf(event: Event) -> str:
    match event:
        case PermuteAndFlip():
            return (
                f"choice of one among at most {event.max_candidates} public candidates by permute-and-flip: a "
                f"candidate whose score is lower than the best by g is accepted with chance "
                f"exp(−g · {_plain(event.inverse_scale)}); {_spread(event)}"
            )
        case ExponentialMechanism():
            return (
                f"choice of one among at most {event.max_candidates} public candidates by the exponential mechanism: "
                f"the weight of a candidate of score u is exp(u · {_plain(event.inverse_scale)}); "
                f"{_spread(event)}"
            )
        case DiscreteLaplace():
            moved = "it" if event.coordinates == 1 else "all of them together"
            scale = "without bound"
            if event.inverse_scale != 0:
                # rounded down, so that the receipt never overstates the noise
                rounded_scale = rounded(1 / event.inverse_scale, up=False)
                scale = amounts.to_text(rounded_scale)
            return (
                f"release of {_whole_numbers(event.coordinates)} discrete Laplace noise of scale "
                f"{scale}; {_changed(event)} moves {moved} by at most "
                f"{_plain(event.l1_sensitivity)}"
            )
        case RoundedGaussian():
            return (
                f"release of {_whole_numbers(event.coordinates)} normal noise of variance "
                f"{amounts.to_text(rounded(event.sigma_squared, up=False))}, rounded to the nearest whole number; "
                f"the squares of what {_changed(event)} moves them by add up to at most "
                f"{_plain(event.l2_sensitivity_squared)}, so that the noise's deviation is {_times(event)} times that "
                "length"
            )
    raise UnknownPrivacyEvent("no words for this event")


def _whole_numbers(count: int) -> str:
    if count == 1:
        return "a whole number with"
    return f"{count} whole numbers, each with"


def _spread(event: PermuteAndFlip | ExponentialMechanism) -> str:
    return f"{_changed(event)} moves scores against each other by at most {_plain(event.range_sensitivity)}"


def _changed(leaf: Leaf) -> str:
    """Names the difference between the neighbours for which a leaf's sensitivity is
    stated.
    """
    return "one changed label" if leaf.adjacency is Adjacency.LABEL else "one row"


def _is_stated_under(event: Event, adjacency: Adjacency) -> bool:
    if isinstance(event, Sequential | Parallel):
        return all(_is_stated_under(part.event, adjacency) for part in event.parts)
    return event.adjacency is adjacency


def _plain(value: Fraction) -> str:
    """Formats a number: exactly where the text is short, else rounded up to six
    significant digits.
    """
    return amounts.to_text(rounded(value, up=True))


def _times(noise: RoundedGaussian) -> str:
    """The standard deviation divided by the sensitivity, rounded down."""
    if noise.l2_sensitivity_squared == 0:
        return "infinitely many"
    square = noise.sigma_squared / noise.l2_sensitivity_squared
    unit = 10**_SIGNIFICANT_DIGITS
    return amounts.to_text(
        rounded(Fraction(isqrt(int(square * unit**2)), unit), up=False)
    )


def rounded(value: Fraction, *, up: bool) -> Fraction:
    """Rounds to six significant digits."""
    if value == 0:
        return value
    unit = Fraction(1)
    while value / unit >= 10**_SIGNIFICANT_DIGITS:
        unit *= 10
    while value / unit < 10 ** (_SIGNIFICANT_DIGITS - 1):
        unit /= 10
    return (-(-value // unit) if up else value // unit) * unit

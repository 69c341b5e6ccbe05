"""Writes the odds of a guarantee as words, for pages and for the command line."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

CHANGES: Mapping[str, str] = {
    "add_remove": "whether one {unit} is in the data",
    "replace_one": "whether one {unit} or another is in the data",
    "label": "the label of one {unit}",
    "person": "one person of the population",
}
"""What somebody guesses, by adjacency; a unit is a row, or a value of a column with all
its rows.
"""


def guessed(change: str, unit: str) -> str:
    """What somebody guesses in words: ``whether one row is in the data``."""
    return CHANGES[change].format(unit=unit)


def known(unit: str) -> str:
    """What somebody knows who guesses about one unit. The other rows of a unit of
    several rows are not among it.
    """
    return "every other row" if unit == "row" else f"all rows of every other {unit}"


def percent(probability: str) -> str:
    """A probability as a whole percentage, rounded up. No loss makes a guess certain:
    ``1`` was rounded up, too.
    """
    whole = (Decimal(probability) * 100).to_integral_value(ROUND_CEILING)
    return f"{'more than 99' if whole >= 100 else whole} %"


def sentence(change: str, probability: str, *, unit: str, condition: str = "") -> str:
    """The odds of one change as a sentence, which may begin with a condition."""
    somebody = f"{condition} somebody" if condition else "Somebody"
    chance = percent(probability)
    if chance[0].isdigit():
        often = f"at most {chance}"
    else:
        often = f"in the worst case {chance}"
    return (
        f"{somebody} who knows {known(unit)} and flips a fair coin about {guessed(change, unit)} guesses right "
        f"{often} of the time (50 % before)."
    )

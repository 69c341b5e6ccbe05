"""Prices what a profile tells of a label that is a number: the statistics mean and
quantiles. No row is read.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.events import Event, Part, Sequential
from grovekeeper_forests.releases.statistics import price as statistics_price
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.tables import MEAN, QUANTILES, read_tables

SHOWN_QUANTILES: Final = ("0.05", "0.25", "0.5", "0.75", "0.95")

N_PARTS: Final = 2 + len(SHOWN_QUANTILES)
"""Parts of the event: the number of rows and the sum of the mean, then the quantiles."""


def plan_label(facts: PublicFacts) -> StatisticsPlan:
    """Prices mean and quantiles of the label at equal shares.

    Args:
        facts: of the share of the price that the label has.

    Raises:
        ParameterInvalid: the share is too small for any draw, or the bounds of the
            label are too close together or too far apart for a mean.
    """
    try:
        return statistics_price.plan(_asked(facts.schema.label), facts)
    except ParameterInvalid as invalid:
        [problem] = invalid.problems
        if problem.place == ("epsilon",):
            raise
        # a request for a profile names no tables
        of_label = replace(problem, place=("label",))
        raise ParameterInvalid([of_label]) from None


def read_label_plan(parts: Sequence[Event], schema: Schema) -> StatisticsPlan:
    """The plan of mean and quantiles, from their part of the event of a profile.

    Raises:
        StatisticsInvalid: the events are not those of mean and quantiles of the label.
    """
    tables = read_tables(_asked(schema.label), schema)
    event = Sequential(tuple(Part(1, part) for part in parts))
    unchecked = StatisticsPlan(tables, event)
    return StatisticsPlan.from_json(unchecked.to_json(), schema)


def _asked(label: Label) -> list[dict[str, Any]]:
    mean = {"statistic": MEAN, "column": label.name}
    quantiles = {
        "statistic": QUANTILES,
        "column": label.name,
        "quantiles": SHOWN_QUANTILES,
    }
    return [mean, quantiles]

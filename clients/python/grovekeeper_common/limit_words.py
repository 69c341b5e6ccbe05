"""Names the limits that may leave least to a job, and writes them as words, for pages
and for the command line.
"""

from collections.abc import Mapping
from typing import Literal

from grovekeeper_common.json_types import JsonMapping

LimitedBy = Literal[
    "cap",
    "population",
    "largest_job",
    "quota",
    "frozen",
    "erasure_due",
    "erased",
    "approval_above",
    "delta_set_aside",
    "listed_cells",
]
"""The limit that decides how much one job may reserve now; ``cap`` also where others
leave the same amount.
"""

_WORDS: Mapping[LimitedBy, str] = {
    "cap": "the cap",
    "population": "the cap of the population, which leaves less than the dataset's own cap",
    "largest_job": "the rule of the dataset for the largest job",
    "quota": "a quota of your key",
    "frozen": "the freeze of the dataset",
    "erasure_due": "the date of erasure, which has come",
    "erased": "the erasure of the dataset",
    "approval_above": "the rule of the dataset for approvals, for which a charge at once cannot wait",
    "delta_set_aside": "the part of δ that is set aside",
    "listed_cells": "the number of cells that the ledger may list for the scopes of your key",
}


def limit_in_words(limited_by: LimitedBy, population: str | None = None) -> str:
    """The limit as a noun with its article; ``population``: its name, where it is
    known.
    """
    words = _WORDS[limited_by]
    if population is None:
        return words
    return words.replace("the population", f"the population {population}")


def is_used_up(budget: JsonMapping) -> bool:
    """Whether no more of a budget is left for a key that might spend it.

    Args:
        budget: an item of ``budgets`` in the answer of ``GET /attention``.
    """
    is_spent = budget["limited_by"] in ("cap", "population")
    return is_spent and budget["may_submit"] and budget["largest_that_fits"] == "0"

"""Defines the parameters that several algorithms share, and the public rules that choose their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from app.core import amounts, limits
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import MAX_BINS
from app.privacy.accountants import pure

SEQUENTIAL, SHARDED = "sequential", "sharded"

N_ESTIMATORS = Parameter(
    "n_estimators",
    "integer",
    "Number of trees. By default a public rule of the schema, the size and ε.",
    minimum=Fraction(1),
    maximum=Fraction(limits.MAX_TREES),
)
TEN_TREES = replace(N_ESTIMATORS, description="Number of trees.", default=10)
MAX_DEPTH = Parameter(
    "max_depth",
    "integer",
    "Splits on every path; the only stopping rule. By default a public rule of the schema, the size and ε.",
    minimum=Fraction(0),
    maximum=Fraction(limits.MAX_DEPTH),
)
N_BINS = Parameter(
    "n_bins",
    "integer",
    "Public bins per number between its declared bounds; an integer with fewer values has a bin per value.",
    default=32,
    minimum=Fraction(2),
    maximum=Fraction(MAX_BINS),
)
ASSIGNMENT = Parameter(
    "assignment",
    "choice",
    "Every tree sees all rows at its share of ε, or each row is in one tree (by a keyed hash of its id) at all of ε.",
    default=SEQUENTIAL,
    choices=(SEQUENTIAL, SHARDED),
)

SHARDED_ASSIGNMENT = replace(ASSIGNMENT, default=SHARDED)

STRUCTURE_SHARE_WITH_DELTA = "0.85"
"""Default on accounts with a δ: as accurate as the usual share or more, on every table (docs/results/papers.md)."""

MAX_RULE_TREES = 16
"""Largest number of trees that :func:`default_n_trees` chooses."""

_COUNTS = "counts"

NONE, HASH = "none", "hash"

SEPARATION = Parameter(
    "se",
    "choice",
    "Split each tree's rows into a structure part and an estimation part by keyed hash, or not.",
    default=NONE,
    choices=(NONE, HASH),
)


def is_sharded(parameters: Mapping[str, Value]) -> bool:
    """Whether each row is in one tree only."""
    return parameters["assignment"] == SHARDED


def default_n_trees(facts: PublicFacts) -> int:
    """Number of trees of a forest whose splits depend on rows: a public rule of the size, ε and the classes."""
    factor = 1.6 if facts.schema.n_classes == 2 else 3.0
    trees: float = factor * float(facts.epsilon) ** 0.6 * (facts.size / 10_000) ** 0.4
    return min(max(round(trees), 1), MAX_RULE_TREES)


def settle_structure_share(settled: dict[str, Value], facts: PublicFacts, *, usual: str) -> None:
    """Sets ``structure_share`` where the request does not; higher on accounts with a δ whose leaves release counts.

    In ρ or μ², selections cost less than in ε, and counts get normal noise, which is usually smaller than Laplace noise
    at the same price. So a smaller share suffices for the leaves.

    Args:
        settled: gains the parameter.
        facts: public.
        usual: the share on accounts that count ε, and for leaves that release labels.
    """
    cheap = facts.budget.accountant != pure.NAME and settled.get("leaf", _COUNTS) == _COUNTS
    settled.setdefault("structure_share", STRUCTURE_SHARE_WITH_DELTA if cheap else usual)


def structure_share(parameters: Mapping[str, Value]) -> Fraction:
    """Share of a tree's loss that its selections get: zero for a tree without selections."""
    return amounts.parse(parameters["structure_share"]) if int(parameters["max_depth"]) > 0 else Fraction(0)

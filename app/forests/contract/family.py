"""Defines the protocol of a family of forests, which the artifact codec and prediction use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Schema


@dataclass(frozen=True)
class Layout:
    """Type and shape of one released array, fixed by the plan and the public schema."""

    dtype: type[np.generic]
    shape: tuple[int, ...]

    def fits(self, array: NDArray[Any]) -> bool:
        """Whether an array has exactly this type and shape."""
        return array.dtype == self.dtype and array.shape == self.shape


Layouts: TypeAlias = Mapping[str, Layout]

Reader: TypeAlias = Callable[[SanitisedColumns], NDArray[np.float64]]
"""Maps the caller's rows to their class probabilities, float64 ``(n_rows, n_classes)``; rows sum to 1."""


class Family(Protocol):
    """The layouts and the reader of forests whose released arrays have equal names and meaning.

    Every method is a function of releases and public facts alone: post-processing (lemma L7), which costs no budget.
    """

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """The layout of every released array, by name; an artifact holds these arrays and its metadata."""

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether arrays of the right layout have legal values. A reader relies on this check."""

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> Reader:
        """A reader for one read-out, with everything precomputed that does not depend on the rows.

        A row's probabilities do not depend on the other rows of a call. A reader is cached for the life of its forest,
        so a reader must not hold a reference to the forest.
        """


def split_layouts(plan: Plan) -> Layouts:
    """The arrays of complete binary trees with one feature and one threshold per node."""
    nodes = (plan.n_trees, n_leaves(plan) - 1)
    return {"feature": Layout(np.int32, nodes), "threshold": Layout(np.uint8, nodes), "equals": Layout(np.bool_, nodes)}


def n_leaves(plan: Plan) -> int:
    """Number of leaves of one tree."""
    return 1 << int(plan.parameters["max_depth"])


def splits_are_valid(forest: Forest, schema: Schema, *, n_columns: int | None = None) -> bool:
    """Whether every split names a feature of the schema, or one of ``n_columns`` columns computed from features."""
    feature = forest.arrays["feature"]
    below = len(schema.features) if n_columns is None else n_columns
    return bool(np.all((feature >= 0) & (feature < below)))

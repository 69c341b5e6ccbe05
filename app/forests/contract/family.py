"""What the codec and prediction ask of a family of forests."""

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
    """Type and shape of one released array, as the plan and the public schema fix them."""

    dtype: type[np.generic]
    shape: tuple[int, ...]

    def fits(self, array: NDArray[Any]) -> bool:
        """Whether an array has exactly this type and shape."""
        return array.dtype == self.dtype and array.shape == self.shape


Layouts: TypeAlias = Mapping[str, Layout]

Reader: TypeAlias = Callable[[SanitisedColumns], NDArray[np.float64]]
"""From the caller's own rows to their class probabilities, float64 ``(n_rows, n_classes)``; rows sum to 1."""


class Family(Protocol):
    """Forests with the same released arrays, read in the same way.

    Everything here is a function of released and public facts alone: post-processing of one release (lemma L7), so it
    costs nothing, however often it is asked.
    """

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """Every released array by name; what an artifact holds beside its metadata."""

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether arrays of the right layout can have been released; all that a reader takes for granted."""

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> Reader:
        """Prediction by one read-out, with everything made ready that does not depend on the rows.

        A row's probabilities do not depend on the rows that it comes with. A reader is kept as long as its forest, so
        it must not hold the forest itself.
        """


def split_layouts(plan: Plan) -> Layouts:
    """The arrays of complete binary trees with one feature and one threshold per node."""
    nodes = (plan.n_trees, n_leaves(plan) - 1)
    return {"feature": Layout(np.int32, nodes), "threshold": Layout(np.uint8, nodes), "equals": Layout(np.bool_, nodes)}


def n_leaves(plan: Plan) -> int:
    """Leaves of one tree."""
    return 1 << int(plan.parameters["max_depth"])


def splits_are_valid(forest: Forest, schema: Schema, *, n_columns: int | None = None) -> bool:
    """Whether every split asks for a feature of the schema, or for one of so many columns that are made of them."""
    feature = forest.arrays["feature"]
    below = len(schema.features) if n_columns is None else n_columns
    return bool(np.all((feature >= 0) & (feature < below)))

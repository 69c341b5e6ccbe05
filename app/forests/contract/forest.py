"""Defines a trained forest: its plan and its released arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from app.forests.contract.plan import Plan


@dataclass(frozen=True, eq=False)
class Forest:
    """Complete binary trees of one public depth, with the releases of their leaves.

    Every array is public structure, a released selection or a released noisy number: no exact count, no impurity, no
    node size, no timing. Names, types, shapes and meaning are those of the algorithm's family; see
    ``app.forests.catalogue``.

    Attributes:
        plan: the priced plan, with the parameters and the noise scales.
        arrays: by name; never modified.
    """

    plan: Plan
    arrays: Mapping[str, NDArray[Any]]

    @property
    def depth(self) -> int:
        """Largest number of splits above a leaf."""
        return int(self.plan.parameters["max_depth"])

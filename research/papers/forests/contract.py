"""Defines an algorithm without privacy, the plan of its forest and the forest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from grovekeeper_forests.contract.algorithm import Parameter, Parameters, Value
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema


class Reference:
    """A learner that private algorithms are compared with. It reads exact rows, so no
    accountant can price it.

    Attributes:
        slug: name of the algorithm in tasks; no private algorithm has it.
        title: a name for people.
        source: the paper or the library that defines the algorithm.
        about: the definition, and where this version differs from it.
        read_outs: read-outs of its forests, the default first.
        parameters: every parameter that a task may set, each with a default.
    """

    slug: str
    title: str
    source: str
    about: str
    read_outs: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    def n_trees(self, parameters: Parameters) -> int:
        """Number of trees to grow, the unit of progress."""
        return int(parameters["n_estimators"])


@dataclass(frozen=True)
class PlainPlan:
    """Slug, settled parameters and number of trees of a forest without privacy. It has
    no price.
    """

    algorithm: str
    parameters: Mapping[str, Value]
    n_trees: int


@dataclass(frozen=True, eq=False)
class PlainForest:
    """A forest without privacy; the sizes of its trees follow from the rows."""

    plan: PlainPlan
    arrays: Mapping[str, NDArray[Any]]


class GrowReference(Protocol):
    """Growth of a whole forest without privacy."""

    def __call__(
        self,
        plan: PlainPlan,
        schema: Schema,
        rows: SanitisedRows,
        *,
        seed: int,
        on_tree_done: Callable[[], None],
    ) -> PlainForest:
        """Grows the forest from at least one row. ``on_tree_done`` is called once per
        planned tree.
        """

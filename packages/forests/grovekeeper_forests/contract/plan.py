"""Defines the plan of a training job, the forest that growth releases by it, and the
family that reads the forest.

The plan is priced before any row is read. The artifact codec and prediction use the
family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.array_types import Float64Array
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.contract.algorithm import (
    Parameter,
    Parameters,
    Value,
    read_all,
)
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.json_types import JsonObject
from grovekeeper_forests.privacy import events
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, Event


class PlanInvalid(GrovekeeperError):
    """A stored plan that ``grovekeeper_forests.releases.forest.price.plan`` does not
    make.
    """

    sentence = "not a plan of a known form"


@dataclass(frozen=True)
class UnlabelledPlan:
    """The part of a plan that the account of an unlabelled dataset pays for; attributes
    as in :class:`Plan`.
    """

    event: Event
    terms: Terms

    def to_json(self) -> JsonObject:
        """Exact, every field."""
        return {
            "event": self.event.to_json(),
            "epsilon": str(self.terms.epsilon),
            "accountant": self.terms.accountant,
            "delta": None if self.terms.delta is None else str(self.terms.delta),
            "adjacency": self.terms.adjacency.value,
            "max_rows": self.terms.max_rows,
        }

    @classmethod
    def from_json(cls, value: object) -> UnlabelledPlan:
        """Inverse of :meth:`to_json`.

        Raises:
            PlanInvalid: a field is missing or of another type.
        """
        match value:
            case {
                "event": event,
                "epsilon": str(epsilon),
                "accountant": str(accountant),
                "delta": str() | None as delta,
                "adjacency": str(adjacency),
                "max_rows": int(max_rows),
            }:
                at = None if delta is None else Fraction(delta)
                terms = Terms(
                    Fraction(epsilon), accountant, at, Adjacency(adjacency), max_rows
                )
                return cls(events.from_json(event), terms)
        raise PlanInvalid


@dataclass(frozen=True)
class Plan:
    """The public plan of a job. Growth and prediction take every number from the plan.

    Attributes:
        algorithm: slug; where the request says ``auto``, the chosen algorithm.
        parameters: every parameter with its value; integers, choices, and exact numbers
            as decimal text.
        terms: what the account pays for a whole privacy unit. The event is stated for
            one row, and costs at most the price of (ε, δ) for all rows of a unit.
        n_trees: trees to grow; the unit of progress.
        event: the releases and their noise; scales are multiples of 2^-32, rounded
            down.
        warnings: sentences for the analyst.
        profile: an earlier release that replaces draws of this plan; ``None``: nothing
            is reused.
        unlabelled: for algorithms that learn from two datasets, the part that the
            unlabelled dataset pays for.
    """

    algorithm: str
    parameters: Parameters
    terms: Terms
    n_trees: int
    event: Event
    warnings: tuple[str, ...]
    profile: ReusedProfile | None = None
    unlabelled: UnlabelledPlan | None = None

    @classmethod
    def from_json(cls, value: object, known: Sequence[Parameter]) -> Plan:
        """Inverse of :meth:`to_json`, for an algorithm with these parameters. The event
        may be of any form. Parameters with a fixed default may be absent.

        Raises:
            PlanInvalid: a field is missing, of another type or illegal, or the plan has
                other fields or parameters.
        """
        match value:
            case {
                "algorithm": str(algorithm),
                "parameters": dict(stored),
                "epsilon": str(epsilon),
                "n_trees": int(n_trees),
                "event": event,
                "warnings": [*warnings],
                **more,
            } if all(isinstance(warning, str) for warning in warnings):
                parameters = read_all(known, stored)
                terms = Terms(
                    Fraction(epsilon),
                    str(more.get("accountant", pure.NAME)),
                    Fraction(str(more["delta"])) if "delta" in more else None,
                    Adjacency(str(more.get("adjacency", Adjacency.ADD_REMOVE_ONE))),
                    int(str(more.get("max_rows", 1))),
                )
                read = cls(
                    algorithm,
                    parameters,
                    terms,
                    n_trees,
                    events.from_json(event),
                    tuple(warnings),
                    ReusedProfile.from_json(more["profile"])
                    if "profile" in more
                    else None,
                    UnlabelledPlan.from_json(more["unlabelled"])
                    if "unlabelled" in more
                    else None,
                )
                is_whole = (
                    parameters.keys() == {parameter.name for parameter in known}
                    and terms.max_rows >= 1
                )
                is_sized = (
                    type(n_trees) is int and n_trees == parameters["n_estimators"]
                )
                # A plan of an earlier version lacks the parameters that came later; it
                # was made with what is their default now.
                stated = {**read.to_json(), "parameters": stored}
                is_exact = stated == value and stored.items() <= parameters.items()
                if is_whole and is_sized and is_exact:
                    return read
        raise PlanInvalid

    @property
    def grid(self) -> quantile_bins.Grid:
        """The public grid of private bins, of a reused profile or of this plan."""
        if self.profile is not None:
            return self.profile.grid
        return quantile_bins.grid_of(self.event)

    def to_json(self) -> JsonObject:
        """Exact: budgets as fraction text in lowest terms. The accountant and δ are
        present only with a δ, the adjacency if it is not add/remove, ``max_rows`` if it
        is above 1, the profile if one is reused.
        """
        terms = self.terms
        account: JsonObject = {"epsilon": str(terms.epsilon)}
        if terms.delta is not None:
            account |= {"accountant": terms.accountant, "delta": str(terms.delta)}
        if terms.adjacency is not Adjacency.ADD_REMOVE_ONE:
            account |= {"adjacency": terms.adjacency.value}
        if terms.max_rows != 1:
            account |= {"max_rows": terms.max_rows}
        if self.profile is not None:
            account |= {"profile": self.profile.to_json()}
        if self.unlabelled is not None:
            account |= {"unlabelled": self.unlabelled.to_json()}
        return {
            "algorithm": self.algorithm,
            "parameters": dict(self.parameters),
            "n_trees": self.n_trees,
            "event": self.event.to_json(),
            "warnings": list(self.warnings),
            **account,
        }


@dataclass(frozen=True, eq=False)
class Forest:
    """Complete binary trees of one public depth, with the releases of their leaves.

    Every array is public structure, a released selection or a released noisy number: no
    exact count, no impurity, no node size, no timing. Names, types, shapes and meaning
    are those of the algorithm's family; see ``grovekeeper_forests.catalogue``.

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


@dataclass(frozen=True)
class Layout:
    """Type and shape of one released array, fixed by the plan and the public schema."""

    dtype: type[np.generic]
    shape: tuple[int, ...]

    def fits(self, array: NDArray[Any]) -> bool:
        """Whether an array has exactly this type and shape."""
        return array.dtype == self.dtype and array.shape == self.shape


Layouts = Mapping[str, Layout]

Reader = Callable[[SanitisedColumns], Float64Array]
"""Maps the caller's rows to their class probabilities, float64 ``(n_rows, n_classes)``;
rows sum to 1. Where the label is a number: to their numbers, float64 ``(n_rows, 1)``.
"""


class Family(Protocol):
    """The layouts and the reader of forests whose released arrays have equal names and
    meaning.

    Every method is a function of releases and public facts alone: post-processing
    (lemma L7), which costs no budget.
    """

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """The layout of every released array, by name; an artifact holds these arrays
        and its metadata.
        """

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether arrays of the right layout have legal values. A reader relies on this
        check.

        Raises:
            UnknownPrivacyEvent: the plan's event does not say the noise that a reader
                needs.
        """

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> Reader:
        """A reader for one read-out, with everything precomputed that does not depend
        on the rows.

        A row's probabilities do not depend on the other rows of a call. A reader is
        kept for the life of a
        :class:`grovekeeper_forests.releases.forest.predictor.Predictor`.
        """


def split_layouts(plan: Plan) -> Layouts:
    """The arrays of complete binary trees with one feature and one threshold per node."""
    nodes = (plan.n_trees, n_leaves_of(plan) - 1)
    return {
        "feature": Layout(np.int32, nodes),
        "threshold": Layout(np.uint8, nodes),
        "equals": Layout(np.bool_, nodes),
    }


def encoding_of(
    schema: Schema, n_bins: Value, profile: ReusedProfile | None
) -> Encoding:
    """The bins that splits refer to; planning, growth and prediction all use this
    function.

    Args:
        schema: public.
        n_bins: public bins per numeric feature, where no profile is reused.
        profile: an earlier release, whose cuts are public.
    """
    if profile is None:
        return Encoding.of(schema, int(n_bins))
    return quantile_bins.encoding(schema, profile.cut_array, profile.grid)


def n_leaves_of(plan: Plan) -> int:
    """Number of leaves of one tree."""
    return 1 << int(plan.parameters["max_depth"])


def splits_are_valid(
    forest: Forest, schema: Schema, *, n_columns: int | None = None
) -> bool:
    """Whether every split names a feature of the schema, or one of ``n_columns``
    columns computed from features.
    """
    feature = forest.arrays["feature"]
    below = len(schema.features) if n_columns is None else n_columns
    return bool(np.all((feature >= 0) & (feature < below)))

"""Defines what an algorithm is: its description, parameters, the public facts it may
use, its price and its check.

Parameters of a request are checked against public ranges. Errors never repeat a
rejected value.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from grovekeeper_forests import amounts
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid, ParameterProblem
from grovekeeper_forests.json_types import JsonMapping, JsonObject
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Budget
from grovekeeper_forests.privacy.events import Adjacency, Event, EventCostsMore


@dataclass(frozen=True)
class About:
    """The description of an algorithm, in sentences.

    Attributes:
        claimed: the guarantee that the paper claims; ``None`` where the algorithm has
            no paper.
        wrong: known errors in the claim or in the paper's code; ``None`` where none are
            known.
        here: the implementation in this service.
        proof: the page with the theorem.
        results: the page with the accuracy and the method of measurement.
    """

    claimed: str | None
    wrong: str | None
    here: str
    proof: str
    results: str


Value = int | str
"""A settled parameter: integers as they are, choices as their name, exact numbers as
decimal text.
"""

Parameters = Mapping[str, Value]
"""Every parameter with its settled value."""

ParameterType = Literal["integer", "number", "choice"]


@dataclass(frozen=True)
class Parameter:
    """One public parameter of a mechanism.

    Attributes:
        name: the name in a request.
        type: ``integer``, ``number`` (exact decimal) or ``choice``.
        description: a sentence for people.
        default: the value where the request gives none; ``None``: a published rule of
            public numbers chooses.
        minimum: smallest legal value of a number.
        maximum: largest legal value of a number.
        choices: every legal choice.
        only_with: another parameter and its choice that this parameter needs to have an
            effect; ``None``: no condition.
        only_of_classes: whether it has no effect where the label is a number.
    """

    name: str
    type: ParameterType
    description: str
    default: Value | None = None
    minimum: Fraction = Fraction(0)
    maximum: Fraction = Fraction(0)
    choices: tuple[str, ...] = ()
    only_with: tuple[str, str] | None = None
    only_of_classes: bool = False

    def read(self, value: object) -> Value:
        """The settled form of a given value.

        Raises:
            ParameterInvalid: the value is of another type or outside its range.
        """
        settled: Value
        match self.type:
            case "choice":
                if not isinstance(value, str) or value not in self.choices:
                    raise self._invalid("unknown-choice", *self.choices)
                return value
            case "integer":
                if isinstance(value, bool) or not isinstance(value, int):
                    raise self._invalid("not-an-integer", self._range)
                settled, number = value, Fraction(value)
            case "number":
                if isinstance(value, float) and math.isfinite(value):
                    value = Decimal(repr(value))
                try:
                    number = amounts.parse(value)
                except amounts.TooManyDigits:
                    raise self._invalid("too-many-digits", amounts.AS_TEXT) from None
                except amounts.NotAnAmount:
                    raise self._invalid("not-a-number", self._range) from None
                settled = amounts.to_text(number)
        if number < self.minimum:
            raise self._invalid("too-small", self._range)
        if number > self.maximum:
            raise self._invalid("too-large", self._range)
        return settled

    def describe(self) -> JsonObject:
        """The entry of ``GET /algorithms``."""
        described: JsonObject = {"name": self.name, "type": self.type}
        if self.type == "choice":
            described |= {"choices": list(self.choices)}
        elif self.type == "integer":
            described |= {"minimum": int(self.minimum), "maximum": int(self.maximum)}
        else:
            described |= {
                "minimum": amounts.to_text(self.minimum),
                "maximum": amounts.to_text(self.maximum),
            }
        return described | {"default": self.default, "description": self.description}

    @property
    def _range(self) -> str:
        return f"{amounts.to_text(self.minimum)} to {amounts.to_text(self.maximum)}"

    def _invalid(self, problem: str, *accepted: str) -> ParameterInvalid:
        return ParameterInvalid.named(self.name, problem, accepted=accepted)


def share(
    name: str,
    description: str,
    *,
    default: str | None = None,
    most: Fraction = Fraction(99, 100),
    only_with: tuple[str, str] | None = None,
) -> Parameter:
    """A parameter that is a share or a probability: a number from one percent to
    ``most``.
    """
    smallest = Fraction(1, 100)
    return Parameter(
        name,
        "number",
        description,
        default,
        minimum=smallest,
        maximum=most,
        only_with=only_with,
    )


def without_effect(
    parameters: Sequence[Parameter],
    requested: Iterable[str],
    settled: Parameters,
    *,
    is_number: bool,
) -> tuple[str, ...]:
    """A warning for each requested parameter that has no effect at the values of the
    other parameters, or where the label is a number.
    """
    sentences = []
    for parameter in parameters:
        if parameter.name not in requested:
            continue
        if parameter.only_of_classes and is_number:
            sentences.append(f"{parameter.name} has no effect: the label is a number.")
        if parameter.only_with is not None:
            other, choice = parameter.only_with
            if settled[other] != choice:
                sentences.append(
                    f"{parameter.name} has no effect: it is used only where {other} is {choice}."
                )
    return tuple(sentences)


def read_all(
    parameters: Sequence[Parameter], requested: JsonMapping
) -> dict[str, Value]:
    """The settled values of every parameter that is requested or has a fixed default.

    Raises:
        ParameterInvalid: lists every broken rule; an unknown name is a problem of
            ``parameters``.
    """
    problems: list[ParameterProblem] = []
    settled: dict[str, Value] = {}
    names = tuple(parameter.name for parameter in parameters)
    if not requested.keys() <= set(names):
        problems.append(
            ParameterProblem(("parameters",), "unknown-field", accepted=names)
        )
    for parameter in parameters:
        try:
            if parameter.name in requested:
                settled[parameter.name] = parameter.read(requested[parameter.name])
            elif parameter.default is not None:
                settled[parameter.name] = parameter.default
        except ParameterInvalid as invalid:
            problems.extend(invalid.problems)
    if problems:
        raise ParameterInvalid(problems)
    return settled


@dataclass(frozen=True)
class PublicFacts:
    """The public facts that default values may depend on.

    Attributes:
        schema: the declaration.
        epsilon: largest ε of the forest for one row, under the mechanism's adjacency.
            On accounts with a δ: the ε of the request, or the trial value of a search (see
            ``grovekeeper_forests.privacy.calibration.fitted``).
        size: the public order of magnitude of the rows in scope.
        budget: largest loss of the job for one row in the account's unit, under the
            mechanism's adjacency.
        profile: an earlier release, whose numbers replace draws that would cost budget.
        unlabelled: the facts of a second, unlabelled dataset, where the algorithm
            learns from two datasets.
    """

    schema: Schema
    epsilon: Fraction
    size: int
    budget: Budget
    profile: ReusedProfile | None = None
    unlabelled: PublicFacts | None = None

    def require_covered(self, event: Event) -> None:
        """Checks that an event costs no more than the request allows.

        On accounts that count ε, the limit is :attr:`epsilon` and not :attr:`budget`,
        because a k-th part of a price need not be a whole number of steps, and the
        budget is rounded down.

        Raises:
            EventCostsMore: the event costs more, which is a bug in the code that prices
                it.
        """
        is_pure = self.budget.accountant == pure.NAME
        if not (
            self.budget.loss(event) <= self.epsilon
            if is_pure
            else self.budget.covers(event)
        ):
            raise EventCostsMore(
                "the event costs more than the amount that pays for it"
            )

    def part(self, share: Fraction) -> PublicFacts:
        """These facts with a share of ε and of the budget, the budget rounded down.

        Args:
            share: above zero, at most 1.

        Raises:
            ParameterInvalid: the share is less than one step of the account's unit.
        """
        part = replace(
            self, epsilon=share * self.epsilon, budget=self.budget.part(share)
        )
        if part.budget.amount == 0 and self.budget.accountant != pure.NAME:
            raise ParameterInvalid.named(
                "epsilon", "too-small", accepted=[amounts.MORE]
            )
        return part


class Described:
    """The description of an algorithm in ``GET /algorithms``.

    Attributes:
        slug: name of the algorithm in requests and artifacts; its meaning never
            changes.
        title: a name for people.
        source: the paper that describes the algorithm, or that the algorithm repairs.
        about: claims, known errors, implementation and measured accuracy.
        read_outs: read-outs of its models, the default first.
        parameters: every parameter that a request may set.
        accountants: accountants of the accounts that can pay. If ``pure`` is among
            them, events are priced in ε.
        adjacency: the adjacency of the guarantee and of the event. An algorithm stated
            under ``label`` runs on accounts that protect labels alone.
        predicts_numbers: whether a label that is a number can be learned, too.
    """

    slug: str
    title: str
    source: str
    about: About
    read_outs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    predicts_numbers: bool = False


class Algorithm(Described, ABC):
    """A randomised learner with a proven price.

    Every method is a function of public facts. Growth
    (``grovekeeper_forests.releases.forest.draw``) takes every noise scale from the
    event that :meth:`event` prices; reading (``grovekeeper_forests.contract.plan``) is
    post-processing of the releases of growth.

    Attributes:
        reuses_profiles: whether a plan may use the bins (and ``nbrt`` the class counts)
            of a released profile.
        reads_values: whether growth computes with the values of rows. Then one process
            reads all rows; other growth counts codes, also on several machines. The
            process of a job does not start where growth takes other rows (see
            ``require_rows_as_stated``).
    """

    reuses_profiles: bool = True
    reads_values: bool = False

    @abstractmethod
    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Adds the parameters that the request omits, chosen by public rules, and
        returns warnings.
        """

    @abstractmethod
    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event of growth, which costs at most ``facts.epsilon``, or
        ``facts.budget`` where a δ is needed.
        """


class TwoDatasetAlgorithm(Algorithm):
    """Learns from two datasets about different people; the account of each dataset pays
    for the part on its rows.

    The labelled dataset pays for ``event``. The facts of ``fill_defaults`` include
    those of the unlabelled dataset.
    """

    @abstractmethod
    def structure_event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event that the unlabelled dataset pays for, priced by the facts of that
        dataset.
        """

"""Checks the parameters of a request against public ranges. Errors never repeat a rejected value."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeAlias

from app.core import amounts
from app.core.errors import FieldProblem, InvalidRequest

Value: TypeAlias = int | str
"""A settled parameter: integers as they are, choices as their name, exact numbers as decimal text."""

ParameterType: TypeAlias = Literal["integer", "number", "choice"]

POINTER = "/parameters"


@dataclass(frozen=True)
class Parameter:
    """One public parameter of a mechanism.

    Attributes:
        name: the name in a request.
        type: ``integer``, ``number`` (exact decimal) or ``choice``.
        description: a sentence for people.
        default: the value where the request gives none; ``None``: a published rule of public numbers chooses.
        minimum: smallest legal value of a number.
        maximum: largest legal value of a number.
        most_stored: largest value in the plans of versions before, if larger than ``maximum``.
        choices: every legal choice.
        only_with: another parameter and its choice that this parameter needs to have an effect; ``None``: no condition.
    """

    name: str
    type: ParameterType
    description: str
    default: Value | None = None
    minimum: Fraction = Fraction(0)
    maximum: Fraction = Fraction(0)
    most_stored: Fraction = Fraction(0)
    choices: tuple[str, ...] = ()
    only_with: tuple[str, str] | None = None

    def read(self, value: object) -> Value:
        """The settled form of a given value.

        Raises:
            InvalidRequest: the value is of another type or outside its range.
        """
        match self.type:
            case "choice":
                return self._choice(value)
            case "integer":
                if isinstance(value, bool) or not isinstance(value, int):
                    raise self._invalid("not-an-integer", self._range)
                self._check_range(Fraction(value))
                return value
            case "number":
                number = self._number(value)
                self._check_range(number)
                return amounts.to_text(number)

    def describe(self) -> dict[str, object]:
        """The entry of ``GET /algorithms``."""
        described: dict[str, object] = {"name": self.name, "type": self.type}
        if self.type == "choice":
            described |= {"choices": list(self.choices)}
        elif self.type == "integer":
            described |= {"minimum": int(self.minimum), "maximum": int(self.maximum)}
        else:
            described |= {"minimum": amounts.to_text(self.minimum), "maximum": amounts.to_text(self.maximum)}
        return described | {"default": self.default, "description": self.description}

    def _choice(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise self._invalid("unknown-choice", *self.choices)
        return value

    def _number(self, value: object) -> Fraction:
        if isinstance(value, float) and math.isfinite(value):
            value = Decimal(repr(value))
        try:
            return amounts.parse(value)
        except amounts.NotAnAmount:
            raise self._invalid("not-a-number", self._range) from None

    def _check_range(self, value: Fraction) -> None:
        if value < self.minimum:
            raise self._invalid("too-small", self._range)
        if value > self.maximum:
            raise self._invalid("too-large", self._range)

    @property
    def _range(self) -> str:
        return f"{amounts.to_text(self.minimum)} to {amounts.to_text(self.maximum)}"

    def _invalid(self, problem: str, *accepted: str) -> InvalidRequest:
        return InvalidRequest.at(f"{POINTER}/{self.name}", problem, accepted=accepted)


def share(
    name: str,
    description: str,
    *,
    default: str | None = None,
    most: Fraction = Fraction(99, 100),
    only_with: tuple[str, str] | None = None,
) -> Parameter:
    """A parameter that is a share or a probability: a number from one percent to ``most``."""
    smallest = Fraction(1, 100)
    return Parameter(name, "number", description, default, minimum=smallest, maximum=most, only_with=only_with)


def without_effect(
    parameters: Sequence[Parameter], requested: Iterable[str], settled: Mapping[str, Value]
) -> tuple[str, ...]:
    """A warning for each requested parameter that has no effect at the values of the other parameters."""
    sentences = []
    for parameter in parameters:
        if parameter.only_with is not None and parameter.name in requested:
            other, choice = parameter.only_with
            if settled[other] != choice:
                sentences.append(f"{parameter.name} has no effect: it is used only where {other} is {choice}.")
    return tuple(sentences)


def read_stored(parameters: Sequence[Parameter], stored: Mapping[str, object]) -> dict[str, Value]:
    """The values of a stored plan, which a version before may have settled; raises as :func:`read_all`."""
    as_before = [replace(known, maximum=max(known.maximum, known.most_stored)) for known in parameters]
    return read_all(as_before, stored)


def read_all(parameters: Sequence[Parameter], requested: Mapping[str, object]) -> dict[str, Value]:
    """The settled values of every parameter that is requested or has a fixed default.

    Raises:
        InvalidRequest: lists every broken rule; an unknown name is reported at the object that contains it.
    """
    problems: list[FieldProblem] = []
    settled: dict[str, Value] = {}
    names = tuple(parameter.name for parameter in parameters)
    if not requested.keys() <= set(names):
        problems.append(FieldProblem(POINTER, "unknown-field", accepted=names))
    for parameter in parameters:
        try:
            if parameter.name in requested:
                settled[parameter.name] = parameter.read(requested[parameter.name])
            elif parameter.default is not None:
                settled[parameter.name] = parameter.default
        except InvalidRequest as invalid:
            problems.extend(invalid.errors)
    if problems:
        raise InvalidRequest(problems)
    return settled

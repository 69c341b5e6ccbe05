"""Defines the errors of this package: one class per fact, with the details as
attributes.

No message and no attribute carries a private value, an exact private count or a
rejected value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, dataclass_transform


class GrovekeeperError(Exception):
    """Root of all errors. ``str()`` is a sentence for people: that of the class, with
    the attributes of the error.
    """

    sentence: ClassVar[str] = ""

    def __str__(self) -> str:
        if self.sentence:
            return self.sentence.format_map(vars(self))
        return super().__str__()


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class StatedError(GrovekeeperError):
    """Base of errors with facts: every class below is a dataclass, whose fields are the
    facts. Like every exception, an error equals itself alone.
    """

    def __init_subclass__(cls) -> None:
        dataclass(eq=False)(cls)


Place = tuple[str | int, ...]
"""The way from the name of an argument to what is wrong in it: ``("schema", "features",
2, "lower")``.
"""


@dataclass(frozen=True)
class ParameterProblem:
    """A part of an argument that breaks a rule. Never carries the part's value.

    Attributes:
        place: where the part is.
        problem: stable slug of the rule.
        limit: the largest number that is valid there, if that depends on other
            arguments.
        accepted: what is valid there: public names, choices of the declaration, or
            bounds in words.
        column: the public name of the column whose cells have the problem; ``place`` is
            then the first of them.
        count: number of rows that have the problem.
    """

    place: Place
    problem: str
    limit: int | None = None
    accepted: tuple[str, ...] = field(default=(), compare=False)
    column: str | None = field(default=None, compare=False)
    count: int | None = None

    def __str__(self) -> str:
        first, *rest = self.place or ("",)
        where = str(first) + "".join(f"[{part!r}]" for part in rest)
        allowed = self.accepted if self.limit is None else (f"at most {self.limit}",)
        return f"{where}: {self.problem}" + (
            f" (accepted: {', '.join(allowed)})" if allowed else ""
        )


class ParameterInvalid(StatedError):
    """One or more arguments break a rule."""

    problems: Sequence[ParameterProblem]

    @classmethod
    def named(
        cls,
        name: str,
        problem: str,
        *,
        limit: int | None = None,
        accepted: Iterable[str] = (),
    ) -> "ParameterInvalid":
        """The error for a single argument."""
        return cls([ParameterProblem((name,), problem, limit, tuple(accepted))])

    def inside(self, name: str) -> "ParameterInvalid":
        """The same problems, in what the argument ``name`` holds."""
        return ParameterInvalid(
            [
                replace(problem, place=(name, *problem.place))
                for problem in self.problems
            ]
        )

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


class NotSupported(StatedError):
    """The request is legal, but the service does not support it yet."""

    what: str

    sentence = "not supported yet: {what}"


class AccountantMismatch(StatedError):
    """The account's unit cannot express the charge; ``accepted_by`` lists the
    accountants that can.
    """

    accountant: str
    accepted_by: Sequence[str]

    def __str__(self) -> str:
        can = ", ".join(self.accepted_by) or "none"
        return (
            f"a {self.accountant} account cannot pay for this; accounts that can: {can}"
        )


class AdjacencyMismatch(StatedError):
    """The algorithm's adjacency is not the account's; ``accepted_by`` lists the
    adjacencies that accept it.
    """

    adjacency: str
    accepted_by: Sequence[str]

    def __str__(self) -> str:
        can = ", ".join(self.accepted_by)
        return f"an account with adjacency {self.adjacency} cannot pay for this; adjacencies that can: {can}"

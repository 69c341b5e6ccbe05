"""Price before data: what a job will do, decided from the request and the public schema alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from app.core.errors import GrovekeeperError
from app.forests import catalogue
from app.forests.mechanisms.mechanism import PublicFacts
from app.forests.mechanisms.parameters import Value, read_all
from app.forests.schema import Schema
from app.privacy import events
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

ASSUMED_SIZE = 3_000
"""Rows that the rules reckon with where no public size was declared: cautious, for a small table."""

_NO_SIZE = "No public size is declared, so the defaults are those for a small table; see public_size."


class PlanInvalid(GrovekeeperError):
    """A stored plan that this code cannot have written."""

    def __str__(self) -> str:
        return "not a plan of a known form"


@dataclass(frozen=True)
class PlanRequest:
    """What an analyst asks for; pure ε under add/remove.

    Attributes:
        algorithm: slug of the catalogue.
        parameters: values by name; what is absent is chosen by public rules.
        epsilon: what the job may cost one row, above zero.
        public_size: declared order of magnitude of the rows in scope, or ``None``. Never a count.
    """

    algorithm: str
    parameters: Mapping[str, object]
    epsilon: Fraction
    public_size: int | None


@dataclass(frozen=True)
class Plan:
    """All of a job that is public before it runs. Growth and prediction take every number from here.

    Attributes:
        algorithm: slug.
        parameters: every parameter with its value; integers, choices, and exact numbers as decimal text.
        epsilon: the requested price; the event's own loss is at most this.
        n_trees: trees to grow; the unit of progress.
        event: what is released with which noise; scales are multiples of 2^-32, rounded down.
        warnings: sentences for the analyst.
    """

    algorithm: str
    parameters: Mapping[str, Value]
    epsilon: Fraction
    n_trees: int
    event: Event
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Exact: budgets as fraction text in lowest terms."""
        return {
            "algorithm": self.algorithm,
            "parameters": dict(self.parameters),
            "epsilon": str(self.epsilon),
            "n_trees": self.n_trees,
            "event": self.event.to_json(),
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, value: object) -> "Plan":
        """Inverse of :meth:`to_json`; checks every field, since a plan also arrives inside artifacts.

        Raises:
            PlanInvalid: anything that :func:`plan` cannot have made.
        """
        try:
            return _read(value)
        except (GrovekeeperError, ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise PlanInvalid from error


def plan(request: PlanRequest, schema: Schema) -> Plan:
    """Settles every parameter and prices the job. Touches no row and draws nothing.

    Raises:
        InvalidRequest: unknown algorithm or parameter, or a value outside its range (pointer and slug, no value).
        NotSupported: a documented choice that is not built yet.
    """
    mechanism = catalogue.mechanism(request.algorithm)
    size = ASSUMED_SIZE if request.public_size is None else request.public_size
    facts = PublicFacts(schema, request.epsilon, size)
    settled, warnings = mechanism.settle(read_all(mechanism.parameters, request.parameters), facts)
    event = mechanism.event(settled, facts)
    assert pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE) <= request.epsilon
    if request.public_size is None and not {"n_estimators", "max_depth"} <= set(request.parameters):
        warnings = (_NO_SIZE, *warnings)
    parameters = {parameter.name: settled[parameter.name] for parameter in mechanism.parameters}
    return Plan(request.algorithm, parameters, request.epsilon, int(settled["n_estimators"]), event, warnings)


def _read(value: object) -> Plan:
    match value:
        case {
            "algorithm": str(algorithm),
            "parameters": dict(asked),
            "epsilon": str(epsilon),
            "n_trees": int(n_trees),
            "event": event,
            "warnings": [*warnings],
            **rest,
        } if not rest and all(isinstance(warning, str) for warning in warnings):
            read = Plan(
                algorithm,
                read_all(catalogue.mechanism(algorithm).parameters, asked),
                Fraction(epsilon),
                n_trees,
                events.from_json(event),
                tuple(warnings),
            )
            if read.to_json() == value and _is_consistent(read):
                return read
    raise PlanInvalid


def _is_consistent(read: Plan) -> bool:
    catalogue.mechanism(read.algorithm).check(read.event, read.parameters)  # raises for the event of something else
    return (
        type(read.n_trees) is int
        and read.n_trees == read.parameters["n_estimators"]
        and "max_depth" in read.parameters
        and pure.loss(read.event, adjacency=Adjacency.ADD_REMOVE_ONE) <= read.epsilon
    )

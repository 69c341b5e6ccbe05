"""Named facts about the world that a caller has to know. One class per fact, the facts as attributes.

::

    GrovekeeperError
    ├── MalformedRequest             the bytes are not a request
    ├── IdempotencyKeyMissing        a spending request without its key
    ├── Unauthenticated              no key, or not one of ours
    ├── RoleMissing                  our key, but not this role
    ├── NotFound                     nothing there that this key may see
    ├── MethodNotAllowed             the path exists, the method does not
    ├── BudgetExceeded               the ledger refuses
    ├── NoRowsYet                    training before the first upload
    ├── NameTaken                    a living dataset, or a population, has this name
    ├── PopulationMismatch           this dataset cannot belong to that population
    ├── DatasetDeleted               only the tombstone is left
    ├── JobFinished                  too late to cancel
    ├── IdempotencyInFlight          the first request with this key has not ended
    ├── AccountantMismatch           this account's unit cannot hold that charge
    ├── AdjacencyMismatch            what is protected here is not what that algorithm protects
    ├── TooLarge                     over a public limit
    ├── UnsupportedMediaType         not a body we read
    ├── InvalidRequest               a field breaks its rule
    ├── RowsInvalid                  an upload the declaration cannot read
    ├── IdempotencyKeyReused         the same key with another body
    ├── NotSupported                 declared, but its rule is not built yet
    ├── TooManyRequests              slow down
    ├── Unavailable                  not ready; try again
    ├── ReservationSettled           a reservation ends once
    ├── LeaseLost                    another worker owns the job now (never leaves the worker)
    └── InstallationError            the operator has to act; printed by the command line
        └── LedgerRewound            the database is behind, or beside, a head that was written outside it

No message and no attribute ever carries a private value, an exact private count or a rejected input value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu_squared": "μ²", "delta": "δ"}


class GrovekeeperError(Exception):
    """Root of all named errors. ``str()`` is a sentence for people."""


class MalformedRequest(GrovekeeperError):
    """The body or a header cannot be read at all."""


class IdempotencyKeyMissing(GrovekeeperError):
    """A spending request came without an ``Idempotency-Key`` header."""

    def __str__(self) -> str:
        return "this request spends budget and needs an Idempotency-Key header"


class Unauthenticated(GrovekeeperError):
    """No key, a malformed one, an unknown one or a revoked one: all alike."""

    def __str__(self) -> str:
        return "a valid key is needed: Authorization: Bearer <key>"


@dataclass(eq=False)
class RoleMissing(GrovekeeperError):
    """The key is valid but holds none of the roles that the call needs."""

    needed: Sequence[str]

    def __str__(self) -> str:
        return f"this call needs the role {' or '.join(self.needed)}"


@dataclass(eq=False)
class NotFound(GrovekeeperError):
    """Nothing is there, or nothing that this key may know of: the two look the same."""

    kind: str

    def __str__(self) -> str:
        return f"no such {self.kind}"


class MethodNotAllowed(GrovekeeperError):
    """The path exists but not for this method."""

    def __str__(self) -> str:
        return "this path has no such method"


@dataclass(eq=False)
class BudgetExceeded(GrovekeeperError):
    """The ledger refuses: in some cell ``charged + reserved + requested`` would pass the cap.

    All amounts are exact decimal strings in the account's unit. ``what_fits`` works out :attr:`largest_that_fits`, an
    ε, from numbers that it holds already: that takes a while, and a refusal is raised under locks. Where the dataset's
    population refuses, ``population`` names it, and the amounts are those of all its members together. Where
    not ``exact``, the maximum over all joint cells was too much work, and the amounts are an upper bound.
    """

    dataset: str
    dataset_name: str
    accountant: str
    unit: str
    cap: str
    charged: str
    reserved: str
    remaining: str
    requested: str
    tightest_cell: Mapping[str, object]
    what_fits: Callable[[], str]
    population: str | None = None
    exact: bool = True

    @cached_property
    def largest_that_fits(self) -> str:
        """The largest ε that the same request could carry; worked out when it is first asked for."""
        return self.what_fits()

    def __str__(self) -> str:
        where = f"dataset {self.dataset_name}"
        if self.population is not None:
            where = f"population {self.population} of {where}"
        if self.tightest_cell:
            cell = ", ".join(f"{name}={value}" for name, value in self.tightest_cell.items())
            where = f"cell {cell} of {where}"
        symbol = _SYMBOLS[self.unit]
        return f"{self.requested} {symbol} asked, {self.remaining} {symbol} left for {where}"


class NoRowsYet(GrovekeeperError):
    """Nothing was uploaded so far. An upload is a public act, so saying this costs nothing."""

    def __str__(self) -> str:
        return "no rows were uploaded to this dataset yet"


@dataclass(eq=False)
class NameTaken(GrovekeeperError):
    """A living dataset, or a population, has this name."""

    kind: str = "living dataset"

    def __str__(self) -> str:
        return f"a {self.kind} has this name already"


@dataclass(eq=False)
class PopulationMismatch(GrovekeeperError):
    """The dataset cannot be added up with the members of a population; ``differs`` names in what."""

    differs: Sequence[str]

    def __str__(self) -> str:
        return f"the dataset and the population differ in: {', '.join(self.differs)}"


class DatasetDeleted(GrovekeeperError):
    """The rows were erased; the tombstone keeps the spend."""

    def __str__(self) -> str:
        return "the rows of this dataset were erased; its ledger remains"


class JobFinished(GrovekeeperError):
    """A finished job cannot be cancelled."""

    def __str__(self) -> str:
        return "the job has finished already"


class IdempotencyInFlight(GrovekeeperError):
    """The first request with this key has not ended yet."""

    def __str__(self) -> str:
        return "a request with this Idempotency-Key is still running"


@dataclass(eq=False)
class AccountantMismatch(GrovekeeperError):
    """The account's unit cannot hold this charge; ``accepted_by`` names accountants that would."""

    accountant: str
    accepted_by: Sequence[str]

    def __str__(self) -> str:
        return f"a {self.accountant} account cannot take this; accepted by: {', '.join(self.accepted_by) or 'none'}"


@dataclass(eq=False)
class AdjacencyMismatch(GrovekeeperError):
    """The algorithm protects something else than the account does; ``accepted_by`` names adjacencies that take it."""

    adjacency: str
    accepted_by: Sequence[str]

    def __str__(self) -> str:
        return f"a {self.adjacency} account cannot take this; accepted by accounts of: {', '.join(self.accepted_by)}"


@dataclass(eq=False)
class TooLarge(GrovekeeperError):
    """A body or a list is over a public limit."""

    what: str
    limit: int

    def __str__(self) -> str:
        return f"{self.what} is over the limit of {self.limit}"


@dataclass(eq=False)
class UnsupportedMediaType(GrovekeeperError):
    """The body's type or encoding is not one that this call reads."""

    accepted: Sequence[str]

    def __str__(self) -> str:
        return f"send one of: {', '.join(self.accepted)}"


@dataclass(frozen=True)
class FieldProblem:
    """One broken rule: ``at`` is a JSON pointer into the request, ``problem`` a stable slug. Never a value.

    ``limit`` is the largest number that would have been taken there, where it depends on the rest of the request.
    """

    at: str
    problem: str
    limit: int | None = None


@dataclass(eq=False)
class InvalidRequest(GrovekeeperError):
    """One or more fields break their rules."""

    errors: Sequence[FieldProblem]

    @classmethod
    def at(cls, pointer: str, problem: str, *, limit: int | None = None) -> "InvalidRequest":
        """One field, one problem."""
        return cls([FieldProblem(pointer, problem, limit)])

    def below(self, pointer: str) -> "InvalidRequest":
        """The same problems of an object that stands deeper in the request."""
        return InvalidRequest([replace(error, at=pointer + error.at) for error in self.errors])

    def __str__(self) -> str:
        return "the request breaks a rule; see errors"


@dataclass(frozen=True)
class ColumnProblem:
    """A column that the declaration cannot read: its name, a stable slug, the number of cells (or 1)."""

    name: str
    problem: str
    count: int


@dataclass(eq=False)
class RowsInvalid(GrovekeeperError):
    """An upload that the declaration cannot read. Told to the owner only; nothing was stored."""

    columns: Sequence[ColumnProblem]

    def __str__(self) -> str:
        return "the upload does not match the declaration; nothing was stored"


class IdempotencyKeyReused(GrovekeeperError):
    """The same key came with another body."""

    def __str__(self) -> str:
        return "this Idempotency-Key was used with another body"


@dataclass(eq=False)
class NotSupported(GrovekeeperError):
    """A legal declaration whose rule is not built yet."""

    what: str

    def __str__(self) -> str:
        return f"not supported yet: {self.what}"


@dataclass(eq=False)
class TooManyRequests(GrovekeeperError):
    """Slow down."""

    retry_after_s: int = 1

    def __str__(self) -> str:
        return "too many requests"


@dataclass(eq=False)
class Unavailable(GrovekeeperError):
    """The service cannot answer now."""

    why: str = "the service is not ready"
    retry_after_s: int = 1

    def __str__(self) -> str:
        return self.why


class LeaseLost(GrovekeeperError):
    """Another worker owns this job now: write nothing."""

    def __str__(self) -> str:
        return "the lease on this job was lost"


@dataclass(eq=False)
class ReservationSettled(GrovekeeperError):
    """A reservation ends exactly once."""

    state: str = field(default="settled")

    def __str__(self) -> str:
        return f"the reservation is {self.state} already"


@dataclass(eq=False)
class InstallationError(GrovekeeperError):
    """The operator has to act: a missing setting, an old schema, an unsafe bind."""

    why: str

    def __str__(self) -> str:
        return self.why


class LedgerRewound(InstallationError):
    """The database does not hold what a head outside it says: it was restored from an older backup, or forged."""

    def __init__(self, account_id: str) -> None:
        super().__init__(
            f"the ledger of {account_id} in the database is not the one whose head was written outside it: the "
            "database was restored from an older backup, or was changed. Nothing is served, because budget that was "
            "spent could be spent again. See the operator's guide, After a refusal"
        )

"""Defines the errors of requests: who sends them, their form, their size and their repetition."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from app.core import limits
from app.core.errors.root import GrovekeeperError


class MalformedRequest(GrovekeeperError):
    """The body or a header cannot be parsed."""


class IdempotencyKeyMissing(GrovekeeperError):
    """A request that spends budget has no ``Idempotency-Key`` header."""

    def __str__(self) -> str:
        return "this request spends budget and needs an Idempotency-Key header"


class Unauthenticated(GrovekeeperError):
    """The key is missing, malformed, unknown or revoked; the error does not say which."""

    def __str__(self) -> str:
        return "a valid key is needed: Authorization: Bearer <key>"


@dataclass(eq=False)
class RoleMissing(GrovekeeperError):
    """The key is valid but holds none of the roles that the call needs, globally or on the dataset of the call."""

    needed: Sequence[str]
    is_global: bool = False

    def __str__(self) -> str:
        giver = "an admin can give it" if self.is_global else "an owner of the dataset, or an admin, can grant it"
        return f"only a key with the role {' or '.join(self.needed)} may do this; {giver}"


@dataclass(eq=False)
class NotFound(GrovekeeperError):
    """The resource does not exist, or the key may not know that it exists; the error does not say which."""

    kind: str

    def __str__(self) -> str:
        return f"no such {self.kind}" + ("" if self.kind == "path" else ", or none that this key may see")


class MethodNotAllowed(GrovekeeperError):
    """The path exists, but not for this method."""

    def __str__(self) -> str:
        return "this path has no such method"


class IdempotencyInFlight(GrovekeeperError):
    """The first request with this key has not ended yet."""

    def __str__(self) -> str:
        return "a request with this Idempotency-Key is still running"


class IdempotencyKeyReused(GrovekeeperError):
    """The idempotency key was used with another body."""

    def __str__(self) -> str:
        return "this Idempotency-Key was used with another body"


@dataclass(eq=False)
class TooLarge(GrovekeeperError):
    """A body or a list is over a public limit."""

    what: str
    limit: int

    def __str__(self) -> str:
        return f"{self.what} is over the limit of {self.limit}"


class BodyTooSlow(GrovekeeperError):
    """A body does not arrive within its time."""

    def __str__(self) -> str:
        return "the body did not arrive in time"


@dataclass(eq=False)
class UnsupportedMediaType(GrovekeeperError):
    """The call does not accept the body's type or encoding."""

    accepted: Sequence[str]

    def __str__(self) -> str:
        return f"send one of: {', '.join(self.accepted)}"


@dataclass(frozen=True)
class FieldProblem:
    """A field that breaks a rule. Never carries the field's value.

    Attributes:
        at: JSON pointer into the request.
        problem: stable slug of the rule.
        limit: the largest number that is valid there, if that depends on the rest of the request.
        accepted: what is valid there: public names, choices of the declaration, or bounds in words.
        column: the public name of the column whose cells have the problem; ``at`` is then the first of them.
        count: number of rows of the request that have the problem.
        field: the unknown field's name as the request has it, where it reads like the name of a field.
    """

    at: str
    problem: str
    limit: int | None = None
    accepted: tuple[str, ...] = field(default=(), compare=False)
    column: str | None = field(default=None, compare=False)
    count: int | None = None
    field: str | None = None


@dataclass(eq=False)
class InvalidRequest(GrovekeeperError):
    """One or more fields break a rule."""

    errors: Sequence[FieldProblem]

    @classmethod
    def at(
        cls, pointer: str, problem: str, *, limit: int | None = None, accepted: Iterable[str] = ()
    ) -> "InvalidRequest":
        """The error for a single field."""
        return cls([FieldProblem(pointer, problem, limit, tuple(accepted))])

    def below(self, pointer: str) -> "InvalidRequest":
        """The same errors, for an object that is nested at ``pointer`` in the request."""
        return InvalidRequest([replace(error, at=pointer + error.at) for error in self.errors])

    def __str__(self) -> str:
        return "the request breaks a rule; see errors"


@dataclass(frozen=True)
class ColumnProblem:
    """A column that does not match its declaration. For owners, like everything about an upload.

    Attributes:
        name: of a declared column; empty where the problem is one of the file, or of columns that are not declared.
        problem: stable slug.
        count: number of cells, or 1.
        row: the first row that has the problem, from 1, without the header and empty lines; ``None`` if not known.
        positions: places in the header of columns that are not declared, from 1.
    """

    name: str
    problem: str
    count: int
    row: int | None = None
    positions: tuple[int, ...] = ()


@dataclass(eq=False)
class RowsInvalid(GrovekeeperError):
    """The upload does not match the declaration, and nothing was stored. Shown to the owner only."""

    columns: Sequence[ColumnProblem]

    def __str__(self) -> str:
        return "the upload does not match the declaration; nothing was stored"


@dataclass(frozen=True)
class UnreadColumn:
    """A column of an upload with many cells that the declaration does not list.

    Attributes:
        problem: ``unknown`` (no declared value) or ``clamped`` (out of bounds).
        count: exact and PRIVATE; for the owner.
        percent: of the cells of the column, rounded to tenths.
    """

    name: str
    problem: str
    count: int
    percent: float


@dataclass(eq=False)
class CellsUnread(GrovekeeperError):
    """Columns of an upload have many undeclared or clamped cells, and nothing was stored. Shown to the owner only."""

    columns: Sequence[UnreadColumn]

    def __str__(self) -> str:
        return (
            f"more than {limits.MAX_UNREAD_PERCENT} % of the cells of a column are not as declared; nothing was "
            "stored: mend the file or the declaration, or accept such cells (accept_unknown)"
        )


@dataclass(eq=False)
class UploadRepeated(GrovekeeperError):
    """The same key uploaded an equal body to the dataset before, and its rows are still stored.

    Attributes:
        upload: id of that upload.
    """

    upload: str

    def __str__(self) -> str:
        return (
            f"this body equals that of upload {self.upload}; nothing was stored: stored twice, each person in it would "
            "count twice. Insist (again) if that is meant"
        )


@dataclass(eq=False)
class NotSupported(GrovekeeperError):
    """The request is legal, but the service does not support it yet."""

    what: str

    def __str__(self) -> str:
        return f"not supported yet: {self.what}"


@dataclass(eq=False)
class TooManyRequests(GrovekeeperError):
    """The process or the key has too many requests in flight, or the key has too many unfinished jobs."""

    what: str = "requests"
    retry_after_s: int = 1

    def __str__(self) -> str:
        return f"too many {self.what}"

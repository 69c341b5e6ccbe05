"""Defines the errors that callers distinguish: one class per fact, with the details as
attributes.

No message and no attribute carries a private value, an exact private count or a
rejected input value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.core import limits
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.amounts import SYMBOLS
from grovekeeper_forests.errors import (
    GrovekeeperError,
    ParameterInvalid,
    ParameterProblem,
    Place,
    StatedError,
)
from grovekeeper_forests.kept import kept_property


class MalformedRequest(GrovekeeperError):
    """The body or a header cannot be parsed."""


class IdempotencyKeyMissing(GrovekeeperError):
    """A request that spends budget has no ``Idempotency-Key`` header."""

    sentence = "this request spends budget and needs an Idempotency-Key header"


class Unauthenticated(StatedError):
    """The key is missing, malformed, unknown or revoked; the error says only what its
    caller can see: that none was sent, or that a token is too long.
    """

    why: str = "a valid key is needed: Authorization: Bearer <key>"
    was_sent: bool = True

    sentence = "{why}"


class RoleMissing(StatedError):
    """The key is valid but holds none of the roles that the call needs, globally or on
    the dataset of the call.
    """

    needed: Sequence[str]
    is_global: bool = False

    def __str__(self) -> str:
        giver = "an owner of the dataset, or an admin, can grant it"
        if self.is_global:
            giver = "an admin can give it"
        needed = " or ".join(self.needed)
        if self.needed != ["admin"]:
            needed += ", or a role that includes it"
        return f"this needs the role {needed}; {giver}"


class NotFound(StatedError):
    """The resource does not exist, or the key may not know that it exists; the error
    does not say which.
    """

    kind: str
    only: str | None = None
    """The one that exists, where the key may know it."""

    def __str__(self) -> str:
        if self.only is not None:
            return f"no such {self.kind}; the only one is {self.only}"
        return f"no such {self.kind}" + (
            "" if self.kind == "path" else ", or none that this key may see"
        )


class MethodNotAllowed(GrovekeeperError):
    """The path exists, but not for this method."""

    sentence = "this path has no such method"


class ChangedMeanwhile(GrovekeeperError):
    """What the request would replace is not what its ``If-Match`` names, or is there
    against its ``If-None-Match``.
    """

    sentence = (
        "it was changed since your ETag, or exists against your If-None-Match; read it again, and send the change with "
        "its present ETag; in the dashboard, look at what it is now, and send the form again"
    )


class IdempotencyInFlight(GrovekeeperError):
    """The first request with this key has not ended yet."""

    sentence = "a request with this Idempotency-Key is still running"


class IdempotencyKeyReused(GrovekeeperError):
    """The idempotency key was used with another body."""

    sentence = (
        "this Idempotency-Key was used with another body; in the dashboard, a form that was sent before was changed "
        "and sent again: look at what it did the first time, then open it anew"
    )


class TooLarge(StatedError):
    """A body or a list is over a public limit."""

    what: str
    limit: int

    sentence = "{what} is over the limit of {limit}"


class BodyTooSlow(GrovekeeperError):
    """A body does not arrive within its time."""

    sentence = "the body did not arrive in time"


class UnsupportedMediaType(StatedError):
    """The call does not accept the body's type or encoding."""

    accepted: Sequence[str]
    is_encoded: bool = False

    def __str__(self) -> str:
        if self.is_encoded:
            return "the body has a Content-Encoding that this call does not read; send the body as it is"
        return f"send one of: {', '.join(self.accepted)}"


@dataclass(frozen=True)
class FieldProblem:
    """A field that breaks a rule. Never carries the field's value.

    Attributes:
        at: JSON pointer into the request.
        problem: stable slug of the rule.
        limit: the largest number that is valid there, if that depends on the rest of
            the request.
        accepted: what is valid there: public names, choices of the declaration, or
            bounds in words.
        column: the public name of the column whose cells have the problem; ``at`` is
            then the first of them.
        count: number of rows of the request that have the problem.
        field: the unknown field's name as the request has it, where it reads like the
            name of a field.
    """

    at: str
    problem: str
    limit: int | None = None
    accepted: tuple[str, ...] = field(default=(), compare=False)
    column: str | None = field(default=None, compare=False)
    count: int | None = None
    field: str | None = None


_MEMBERS = frozenset(
    {
        "algorithm", "columns", "delta", "epsilon", "error", "inputs", "label", "largest_error", "metrics",
        "parameters", "profile", "read_out", "rows", "schema", "tables", "unlabelled",
    }
)  # fmt: skip
"""Members of requests that have the name of an argument. Other arguments are members of
``parameters``.
"""


def pointer(place: Place) -> str:
    """The JSON pointer (RFC 6901) of an argument, or of a part of it, in the request of
    a caller.
    """
    above = () if place[0] in _MEMBERS else ("parameters",)
    tokens = (
        str(part).replace("~", "~0").replace("/", "~1") for part in (*above, *place)
    )
    return "".join(f"/{token}" for token in tokens)


def field_problem(problem: ParameterProblem) -> FieldProblem:
    """What a caller of the service reads of one argument that breaks a rule."""
    return FieldProblem(
        pointer(problem.place),
        problem.problem,
        problem.limit,
        problem.accepted,
        problem.column,
        problem.count,
    )


class InvalidRequest(StatedError):
    """One or more fields break a rule."""

    errors: Sequence[FieldProblem]

    @classmethod
    def of(cls, invalid: ParameterInvalid) -> "InvalidRequest":
        """What a caller of the service reads of arguments that the mathematics refuses."""
        return cls(list(map(field_problem, invalid.problems)))

    @classmethod
    def at(
        cls,
        pointer: str,
        problem: str,
        *,
        limit: int | None = None,
        accepted: Iterable[str] = (),
    ) -> "InvalidRequest":
        """The error for a single field."""
        return cls([FieldProblem(pointer, problem, limit, tuple(accepted))])

    def below(self, pointer: str) -> "InvalidRequest":
        """The same errors, for an object that is nested at ``pointer`` in the request."""
        return InvalidRequest(
            [replace(error, at=pointer + error.at) for error in self.errors]
        )

    sentence = "the request breaks a rule; see errors"


@dataclass(frozen=True)
class ColumnProblem:
    """A column that does not match its declaration. For owners, like everything about
    an upload.

    Attributes:
        name: of a declared column; empty where the problem is one of the file, or of
            columns that are not declared.
        count: number of cells, or 1.
        row: the first row that has the problem, from 1, without the header and empty
            lines; ``None`` if not known.
        positions: places in the header of columns that are not declared, from 1.
        line: line of the file, from 1, where the problem is one of the file or of its
            header.
        byte: byte of the unpacked file, from 1, where the problem is no line's.
        suspected: what most likely caused the problem, in words: a sentence of the
            service, never a cell.
        option: of the upload, as ``name=value``, which reads the file as it is; of the
            cells, marks for missing values alone occur in it.
    """

    name: str
    problem: str
    count: int
    row: int | None = None
    positions: tuple[int, ...] = ()
    line: int | None = None
    byte: int | None = None
    suspected: str | None = field(default=None, compare=False)
    option: str | None = field(default=None, compare=False)


class RowsInvalid(StatedError):
    """The upload does not match the declaration, and nothing was stored. Shown to the
    owner only.

    Attributes:
        columns: what cannot be read; in an answer, also what is not as declared.
        mapped: PRIVATE: all that would be mapped, if the rest could be read.
    """

    columns: Sequence["ColumnProblem | UnreadColumn"]
    mapped: Sequence["UnreadColumn"] = field(default=(), repr=False)

    sentence = "the upload does not match the declaration; nothing was stored"


@dataclass(frozen=True)
class UnreadColumn:
    """A column of an upload with cells that the declaration does not list, or a unit
    column with marks.

    Attributes:
        problem: ``unknown`` (no declared value), ``clamped`` (out of bounds),
            ``missing`` (empty; never refused) or ``missing-mark`` (a unit column has a
            mark such as ``NA`` for a missing value).
        count: exact and PRIVATE; for the owner.
        percent: of the cells of the column; in an answer rounded to tenths, at least 0.1.
        suspected: what most likely caused the problem, in words, as in
            :class:`ColumnProblem`.
        row: the first such row, as in :class:`ColumnProblem`.
        option: as in :class:`ColumnProblem`.
    """

    name: str
    problem: str
    count: int
    percent: float
    suspected: str | None = field(default=None, compare=False)
    row: int | None = None
    option: str | None = field(default=None, compare=False)


def stated_members(problem: ColumnProblem | UnreadColumn) -> JsonObject:
    """What a problem of a column says, without what it leaves open."""
    stated = {name: value for name, value in vars(problem).items() if value}
    return {"name": "", **stated}


class CellsUnread(StatedError):
    """Columns of an upload have many undeclared or clamped cells, or the unit column
    has marks for missing values, and nothing was stored. Shown to the owner only.
    """

    columns: Sequence[UnreadColumn]

    def __str__(self) -> str:
        has_marks = [column.problem == "missing-mark" for column in self.columns]
        causes = []
        if not all(has_marks):
            causes.append(
                f"more than {limits.MAX_UNREAD_PERCENT} % of the cells of a column are not as declared"
            )
        if any(has_marks):
            causes.append("a cell of the unit column stands for a missing value")
        return (
            f"{', and '.join(causes)}; nothing was stored: mend the file or the declaration, or accept such cells "
            "(accept_unknown)"
        )


class UploadEmpty(GrovekeeperError):
    """The body of an upload has a header and no row, and nothing was stored. Shown to
    the owner only.
    """

    sentence = (
        "the file has a header and no row; nothing was stored: a job would be charged for nothing. Did the export "
        "break? Insist (accept_empty) if an upload without rows is meant"
    )


class UploadRepeated(StatedError):
    """The same key uploaded the same rows to the dataset before, as ``upload``, and
    they are still stored.
    """

    upload: str

    sentence = (
        "these rows are those of upload {upload}, which this key sent before; nothing was stored: stored "
        "twice, each person in them would count twice. If that is meant, upload the file with again=true, in the "
        "command line with --again, in the dashboard with “Store a file once more”"
    )


class TooManyRequests(StatedError):
    """The process or the key has too many requests in flight, or the key has too many
    unfinished jobs.
    """

    what: str = "requests"
    retry_after_s: int = 1

    sentence = "too many {what}"


class _DoesNotFit(StatedError):
    """A request costs more than fits. Amounts are exact decimal strings in the
    account's unit.

    Attributes:
        what_fits: computes :attr:`largest_that_fits`, an ε. The computation is slow,
            and the error is raised under locks, so it runs when the answer is written.
    """

    dataset: str
    dataset_name: str
    accountant: str
    unit: str
    requested: str
    what_fits: Callable[[], str]

    @kept_property
    def largest_that_fits(self) -> str:
        """The largest ε with which the same request would be admitted at once; computed
        at the first access.
        """
        return self.what_fits()


class BudgetExceeded(_DoesNotFit):
    """The account cannot pay: in some cell ``charged + reserved + requested`` exceeds
    the cap.

    Attributes:
        population: name of the dataset's population if its cap refuses; the amounts are
            then its members' together.
        exact: ``False`` if the maximum over all joint cells took too much work; the
            amounts are then upper bounds.
    """

    cap: str
    charged: str
    reserved: str
    remaining: str
    tightest_cell: Mapping[str, object]
    population: str | None = None
    exact: bool = True

    def __str__(self) -> str:
        where = f"dataset {self.dataset_name}"
        if self.population is not None:
            where = f"population {self.population} of {where}"
        if self.tightest_cell:
            cell = ", ".join(
                f"{name}={value}" for name, value in self.tightest_cell.items()
            )
            where = f"cell {cell} of {where}"
        symbol = SYMBOLS[self.unit]
        return f"{self.requested} {symbol} requested, {self.remaining} {symbol} left for {where}"


class QuotaExceeded(_DoesNotFit):
    """The request is above a limit of one job, or of what its key and other keys may
    spend together.

    The error states what would fit, and neither the rules nor the other keys.
    """

    def __str__(self) -> str:
        return f"{self.requested} {SYMBOLS[self.unit]} requested, the rules of dataset {self.dataset_name} admit less"


class NeedsApproval(QuotaExceeded):
    """The charge is above what needs an approval, and a charge at once cannot wait."""

    def __str__(self) -> str:
        symbol = SYMBOLS[self.unit]
        return (
            f"{self.requested} {symbol} on dataset {self.dataset_name} needs an approval, and a charge for an external "
            "mechanism cannot wait; an owner can raise approval_above"
        )


class PopulationMismatch(StatedError):
    """The dataset cannot become a member of the population; ``differs`` lists the
    fields in which they differ.
    """

    differs: Sequence[str]

    def __str__(self) -> str:
        if "population" in self.differs:
            return "the dataset belongs to another population, and no dataset leaves a population"
        return f"the dataset and the population differ in: {', '.join(self.differs).replace('_', ' ')}"


class AccountDiffers(StatedError):
    """A declaration takes up the name of an erased dataset that has spent, and cannot
    continue its account.

    Attributes:
        dataset: id of the erased dataset.
        differs: the facts in which the accounts differ; ``cap`` where the declared cap
            is above the erased account's.
    """

    dataset: str
    dataset_name: str
    differs: Sequence[str]

    def __str__(self) -> str:
        facts = ", ".join(self.differs).replace("_", " ")
        return (
            f"the erased dataset {self.dataset_name} ({self.dataset}) has spent budget, so a declaration of this name "
            f"continues its account, and must not differ from it in: {facts}. Declare what the erased dataset declared "
            "(the cap may be lower), or take another name if the rows are about other people; to keep the name for "
            "other people, an admin or a second owner declares the dataset with other_people"
        )


class ReservationSettled(StatedError):
    """The reservation was charged, void or expired already."""

    state: str = "settled"

    sentence = "the reservation is {state} already"


class DeclarationFixed(StatedError):
    """The columns of a dataset cannot be declared anew.

    Attributes:
        because: what has fixed them, in words.
    """

    because: str

    sentence = (
        "the declaration of this dataset is fixed, because {because}; declare another dataset with the columns that "
        "you mean"
    )


class NoRowsYet(GrovekeeperError):
    """The dataset has no upload yet. Uploads are public events, so this error reveals
    nothing private.
    """

    sentence = "this dataset has no rows yet"


class NoRowsOfUnit(StatedError):
    """No row of the unit that an owner wants to erase is stored. Shown to owners only.

    Attributes:
        similar_units: PRIVATE; how many stored units are spelt alike. ``None`` for a
            caller who is no owner by a grant.
    """

    similar_units: int | None

    sentence = "no row of that unit is stored, so nothing was erased; compare the value, character by character"


class NameTaken(StatedError):
    """A dataset or a population has this name, or an erased dataset of other owners had
    it.
    """

    kind: str = "dataset"

    sentence = "another {kind} has this name"


class LastOwner(GrovekeeperError):
    """The change would leave a dataset without an owner whose key works."""

    sentence = "no other key that works is an owner of this dataset; make another key an owner first"


class DatasetDeleted(GrovekeeperError):
    """The dataset was deleted: its rows were erased, and its ledger remains."""

    sentence = "the rows of this dataset were erased; its ledger remains"


class ErasureDue(StatedError):
    """The date has come at which the rows of the dataset are erased: nothing is
    admitted, and no job is started.
    """

    dataset: str
    dataset_name: str

    sentence = (
        "the date has come at which the rows of the dataset {dataset_name} are erased, so nothing reads them any more; "
        "its ledger remains"
    )


class Frozen(StatedError):
    """An owner or an admin froze the dataset: nothing is admitted, and queued jobs
    wait.
    """

    dataset: str
    dataset_name: str

    sentence = "the dataset {dataset_name} is frozen"


class TooManyCells(StatedError):
    """The entries of an account would list more of its ``limit`` cells for scopes of a
    key than it leaves to others.
    """

    dataset: str
    dataset_name: str
    limit: int

    sentence = (
        "the ledger of {dataset_name} lists at most {limit} cells for its distinct scopes, and for those of one key at "
        "most as many as are left to others; nothing was reserved. Leave out the scope, take all uploads, or take a "
        "scope that has a charge already: these list no more cells"
    )


class ModelHasAlias(StatedError):
    """Aliases name the model, so that callers who use them would lose it."""

    aliases: Sequence[str]

    def __str__(self) -> str:
        return f"move or remove these aliases of the model first: {', '.join(self.aliases)}"


class JobFinished(GrovekeeperError):
    """A finished job cannot be cancelled."""

    sentence = "the job has finished already"


class NotWaiting(GrovekeeperError):
    """The job does not wait for a decision: it was decided, cancelled, or has expired."""

    sentence = "the job does not wait for a decision"


class SubmitterRevoked(StatedError):
    """The key or a grant of a job's submitter was revoked, or the key expired, before
    the job was charged.

    Attributes:
        reason: ``revoked`` or ``key-expired``, with which the job ends.
    """

    reason: str

    sentence = (
        "the key that submitted the job was revoked, lost its role or came to its end; "
        "the job has ended, and its reservation is void"
    )


class SameSubmitter(StatedError):
    """Another person than the caller decides."""

    who: str = "an owner other than the submitter decides about this job"

    sentence = "{who}"


class LeaseLost(GrovekeeperError):
    """Another worker holds the job's lease, so this worker must not write."""

    sentence = "the lease on this job was lost"


class Unavailable(StatedError):
    """The service cannot answer at the moment."""

    why: str = "the service is not ready"
    retry_after_s: int = 1

    sentence = "{why}"


class NotWritable(Unavailable):
    """This account may not write to a folder that requests and jobs need."""


class BalanceMismatch(Unavailable):
    """An account differs from its entries, so nothing is admitted until the operator
    acts.

    Attributes:
        account_id: of a dataset or a population, for the operator; no message names it.
        part: the part that differs, as a slug.
    """

    def __init__(self, account_id: str, part: str) -> None:
        super().__init__("the account differs from its entries", retry_after_s=60)
        self.account_id = account_id
        self.part = part


class InstallationError(StatedError):
    """The operator has to act: a setting is missing, the schema is old, or the address
    is unsafe.
    """

    why: str

    sentence = "{why}"


class LedgerRewound(InstallationError):
    """The database contradicts a head that was written outside it: an older backup was
    restored, or it was forged.
    """

    def __init__(self, account_id: str) -> None:
        super().__init__(
            f"the ledger of {account_id} in the database does not match the head that was written outside it: the "
            "database was restored from an older backup, or was changed. Nothing is served, because spent budget "
            "could be spent again, or a revoked key be used. See the operator's guide, After a refusal"
        )


class HeadNotSigned(LedgerRewound):
    """A head outside the database is forged; or the database is older than the key that
    signed the head.
    """

    def __init__(self, file: str) -> None:
        self.why = (
            f"{file} is forged, or signed by another key than the database names. Nothing is served, because the "
            "database may be an older backup. See the operator's guide, After a refusal"
        )

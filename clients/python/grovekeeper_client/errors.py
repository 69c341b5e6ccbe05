"""Defines the errors of the client: problems that the service reports, jobs without an
output, missing answers.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from grovekeeper_common.job_words import HOLDS, REASONS
from grovekeeper_common.json_types import JsonMapping, JsonObject

FINISHED = ("succeeded", "failed", "cancelled")
"""States of a job that never change."""

RETRIED = frozenset({"no-room", "rows-absent", "model-absent", "cannot-load"})
"""Those of :data:`HOLDS` that may pass by themselves: workers try again."""


@dataclass(frozen=True)
class FieldError:
    """A field of a request that breaks a rule.

    Attributes:
        at: JSON pointer into the request; of a problem of several rows, the first of
            them.
        problem: stable slug.
        column: column whose cells have the problem, if they have one.
        count: number of rows of the request that have the problem, if it is a problem
            of rows.
        limit: the largest value that is valid there, if it depends on the rest of the
            request.
        accepted: values that are valid there, if the rule lists any.
        field: the name of an unknown field.
    """

    at: str
    problem: str
    column: str | None = None
    count: int | None = None
    limit: int | None = None
    accepted: tuple[str, ...] = ()
    field: str | None = None

    def __str__(self) -> str:
        place = f"column {self.column}" if self.column is not None else self.at or "/"
        rows = (
            ""
            if self.count is None
            else f" in {self.count} row{'s' * (self.count != 1)}"
        )
        limit = "" if self.limit is None else f", at most {self.limit}"
        accepted = f", accepted: {', '.join(self.accepted)}" if self.accepted else ""
        named = "" if self.field is None else f" {self.field}"
        return f"{place}: {self.problem}{named}{rows}{limit}{accepted}"


_ROW = re.compile(r"/rows/([0-9]+)(?:/|$)|/columns/[^/]*/([0-9]+)$")
"""The place of a cell or a row in the request of a prediction."""

_OF_COLUMNS = ("rows-invalid", "cells-unread")


def column_in_words(column: JsonMapping) -> str:
    """A problem of a column of an upload, on one line; ``names``: of columns that are
    not declared, if known.
    """
    places = column.get("names") or [
        f"number {place} of the header" for place in column.get("positions", ())
    ]
    place = column["name"] or ", ".join(places) or "the file"
    times = "" if column["count"] == 1 else f", {column['count']} times"
    share = f" ({column['percent']} %)" if "percent" in column else ""
    row = f", first in row {column['row']}" if "row" in column else ""
    within = "".join(
        f", {part} {column[part]}" for part in ("line", "byte") if part in column
    )
    cause = f"; {column['suspected']}" if "suspected" in column else ""
    if "option" in column:
        cause += f"; send {column['option']}"
    return f"{place}: {column['problem'].replace('-', ' ')}{times}{share}{row}{within}{cause}"


@dataclass(eq=False)
class ApiProblem(Exception):
    """The service answered with problem details (RFC 9457).

    Attributes:
        status: HTTP status.
        type: stable slug, such as ``budget-exceeded``; ``unexpected-answer`` when
            something else answered.
        detail: a sentence.
        body: every member of the problem.
        request_id: id of the request in the service's log, if the answer has one.
        n_before: rows of a prediction in several requests before those of this one.
    """

    status: int
    type: str
    detail: str
    body: JsonMapping
    request_id: str | None = None
    n_before: int = 0

    def __str__(self) -> str:
        columns = "; ".join(map(column_in_words, self.columns))
        sentence = f"{self.detail}: {columns}" if columns else self.detail
        return f"{'; '.join(map(str, self.errors)) or sentence} ({self.type}, {self.status})"

    @property
    def columns(self) -> list[JsonObject]:
        """The columns of an upload that do not match the declaration, of
        ``rows-invalid`` and ``cells-unread``.
        """
        return list(self.body.get("columns", ())) if self.type in _OF_COLUMNS else []

    @property
    def errors(self) -> list[FieldError]:
        """The fields that break a rule, of the problem ``invalid-request``."""
        known = FieldError.__dataclass_fields__
        return [
            FieldError(
                **{name: value for name, value in error.items() if name in known}
                | _accepted(error)
            )
            for error in self.body.get("errors", ())
        ]

    @property
    def first_row(self) -> int | None:
        """The first row with a problem among all rows of a prediction, from 1; ``None``
        if the problem is none of rows.
        """
        found = [_ROW.match(error.at) for error in self.errors]
        rows = [int(row[1] or row[2]) for row in found if row is not None]
        return self.n_before + min(rows) + 1 if rows else None


def _accepted(error: JsonMapping) -> dict[str, tuple[str, ...]]:
    return {"accepted": tuple(error.get("accepted", ()))}


class Refused(ApiProblem):
    """The budget, or a rule of the dataset, does not cover the request. Nothing was
    charged.

    Amounts are exact and in the account's unit; :attr:`largest_that_fits` is an ε. An
    amount is ``None`` where the key may not learn it.
    """

    @property
    def unit(self) -> str:
        """Unit of the amounts: ``epsilon``, ``rho`` or ``mu_squared``."""
        return str(self.body["unit"])

    @property
    def requested(self) -> Decimal | None:
        """Price of the request."""
        return self._amount("requested")

    @property
    def largest_that_fits(self) -> Decimal | None:
        """The largest ε with which the same request would be accepted."""
        return self._amount("largest_that_fits")

    @property
    def cap(self) -> Decimal | None:
        """Lifetime cap of the account that refuses."""
        return self._amount("cap")

    @property
    def charged(self) -> Decimal | None:
        """What is spent for good, at the tightest joint cell."""
        return self._amount("charged")

    @property
    def reserved(self) -> Decimal | None:
        """What accepted jobs that have not begun hold there."""
        return self._amount("reserved")

    @property
    def remaining(self) -> Decimal | None:
        """What is left there."""
        return self._amount("remaining")

    def __str__(self) -> str:
        return f"{self.detail}; the largest ε that fits is {self.largest_that_fits}"

    def _amount(self, name: str) -> Decimal | None:
        text = self.body.get(name)
        return None if text is None else Decimal(str(text))


@dataclass(eq=False)
class Unreachable(Exception):
    """No answer arrived in any attempt.

    Attributes:
        url: address of the service.
        why: a phrase.
        idempotency_key: key of the request, if it has one. The request may have
            arrived; a call with this key continues it and has no second effect.
        may_have_arrived: whether an attempt was sent.
    """

    url: str
    why: str
    idempotency_key: str | None = None
    may_have_arrived: bool = True

    def __str__(self) -> str:
        sentence = f"no answer from {self.url}: {self.why}"
        if self.idempotency_key is None:
            return sentence
        return f"{sentence}; to continue the request, pass idempotency_key={self.idempotency_key!r}"


class SecretForId(ValueError):
    """A secret was given where an id or a name belongs. It was not sent: proxies log
    the addresses of requests.
    """

    def __str__(self) -> str:
        return (
            "this is a secret, where an id or a name belongs; the id of a key is the part before its dot. Nothing was "
            "sent, but a shell keeps what was typed in it"
        )


class NoKey(Exception):
    """No key is configured."""

    def __str__(self) -> str:
        return "no key: set GROVEKEEPER_API_KEY, or GROVEKEEPER_API_KEY_FILE to the name of a file"


@dataclass(eq=False)
class JobFailed(Exception):
    """A job ended without an output.

    Attributes:
        job: the job as the service shows it.
    """

    job: JsonMapping

    @property
    def reason(self) -> str:
        """Why the job ended: a key of :data:`REASONS`."""
        return str(self.job["reason"])

    @property
    def charged(self) -> bool:
        """Whether the price is spent, for good."""
        return bool(self.job["charged"])

    def __str__(self) -> str:
        spent = "its price is spent for good" if self.charged else "nothing was charged"
        return f"job {self.job['id']} {self.job['state']}: {REASONS.get(self.reason, self.reason)}; {spent}"


@dataclass(eq=False)
class JobUnfinished(Exception):
    """A wait ended before its job, which goes on: the job waits for an approval, no
    worker may start it, or the timeout has passed.

    Attributes:
        job: the job as the service shows it.
    """

    job: JsonMapping

    @property
    def is_waiting(self) -> bool:
        """Whether an owner of a dataset other than the submitter has to approve the
        job, for at most a week.
        """
        return bool(self.job["state"] == "waiting")

    @property
    def held_by(self) -> str | None:
        """Why no worker may start the job: a key of :data:`HOLDS`."""
        return self.job.get("held_by")

    def __str__(self) -> str:
        again = f"wait for it again with Grovekeeper().job({self.job['id']!r}).wait()"
        return f"{unfinished(self.job)}; {again}"


def unfinished(job: JsonMapping) -> str:
    """Why a job that a wait left has not ended."""
    if job["state"] == "waiting":
        return f"job {job['id']} waits for an approval and goes on"
    held_by = job.get("held_by")
    if held_by is not None:
        return f"job {job['id']} is {job['state']}: {HOLDS.get(held_by, held_by)}"
    return f"job {job['id']} is {job['state']} and goes on"

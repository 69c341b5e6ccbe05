"""Defines the exit codes of every command."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes, which scripts rely on."""

    DONE = 0
    FAILED = 1
    """The command failed, or the evidence was not verified."""
    WRONG_USE = 2
    REFUSED = 3
    """The budget or the rules of the dataset do not admit the request."""
    NOT_ALLOWED = 4
    UNREACHABLE = 5


_BY_TYPE = {
    "budget-exceeded": ExitCode.REFUSED,
    "quota-exceeded": ExitCode.REFUSED,
    "needs-approval": ExitCode.REFUSED,
    "frozen": ExitCode.REFUSED,
    "unauthenticated": ExitCode.NOT_ALLOWED,
    "role-missing": ExitCode.NOT_ALLOWED,
    "same-submitter": ExitCode.NOT_ALLOWED,
    "unavailable": ExitCode.UNREACHABLE,
    "too-many-requests": ExitCode.UNREACHABLE,
    "unexpected-answer": ExitCode.UNREACHABLE,
    "malformed-request": ExitCode.WRONG_USE,
    "invalid-request": ExitCode.WRONG_USE,
    "idempotency-key-reused": ExitCode.WRONG_USE,
    "not-supported": ExitCode.WRONG_USE,
}


def of_problem(problem_type: str) -> ExitCode:
    """The exit code for a problem type of the API; a type that is not listed is a failure."""
    return _BY_TYPE.get(problem_type, ExitCode.FAILED)

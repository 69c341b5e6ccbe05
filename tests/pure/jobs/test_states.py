"""The job states in the API and in the database are those of the enumeration."""

from typing import get_args

from sqlalchemy import CheckConstraint

from app.core import limits
from app.jobs.states import ENDED, UNFINISHED, EndReason, JobState, PutBack
from app.jobs.tables import JobRow
from app.ledger.rules import HeldBy
from app.wire.jobs import JobOut
from grovekeeper_client.errors import FINISHED, RETRIED
from grovekeeper_common.job_words import HOLDS, REASONS


def test_clients_are_told_every_state_and_reason() -> None:
    state, reason = (
        JobOut.model_fields[name].annotation for name in ("state", "reason")
    )
    assert set(get_args(state)) == set(JobState)
    reported = {value for choice in get_args(reason) for value in get_args(choice)}
    assert reported == set(EndReason)
    assert set(REASONS) == set(EndReason)
    for reason in ("expired", "not-started"):
        assert f"within {limits.MAX_QUEUE_S // 3_600} hours" in REASONS[reason]
    for reason in ("expired", "not-approved"):
        assert f"within {limits.MAX_APPROVAL_S // 86_400} days" in REASONS[reason]
    assert set(FINISHED) == set(ENDED)
    held_by = {
        value
        for choice in get_args(JobOut.model_fields["held_by"].annotation)
        for value in get_args(choice)
    }
    assert held_by == {*get_args(HeldBy), *PutBack} == set(HOLDS)
    assert set(PutBack) == RETRIED


def test_the_table_accepts_every_state_and_no_other() -> None:
    (known,) = [
        str(constraint.sqltext)
        for constraint in JobRow.__table__.constraints  # type: ignore[attr-defined]
        if isinstance(constraint, CheckConstraint)
        and "state IN" in str(constraint.sqltext)
    ]
    assert known == f"state IN ({', '.join(repr(state.value) for state in JobState)})"


def test_every_state_is_unfinished_or_final() -> None:
    assert (*UNFINISHED, *ENDED) == tuple(JobState)

"""Submits requests that spend budget: authorizes, returns a stored answer, quotes, and writes once.

Requests for jobs that arrive at the same time share their transactions (docs/adr/0040-admission-in-groups.md).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Answer, IdempotentRequest, Identity, Stored
from app.access.roles import Principal
from app.core.errors import GrovekeeperError
from app.services.authorization import acting, acting_together, present
from app.services.installation import Installation
from app.services.jobs import notices
from app.services.spending import shared_read
from app.services.spending.accept import Acceptance, Job, lock

Subject = TypeVar("Subject")
Quote = TypeVar("Quote")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Steps(Generic[Subject, Quote]):
    """The first steps of a request that spends budget, in a read transaction.

    Attributes:
        authorize: finds the dataset or the models of the request and checks the caller's roles on them.
        quote: validates the request and works out its price.
        route: the route under which the idempotency key is stored, if not the request's path: it has the dataset's id
            where the path may have the dataset's name.
    """

    authorize: Callable[[Session, Principal], Subject]
    quote: Callable[[Session, Subject], Quote]
    route: Callable[[Subject], str] | None = None

    def identified(self, request: IdempotentRequest, subject: Subject) -> IdempotentRequest:
        """The request with the route under which its key is stored."""
        return request if self.route is None else replace(request, route=self.route(subject))


@dataclass(frozen=True, kw_only=True)
class JobSteps(Steps[Subject, Quote]):
    """The steps of a request for a job.

    Attributes:
        job: the job that is accepted or refused in a write transaction; see :mod:`app.services.spending.accept`.
        datasets: ids or names of datasets that the request names; all requests of a group read them in one query.
        is_slow: whether the quote reads files. Such a request is quoted before it joins a group, which would wait.
    """

    job: Callable[[Quote], Job]
    datasets: Sequence[str]
    is_slow: bool = False


@dataclass(frozen=True, kw_only=True)
class ChargeSteps(Steps[Subject, Quote]):
    """The steps of a request that is charged at once.

    Attributes:
        write: checks the caller's roles again, charges, under locks, and makes the answer.
    """

    write: Callable[[Session, Principal, Quote, datetime], Answer]


@dataclass(frozen=True)
class Outcome:
    """The answer to a request, and whether the request is the first with its idempotency key."""

    answer: Answer
    is_first: bool


@dataclass(frozen=True)
class Submission:
    """A request for a job, as it waits for its group."""

    caller: Principal
    steps: JobSteps[Any, Any]
    request: IdempotentRequest


def submit_job(
    installation: Installation, caller: Principal, steps: JobSteps[Subject, Quote], *, request: IdempotentRequest
) -> Answer:
    """Answers a request for a job exactly once, in a group with the requests that arrive at the same time.

    A first transaction reads: the price follows from public facts, which never change, so it locks nothing. A second
    transaction writes the reservations, the jobs and the answers, and commits before any answer is sent. A refused
    request writes nothing, and its idempotency key stays unused. Both transactions read the callers' keys and grants:
    a request may have begun long before.

    Raises:
        Unauthenticated: the caller's key was revoked or rotated meanwhile, or has expired.
    """

    def outcome() -> Outcome:
        quoted_steps = steps
        if steps.is_slow:
            first = _quoted(installation, caller, steps, request)
            if isinstance(first, Outcome):
                return first
            quoted_steps = replace(steps, quote=lambda _session, _subject: first.quote)
        submission = Submission(caller, quoted_steps, request)
        result: Outcome | GrovekeeperError = installation.submissions.run(submission, partial(_outcomes, installation))
        if isinstance(result, GrovekeeperError):
            raise result
        return result

    return _counted(installation, caller, outcome)


def submit_charge(
    installation: Installation, caller: Principal, steps: ChargeSteps[Subject, Quote], *, request: IdempotentRequest
) -> Answer:
    """Answers a request that is charged at once, exactly once; otherwise as :func:`submit_job`, without a group."""

    def outcome() -> Outcome:
        first = _quoted(installation, caller, steps, request)
        if isinstance(first, Outcome):
            return first
        with acting(installation, caller) as (session, principal):
            at = installation.database.now(session)
            work = partial(steps.write, session, principal, first.quote, at)
            return Outcome(idempotency.once(session, first.request, at=at, work=work), is_first=True)

    return _counted(installation, caller, outcome)


@dataclass(frozen=True)
class _Quoted(Generic[Quote]):
    """The quote of a request, and the request with the route under which its key is stored."""

    request: IdempotentRequest
    quote: Quote


def _quoted(
    installation: Installation, caller: Principal, steps: Steps[Subject, Quote], request: IdempotentRequest
) -> _Quoted[Quote] | Outcome:
    """Quotes a request in a read transaction of its own, unless its answer is stored."""
    with installation.database.read() as session:
        subject = steps.authorize(session, present(installation, session, caller))
        identified = steps.identified(request, subject)
        earlier = idempotency.stored(session, identified)
        if earlier is not None:
            return Outcome(earlier, is_first=False)
        return _Quoted(identified, steps.quote(session, subject))


def _counted(installation: Installation, caller: Principal, work: Callable[[], Outcome]) -> Answer:
    """Counts and logs the outcome of a request, and tells webhooks of refusals."""
    try:
        outcome = work()
    except GrovekeeperError as error:
        installation.admissions.add(type(error))
        notices.refused(installation, error, by=caller.key_id)
        raise
    installation.admissions.add(outcome.is_first)
    _log.info("a request that spends budget was admitted", extra={"location": outcome.answer.location})
    return outcome.answer


def _outcomes(installation: Installation, group: Sequence[Submission]) -> list[Outcome | GrovekeeperError]:
    """Answers requests as if each came after the answer to the request before it.

    Another process may answer one of the requests between the two transactions. Then nothing is written, and the next
    attempt reads that answer.
    """
    while True:
        attempts = [_Attempt(submission) for submission in group]
        with installation.database.read() as session:
            shared_read.read(session, {(each.caller.key_id, name) for each in group for name in each.steps.datasets})
            for attempt in attempts:
                attempt.settle(attempt.authorize, installation, session)
            stored = Stored.read(session, [attempt.request for attempt in _open(attempts)])
            for attempt in _open(attempts):
                attempt.settle(attempt.quote, session, stored)
        if all(attempt.job is None for attempt in attempts) or _write(installation, _open(attempts)):
            return [attempt.result for attempt in attempts]


class _Attempt:
    """A request of a group on its way to an outcome.

    Attributes:
        job: after the quote, unless the request has an outcome or a refusal.
        refusal: of the quote; it is the outcome unless a request before it in the group uses the idempotency key.
    """

    def __init__(self, submission: Submission) -> None:
        self.caller, self.steps, self.request = submission.caller, submission.steps, submission.request
        self.outcome: Outcome | GrovekeeperError | None = None
        self.subject: Any = None
        self.job: Job | None = None
        self.refusal: GrovekeeperError | None = None

    @property
    def result(self) -> Outcome | GrovekeeperError:
        """The outcome, at the end of the group."""
        result = self.outcome or self.refusal
        assert result is not None, "a job is accepted or refused"
        return result

    def settle(self, step: Callable[..., Outcome | None], *arguments: Any) -> None:
        """Takes a step. A refusal is the outcome of this request and of no other."""
        try:
            self.outcome = step(*arguments)
        except GrovekeeperError as refusal:
            self.outcome = refusal

    def authorize(self, installation: Installation, session: Session) -> None:
        self.subject = self.steps.authorize(session, present(installation, session, self.caller))
        self.request = self.steps.identified(self.request, self.subject)

    def quote(self, session: Session, stored: Stored) -> Outcome | None:
        earlier = stored.answer_to(self.request)
        if earlier is not None:
            return Outcome(earlier, is_first=False)
        try:
            self.job = self.steps.job(self.steps.quote(session, self.subject))
        except GrovekeeperError as refusal:
            self.refusal = refusal
        return None


def _open(attempts: Iterable[_Attempt]) -> list[_Attempt]:
    return [attempt for attempt in attempts if attempt.outcome is None]


def _write(installation: Installation, attempts: Sequence[_Attempt]) -> bool:
    """Accepts or refuses jobs in one write transaction, and stores the answers of the accepted ones.

    Returns:
        ``False`` if another transaction has answered one of the requests: nothing was written.
    """
    jobs = {attempt: attempt.job for attempt in attempts if attempt.job is not None}
    governing = set[str]().union(*(job.governing_ids for job in jobs.values()))
    locks = partial(lock, jobs=list(jobs.values()))
    with acting_together(installation, [attempt.caller for attempt in attempts], governing, lock=locks) as acting_for:
        session, callers = acting_for
        acceptance = Acceptance.begin(session, callers, list(jobs.values()))
        answers: dict[Identity, tuple[IdempotentRequest, Answer]] = {}

        def accept(attempt: _Attempt) -> Outcome:
            principal = callers.authorities.confirm(attempt.caller)
            if attempt.request.identity in answers:
                first, answer = answers[attempt.request.identity]
                attempt.request.require_repeats(first)
                return Outcome(answer, is_first=False)
            if attempt.refusal is not None:
                raise attempt.refusal
            answer = acceptance.accept(principal, jobs[attempt])
            answers[attempt.request.identity] = (attempt.request, answer)
            return Outcome(answer, is_first=True)

        for attempt in attempts:
            attempt.settle(accept, attempt)
        refused = [attempt.request for attempt in jobs if isinstance(attempt.outcome, GrovekeeperError)]
        at = callers.authorities.at
        if Stored.read(session, refused).is_any or not _all_put(session, answers.values(), at=at):
            session.rollback()
            return False
        if not answers:
            session.rollback()  # a refusal stores nothing, and its idempotency key stays unused
            return True
        acceptance.write(at=at)
    acceptance.committed()
    return True


def _all_put(session: Session, answers: Collection[tuple[IdempotentRequest, Answer]], *, at: datetime) -> bool:
    """Stores answers; returns whether no other transaction has answered one of the requests."""
    return not answers or len(idempotency.put(session, dict(answers), at=at)) == len(answers)

"""Submits a request that spends budget: authorizes, returns a stored answer, quotes, and writes once."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.access.roles import Principal
from app.core.errors import GrovekeeperError
from app.services.authorization import acting, present
from app.services.installation import Installation
from app.services.jobs import notices

Subject = TypeVar("Subject")
Quote = TypeVar("Quote")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Steps(Generic[Subject, Quote]):
    """The steps of a spending request.

    Attributes:
        authorize: finds the dataset or the models of the request and checks the caller's roles on them.
        quote: validates the request and works out its price.
        write: checks the caller's roles again, reserves or charges, under locks, and makes the answer.
        route: the route under which the idempotency key is stored, if not the request's path: it has the dataset's id
            where the path may have the dataset's name.
    """

    authorize: Callable[[Session, Principal], Subject]
    quote: Callable[[Session, Subject], Quote]
    write: Callable[[Session, Principal, Quote, datetime], Answer]
    route: Callable[[Subject], str] | None = None


def submit(
    installation: Installation, principal: Principal, steps: Steps[Subject, Quote], *, request: IdempotentRequest
) -> Answer:
    """Answers a spending request exactly once.

    A first transaction reads: the price follows from public facts, which never change, so it locks nothing. A second
    transaction writes the reservation, the job or the charge, and the answer, and commits before the answer is sent. A
    refusal rolls the second transaction back, so a refusal stores nothing and the idempotency key stays unused. Both
    transactions read the caller's key and grants: the request may have begun long before.

    Raises:
        Unauthenticated: the caller's key was revoked or rotated meanwhile, or has expired.
    """
    try:
        answer, is_first = _answered(installation, principal, steps, request)
    except GrovekeeperError as error:
        installation.admissions.add(type(error))
        notices.refused(installation, error, by=principal.key_id)
        raise
    installation.admissions.add(is_first)
    _log.info("a request that spends budget was admitted", extra={"location": answer.location})
    return answer


def _answered(
    installation: Installation, principal: Principal, steps: Steps[Subject, Quote], request: IdempotentRequest
) -> tuple[Answer, bool]:
    """The answer, and whether this request is the first with its idempotency key."""
    with installation.database.read() as session:
        subject = steps.authorize(session, present(installation, session, principal))
        if steps.route is not None:
            request = replace(request, route=steps.route(subject))
        earlier = stored(session, request)
        if earlier is not None:
            return earlier, False
        quoted = steps.quote(session, subject)
    with acting(installation, principal) as (session, principal):
        at = installation.database.now(session)
        return once(session, request, at=at, work=partial(steps.write, session, principal, quoted, at)), True

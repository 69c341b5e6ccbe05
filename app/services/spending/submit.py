"""Submits a request that spends budget: authorizes, returns a stored answer, quotes, and writes once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy.orm import Session

from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.services.installation import Installation

Subject = TypeVar("Subject")
Quote = TypeVar("Quote")


def submit(
    installation: Installation,
    request: IdempotentRequest,
    *,
    authorize: Callable[[Session], Subject],
    route: Callable[[Subject], str] | None = None,
    quote: Callable[[Session, Subject], Quote],
    write: Callable[[Session, Quote, datetime], Answer],
) -> Answer:
    """Answers a spending request exactly once.

    A first transaction reads: the price follows from public facts, which never change, so it locks nothing. A second
    transaction writes the reservation, the job or the charge, and the answer, and commits before the answer is sent. A
    refusal rolls the second transaction back, so a refusal stores nothing and the idempotency key stays unused.

    Args:
        installation: this installation.
        request: the caller, the route, the idempotency key and the digest of the body.
        authorize: finds the dataset or the models of the request and checks the caller's roles on them.
        route: the route under which the idempotency key is stored; it has the dataset's id where the request's path may
            have the dataset's name.
        quote: validates the request and works out its price.
        write: reserves or charges, under locks, and makes the answer.
    """
    with installation.database.read() as session:
        subject = authorize(session)
        if route is not None:
            request = replace(request, route=route(subject))
        earlier = stored(session, request)
        if earlier is not None:
            return earlier
        quoted = quote(session, subject)
    with installation.database.write() as session:
        at = installation.database.now(session)
        return once(session, request, at=at, work=partial(write, session, quoted, at))

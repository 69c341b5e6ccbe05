"""Quotes and accepts requests for releases of every kind."""

from typing import Any

from app.access.grants import TRAIN, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.core.errors import NotFound
from app.services.installation import Installation
from app.services.releases.contract import Named, Planned, Quote, ReleaseRequest
from app.services.spending.asked import read_asked
from app.services.spending.quotes import quote_parts
from app.services.spending.spend import Job, spending
from grovekeeper_forests.errors import GrovekeeperError


def quote(
    installation: Installation, caller: Principal, asked: ReleaseRequest[Quote]
) -> Quote:
    """Quotes a request: its plan, its price on each account, and whether the accounts
    would admit it now.

    Reads no rows and costs nothing.
    """
    with installation.database.read() as session:
        named = asked.find(session, caller)
        principal, sources = read_asked(session, caller, named.datasets, TRAIN)
        for source in sources:
            source.dataset.living()
        asked.confirm(session, principal, named)
        planned = asked.plan(installation, named, sources)
        return planned.quoted(quote_parts(session, principal, planned.parts))


def submit(
    installation: Installation,
    caller: Principal,
    asked: ReleaseRequest[Any],
    *,
    request: IdempotentRequest,
) -> Answer:
    """Accepts a job or refuses it: a refused request stores neither job nor
    reservation.

    Args:
        asked: what the client asks for.
        request: the identity of the HTTP request, under which its answer is stored.
    """
    named, planned = _planned_before(installation, caller, asked)
    with spending(installation, caller, request) as opened:
        if named is None:
            assert isinstance(planned, NotFound), "what is planned names its datasets"
            return opened.answered_before(planned)
        authorized = opened.authorize(named.datasets)
        locked = authorized.lock(route=asked.route)
        if isinstance(locked, Answer):
            return locked
        if isinstance(planned, GrovekeeperError):
            raise planned
        asked.confirm(locked.session, authorized.principal, named)
        parts = locked.confirmed(planned.parts)
        # not declared of every body: that of ``POST /plans`` has neither
        purpose = getattr(asked.body, "purpose", None)
        job = Job(
            kind=asked.kind,
            dataset=parts[0].asked.dataset,
            parts=parts,
            work=dict(planned.work),
            name=getattr(asked.body, "name", None),
            stated={} if purpose is None else {"purpose": purpose},
            algorithm=planned.algorithm,
            n_trees=planned.n_trees,
        )
        return locked.accept(job)


def _planned_before(
    installation: Installation, caller: Principal, asked: ReleaseRequest[Any]
) -> tuple[Named | None, Planned[Any] | GrovekeeperError]:
    """Plans before the transaction, or finds why there is no plan.

    The reason is raised in the transaction: a repetition gets its stored answer
    (:meth:`Opened.answered_before`, :meth:`Authorized.lock`), though it could not be
    planned any more. The transaction must not wait for the files of models either.
    """
    with installation.database.read() as session:
        try:
            named = asked.find(session, caller)
        except NotFound as error:
            return None, error
        try:
            _, sources = read_asked(session, caller, named.datasets, TRAIN)
        except GrovekeeperError as error:
            return named, error
    try:
        return named, asked.plan(installation, named, sources)
    except GrovekeeperError as error:
        return named, error

"""Grants API processes leases on cached authority; waits until no process uses authority that was taken away.

The number of the last administrative act (:mod:`app.ledger.control`) is the version of all authority: whatever takes
authority away records an act in its transaction. A process announces its lease and then compares the number; whoever
takes authority away commits and then reads the leases. So one of the two sees the other.
"""

import time
from contextlib import suppress

from app.access import leases
from app.access.cached_authority import elapsed_s
from app.core import limits
from app.core.errors import Unavailable
from app.ledger import control
from app.services.installation import Installation


def renew(installation: Installation) -> None:
    """Renews the lease of this process if its cache was used since the last call, and else gives the lease up.

    A process begins a lease when it predicts so often that the cache saves more than the lease costs.

    Raises:
        Unavailable: the database cannot be reached or is too busy; an earlier lease ends at its time.
    """
    cache, database = installation.authority, installation.database
    if cache.take_uses() < (limits.MIN_LEASED_USES if cache.last_act is None else 1):
        release(installation)
        return
    began_s = elapsed_s()
    _announce(installation)
    with database.read() as session:
        last_act = control.last_act(session)
    if last_act != cache.last_act:
        cache.drop()
        cache.last_act = last_act
        _announce(installation)
    cache.hold(until_s=began_s + limits.AUTHORITY_LEASE_S)


def release(installation: Installation) -> None:
    """Ends the lease of this process, if it has one."""
    cache = installation.authority
    if cache.last_act is not None:
        cache.hold(until_s=0)
        cache.drop()
        cache.last_act = None
        with installation.database.write() as session:
            leases.remove(session, cache.process_id)


def settle(installation: Installation) -> None:
    """Waits until no process answers by authority from before this call, for the length of a lease at most.

    Every act that was committed before this call has its effect in all processes when the call returns. A process that
    was stopped or has died cannot say so, but its lease has ended.

    Raises:
        Unavailable: the database cannot be reached or is too busy.
    """
    cache, database = installation.authority, installation.database
    cache.drop()
    with database.read() as session:
        last_act = control.last_act(session)
        first = leases.behind(session, last_act, besides=cache.process_id)
    until_s = elapsed_s() + limits.AUTHORITY_LEASE_S
    behind = first
    while behind and elapsed_s() < until_s:
        time.sleep(limits.LEASE_POLL_S)
        with database.read() as session:
            behind = leases.behind(session, last_act, besides=cache.process_id)
    ended = set(first).intersection(behind)
    if ended:
        with suppress(Unavailable), database.write() as session:
            leases.remove_ended(session, ended)


def _announce(installation: Installation) -> None:
    cache = installation.authority
    with installation.database.write() as session:
        leases.renew(session, cache.process_id, last_act=cache.last_act or 0)

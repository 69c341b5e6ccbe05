"""Begins the requests of one server in rounds of its event loop, in which keys take
turns.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.core import limits


@dataclass(eq=False)
class Rounds:
    """Begins the requests of one server, some in each round of the event loop; keys
    take turns.

    In a round the loop looks once at connections and at finished threads. What begins
    in it is bounded, so a request waits, in each of its rounds, for one request of each
    other key, and not for all that arrived at once. While new connections are accepted,
    one in a round, requests without a known key wait: a key may be among those behind.

    Args:
        _key_of: returns the key whose turns a request takes, by its scope.
    """

    _key_of: Callable[[Any], str | None]
    _round_s: float = limits.ROUND_S
    _waiting: dict[str | None, deque[Callable[[], bool]]] = field(default_factory=dict)
    _is_full: bool = False
    _used_s: float = 0.0
    _accepts: bool = False
    _n_accepted: int = 0

    def accepted(self) -> None:
        """A connection was made."""
        self._accepts = True
        self._look_again()

    def begin(self, scope: Any, start: Callable[[], bool]) -> None:
        """Begin a request now, or in one of the next rounds.

        Args:
            scope: of the request.
            start: begins the request, and returns whether its task goes on in the next
                round.
        """
        if self._is_full or self._accepts:
            self._waiting.setdefault(self._key_of(scope), deque()).append(start)
            self._look_again()
            return
        # To know the next round takes a round, which costs a tenth of a prediction: so
        # what is answered at once may fill several rounds of a quiet server.
        began_at = time.monotonic()
        has_task = start()
        self._used_s += time.monotonic() - began_at
        if has_task or self._used_s >= self._round_s:
            self._look_again()

    def _look_again(self) -> None:
        """Begin no more in this round, and what waits in the next."""
        if not self._is_full:
            self._is_full = True
            asyncio.get_running_loop().call_soon(self._begin_waiting)

    def _begin_waiting(self) -> None:
        """Begin requests of this round: until one has a task, whose time nobody knows,
        or their time is over.
        """
        self._is_full, self._used_s = False, 0.0
        n_accepted = self._n_accepted + self._accepts
        self._n_accepted = n_accepted % limits.MAX_ROUNDS_OF_CONNECTIONS
        later = None
        if self._accepts and self._n_accepted:
            # Requests without a known key wait, but not for ever: a client that always
            # connects would keep them out, so each time the count is full they go on.
            later = self._waiting.pop(None, None)
        self._accepts = False
        ends_at, is_over = time.monotonic() + self._round_s, False
        while self._waiting and not is_over:
            has_task = self._next()()
            is_over = has_task or time.monotonic() >= ends_at
        if later is not None:
            self._waiting[None] = later
        if self._waiting or is_over:
            self._look_again()

    def _next(self) -> Callable[[], bool]:
        """The next request of the key whose turn was longest ago."""
        key_id = next(iter(self._waiting))
        queue = self._waiting.pop(key_id)
        start = queue.popleft()
        if queue:
            self._waiting[key_id] = queue
        return start

"""The duration of a request is measured by a clock that is never set, and refused
requests have none.
"""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from app.api.middleware import EveryRequest
from app.core.logging import Durations, Tally


class _Spans:
    def __init__(self) -> None:
        self.times: list[tuple[int, int]] = []

    def record(
        self, _scope: Scope, *, status: int, began_ns: int, ended_ns: int
    ) -> None:
        self.times.append((began_ns, ended_ns))


class _Measured:
    """The layer around an application that answers every request with a status."""

    def __init__(self, status: int) -> None:
        self.metrics, self.spans, self._status = (
            SimpleNamespace(requests=Tally(), durations=Durations()),
            _Spans(),
            status,
        )
        layer: Any = EveryRequest
        self._layer = layer(
            self._app,
            installation=SimpleNamespace(settings=SimpleNamespace(path_prefix=None)),
            authentication=None,
            predictions=None,
            metrics=self.metrics,
            spans=self.spans,
        )
        self._framework = SimpleNamespace(
            state=SimpleNamespace(capacities=SimpleNamespace(end_large_body=id))
        )

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path="/train")
        await PlainTextResponse("", self._status)(scope, receive, send)

    def answer(self) -> None:
        """Answers one request; its path needs no key, and its route is one whose
        durations count.
        """
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/healthz",
            "headers": [],
            "app": self._framework,
        }
        scope["query_string"] = b""
        asyncio.run(self._layer(scope, cast(Receive, None), _ignore))


async def _ignore(_message: Any) -> None:
    pass


def test_a_clock_that_is_set_back_during_a_request_changes_no_duration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured, clock = _Measured(200), iter([2_000_000_000, 1_000_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    measured.answer()
    ((_, seconds),) = measured.metrics.durations.counts().values()
    assert seconds >= 0
    ((began_ns, ended_ns),) = measured.spans.times
    assert began_ns == 2_000_000_000
    assert ended_ns >= began_ns


@pytest.mark.parametrize("status", [401, 409, 422, 429, 503])
def test_a_refused_request_has_no_duration(status: int) -> None:
    measured = _Measured(status)
    measured.answer()
    assert measured.metrics.durations.counts() == {}
    assert measured.metrics.requests.counts() == {("POST", "/train", str(status)): 1}

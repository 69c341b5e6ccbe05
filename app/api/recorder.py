"""Counts, logs and traces every answered request by public facts: method, route template, status, key."""

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import Scope

from app.access.roles import Principal
from app.api.metrics import Answered, Metrics

if TYPE_CHECKING:  # OpenTelemetry is an extra
    from app.api.tracing import RequestSpans

_METHODS = frozenset({"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"})
_READS = frozenset({"GET", "HEAD"})
_PREDICT = "/models/{model_id}/predict"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recorder:
    """Records requests.

    Attributes:
        metrics: counts them.
        spans: exports them, if the settings name a collector.
    """

    metrics: Metrics
    spans: "RequestSpans | None"

    def record(self, scope: Scope, *, status: int, began_ns: int) -> None:
        """Records a request that has ended. ``status`` is 0 if the client went away before the answer."""
        route = getattr(scope.get("route"), "path", "")
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self.metrics.requests.add(Answered(method, route, status))
        principal: Principal | None = scope["state"].get("principal")
        key_id = None if principal is None else principal.key_id
        level = logging.DEBUG if method in _READS or route == _PREDICT else logging.INFO
        if _log.isEnabledFor(level):
            fields = {"method": method, "route": route, "status": status, "key_id": key_id}
            _log.log(level, "a request was answered", extra=fields)
        if self.spans is not None:
            self.spans.record(scope, status=status, began_ns=began_ns, ended_ns=time.time_ns())

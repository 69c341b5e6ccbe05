"""The form of a case: a request that must be refused, its target, and a helper that
changes bodies.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.server import Server, new_idempotency_key, training

CANARY = "canary-7f3a"
"""A marker in every value that an answer or a log could echo."""
MISSING = object()


@dataclass(frozen=True)
class Refused:
    """One request and the problem that the API must answer with; ``at`` and ``problem``
    name one broken rule.
    """

    name: str
    method: str
    path: str
    type: str
    options: dict[str, Any] = field(default_factory=dict)
    at: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Place:
    """The targets of the requests: a dataset with rows and cells, a dataset without
    rows, a job and a model.
    """

    server: Server
    ids: dict[str, str]

    def send(self, case: Refused) -> httpx.Response:
        options = deepcopy(case.options)
        if case.path == "/train" or case.path.endswith("/reservations"):
            options["headers"] = new_idempotency_key() | options.get("headers", {})
        return self.server.admin.http.request(
            case.method, case.path.format(**self.ids), **self._named(options)
        )

    def _named(self, options: dict[str, Any]) -> dict[str, Any]:
        body = options.get("json")
        for place in ("dataset", "name"):
            if isinstance(body, dict) and body.get(place) in {
                f"{{{name}}}" for name in self.ids
            }:
                body[place] = body[place].format(**self.ids)
        return options


def changed(body: dict[str, Any], pointer: str, value: object) -> dict[str, Any]:
    """A copy with one field set, or removed if the value is :data:`MISSING`."""
    result = deepcopy(body)
    *above, last = pointer.strip("/").split("/")
    inner: Any = result
    for token in above:
        inner = inner[int(token)] if isinstance(inner, list) else inner[token]
    if value is MISSING:
        del inner[last]
    else:
        inner[int(last) if isinstance(inner, list) else last] = value
    return result


def training_body(**changes: object) -> dict[str, Any]:
    return {"json": training("{dataset}") | changes}

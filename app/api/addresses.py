"""Names what precedes every address in an answer: the path below which a reverse proxy
serves this service.

The proxy removes that prefix from requests, so no path inside has it: routes, checks of
paths, answers that are stored for an idempotency key, and the page that a sign-in
returns to. It is added where an address leaves.
"""

from contextvars import ContextVar

PATH_PREFIX: ContextVar[str] = ContextVar("path_prefix", default="")
"""The prefix in the answer to the request that a task answers;
:class:`app.api.middleware.EveryRequest` sets it.
"""

base = PATH_PREFIX.get
"""Returns what is written before a path. ASGI's ``root_path`` is no substitute: it is a
part of a request's path, which the service authenticates.
"""

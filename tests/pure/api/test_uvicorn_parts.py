"""The parts of uvicorn that the service's protocol uses exist, by name; most of them
are not documented.

uvicorn may rename a part in any version. Then a test of this file fails whose name has
that of the part.
"""

import ast
import asyncio
import inspect
from collections.abc import Iterator

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from app.api import http_protocol
from app.api.http_protocol import BoundedHttp

_CLASS = next(
    node
    for node in ast.parse(inspect.getsource(http_protocol)).body
    if isinstance(node, ast.ClassDef) and node.name == "BoundedHttp"
)
_OVERRIDDEN = sorted(
    name
    for name, part in vars(BoundedHttp).items()
    if callable(part) and hasattr(HttpToolsProtocol, name)
)


def _used_of(owner: str) -> set[str]:
    """The attributes that the class of the service uses of an expression, such as
    ``self.flow``.
    """
    nodes = ast.walk(_CLASS)
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == owner
    }


def _set_by_itself() -> Iterator[str]:
    beginning = next(
        node
        for node in _CLASS.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    for node in ast.walk(beginning):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
    yield from (node.name for node in _CLASS.body if isinstance(node, ast.FunctionDef))


_PARTS = [("self", "connections")]  # counted where seats are given
_PARTS += [("super()", name) for name in sorted(_used_of("super()"))]
_PARTS += [
    ("self", name) for name in sorted(_used_of("self").difference(_set_by_itself()))
]
for _owner in ("self.server_state", "self.flow", "cycle", "running"):
    _PARTS += [(_owner, name) for name in sorted(_used_of(_owner))]


@pytest.fixture(scope="module")
def protocol() -> Iterator[HttpToolsProtocol]:
    loop = asyncio.new_event_loop()
    config = uvicorn.Config(app=_no_application, log_config=None)
    config.load()
    protocol = HttpToolsProtocol(config, ServerState(), {}, _loop=loop)
    protocol.connection_made(asyncio.Transport())
    protocol.on_message_begin()
    protocol.on_url(b"/")
    yield protocol
    loop.close()


async def _no_application(scope: object, receive: object, send: object) -> None:
    raise AssertionError("no request is complete")


@pytest.mark.parametrize(
    ("owner", "name"), _PARTS, ids=[f"{owner}.{name}" for owner, name in _PARTS]
)
def test_uvicorn_has_a_part_that_the_protocol_uses(
    protocol: HttpToolsProtocol, owner: str, name: str
) -> None:
    if owner in ("cycle", "running"):
        assert name in _names_of_a_cycle(), (
            f"uvicorn's RequestResponseCycle has no {name}"
        )
        return
    whole = {
        "self.server_state": protocol.server_state,
        "self.flow": protocol.flow,
    }.get(owner, protocol)
    assert hasattr(whole, name), f"uvicorn's {type(whole).__name__} has no {name}"


def _names_of_a_cycle() -> set[str]:
    source = ast.parse(inspect.getsource(RequestResponseCycle))
    return {
        node.attr
        for node in ast.walk(source)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


@pytest.mark.parametrize("name", _OVERRIDDEN)
def test_the_protocol_overrides_a_method_as_uvicorn_calls_it(name: str) -> None:
    if name == "__init__":  # passes on what uvicorn gives
        return
    overridden, overriding = (
        inspect.signature(getattr(owner, name))
        for owner in (HttpToolsProtocol, BoundedHttp)
    )
    assert list(overriding.parameters) == list(overridden.parameters), (
        f"uvicorn's {name} has other parameters"
    )


def test_what_the_protocol_overrides_is_known() -> None:
    """An overridden method that uvicorn renames would be called no more, and a limit
    would be gone without an error.
    """
    assert _OVERRIDDEN == [
        "__init__",
        "_start_asgi_task",
        "connection_lost",
        "connection_made",
        "data_received",
        "on_header",
        "on_headers_complete",
        "on_message_begin",
        "on_message_complete",
        "on_response_complete",
        "send_400_response",
    ]


def test_no_attribute_of_the_protocol_is_one_of_uvicorn(
    protocol: HttpToolsProtocol,
) -> None:
    assert {name for name in _set_by_itself() if hasattr(protocol, name)} == set(
        _OVERRIDDEN
    )


def test_the_lines_of_states_have_every_state_that_is_sent() -> None:
    assert all(
        STATUS_LINE[status].startswith(b"HTTP/1.1 %d " % status)
        for status in (200, 400, 429)
    )

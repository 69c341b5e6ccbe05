"""Raw requests that two readers may interpret differently, and requests that are only
unusual; how they are sent, and answers received.

``{key}`` stands for a line with the admin's key.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import wait_for

BODY = b'{"name":"raw","roles":[]}'
FOLLOWING = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""A good request that closes the connection, sent behind the request of a case, or as
its body.
"""

_SIZE = b"Content-Length: %d\r\n" % len(BODY)
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
_CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def _post(
    *lines: bytes,
    body: bytes = BODY,
    version: bytes = b"1.1",
    host: bytes = b"Host: x\r\n",
) -> bytes:
    head = (
        b"POST /keys HTTP/"
        + version
        + b"\r\n"
        + host
        + b"{key}Content-Type: application/json\r\n"
    )
    return head + b"".join(lines) + b"\r\n" + body


def _get(
    *lines: bytes,
    target: bytes = b"/healthz",
    version: bytes = b" HTTP/1.1",
    host: bytes = b"Host: x\r\n",
) -> bytes:
    return b"GET " + target + version + b"\r\n" + host + b"".join(lines) + b"\r\n"


def _lengths() -> Iterator[tuple[str, bytes]]:
    yield "two equal lengths", _post(_SIZE, _SIZE)
    yield "two lengths", _post(_SIZE, b"Content-Length: 0\r\n")
    for value in (
        b"25, 25",
        b"+25",
        b"-1",
        b"0x19",
        b"2 5",
        b"",
        b"9" * 26,
        b"%d" % (2**64 + 25),
        b"25\x0b",
        b"2_5",
    ):
        yield f"length {value!r}", _post(b"Content-Length: " + value + b"\r\n")
    for lines in (
        (_SIZE, _CHUNKED),
        (_CHUNKED, _SIZE),
        (b"Content-Length: 0\r\n", _CHUNKED),
        (_CHUNKED, _CHUNKED),
    ):
        yield f"lengths {lines!r}", _post(*lines, body=_CHUNKS)
    for value in (
        b" chunked, chunked", b" gzip, chunked", b" chunked, gzip", b" identity", b" xchunked", b' "chunked"',
        b"\r\n chunked", b" \x0bchunked", b" chunked\x00", b" , chunked",
    ):  # fmt: skip
        yield (
            f"coding {value!r}",
            _post(b"Transfer-Encoding:" + value + b"\r\n", body=_CHUNKS),
        )
    yield (
        "space before the colon",
        _post(b"Transfer-Encoding : chunked\r\n", body=_CHUNKS),
    )
    yield "identity and a length", _post(b"Transfer-Encoding: identity\r\n", _SIZE)
    yield "chunks in 1.0", _post(_CHUNKED, body=_CHUNKS, version=b"1.0")


def _chunks() -> Iterator[tuple[str, bytes]]:
    size = b"%x" % len(BODY)
    for line in (
        b"0x" + size, b"+" + size, b"-" + size, b" " + size, size + b" ", b"1_9", b"", b"zz", b"1" + b"0" * 16 + size,
        size + b";a\nb", size + b';a="\r\n', size + b"\n",
    ):  # fmt: skip
        yield (
            f"chunk {line!r}",
            _post(_CHUNKED, body=line + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
        )
    yield (
        "chunk that ends with LF",
        _post(_CHUNKED, body=size + b"\r\n" + BODY + b"\n0\r\n\r\n"),
    )
    yield (
        "chunk without an end",
        _post(_CHUNKED, body=size + b"\r\n" + BODY + b"0\r\n\r\n"),
    )
    yield (
        "length in a trailer",
        _post(_CHUNKED, body=_CHUNKS[:-2] + b"Content-Length: 3\r\n\r\n"),
    )


def _heads() -> Iterator[tuple[str, bytes]]:
    for line in (
        b"X: a\r\n b\r\n",
        b"X: a\nY: b\r\n",
        b"X: a\rY: b\r\n",
        b"X: a\x00b\r\n",
        b"X\r\n",
        b": x\r\n",
        b"X Y: x\r\n",
        b"X(: x\r\n",
    ):
        yield f"line {line!r}", _get(line)
    yield "line before the first", b"GET /healthz HTTP/1.1\r\n Host: x\r\n\r\n"
    yield "bare LF", b"GET /healthz HTTP/1.1\nHost: x\n\n"
    yield "bare CR", b"GET /healthz HTTP/1.1\rHost: x\r\r"
    for version in (
        b"",
        b" HTTP/0.9",
        b" HTTP/1.2",
        b" HTTP/1.10",
        b" HTTP/2.0",
        b" http/1.1",
        b" HTTP/1",
        b" ICY/1.1",
    ):
        yield f"version {version!r}", _get(version=version)
    yield "preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    yield "no host", _get(host=b"")
    yield "two hosts", _get(host=b"Host: x\r\nHost: x\r\n")
    for host in (b"a/b", b"a@b", b"a b", b"a?b", b"a#b", b"a\\b", b"\xff"):
        yield f"host {host!r}", _get(host=b"Host: " + host + b"\r\n")
    for target in (
        b"x:80",
        b"healthz",
        b"%2fhealthz",
        b"/healthz\x00",
        b"/health\tz",
        b"/healthz\xff",
        b"/keys?cursor=\xff",
        b"?",
    ):
        yield f"target {target!r}", _get(target=target)
    yield "tunnel", b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n{key}\r\n"
    yield "method in lower case", FOLLOWING.lower()
    yield (
        "tunnel with a length",
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n{key}" + _SIZE + b"\r\n" + BODY,
    )
    yield "upgrade with two lengths", _post(_SIZE, b"Content-Length: 0\r\n", _OFFER)
    yield (
        "upgrade with a length and chunks",
        _post(_SIZE, _CHUNKED, _OFFER, body=_CHUNKS),
    )
    yield (
        "upgrade with an unread coding",
        _post(b"Transfer-Encoding: gzip, chunked\r\n", _OFFER, body=_CHUNKS),
    )
    yield (
        "upgrade with chunks in 1.0",
        _post(_CHUNKED, _OFFER, body=_CHUNKS, version=b"1.0"),
    )
    yield "upgrade with two hosts", _get(_OFFER, host=b"Host: x\r\nHost: x\r\n")
    yield "upgrade with a host of two readings", _get(_OFFER, host=b"Host: a/b\r\n")
    yield "upgrade of HTTP/2", _get(_OFFER, version=b" HTTP/2.0")
    yield "not HTTP", b"hello\r\n\r\n"
    yield "long query", _get(target=b"/ledger/x?scope=" + b"x" * 100_000)
    yield "long path", _get(target=b"/" + b"%41" * 2_000)
    yield "many lines", _get(b"X: a\r\n" * 9_000)
    yield "129 lines", _get(b"X: a\r\n" * 128)
    yield "long line", _get(b"X: " + b"a" * 20_000 + b"\r\n")
    yield "long lines", _get((b"X: " + b"a" * 10_000 + b"\r\n") * 9)


REFUSED: dict[str, bytes] = {**dict(_lengths()), **dict(_chunks()), **dict(_heads())}

ACCEPTED: dict[str, tuple[bytes, list[int]]] = {
    "chunks": (_post(_CHUNKED, body=_CHUNKS), [201, 200]),
    "chunk with an extension": (
        _post(_CHUNKED, body=_CHUNKS.replace(b"\r\n", b";a=b\r\n", 1)),
        [201, 200],
    ),
    "zeros before a length": (
        _post(b"Content-Length: 0000%d\r\n" % len(BODY)),
        [201, 200],
    ),
    "body of a GET": (
        _get(b"Content-Length: %d\r\n" % len(FOLLOWING)) + FOLLOWING,
        [200, 200],
    ),
    "body after a refusal": (_post(_SIZE).replace(b"{key}", b""), [401, 200]),
    "key in a trailer": (
        _post(_CHUNKED, body=_CHUNKS[:-2] + b"{key}\r\n").replace(b"{key}", b"", 1),
        [401, 200],
    ),
    "second key in a trailer": (
        _post(_CHUNKED, body=_CHUNKS[:-2] + b"{key}\r\n"),
        [201, 200],
    ),
    "absolute target": (_get(target=b"http://other/healthz"), [200, 200]),
    "upgrade": (_get(_OFFER), [200]),
    "upgrade with a length": (_post(_OFFER, _SIZE), [201]),
    "upgrade with chunks": (_post(_CHUNKED, _OFFER, body=_CHUNKS), [201]),
    "upgrade to a WebSocket": (
        _post(b"Upgrade: websocket\r\nConnection: keep-alive, upgrade\r\n", _SIZE),
        [201],
    ),
    "upgrade of a connection that closes": (
        _post(b"Upgrade: x\r\nConnection: close, upgrade\r\n", _SIZE),
        [201],
    ),
    "upgrade in 1.0": (_post(_OFFER, _SIZE, version=b"1.0"), [201]),
    "upgrade in a trailer": (
        _post(_CHUNKED, body=_CHUNKS[:-2] + _OFFER + b"\r\n"),
        [201, 200],
    ),
    "upgrade behind a request": (_get() + _post(_OFFER, _SIZE), [200, 201]),
    "upgrades in a row": (_post(_OFFER, _SIZE) * 2, [201]),
    "upgrade that is not offered for this connection": (
        _post(b"Upgrade: h2c\r\n", _SIZE),
        [201, 200],
    ),
    "HTTP/1.0": (_get(version=b" HTTP/1.0", host=b""), [200]),
    "three in a row": (_get() * 2, [200, 200, 200]),
    "steps up": (_get(target=b"/healthz/../keys"), [401, 200]),
    "encoded steps up": (_get(target=b"/healthz/%2e%2e/keys"), [401, 200]),
    "doubly encoded steps up": (
        _get(b"{key}", target=b"/datasets/%252e%252e%252fkeys"),
        [404, 200],
    ),
    "encoded slash": (_get(b"{key}", target=b"/datasets%2fx"), [404, 200]),
    "overlong UTF-8": (_get(b"{key}", target=b"/datasets/%c0%ae%c0%ae"), [404, 200]),
    "encoded surrogate": (_get(b"{key}", target=b"/datasets/%ed%a0%80"), [404, 200]),
    "encoded NUL": (_get(b"{key}", target=b"/datasets/%00"), [404, 200]),
    "line break behind a path": (
        _post(_SIZE).replace(b"/keys", b"/models/x/predict%0a", 1),
        [404, 200],
    ),
    "half an escape": (_get(b"{key}", target=b"/datasets/%z"), [404, 200]),
    "bytes in a query": (_get(b"{key}", target=b"/keys?cursor=%ff%fe"), [422, 200]),
    "127 lines": (_get(b"X: a\r\n" * 127), [200, 200]),
}
"""Requests and the statuses of the answers to them and to the request behind them."""


def send(connection: socket.socket, part: bytes) -> None:
    """Sends bytes to a server that may have refused what came before, and closed."""
    with suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(part)


def wait_until_read(connection: socket.socket) -> None:
    """Waits until the other end, a process of this machine, has read all that was sent,
    or has closed the connection.
    """
    wait_for("the service reads what was sent", lambda: _is_read(connection))


def _is_read(connection: socket.socket) -> bool:
    try:
        ports = connection.getsockname()[1], connection.getpeername()[1]
    except OSError:
        return True  # the other end has closed the connection
    unsent = unread = 0
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        *ends, _, queues = line.split()[1:5]
        ends_at = tuple(int(end.partition(":")[2], 16) for end in ends)
        if ends_at == ports:
            unsent = int(queues.partition(":")[0], 16)
        elif ends_at == ports[::-1]:
            unread = int(queues.partition(":")[2], 16)
    return unsent == unread == 0


def received(connection: socket.socket) -> bytes:
    """What arrives until the connection ends.

    A server that closes before it has read all that was sent ends the connection with a
    reset, behind its answer.
    """
    text = bytearray()
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            text += piece
    return bytes(text)

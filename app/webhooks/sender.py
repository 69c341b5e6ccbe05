"""Sends one delivery: resolves the name once, connects to that address, follows no redirect, within a limit of time."""

import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import cache
from typing import Any
from urllib.parse import SplitResult

from app.core import limits
from app.webhooks.addresses import AddressRefused, Network, confirm, port_of, read_url


def signature(secret: str, body: bytes, *, at_s: int) -> str:
    """The ``Grovekeeper-Signature`` of a body: a time, and HMAC-SHA256 of the time, a dot and the body."""
    mac = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256)
    return f"t={at_s},v1={mac.hexdigest()}"


def send(url: str, body: bytes, headers: Mapping[str, str], *, allowed: Sequence[Network]) -> bool:
    """Posts a body, and returns whether the receiver accepted it with a status of 200 to 299.

    The status is all that is read of the answer.

    Args:
        url: of the receiver.
        body: JSON.
        headers: besides those of every request.
        allowed: see :func:`app.webhooks.addresses.read_url`.
    """
    try:
        address = read_url(url, allowed=allowed)
        connected = _connected(address, allowed=allowed)
    except (AddressRefused, OSError, UnicodeError):
        return False
    with closing(connected) as stream:
        deadline = threading.Timer(limits.WEBHOOK_WAIT_S, _cut, (stream,))
        deadline.start()
        try:
            return 200 <= _status(stream, address, body, headers) < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            deadline.cancel()


def _connected(url: SplitResult, *, allowed: Sequence[Network]) -> socket.socket:
    """A connection to an address of the name. Every address has to be allowed, so that none is tried by luck.

    Raises:
        AddressRefused: an address is not allowed.
        OSError: the name has no address, or nobody answers.
    """
    host = url.hostname
    assert host is not None
    found = _resolved(host, port_of(url))
    for *_, target in found:
        confirm(ipaddress.ip_address(str(target[0]).partition("%")[0]), is_plain=url.scheme == "http", allowed=allowed)
    family, kind, protocol, _, target = found[0]
    stream = socket.socket(family, kind, protocol)
    try:
        stream.settimeout(limits.WEBHOOK_WAIT_S)
        stream.connect(target)
        return stream if url.scheme == "http" else _tls().wrap_socket(stream, server_hostname=host)
    except BaseException:
        stream.close()
        raise


def _resolved(host: str, port: int) -> list[Any]:
    """The addresses of a name. Nothing ends a look-up, so its thread is left to end by itself if it takes too long.

    Raises:
        OSError: the name has no address, or no server answered in time.
    """
    outcome: Future[list[Any]] = Future()

    def resolve() -> None:
        try:
            outcome.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except BaseException as error:  # noqa: BLE001  (raised again by the thread that delivers)
            outcome.set_exception(error)

    threading.Thread(target=resolve, name="webhook-name", daemon=True).start()
    return outcome.result(limits.WEBHOOK_WAIT_S)


def _status(stream: socket.socket, url: SplitResult, body: bytes, headers: Mapping[str, str]) -> int:
    connection = http.client.HTTPConnection(url.netloc)
    connection.sock = stream
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    fixed = {"Content-Type": "application/json", "User-Agent": "grovekeeper", "Connection": "close"}
    connection.request("POST", path, body, {**fixed, **headers})
    return connection.getresponse().status


def _cut(stream: socket.socket) -> None:
    """Ends every wait on a connection, however slowly its other end sends."""
    try:
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed meanwhile


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()

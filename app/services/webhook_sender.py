"""Sends one delivery, to an address that webhooks may reach.

A delivery resolves the name once, connects to that address, and follows no redirect,
within a limit of time. Nobody reaches the network of the service through a webhook.
"""

import base64
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
from urllib.parse import SplitResult, urlsplit

from app.core import limits
from app.jobs.outbox import Unanswered

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All public IPv6 addresses; outside, networks of an organization translate or route
addresses as they like.
"""
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20"))
)
"""Networks of protocols, of the relays of 6to4 (RFC 7526) and of documentation (RFC
9637), which ``is_global`` calls public in some versions of Python, as a whole or in
part.
"""
_PORTS = {"https": 443, "http": 80}


class AddressRefused(Exception):
    """An address that no delivery goes to. ``str()`` is a slug."""


def read_url(text: str, *, allowed: Sequence[Network]) -> SplitResult:
    """Reads the address of a webhook.

    Args:
        allowed: networks to which deliveries may go although they are not public, also
            without TLS.

    Raises:
        AddressRefused: the text is no address, has credentials or a fragment, needs
            TLS, or is not public.
    """
    if (
        len(text) > limits.MAX_WEBHOOK_URL_CHARS
        or not text.isascii()
        or not text.isprintable()
        or " " in text
    ):
        raise AddressRefused("malformed")
    try:
        url = urlsplit(text)
        has_port = url.port is None or url.port > 0
    except ValueError:
        raise AddressRefused("malformed") from None
    if url.scheme not in _PORTS or (url.scheme == "http" and not allowed):
        raise AddressRefused("not-https")
    if not url.hostname or not has_port or "@" in url.netloc or url.fragment:
        raise AddressRefused("malformed")
    literal = _literal(url.hostname)
    if literal is not None:
        confirm(literal, is_plain=url.scheme == "http", allowed=allowed)
    return url


def confirm(address: Address, *, is_plain: bool, allowed: Sequence[Network]) -> None:
    """Checks an address to which a name resolved.

    Args:
        is_plain: whether the delivery has no TLS.
        allowed: see :func:`read_url`.

    Raises:
        AddressRefused: the address is private, link-local, loopback, multicast or
            reserved, and not allowed.
    """
    reached = _reached(address)
    if any(
        reached in network for network in allowed if network.version == reached.version
    ):
        return
    if is_plain:
        raise AddressRefused("not-https")
    is_unicast = reached.version == 4 or reached in _GLOBAL_UNICAST
    is_special = any(reached in network for network in _NOT_PUBLIC)
    if not reached.is_global or reached.is_multicast or not is_unicast or is_special:
        raise AddressRefused("address-not-public")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _reached(address: Address) -> Address:
    """The IPv4 address that a translated IPv6 address leads to, else the address
    itself.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    embedded = (
        address.teredo[1]
        if address.teredo
        else address.ipv4_mapped or address.sixtofour
    )
    return embedded or address


def signature(secrets: tuple[str, ...], body: bytes, *, at_s: int) -> str:
    """The ``Grovekeeper-Signature`` of a body: a time, and for each secret HMAC-SHA256
    of the time, a dot and the body.

    Args:
        secrets: the newest first; two during a rotation.
    """
    signed = f"{at_s}.".encode() + body
    macs = (hmac.new(secret.encode(), signed, hashlib.sha256) for secret in secrets)
    return ",".join([f"t={at_s}", *(f"v1={mac.hexdigest()}" for mac in macs)])


def standard_signature(
    secrets: tuple[str, ...], body: bytes, *, delivery_id: str, at_s: int
) -> str:
    """The ``webhook-signature`` of a body, as Standard Webhooks define it: HMAC-SHA256
    of id, time and body.

    Args:
        secrets: the newest first; two during a rotation, whose signatures a blank
            separates.
    """
    signed = f"{delivery_id}.{at_s}.".encode() + body
    macs = (
        hmac.new(_standard_key(secret), signed, hashlib.sha256) for secret in secrets
    )
    return " ".join(
        f"v1,{base64.b64encode(mac.digest()).decode('ascii')}" for mac in macs
    )


def _standard_key(secret: str) -> bytes:
    """The key that the base64 after ``whsec_`` stands for.

    Secrets of earlier versions are URL-safe base64 without padding; plain base64 of the
    same bytes gives the same key.
    """
    text = secret.removeprefix("whsec_").translate(str.maketrans("-_", "+/"))
    return base64.b64decode(text + "=" * (-len(text) % 4))


def send(
    url: str, body: bytes, headers: Mapping[str, str], *, allowed: Sequence[Network]
) -> int | Unanswered:
    """Posts a body, and returns the status of the receiver's answer, or why there was
    none.

    The status is all that is read of the answer.

    Args:
        headers: besides those of every request.
        allowed: see :func:`app.services.webhook_sender.read_url`.
    """
    try:
        address = read_url(url, allowed=allowed)
        connected = _connected(address, allowed=allowed)
    except (AddressRefused, OSError, UnicodeError):
        # one reason: an owner learns not which names the operator's network has
        return "unreachable"
    with closing(connected) as stream:
        deadline = threading.Timer(limits.WEBHOOK_WAIT_S, _cut, (stream,))
        deadline.start()
        try:
            if isinstance(stream, ssl.SSLSocket):
                stream.do_handshake()  # a receiver can send it byte by byte
            return _status(stream, address, body, headers)
        except ssl.SSLError as error:
            # the end of a stream is the deadline's, or the receiver's
            return "no-answer" if isinstance(error, ssl.SSLEOFError) else "no-tls"
        except (OSError, http.client.HTTPException):
            return "no-answer"
        finally:
            deadline.cancel()


def _connected(url: SplitResult, *, allowed: Sequence[Network]) -> socket.socket:
    """A connection to an address of the name, before the handshake of TLS.

    Every address has to be allowed, so that none is tried by luck.
    """
    host = url.hostname
    assert host is not None
    found = _resolved(host, url.port or _PORTS[url.scheme])
    for *_, target in found:
        confirm(
            ipaddress.ip_address(str(target[0]).partition("%")[0]),
            is_plain=url.scheme == "http",
            allowed=allowed,
        )
    family, kind, protocol, _, target = found[0]
    stream = socket.socket(family, kind, protocol)
    try:
        stream.settimeout(limits.WEBHOOK_WAIT_S)
        stream.connect(target)
        if url.scheme == "http":
            return stream
        return _tls().wrap_socket(
            stream, server_hostname=host, do_handshake_on_connect=False
        )
    except BaseException:
        stream.close()
        raise


def _resolved(host: str, port: int) -> list[Any]:
    """The addresses of a name. Nothing ends a look-up, so its thread is left to end by
    itself if it takes too long.
    """
    outcome: Future[list[Any]] = Future()

    def resolve() -> None:
        try:
            outcome.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except BaseException as error:  # noqa: BLE001  (raised again by the thread that delivers)
            outcome.set_exception(error)

    threading.Thread(target=resolve, name="webhook-name", daemon=True).start()
    return outcome.result(limits.WEBHOOK_WAIT_S)


def _status(
    stream: socket.socket, url: SplitResult, body: bytes, headers: Mapping[str, str]
) -> int:
    connection = http.client.HTTPConnection(url.netloc)
    connection.sock = stream
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    fixed = {
        "Content-Type": "application/json",
        "User-Agent": "grovekeeper",
        "Connection": "close",
    }
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

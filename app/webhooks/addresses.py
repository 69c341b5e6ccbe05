"""Decides which addresses deliveries may go to, so that nobody reaches the network of the service through a webhook."""

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from app.core import limits

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All public IPv6 addresses; outside, networks of an organization translate or route addresses as they like."""
_NOT_PUBLIC = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Networks of protocols, of the relays of 6to4 (RFC 7526) and of documentation (RFC 9637), which ``is_global`` calls
public in some versions of Python, as a whole or in part."""
_PORTS = {"https": 443, "http": 80}


class AddressRefused(Exception):
    """An address that no delivery goes to. ``str()`` is a slug."""


def read_url(text: str, *, allowed: Sequence[Network]) -> SplitResult:
    """Reads the address of a webhook.

    Args:
        text: the address.
        allowed: networks to which deliveries may go although they are not public, also without TLS.

    Raises:
        AddressRefused: the text is no address, has credentials or a fragment, needs TLS, or is not public.
    """
    if len(text) > limits.MAX_WEBHOOK_URL_CHARS or not text.isascii() or not text.isprintable() or " " in text:
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


def port_of(url: SplitResult) -> int:
    """The port of an address."""
    return url.port or _PORTS[url.scheme]


def confirm(address: Address, *, is_plain: bool, allowed: Sequence[Network]) -> None:
    """Checks an address to which a name resolved.

    Args:
        address: the address.
        is_plain: whether the delivery has no TLS.
        allowed: see :func:`read_url`.

    Raises:
        AddressRefused: the address is private, link-local, loopback, multicast or reserved, and not allowed.
    """
    reached = _reached(address)
    if any(reached in network for network in allowed if network.version == reached.version):
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
    """The IPv4 address that a translated IPv6 address leads to, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    embedded = address.teredo[1] if address.teredo else address.ipv4_mapped or address.sixtofour
    return embedded or address

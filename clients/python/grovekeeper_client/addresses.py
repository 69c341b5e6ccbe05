"""Tells addresses of this machine from addresses that other machines can reach."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name that is not ``localhost`` counts as reachable."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

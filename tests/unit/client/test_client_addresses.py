"""Tests which addresses count as reachable from this machine only."""

import pytest

from grovekeeper_client.addresses import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("grove.test", False), ("127.0.0.1.grove.test", False),
    ],
)  # fmt: skip
def test_only_loopback_addresses_are_unreachable_from_other_machines(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected

"""No delivery goes to an address that is not public, under whatever name or form,
unless a setting allows it.
"""

import base64
import ipaddress
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.services import webhook_sender
from app.services.webhook_sender import AddressRefused, confirm, read_url
from app.services.webhooks import _Held
from tests.support.receiver import Receiver, listening
from tests.support.set_limits import SetLimit
from tests.support.tls_proxy import make_certificates
from tests.support.waiting import wait_for

PRIVATE = [
    "192.0.0.1", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.0.255", "192.88.99.1", "3fff::1", "3fff:fff:ffff::1",
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
    "64:ff9b::a00:1", "2002:7f00:1::", "2001:db8::1", "64:ff9b:1::a00:1", "fec0::1", "::127.0.0.1", "::ffff:0:7f00:1",
]  # fmt: skip
_NET = (ipaddress.ip_network("10.0.0.0/8"),)


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused, match="address-not-public"):
        confirm(ipaddress.ip_address(address), is_plain=False, allowed=())
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused):
        read_url(f"https://{host}/hook", allowed=())


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808"]
)
def test_a_public_address_is_reached_over_tls_only(address: str) -> None:
    confirm(ipaddress.ip_address(address), is_plain=False, allowed=())
    with pytest.raises(AddressRefused, match="not-https"):
        confirm(ipaddress.ip_address(address), is_plain=True, allowed=_NET)


def test_a_network_of_the_setting_is_reached_also_without_tls() -> None:
    assert read_url("http://10.1.2.3:8080/hook", allowed=_NET).hostname == "10.1.2.3"
    confirm(ipaddress.ip_address("::ffff:10.1.2.3"), is_plain=True, allowed=_NET)
    with pytest.raises(AddressRefused):
        read_url("https://192.168.0.1/", allowed=_NET)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://example.org/", "https:///hook", "https://user:word@example.org/", "https://example.org/#part",
        "https://example.org:99999/", "https://example.org/\n", "https://exämple.org/", "https://[::1/", "",
        "example.org",
        "https://example.org:0/", "https://" + "a" * 3_000 + ".org/",
    ],
)  # fmt: skip
def test_a_text_that_is_no_safe_address_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused):
        read_url(text, allowed=())


def _resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Lets names resolve to addresses, one answer after the other, and records where a
    connection goes.
    """
    left, reached = list(answers), []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        family = socket.AF_INET
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, port))
            for address in left.pop(0)
        ]

    def connect(_: socket.socket, target: tuple[str, int]) -> None:
        reached.append(target[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", connect)
    return reached


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"]]
)
def test_a_name_with_a_private_address_is_not_reached(
    monkeypatch: pytest.MonkeyPatch, answer: list[str]
) -> None:
    reached = _resolving(monkeypatch, answer)
    outcome = webhook_sender.send("https://hooks.invalid/", b"{}", {}, allowed=())
    assert outcome == "unreachable"
    assert reached == []


def test_a_name_is_resolved_once_and_that_address_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached = _resolving(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])
    outcome = webhook_sender.send("https://hooks.invalid/", b"{}", {}, allowed=())
    assert outcome == "unreachable"
    assert reached == ["8.8.8.8"]


def test_a_name_that_no_server_resolves_does_not_stop_the_thread(
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
) -> None:
    answered, given_up = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        answered.wait(120)
        given_up.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    set_limit("WEBHOOK_WAIT_S", 0.05)
    outcome = webhook_sender.send("https://hooks.invalid/", b"{}", {}, allowed=())
    assert outcome == "unreachable"
    assert not given_up.is_set(), "the delivery ended before the look-up"
    answered.set()
    assert given_up.wait(120)


_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.mark.parametrize("has_tls", [True, False])
def test_a_receiver_without_an_accepted_certificate_is_told_from_a_silent_one(
    tmp_path: Path, has_tls: bool
) -> None:
    """The remedy of one is a certificate, of the other a faster receiver."""
    certificate = make_certificates(tmp_path / "tls").server if has_tls else None
    with listening(Receiver(), certificate=certificate) as receiver:
        url = receiver.url.replace("http:", "https:")
        assert webhook_sender.send(url, b"{}", {}, allowed=_LOOPBACK) == "no-tls"


def test_a_receiver_that_does_not_answer_the_handshake_is_a_silent_one(
    set_limit: SetLimit,
) -> None:
    set_limit("WEBHOOK_WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        # a busy machine may take as long before it begins the handshake
        wait_for(
            "the sender gives up the handshake",
            lambda: (
                webhook_sender.send(url, b"{}", {}, allowed=_LOOPBACK) == "no-answer"
            ),
        )


def test_the_standard_s_own_example_has_the_signature_that_the_standard_states() -> (
    None
):
    secret, delivery_id = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
    )
    body = b'{"test": 2432232314}'
    signature = webhook_sender.standard_signature(
        (secret,), body, delivery_id=delivery_id, at_s=1_614_265_330
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_of_an_earlier_version_signs_as_the_plain_base64_of_its_bytes() -> (
    None
):
    key = bytes(range(224, 256))
    earlier = base64.urlsafe_b64encode(key).decode().rstrip("=")
    plain = base64.b64encode(key).decode()
    assert earlier != plain.rstrip("="), "the two alphabets differ here"
    first, second = (
        webhook_sender.standard_signature(
            (f"whsec_{text}",), b"{}", delivery_id="whd_a", at_s=1
        )
        for text in (earlier, plain)
    )
    assert first == second


def test_two_secrets_make_two_signatures_in_each_header_the_new_one_first() -> None:
    new, earlier = (
        f"whsec_{base64.b64encode(bytes([byte]) * 32).decode()}" for byte in (1, 2)
    )
    standard = partial(
        webhook_sender.standard_signature, body=b"{}", delivery_id="whd_a", at_s=1
    )
    assert standard((new, earlier)) == f"{standard((new,))} {standard((earlier,))}"
    own = partial(webhook_sender.signature, body=b"{}", at_s=1)
    assert (
        own((new, earlier)) == f"{own((new,))},{own((earlier,)).removeprefix('t=1,')}"
    )


def test_a_held_delivery_prints_no_secret() -> None:
    held = _Held("wh_1", "dl_1", "https://x", b"{}", "job.ended", ("whsec_CANARY",))
    assert "CANARY" not in repr(held)

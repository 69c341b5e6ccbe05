"""A receiver believes a request that any of its signatures proves, and no other."""

import time

import pytest

from app.services import webhook_sender
from grovekeeper_client.webhooks import SignatureInvalid, verified

NEW, EARLIER, FOREIGN = "whsec_bmV3", "whsec_ZWFybGllcg==", "whsec_Zm9yZWlnbg=="
BODY = b'{"id":"whd_a"}'


def _signed(*secrets: str, age_s: int = 0) -> str:
    return webhook_sender.signature(secrets, BODY, at_s=int(time.time()) - age_s)


@pytest.mark.parametrize("secrets", [(NEW,), (NEW, EARLIER), (EARLIER, NEW)])
def test_one_of_the_signatures_suffices(secrets: tuple[str, ...]) -> None:
    for secret in secrets:
        assert verified(secret, _signed(*secrets), BODY) == {"id": "whd_a"}
    with pytest.raises(SignatureInvalid):
        verified(FOREIGN, _signed(*secrets), BODY)


def test_two_signatures_prove_neither_another_body_nor_another_time() -> None:
    with pytest.raises(SignatureInvalid):
        verified(NEW, _signed(NEW, EARLIER), BODY + b" ")
    with pytest.raises(SignatureInvalid):
        verified(NEW, _signed(NEW, EARLIER, age_s=301), BODY)


@pytest.mark.parametrize("age_s", [400, -400])
def test_a_signature_from_another_time_proves_nothing(age_s: int) -> None:
    """One from the future would be new for ever: whoever saw it could wait."""
    signature = _signed(NEW, age_s=age_s)
    assert verified(NEW, signature, BODY, tolerance_s=500)
    with pytest.raises(SignatureInvalid):
        verified(NEW, signature, BODY)


def test_a_header_of_another_form_is_refused() -> None:
    time_part, first, second = _signed(NEW, EARLIER).split(",")
    for header in (
        time_part, f"{first},{second}", f"{first},{time_part}", f"{time_part},{first},", f"{time_part},,{first}",
        f"{time_part},{first};{second}", f"{time_part},{first},v0={'0' * 64}", f"{time_part}," + ",".join([first] * 9),
        f"{time_part},{first}\n", f"{time_part},{first.upper()}",
    ):  # fmt: skip
        with pytest.raises(SignatureInvalid):
            verified(NEW, header, BODY)

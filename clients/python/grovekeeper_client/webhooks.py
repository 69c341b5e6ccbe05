"""Checks that a request to a receiver of webhooks comes from the service, and is not an
old one sent again.
"""

import hashlib
import hmac
import json
import re
import time

from grovekeeper_common.json_types import JsonObject

_SIGNATURE = re.compile(r"t=([0-9]{1,12})((?:,v1=[0-9a-f]{64}){1,8})")


class SignatureInvalid(Exception):
    """The body is not from the service, was changed, or is too old. Answer with a
    status of 400.
    """

    def __str__(self) -> str:
        return "the signature of a webhook does not hold"


def verified(
    secret: str, signature: str, body: bytes, *, tolerance_s: int = 300
) -> JsonObject:
    """The event in the body of a request.

    An event may arrive twice: remember its ``id`` for as long as ``tolerance_s``, and
    ignore one that you know.

    Args:
        secret: of the webhook, shown when it was registered or rotated.
        signature: the header ``Grovekeeper-Signature``. For a time after a rotation it
            has the signatures of the new and of the earlier secret, either of which
            suffices.
        body: the bytes of the body as they arrived.
        tolerance_s: largest age of the signature in seconds.

    Raises:
        SignatureInvalid: see there.
    """
    match = _SIGNATURE.fullmatch(signature)
    if match is None or abs(time.time() - int(match[1])) > tolerance_s:
        raise SignatureInvalid
    mac = hmac.new(
        secret.encode(), match[1].encode() + b"." + body, hashlib.sha256
    ).hexdigest()
    if not any(hmac.compare_digest(mac, stated) for stated in match[2].split(",v1=")):
        raise SignatureInvalid
    event: JsonObject = json.loads(body)
    return event

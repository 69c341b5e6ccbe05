"""Runs oidc-provider-mock until its input ends; prints its issuer and an ID token from
it for ``grovekeeper``.

python with_oidc_provider_mock.py
"""

import json
import sys
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import oidc_provider_mock

CLIENT = "grovekeeper"
RETURN = "http://localhost/return"


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follows no redirection, which has the code."""


def token(issuer: str) -> str:
    """The ID token of a user who signs in."""
    asked = {
        "client_id": CLIENT,
        "redirect_uri": RETURN,
        "response_type": "code",
        "scope": "openid",
    }
    opener = build_opener(_Stay)
    try:
        opener.open(
            Request(
                f"{issuer}/oauth2/authorize?{urlencode(asked)}",
                urlencode({"sub": "user-7"}).encode(),
            )
        )
        raise AssertionError("no redirection")
    except OSError as redirected:
        (code,) = parse_qs(urlsplit(redirected.headers["Location"]).query)["code"]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": RETURN, "client_id": CLIENT,
            "client_secret": "any"}  # fmt: skip
    with opener.open(
        Request(f"{issuer}/oauth2/token", urlencode(form).encode())
    ) as answer:
        return str(json.loads(answer.read())["id_token"])


with oidc_provider_mock.run_server_in_thread() as server:
    issuer = f"http://localhost:{server.server_port}"
    print(json.dumps([issuer, token(issuer)]), flush=True)
    sys.stdin.read()

"""Signs callers in to the dashboard, and reads and sends its forms."""

import re
from collections.abc import Mapping
from html import unescape

import httpx

from tests.support.server import Caller, Server


def signed_in(server: Server, caller: Caller) -> httpx.Client:
    """A browser with a session; it names its origin with every form, as browsers do."""
    browser = server.client(None)
    browser.headers["Origin"] = server.url
    answer = browser.post("/ui/sign-in", data={"key": caller.key, "next": "/"})
    assert answer.status_code == 303, answer.text
    return browser


def hidden(page: str) -> Mapping[str, str]:
    """The hidden fields of a page, by name."""
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page)
    return {name: unescape(value) for name, value in found}


def section(page: str, name: str) -> str:
    """The section of a page with an id, as text without tags and with single spaces."""
    matched = re.search(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    assert matched is not None, f"the page has no section {name}"
    return " ".join(unescape(re.sub(r"<[^>]*>", "", matched[1])).split())

"""Signs callers in to the dashboard, and reads and sends its forms."""

import re
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser

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
    return _text(matched[1])


def text_of(answer: httpx.Response) -> str:
    """The content of a page as text without tags and with single spaces."""
    assert answer.status_code == 200, answer.text
    return _text(answer.text.partition("<main")[2])


def _text(part: str) -> str:
    return " ".join(
        unescape(re.sub(r"<[^>]*>", "", re.sub(r"</(dt|th|td)>", " ", part))).split()
    )


class _Form(HTMLParser):
    """Collects the fields of a page's forms."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = self._textarea = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        match tag:
            case "input" if (
                given.get("type") not in ("checkbox", "radio") or "checked" in given
            ):
                self.fields[name] = value
            case "textarea":
                self.fields[name] = ""
                self._textarea = name
            case "select":
                self._select = name
            case "option" if "selected" in given:
                self.fields[self._select] = value
            case "option":
                self.fields.setdefault(self._select, value)

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._textarea = ""

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.fields[self._textarea] += data


def fields(page: str) -> dict[str, str]:
    """The fields of a page's form as a browser sends them, without its buttons."""
    form = _Form()
    form.feed(page)
    return {name: text for name, text in form.fields.items() if name}

"""Signs callers in to the dashboard, and reads and sends its forms."""

import re
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser

import httpx

from tests.support.server import Caller, Server

_TOKEN = re.compile(r"(<(pre|textarea)\b.*?</\2>)|(<[^>]*>)|([^<]+)", re.DOTALL)
_QUOTED_OR_SPACE = re.compile(r'("[^"]*")|\s+')
_BLOCK = re.compile(
    r"</?(article|button|caption|d[dlt]|details|div|fieldset|figcaption|figure|form|h[1-6]|"
    r"header|label|legend|li|main|nav|ol|option|p|section|select|summary|t[dhr]|table|tbody|"
    r"thead|ul)\b[^>]*>"
)


def signed_in(server: Server, caller: Caller) -> httpx.Client:
    """A browser with a session. It names its origin with every form, and lays pages
    out, as browsers do.
    """
    browser = server.client(None)
    browser.headers["Origin"] = server.url
    browser.event_hooks["response"].append(_lay_out)
    answer = browser.post("/ui/sign-in", data={"key": caller.key, "next": "/"})
    assert answer.status_code == 303, answer.text
    return browser


def _lay_out(answer: httpx.Response) -> None:
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        answer._content = laid_out(answer.read().decode("utf-8")).encode("utf-8")


def laid_out(page: str) -> str:
    """A page with single spaces, and without spaces at the edges of blocks.

    White space of a template that no reader sees is no part of what a test asks.
    Attributes, and texts that browsers show as they are, stay as they are.
    """
    shown = ""
    after_block = True
    for as_written, _, tag, text in _TOKEN.findall(page):
        if text:
            spaced = re.sub(r"\s+", " ", text)
            shown += spaced.lstrip(" ") if after_block else spaced
            after_block = after_block and not spaced.strip(" ")
            continue
        after_block = _BLOCK.match(tag or as_written) is not None
        before = shown.rstrip(" ") if after_block else shown
        shown = before + as_written + _QUOTED_OR_SPACE.sub(_one_space, tag)
    return shown


def _one_space(matched: re.Match[str]) -> str:
    return matched[1] or " "


def hidden(page: str) -> Mapping[str, str]:
    """The hidden fields of a page, by name."""
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page)
    return {name: unescape(value) for name, value in found}


def section(page: str, name: str) -> str:
    """The section of a page with an id, as text without tags and with single spaces."""
    matched = re.search(rf'<section[^>]* id="{name}">(.*?)</section>', page, re.DOTALL)
    assert matched is not None, f"the page has no section {name}"
    return _text(matched[1])


def text_of(answer: httpx.Response) -> str:
    """The content of a page as text without tags and with single spaces."""
    assert answer.status_code == 200, answer.text
    return _text(answer.text.partition("<main")[2])


def _text(part: str) -> str:
    inline = _BLOCK.sub(" ", part)
    return " ".join(unescape(re.sub(r"<[^>]*>", "", inline)).split())


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

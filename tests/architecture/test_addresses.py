"""No page writes an address without what precedes all addresses, so that the dashboard
works below a path prefix.
"""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "app" / "api" / "pages"
WRITERS = sorted(
    {
        *PAGES.rglob("*.html"),
        *PAGES.rglob("*.py"),
        *PAGES.rglob("*.js"),
        *PAGES.rglob("*.css"),
    }
)
ABSOLUTE = re.compile(
    r"""(?:\b(?:action|data-[a-z]+|formaction|href|poster|src|srcset)=|fetch\(|url\()\s*["'`]?/.*"""
)
NOT_PREFIXED = re.compile(
    r'\b(?:action|data-events|formaction|href|src)="(?!{{ base\(\) }}|{{ asking\(|[?#]|data:).*'
)


@pytest.mark.parametrize("path", WRITERS, ids=lambda path: path.name)
def test_no_address_begins_with_the_path_of_a_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ABSOLUTE.findall(text) == []
    if path.suffix == ".html":
        assert NOT_PREFIXED.findall(text) == [], (
            "an address in a template begins with {{ base() }}, ? or #"
        )


@pytest.mark.parametrize(
    "text",
    [
        '<a href="/ui/jobs">',
        "<img src='/a.png'>",
        '<form action="/">',
        'fetch("/ui")',
        "url(/a)",
        '<p data-x="/a">',
    ],
)
def test_an_address_that_begins_with_a_path_is_found(text: str) -> None:
    assert ABSOLUTE.search(text)


def test_an_address_from_a_variable_is_found() -> None:
    assert NOT_PREFIXED.search('<a href="{{ link }}">')
    assert not NOT_PREFIXED.search('<a href="{{ base() }}{{ link }}">')

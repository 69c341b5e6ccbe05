"""The site builds without a warning, its pages load nothing from elsewhere, and its
drawn pages are up to date.
"""

import html
import json
import re
import runpy
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs.make import guide_pictures, page_digests
from research import papers_page

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]*)\""
)
STYLED = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert [
        (page.name, LOADED.findall(text))
        for page in pages
        if LOADED.search(text := page.read_text("utf-8"))
    ] == []
    assert [
        sheet
        for sheet in site.rglob("*.css")
        if STYLED.search(sheet.read_text("utf-8"))
    ] == []


def test_the_site_publishes_no_program(site: Path) -> None:
    """``docs/make`` and the hooks make the site, and are no part of it."""
    assert [path for path in site.rglob("*") if path.suffix in (".py", ".pyc")] == []


def test_the_search_shows_what_users_read_before_results_proofs_and_decisions(
    site: Path,
) -> None:
    """Pages of the tab Use come first."""
    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))[
        "docs"
    ]
    later = {
        entry["location"].partition("#")[0]
        for entry in entries
        if entry.get("boost", 1) < 1
    }
    first = {entry["location"].partition("#")[0] for entry in entries} - later
    assert {
        "privacy.html",
        "guides/owner.html",
        "api.html",
        "known-limits.html",
    } <= first
    assert {
        "papers.html",
        "proofs/lemmas.html",
        "results/flagships.html",
        "architecture.html",
    } <= later
    assert not [
        page for page in first if page.startswith(("adr/", "proofs/", "results/"))
    ]


def test_the_navigation_has_every_page(site: Path) -> None:
    """In three tabs: what users, researchers and maintainers read."""
    index = (site / "index.html").read_text("utf-8")
    names = [
        page.relative_to(site).as_posix()
        for page in site.rglob("*.html")
        if page.name != "404.html"
    ]
    assert [name for name in names if f'href="{name}"' not in index] == []
    assert re.findall(r'class="md-tabs__link">\s*([^<]+?)\s*<', index) == [
        "Use",
        "Research",
        "Maintenance",
    ]


def test_the_reference_lists_every_operation(site: Path) -> None:
    page = html.unescape((site / "http-reference.html").read_text("utf-8"))
    paths = json.loads((ROOT / "openapi" / "openapi.json").read_text("utf-8"))["paths"]
    named = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method in methods
    }
    assert {operation for operation in named if f">{operation}<" not in page} == set()


def test_the_reference_in_the_repository_is_that_of_the_document() -> None:
    hooks = runpy.run_path(str(ROOT / "docs" / "site_hooks.py"))
    assert hooks["REFERENCE"].read_text("utf-8") == hooks["reference"](), (
        "run: python docs/site_hooks.py"
    )


def test_the_pictures_are_those_of_the_measurements() -> None:
    files = {
        file.name: file.read_text("utf-8")
        for file in guide_pictures.FOLDER.glob("*.svg")
    }
    assert files == guide_pictures.drawn(), "run: python -m docs.make.guide_pictures"


def test_the_pictures_of_the_dashboard_show_its_present_pages() -> None:
    """A template or the style sheet that changed needs other pictures."""
    stored = json.loads(page_digests.DIGESTS.read_text("utf-8"))
    changed = [
        name
        for name in page_digests.TEMPLATES
        if stored.get(name) != page_digests.digest(name)
    ]
    assert changed == [], (
        "run: python -m docs.make.screenshots NAME ..., or with --unchanged if nobody sees the change"
    )


def test_every_picture_of_the_dashboard_has_a_page_and_a_place_in_the_documentation() -> (
    None
):
    pictures = {
        file.stem.removeprefix("dashboard-")
        for file in guide_pictures.FOLDER.glob("dashboard-*.png")
    }
    shown = re.findall(
        r"pictures/dashboard-([a-z-]+)\.png",
        (ROOT / "docs" / "dashboard.md").read_text("utf-8"),
    )
    assert pictures == set(page_digests.TEMPLATES) == set(shown)


def test_the_page_of_the_papers_is_that_of_the_catalogue() -> None:
    assert papers_page.PAGE.read_text("utf-8") == papers_page.text(), (
        "run: python -m research.papers_page"
    )

"""What a reviewer of a privacy claim reads stands in the code: docstrings, and the
pages that they cite.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.bins import releases
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.forest import draw as growth
from grovekeeper_forests.releases.profile import draw as profile_draw
from tests.support.sources import sources

_ROOT = Path(__file__).parents[2]
_DOCUMENTED = ("app/ledger", "packages/forests/grovekeeper_forests")
_BY_SLUG = {slug: entry.grow for slug, entry in growth.GROWTH.items()}
_UNDOCUMENTED_NAMES = {"to_json", "from_json"}
"""The docstring of a type or of its module describes its JSON form."""


def _sources(*packages: str) -> list[Path]:
    return sorted(
        path for package in packages for path in (_ROOT / package).rglob("*.py")
    )


def _public_definitions(
    node: ast.Module | ast.ClassDef,
) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for child in node.body:
        if isinstance(
            child, ast.FunctionDef | ast.ClassDef
        ) and not child.name.startswith("_"):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from _public_definitions(child)


def _undocumented(source: str) -> list[str]:
    module = ast.parse(source)
    missing = [
        definition.name
        for definition in _public_definitions(module)
        if definition.name not in _UNDOCUMENTED_NAMES
        and not ast.get_docstring(definition)
    ]
    return missing if ast.get_docstring(module) else ["(the module)", *missing]


@pytest.mark.parametrize(
    "path", _sources(*_DOCUMENTED), ids=lambda path: str(path.relative_to(_ROOT))
)
def test_public_names_are_documented(path: Path) -> None:
    assert _undocumented(path.read_text(encoding="utf-8")) == []


def test_the_check_finds_missing_docstrings() -> None:
    source = '"""Doc."""\nclass A:\n    """Doc."""\n    def b(self): ...\n    def _c(self): ...\ndef d(): ...\n'
    assert _undocumented(source) == ["b", "d"]


def _mechanisms() -> list[tuple[str, str]]:
    """Every function that releases something of private rows by a theorem of its own,
    with its docstring.
    """
    released = {
        "bins": releases.release_cuts,
        "evaluation": evaluation_draw.release,
        "profile": profile_draw.release,
    }
    return [
        (name, inspect.getdoc(grow) or "")
        for name, grow in {**_BY_SLUG, **released}.items()
    ]


@pytest.mark.parametrize(
    ("name", "docstring"), _mechanisms(), ids=lambda value: value.split("\n")[0]
)
def test_a_mechanism_states_its_guarantee_and_its_source(
    name: str, docstring: str
) -> None:
    for section in ("Privacy:", "Source:"):
        assert section in docstring.splitlines(), f"{name} lacks {section}"
    privacy = docstring.split("\nPrivacy:\n")[1].split("\nSource:\n")[0]
    for word in ("add/remove", "replace-one", "sensitivity", "Not covered"):
        assert word in " ".join(privacy.split()), (
            f"the guarantee of {name} does not say {word}"
        )
    assert re.search(r"docs/proofs/[a-z0-9-]+\.md", docstring), f"{name} cites no proof"


def test_every_algorithm_has_one_growth_and_every_growth_an_algorithm() -> None:
    assert sorted(growth.GROWTH) == sorted(catalogue.BY_SLUG)
    assert {
        slug
        for slug, grow in _BY_SLUG.items()
        if "/algorithms/" not in inspect.getfile(grow)
    } == set()


def test_every_page_that_the_code_cites_exists() -> None:
    cited = {
        page
        for path in [
            *sources(),
            *(_ROOT / "migrations").rglob("*.py"),
            *(_ROOT / "docs").rglob("*.md"),
        ]
        for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert "docs/settings.md" in cited
    assert sorted(page for page in cited if not (_ROOT / page).is_file()) == []


def test_links_between_pages_lead_to_files_and_headings() -> None:
    for page in [
        *_ROOT.glob("*.md"),
        *(_ROOT / "docs").rglob("*.md"),
        *(_ROOT / "research").rglob("*.md"),
    ]:
        links = re.findall(
            r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")
        )
        for target, heading in links:
            if "://" in target:
                continue
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            if heading:
                assert heading in _anchors(linked), (
                    f"{page.name} links to {target}#{heading}"
                )


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }

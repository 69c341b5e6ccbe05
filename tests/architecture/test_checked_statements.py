"""Every numbered statement of the proofs says whether a machine has checked it, and
names the theorem.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.pins import proved

_ROOT = Path(__file__).parents[2]
_PAGES = sorted((_ROOT / "docs" / "proofs").glob("*.md"))
_NUMBERED = re.compile(r"^## (?:[A-Z]\d+\. |Theorem|Lemma|\d+\. )")
_NAMES = re.compile(r"`(\w+)`")
_PROOFS = _ROOT / "proofs"
_PROVED = re.compile(r"^\s*(?:Theorem|Lemma|Corollary)\s+(\w+)", re.MULTILINE)
_UNNUMBERED = {"caps.md": "# ", "external.md": "## (ε, δ), and δ set aside"}
"""Headings of statements that no other page cites by a number."""


def _statements() -> list[tuple[str, str, str]]:
    """The page, the heading, and the paragraph under it, of every statement."""
    found = []
    for page in _PAGES:
        paragraphs = page.read_text(encoding="utf-8").split("\n\n")
        for heading, below in pairwise(paragraphs):
            unnumbered = _UNNUMBERED.get(page.name)
            is_other = unnumbered is not None and heading.startswith(unnumbered)
            if _NUMBERED.match(heading) or is_other:
                found.append((page.name, heading, below))
    return found


STATEMENTS = _statements()


@pytest.mark.parametrize(
    ("page", "heading", "below"), STATEMENTS, ids=lambda value: value[:24]
)
def test_a_statement_is_machine_checked_by_a_theorem_or_on_paper(
    page: str, heading: str, below: str
) -> None:
    if below == "*On paper.*":
        return
    assert below.startswith("*Machine-checked: "), (
        f'{page}, {heading}: "*On paper.*" or "*Machine-checked: `theorem`.*"'
    )
    names = set(_NAMES.findall(below))
    assert names
    assert names <= proved(), f"{page}, {heading}: no such theorem in proofs"


def test_every_stated_theorem_stands_under_a_statement() -> None:
    named = set(_NAMES.findall("".join(below for *_, below in STATEMENTS)))
    assert proved() <= named, "name each theorem under the statement that it checks"
    assert len(STATEMENTS) > 60


def test_no_page_sends_a_reader_to_a_lemma_behind_the_statements() -> None:
    sources = [path.read_text(encoding="utf-8") for path in _PROOFS.glob("*.v")]
    behind = {name for text in sources for name in _PROVED.findall(text)} - proved()
    pages = [
        *_PAGES,
        _ROOT / "README.md",
        _ROOT / "docs" / "privacy.md",
        *_PROOFS.glob("*.md"),
    ]
    assert len(behind) > 100
    for page in pages:
        named = set(_NAMES.findall(page.read_text(encoding="utf-8")))
        assert not named & behind, page.name

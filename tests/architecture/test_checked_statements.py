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
_UNNUMBERED = ("caps.md", "# ")
"""A page that is one statement, which its title numbers."""


def _statements() -> list[tuple[str, str, str]]:
    """The page, the heading, and the paragraph under it, of every statement."""
    found = []
    for page in _PAGES:
        paragraphs = page.read_text(encoding="utf-8").split("\n\n")
        for heading, below in pairwise(paragraphs):
            is_page = page.name == _UNNUMBERED[0] and heading.startswith(_UNNUMBERED[1])
            if _NUMBERED.match(heading) or is_page:
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


def test_statements_of_every_kind_are_found() -> None:
    checked = [each for each in STATEMENTS if each[2].startswith("*Machine")]
    assert len(STATEMENTS) > 60
    assert len(checked) >= 8
